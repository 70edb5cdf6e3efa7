# engine/process.sh - when a process started, whether the owner of a message is dead, whether a
# child lives, whether `&` has started one

# process_started PID - set `started` to the time when PID started, 12 digits; return 1 if there is
# no such process, or it has ended and was not reaped: in a container whose first process does not
# reap, it may stay for ever. This is field 22 of /proc/PID/stat, counted after the command's name,
# which may contain anything; a tick is 1/100 s.
process_started() {
  started_over=
  read -r started_line <"/proc/$1/stat" || return 1
  # A command's name may contain a newline: append lines until the name is closed
  case $started_line in
  *') '*) ;;
  *) started_line=$(cat "/proc/$1/stat") || return 1 ;;
  esac
  started_line=${started_line##*') '}
  # shellcheck disable=SC2086 # the words are what is wanted
  set -- $started_line
  [ $# -ge 20 ] || return 1
  case $1 in
  Z | X) started_over=1; return 1 ;;
  esac
  shift 19
  pad "$1" 000000000000
  started=$padded
}

# owner_dead PID-TIME - return 0 only if it is proved that the process PID that lived at TIME is
# gone. If the PID is in use again, that process started later. A look that failed proves nothing
# (R1)
owner_dead() {
  if process_started "${1%-*}"; then
    [ "$started" \> "${1#*-}" ]
  elif [ -z "$started_over" ]; then
    [ ! -e "/proc/${1%-*}" ] && need engine/proof && absent "/proc/${1%-*}"
  fi
}

# process_gone PID - return 0 only if it is proved that there is no such process, or that it has ended
# and was not reaped
process_gone() {
  ! process_started "$1" || return 1
  [ -z "$started_over" ] || return 0
  # We may not be allowed to signal it
  ! kill -0 "$1" && need engine/proof && absent "/proc/$1"
}

# child_lives PID - return whether PID is a child of this process that has not ended: only then it may
# be signalled. A shell such as bash may have reaped an ended child by itself, and then another process
# may have its PID
child_lives() {
  [ -n "$1" ] && read -r child_parent child_rest </proc/self/stat && read -r child_stat <"/proc/$1/stat" ||
    return 1
  case ${child_stat##*') '} in
  [!ZX]" $child_parent "*) return 0 ;;
  esac
  return 1
}
