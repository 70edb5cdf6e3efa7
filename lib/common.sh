# common.sh - sourced first by every verb and door: a clean shell, errors, numbers, names, the clock
#
# Definitions only. A function that can fail returns a sysexits code and leaves one line of text in `why`;
# verbs hand both to die, doors write them to their client.

# shell_reset - what the caller's environment must not decide. Every executable calls it first.
shell_reset() {
  LC_ALL=C; export LC_ALL
  unset CDPATH
  IFS=' 	
'
  umask 077
  why='' lock_held='' wake_list=''
  : "${FLATQ_PROC:=/proc}" "${FLATQ_SYNC:=on}" "${FLATQ_DOOR:=}"
  case $FLATQ_SYNC in
  on | off) ;;
  *) die 64 "FLATQ_SYNC must be on or off" ;;
  esac
}

# need PART ... - sources lib/PART.sh
need() {
  for need_part in "$@"; do
    # shellcheck source=/dev/null
    . "$lib/$need_part.sh"
  done
}

# die CODE TEXT - one line on stderr (through a door: one line to the client), then the end
die() {
  if [ -n "${FLATQ_DOOR:-}" ]; then
    printf 'error %s %s\n' "$1" "$2"
  else
    printf '%s: %s\n' "${FLATQ_VERB:-flatq}" "$2" >&2
  fi
  exit "$1"
}

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

# usage - for getopts' `*)`
usage() {
  die 64 "usage: see $FLATQ_VERB -h"
}

# number VALUE MAX - sets `number` to VALUE without leading zeros; 1 where VALUE is no number or above MAX.
# Compared by length, then as text: mksh counts in 32 bits and no shell counts in 200 digits.
number() {
  case $1 in
  '' | *[!0-9]*) return 1 ;;
  esac
  number=${1#"${1%%[!0]*}"}
  number=${number:-0}
  [ ${#number} -lt ${#2} ] || { [ ${#number} -eq ${#2} ] && ! [ "$number" \> "$2" ]; }
}

# option_number LETTER VALUE MAX - number, or the end with one clear line
option_number() {
  number "$2" "$3" || die 65 "-$1 takes a number from 0 to $3"
}

# pad VALUE WIDTH-ZEROS - sets `padded`: VALUE with zeros in front, as wide as the zeros given
pad() {
  padded=$2$1
  while [ ${#padded} -gt ${#2} ]; do padded=${padded#?}; done
}

# name_check NAME - 65 unless NAME can be a queue's: beanstalkd's alphabet, and nothing that reads as a path upward
name_check() {
  case $1 in
  '' | -* | *[!A-Za-z0-9+/\;.\$_\(\)-]* | . | .. | ./* | ../* | */. | */.. | */./* | */../*)
    why="bad queue name: 1 to 200 of A-Z a-z 0-9 - + / ; . \$ _ ( ), no '-' in front, no '.' or '..' as a part"
    return 65 ;;
  esac
  [ ${#1} -le 200 ] || { why="bad queue name: longer than 200 bytes"; return 65; }
}

# name_to_disk NAME - sets `disk`: one path component. `/` becomes `,` and a leading dot `%.`; neither is in the alphabet
name_to_disk() {
  disk=$1
  while :; do
    case $disk in
    */*) disk=${disk%%/*},${disk#*/} ;;
    .*) disk=%$disk ;;
    *) return 0 ;;
    esac
  done
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

# clock_read - sets `now`: hundredths of a second since the system started, 12 digits, so that times compare as text.
# It never goes back. Without /proc it is the wall clock's, from one process.
clock_read() {
  if { read -r now clock_rest <"$FLATQ_PROC/uptime"; } 2>/dev/null; then
    now=000000000000${now%.*}${now#*.}
  else
    now=000000000000$(date +%s)00
  fi
  now=${now#"${now%????????????}"}
}

# clock_add SECONDS TIME - sets `later`. Seconds beyond nine years count as nine years: mksh counts in 32 bits
clock_add() {
  later=${2%??}
  later=${later#"${later%%[!0]*}"}
  if [ ${#1} -gt 9 ] || [ "$1" -gt 300000000 ]; then
    pad $((${later:-0} + 300000000)) 0000000000
  else
    pad $((${later:-0} + $1)) 0000000000
  fi
  later=$padded${2#"${2%??}"}
}

# clock_epoch TIME - sets `epoch_time`: TIME of the clock as hundredths of a second since 1970, 12 digits.
# The spool keeps its own wall clock: what the system's showed when this boot was first seen, plus the time since.
# So a clock set back or forward while the system runs changes no order and no delay.
clock_epoch() {
  epoch_time=${1%??}
  pad $((${epoch_time#"${epoch_time%%[!0]*}"} + epoch)) 0000000000
  epoch_time=$padded${1#"${1%??}"}
}

# nonce_read - sets `nonce`: 12 random hexadecimal digits, no process where /proc has them
nonce_read() {
  if { read -r nonce <"$FLATQ_PROC/sys/kernel/random/uuid"; } 2>/dev/null; then
    nonce=${nonce##*-}
  else
    nonce=$(od -An -N6 -tx1 /dev/urandom | tr -d ' \n')
  fi
}

# process_started PID - sets `started`: when PID started, by the clock, 12 digits; 1 where there is no such process.
# Field 22 of /proc/PID/stat, counted from behind the command's name, which may hold anything; ticks are 1/100 s.
process_started() {
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
  shift 19
  pad "$1" 000000000000
  started=$padded
}

# owner_dead PID-TIME - 0 only where it is proven that the process PID that lived at TIME is gone.
# A PID that is taken again belongs to a process that started later. Where other users' processes are hidden, and
# where there is no /proc, nothing is proven.
owner_dead() {
  [ -e "$FLATQ_PROC/1/stat" ] || return 1
  process_started "${1%-*}" || return 0
  [ "$started" \> "${1#*-}" ]
}

# disk_reason DIRECTORY - sets `reason`: why a write below DIRECTORY just failed, in the system's own words.
# The shell does not say; so the write is tried again with a tool that does. Only failing paths pay for it.
disk_reason() {
  reason=$({ dd if=/dev/zero of="$1/probe.$$" bs=65536 count=1 || :; rm -f "$1/probe.$$"; } 2>&1 |
    sed -n 's/^dd: .*: \([A-Z][^:]*\)$/\1/p' | tail -n 1)
  case $reason in
  'No space'* | *quota* | *Quota*) reason='no space left' ;;
  '') [ -w "$1" ] || reason='not writable' ;;
  esac
  reason=${reason:-input or output failed}
}

# disk_failed DIRECTORY WHAT - sets `why` and returns the code of the failure: 77 where it is a matter of rights, else 74
disk_failed() {
  disk_reason "$1"
  why="$2: $reason"
  case $reason in
  *ermission* | *'not permitted'* | 'not writable') return 77 ;;
  esac
  return 74
}
