# engine/process.sh - when a process started, and whether the owner of a message is dead

# process_started PID - set `started` to when PID started, in 12 digits (field 22 of /proc/PID/stat,
# in hundredths); return 1 if there is no such process, or nobody has reaped it
process_started() {
  started_over=
  read -r started_line <"/proc/$1/stat" || return 1
  started_line=${started_line##*') '}
  # shellcheck disable=SC2086 # words
  set -- $started_line
  [ $# -ge 20 ] || return 1
  case $1 in
  Z | X) started_over=1; return 1 ;;
  esac
  shift 19
  pad "$1" 000000000000
  started=$padded
}

# owner_dead PID-TIME - return 0 only if it is proved (R1) that the PID that lived at TIME is gone:
# if it is in use again, that process started later
owner_dead() {
  if process_started "${1%-*}"; then
    [ "$started" \> "${1#*-}" ]
  elif [ -z "$started_over" ]; then
    [ ! -e "/proc/${1%-*}" ] && need engine/proof && absent "/proc/${1%-*}"
  fi
}
