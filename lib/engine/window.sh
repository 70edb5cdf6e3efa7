# engine/window.sh - delayed/ and buried/, where messages lie in directories by time, so that a verb reads some of the names and not all. A window is
# one directory of these, for a span of time
#
#   delayed/THOUSANDS/WHEN/SLIP                WHEN it is due
#   buried/THOUSANDS/TENS/WHEN.SLIP.REASON     WHEN it was buried
#
# WHEN is in hundredths of a second since 1970; TENS is WHEN without its last three digits, so it counts tens of seconds; THOUSANDS without
# its last five. All names of a
# place may be more than a door's handler has memory for. Earlier versions of flatq had buried messages in buried/ itself.

need engine/clock

# window_make DIRECTORY - set `place` to this directory of delayed/ or buried/, and create it
window_make() {
  place=$q/$1 window_tries=
  while [ ! -d "$place" ]; do
    # Without -p, so that nothing of a dropped queue is created again
    mkdir "${place%/*}" "$place" && continue
    # RACE: a drop has removed delayed/ or buried/; or other verbs remove empty directories, and make them again, between our two mkdirs
    need engine/lock
    drop_wait
    window_code=$?
    [ $window_code -le 1 ] || return $window_code
    [ ${#window_tries} -lt 5 ] || { disk_failed "${place%/*/*}"; return; }
    window_tries=1$window_tries
  done
}

# delay_place SECONDS - set `place` to delayed/THOUSANDS/WHEN, and create it. So the first name tells whether anything is due, and one mv
# puts back all messages that are due together
delay_place() {
  # The input of a push, or an unfold, may have taken longer than the delay (R5)
  clock_read
  clock_epoch "$now"
  clock_add "$1" "$epoch_time"
  window_make "delayed/${later%?????}/$later"
}

# windows PLACE FUNCTION [count] - call `FUNCTION PATH ...` for the messages of each directory of PLACE, in the order of time, as long as it
# returns 66; return what it returned last. 74: a directory cannot be listed. `count`: the caller needs no proof that one is empty.
# FUNCTION may call windows again (a kick counts what is delayed, if there is a bound), so each call saves these variables, and restores them
windows() {
  set -- "$1" "$2" "${3:-}" "${window_call:-}" "${window_count:-}"
  window_call=$2 window_count=$3 window_code=66
  for window_top in "$q/$1"/*; do
    window_visit "$window_top"
    window_code=$?
    [ $window_code -eq 66 ] || break
  done
  window_call=$4 window_count=$5
  return "$window_code"
}

# window_visit PATH [last] - call FUNCTION for PATH or, if it is a directory of ours, for what is in it (window_in)
window_visit() {
  case ${1##*/} in
  *[!0-9]*) "$window_call" "$1"; return ;;
  esac
  if test -d "$1"; then window_in "$@"; else "$window_call" "$1"; fi
}

# window_in DIRECTORY [last] - call FUNCTION for the messages in it. `last`: it is on the second level, and what is in it is no directory
window_in() {
  window_tries=
  set -- "$1" "${2:-}" "$1"/*
  while [ ! -e "$3" ] && [ ! -h "$3" ]; do
    [ -z "$window_count" ] || return 66
    # A directory that was removed was empty (R1), and costs nobody a look again
    need engine/proof
    { rmdir "$1" 9>&- || absent "$1"; } && return 66
    names_in "$1" || return
    [ -n "$names" ] || return 66
    # RACE: a message has come since
    [ ${#window_tries} -lt 20 ] || { why="queue '$queue': cannot list ${1#"$q/"}"; return 74; }
    window_tries=1$window_tries
    set -- "$1" "$2" "$1"/*
  done
  if [ -n "$2" ]; then
    shift 2
    "$window_call" "$@"
    return
  fi
  shift 2
  for window_path in "$@"; do
    window_visit "$window_path" last
    window_code=$?
    [ $window_code -eq 66 ] || return $window_code
  done
  return 66
}
