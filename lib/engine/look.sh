# engine/look.sh - find a message without taking it: the first in a state, or one by its id

need engine/slip engine/lock engine/queues engine/take engine/state

# message_first STATE - set `slip_path` and the slip_ variables of the first message in that state;
# return 66 if there is none
message_first() {
  clock_read
  queue_put_back_due
  for first_try in $looks; do
    look_first "$1" && return 0
    look_code=$?
    [ $look_code -eq 66 ] || return $look_code
    need engine/proof
    case $1 in
    ready) nothing_ready ;;
    reserved) slips_left out ;;
    *) slips_left "$1" ;;
    esac
    look_code=$?
    case $look_code in
    66) why="no $1 message in queue '$queue'"; return 66 ;;
    74) return 74 ;;
    esac
    # RACE: a message has come since the first look: repeat
  done
  not_listed
}

# message_search ID [tend] - message_find in all queues; set q and queue too. Return 66 if it is
# proved that none has it. `tend`: first put back what is due
message_search() {
  look_id=$1 look_tend=${2:-}
  for look_try in $looks; do
    set -- "$FLATQ_DIR"/*
    for look_path in "$@"; do
      look_in "$look_path"
      look_code=$?
      [ $look_code -eq 66 ] || return $look_code
    done
    need engine/proof
    names_in "$FLATQ_DIR" || return
    [ -e "$1" ] || shift
    look_count=$#
    IFS='
'
    # shellcheck disable=SC2086 # a name a line
    set -- $names
    IFS=$blanks
    # RACE: a queue was created since: repeat
    [ $# -gt $look_count ] || return 66
  done
  why="spool $FLATQ_DIR: cannot be listed"
  return 74
}

# look_in PATH - message_search in the queue at PATH
look_in() {
  if [ ! -d "$1/wal" ]; then
    need engine/proof
    expect_path "$1/wal" 'no such message' || return
  fi
  name_from_disk "${1##*/}"
  queue_open "$name_queue" && { [ -z "$look_tend" ] || { clock_read; queue_put_back_due; }; } &&
    message_find "$look_id"
  look_code=$?
  case $look_code in
  # No name of a queue, or the queue was dropped
  65 | 69) return 66 ;;
  esac
  return $look_code
}

# look_first STATE - message_first by one look, which proves nothing if it finds none
look_first() {
  case $1 in
  delayed | buried) need engine/window; windows "$1" look_slips; return ;;
  reserved) set -- "$q"/out/* ;;
  ready)
    look_lost=
    while :; do
      queue_scan
      case $scan_place in
      '') return 66 ;;
      wal | head/*)
        slip_parse "$scan_name" || { set_aside "$scan_place/$scan_name" || return; continue; }
        set -- "$q/$scan_place/$scan_name"; break ;;
      esac
      # It is listed again, so it cannot be looked at
      [ "$scan_name" != "$look_lost" ] || { need engine/proof; not_listed; return; }
      look_lost=$scan_name
      need engine/flat
      under_lock queue_unfold "$scan_name" || return
    done ;;
  esac
  look_slips "$@"
}

# look_slips PATH ... - set `slip_path` and the slip_ variables of the first of these that is a slip
# and not settled; return 66 if none is
look_slips() {
  for slip_path in "$@"; do
    [ -f "$slip_path" ] && ! is_settled "$slip_path" || continue
    slip_of "$slip_path"
    slip_parse "$slip" && return 0
  done
  return 66
}
