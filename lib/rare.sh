# rare.sh - help, the reason of a failed write, and whether an owner is dead: what a usual run of a verb does not need

# help - print the verb's own header, from its second line to the last line of comment
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

# name_from_disk COMPONENT - set `name` to the queue that name_to_disk made COMPONENT of
name_from_disk() {
  name=${1#%}
  while :; do
    case $name in
    *,*) name=${name%%,*}/${name#*,} ;;
    *) return 0 ;;
    esac
  done
}

# process_started PID - set `started` to the time when PID started, 12 digits; return 1 if there is no such process, or it has ended and
# was not reaped: in a container whose first process does not reap, it may stay for ever.
# This is field 22 of /proc/PID/stat, counted after the command's name, which may contain anything; a tick is 1/100 s.
process_started() {
  started_over=
  { read -r started_line <"$FLATQ_PROC/$1/stat"; } 2>/dev/null || return 1
  # A command's name may contain a newline: append lines until the name is closed
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

# owner_dead PID-TIME - return 0 only if it is proved that the process PID that lived at TIME is gone.
# If the PID is in use again, that process started later. If the processes of other users are hidden (hidepid), or there is no /proc,
# nothing is proved.
owner_dead() {
  [ -e "$FLATQ_PROC/1/stat" ] || return 1
  if process_started "${1%-*}"; then
    [ "$started" \> "${1#*-}" ]
  else
    # A file that exists and could not be read proves nothing
    [ -n "$started_over" ] || [ ! -e "$FLATQ_PROC/${1%-*}" ]
  fi
}

# disk_reason DIRECTORY - set `reason` to the system's text for why a write below DIRECTORY just failed.
# The shell does not tell, so try the write again with a tool that does. Only failing verbs pay for it.
disk_reason() {
  reason=$({ dd if=/dev/zero of="$1/probe.$$" bs=65536 count=1 || :; rm -f "$1/probe.$$"; } 2>&1 |
    { sed -n 's/^dd: .*: \([A-Z][^:]*\)$/\1/p' | tail -n 1; } 2>/dev/null)
  case $reason in
  'No space'* | *quota* | *Quota*) reason='no space left' ;;
  '') [ -w "$1" ] || reason='not writable' ;;
  esac
  reason=${reason:-input or output failed}
}
