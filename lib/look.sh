# look.sh - finding the first message in a state, without taking it

# message_first STATE - sets `found` and the slip_ variables of the first message in that state, and leaves it there; 66 where there is none
message_first() {
  clock_read
  queue_tend
  why="no $1 message in queue '$queue'"
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
