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
    case $? in
    66) why="no $1 message in queue '$queue'"; return 66 ;;
    74) return 74 ;;
    esac
    # RACE: a message has come since the first look: repeat
  done
  not_listed
}

# message_search ID - message_find in all queues, after what is due in them was put back; set q and
# queue too. Return 66 if it is proved that none has it
message_search() {
  look_id=$1 look_found=
  for look_in in each_queue all_queues; do
    "$look_in" look_queue
    look_code=$?
    [ -z "$look_found" ] || return 0
    [ $look_code -eq 0 ] || return $look_code
  done
  return 66
}

# look_queue QUEUE - message_search there, unless it is found already
look_queue() {
  [ -z "$look_found" ] || return 0
  queue_open "$1" && { clock_read; queue_put_back_due; } && message_find "$look_id"
  look_code=$?
  case $look_code in
  0) look_found=1 ;;
  # RACE: another verb may have dropped it
  66 | 69) ;;
  *) return $look_code ;;
  esac
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
