# rare.sh - what a usual run of a verb does not call: help, why a write failed, whether an owner is dead

# help - the header of the verb itself, from its second line to the first that is no comment
help() {
  {
    read -r help_line
    while read -r help_line; do
      case $help_line in
      '# shellcheck'*) ;;
      '#'*) help_line=${help_line#'#'}; printf '%s\n' "${help_line#' '}" ;;
      *) break ;;
      esac
    done
  } <"$lib/$FLATQ_VERB"
  exit 0
}

# name_from_disk COMPONENT - sets `name`, the other way
name_from_disk() {
  name=${1#%}
  while :; do
    case $name in
    *,*) name=${name%%,*}/${name#*,} ;;
    *) return 0 ;;
    esac
  done
}

# process_started PID - sets `started`: when PID started, by the clock, 12 digits; 1 where there is no such process, or one that has
# ended and was not reaped: in a container whose first process does not reap it may stay for ever.
# Field 22 of /proc/PID/stat, counted from behind the command's name, which may hold anything; ticks are 1/100 s.
process_started() {
  started_over=
  { read -r started_line <"$FLATQ_PROC/$1/stat"; } 2>/dev/null || return 1
  # a newline in the command's name ends the line early: take the next ones in until the name is closed
  case $started_line in
  *') '*) ;;
  *) started_line=$(cat "$FLATQ_PROC/$1/stat" 2>/dev/null) || return 1 ;;
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

# owner_dead PID-TIME - 0 only where it is proven that the process PID that lived at TIME is gone.
# A PID that is taken again belongs to a process that started later. Where other users' processes are hidden, and
# where there is no /proc, nothing is proven.
owner_dead() {
  [ -e "$FLATQ_PROC/1/stat" ] || return 1
  if process_started "${1%-*}"; then
    [ "$started" \> "${1#*-}" ]
  else
    # what is there, and could not be read, proves nothing
    [ -n "$started_over" ] || [ ! -e "$FLATQ_PROC/${1%-*}" ]
  fi
}

# disk_reason DIRECTORY - sets `reason`: why a write below DIRECTORY just failed, in the system's own words.
# The shell does not say; so the write is tried again with a tool that does. Only failing paths pay for it.
disk_reason() {
  reason=$({ dd if=/dev/zero of="$1/probe.$$" bs=65536 count=1 || :; rm -f "$1/probe.$$"; } 2>&1 |
    { sed -n 's/^dd: .*: \([A-Z][^:]*\)$/\1/p' | tail -n 1; } 2>/dev/null)
  case $reason in
  'No space'* | *quota* | *Quota*) reason='no space left' ;;
  '') [ -w "$1" ] || reason='not writable' ;;
  esac
  reason=${reason:-input or output failed}
}
