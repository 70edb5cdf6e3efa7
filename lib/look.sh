# look.sh - finding the first message in a state, without taking it

# message_first STATE - sets `found` and the slip_ variables of the first message in that state, and leaves it there; 66 where there is none
message_first() {
  clock_read
  queue_tend
  first_state=$1 first_tries=
  while :; do
    look_first "$1" && return 0
    look_code=$?
    [ $look_code -eq 66 ] || return $look_code
    need proof
    case $first_state in
    ready) nothing_ready ;;
    reserved) slips_left out ;;
    *) slips_left "$first_state" ;;
    esac
    look_code=$?
    case $look_code in
    66) why="no $first_state message in queue '$queue'"; return 66 ;;
    74) return 74 ;;
    esac
    # RACE: it has come since
    [ ${#first_tries} -lt 20 ] || { why="queue '$queue': cannot be listed"; return 74; }
    first_tries=1$first_tries
  done
}

look_first() {
  case $1 in
  delayed) set -- "$q"/delayed/*/*/* ;;
  buried) set -- "$q"/buried/* ;;
  reserved) set -- "$q"/out/* ;;
  ready)
    while :; do
      queue_scan
      case $scan_place in
      '') return 66 ;;
      wal | head/*)
        slip_parse "$scan_name" || { slip_strange "$scan_place/$scan_name" || return; continue; }
        set -- "$q/$scan_place/$scan_name"; break ;;
      esac
      take_unfold || return
    done ;;
  esac
  for found in "$@"; do
    [ -f "$found" ] && [ ! -e "$q/done/${found##*/}" ] || continue
    slip_of "$found"
    slip_parse "$slip" && return 0
  done
  return 66
}
