# engine/common.sh - sourced first by every verb and door: a clean shell, errors, numbers, names, the clock
#
# Reading it clears what was inherited (shell_forget); else it only defines. A function that can fail returns a code of sysexits and leaves one line of
# text in `why`: verbs pass both to die, doors write them to their client. One that answers a question returns 1 for no.

# Read once in a process: flatq and the line door have read this file, and the verb that they then run in the same process sources it again. Look twice:
# if /dev/null cannot be opened, that looks like no such function (R1), and a second reading would forget that this is a door
case ${shell_own:-} in "$$") ! { command -v shell_reset >/dev/null || command -v shell_reset >/dev/null; } || return 0 ;; esac

needed=' '
reading=' '
part=

# shell_forget - unset inherited functions, and inherited variables that would change what flatq does, except those in the man page. The list has
# all variables that are read with a default; if a verb reads another one before it is set, `set -u` ends it. Set FLATQ_VERB, the name at the
# front of error lines, to that of the started file
shell_forget() {
  # bash takes functions from its environment, and one named `ls` would run in the place of the program: unset all. In POSIX mode, bash finds `.`,
  # `unset` and `exit` before a function of that name
  case ${BASH_VERSION:-} in
  ?*)
    POSIXLY_CORRECT=1
    unset -f command printf
    # shellcheck source=lib/engine/bash.sh
    command . "$lib/engine/bash.sh" 2>/dev/null
    case $part in
    engine/bash) shell_forget_functions ;;
    *) printf '%s: cannot read %s\n' "${0##*/}" "$lib/engine/bash.sh" >&2; exit 74 ;;
    esac ;;
  esac
  unset FLATQ_DOOR OPTARG base64_wrap batch body_wrong bulk_asks bulk_bytes bulk_program clock_same create_bound create_most \
    daemon_code date_of door_data door_epoch door_gone door_mark door_nonce door_verb effect epoch follow_said guard_bytes ids_opened job_kill_at job_pid \
    journal key_hashed key_id key_is kick_place launch_door launch_keep launch_most launch_parent launch_port launch_signal launch_unix length \
    lock_said method names place_name plain push_at_slip push_begun push_body_file push_bulk push_cr push_dot push_dot_file push_dup push_follows \
    push_input push_length putbacks python_path q queue queue_bound queue_most_tries reason request rights_queues rights_verbs \
    rights_words shell_locale shell_own shell_umask shovel_count shovel_wait slip_size spool_all spool_path ssh_port ssh_user stalk_beanstalkd \
    sync_whole tally_new wait_asked wait_due wait_fifo wait_sleeper wait_woken watch_new why window_call window_count work_lease work_path \
    work_queues work_rest
  FLATQ_VERB=${0##*/} shell_own=$$
}

shell_forget

# shell_reset - undo settings of the caller that would change what a script does. Every executable calls it first.
shell_reset() {
  verb_begun=1
  # yash that is not called sh has a syntax and words of its own. Another shell, which has no such option, may have inherited the variable
  shell_yash=
  [ -z "${YASH_VERSION:-}" ] || ! command set -o posixly-correct 2>/dev/null || shell_yash=1
  LC_ALL=C; export LC_ALL
  # cd, ls and perl would obey these; mksh looks in FPATH for a function when there is no such program
  unset CDPATH FPATH TIME_STYLE QUOTING_STYLE BLOCK_SIZE LS_BLOCK_SIZE PERLIO PERL5OPT PERL_UNICODE MAWK_OPTIONS
  # With TMOUT, a `read` that gives up looks like the end of its pipe: a watchdog would take its worker for dead, and kill the command
  unset TMOUT GAWK_READ_TIMEOUT
  set +f +C +e
  # If standard error is closed, a shell refuses `>&2`, and the next file that a program opens becomes its standard error. If only
  # the copy has failed, it is open nevertheless (R1)
  true 7>&2 || [ -e "${FLATQ_PROC:-/proc}/self/fd/2" ] || exec 2>/dev/null
  [ -z "${BASH_VERSION:-}" ] || shell_forget_options
  blanks=' 	
'
  IFS=$blanks
  umask 077
  why='' lock_held='' take_stop='' take_lost='' slip_locked='' out=1
  : "${FLATQ_PROC:=/proc}" "${FLATQ_SYNC:=on}" "${FLATQ_DOOR:=}" "${FLATQ_RANGE:=1000}" "${FLATQ_QUEUE:=default}"
  case $FLATQ_SYNC in
  on | off) ;;
  *) die 64 "FLATQ_SYNC must be on or off" ;;
  esac
  # At most 2147483646: we count one byte more, and mksh has 32 bits
  if [ -n "${FLATQ_MOST_BYTES:-}" ]; then
    is_number "$FLATQ_MOST_BYTES" 2147483646 || die 64 "FLATQ_MOST_BYTES must be a number from 0 to 2147483646"
    FLATQ_MOST_BYTES=${number#0}
  fi
  # The tests use smaller ranges of ids
  case $FLATQ_RANGE in
  1000 | [1-9] | [1-9][0-9] | [1-9][0-9][0-9]) ;;
  *) die 64 "FLATQ_RANGE must be a number from 1 to 1000" ;;
  esac
}

# disk_failed DIRECTORY [WHAT] - after a failed write below DIRECTORY, set `why` to WHAT (else the queue) and the reason; return 77 if permissions are missing,
# 69 if the queue was dropped meanwhile, else 74
disk_failed() {
  need engine/disk
  disk_why "$@"
}

# need PART ... - source lib/PART.sh, once; if that fails, exit with 74, and with `effect` behind the error line. lib/README.md ("Reading the code")
# says where a file needs its parts. A trap that returns must not call it: it would change need_part
need() {
  for need_part in "$@"; do
    part_read "$need_part" || die 74 "cannot read $part_unread${effect:+: $effect}"
  done
}

# part_read PART - source lib/PART.sh, once; return 1, and set part_unread, if it was not read to its end: dash takes a failed read for the end of
# the file, so the last line of each part says its name. With `command`, since mksh would leave the function where `.` fails. A part that needs itself,
# through others, goes on; a trap that ends the verb empties `reading`, and so reads again the part in which the signal came
part_read() {
  case $needed$reading in
  *" $1 "*) return 0 ;;
  # The first call checks that this file itself was read to its end: nobody else can
  '  ') [ "$part" = engine/common ] || { part_unread=$lib/engine/common.sh; return 1; } ;;
  esac
  reading="$reading$1 " part=
  # shellcheck source=/dev/null
  command . "$lib/$1.sh"
  [ "$part" = "$1" ] && { needed="$needed$1 "; return 0; }
  part_unread=$lib/$1.sh
  reading=${reading%" $1 "*}" "${reading##*" $1 "}
  return 1
}

# die CODE TEXT - print one line on stderr and exit; a door answers its client instead (doors/door.sh). If the `>&2` fails, mksh leaves the function that
# has it: that is die_say, and die still exits. If mksh has left the function that failed before it set `why`, TEXT is empty
die() {
  [ -n "$2" ] || set -- 74 'the shell could not redirect'
  [ -z "${FLATQ_DOOR:-}" ] || door_die "$@"
  die_say "$2"
  exit "$1"
}

# die_say TEXT - the line of die
die_say() {
  printf '%s: %s\n' "$FLATQ_VERB" "$1" >&2
}

# twice COMMAND ... - run it, and again if it fails: a look that failed says the same as "it is not there" (R1)
twice() {
  "$@" || "$@"
}

# works COMMAND ... - run it without output. Behind `twice`, since the redirection may fail, and that says the same as a command that fails (R1). In a
# subshell, which alone loses its output then (R12)
works() {
  ("$@" >/dev/null 2>&1)
}

# close_descriptor N - close it. mksh leaves the function whose redirection it could not undo (R12): so in a function of its own, and twice
close_descriptor() {
  twice close_once "$1" || :
}

close_once() {
  eval "exec $1>&-"
}

# stream_open 0|1 - exit if standard input or output is closed: some programs take that for an empty input, or for a successful write. 7 is not open yet,
# so no shell has to save it
stream_open() {
  if [ "$1" = 0 ]; then
    { true 7<&0; } 2>/dev/null || die 74 'standard input is closed'
  else
    { true 7>&1; } 2>/dev/null || die 74 'standard output is closed'
  fi
}

# output_keep - keep a copy of standard output, and set `out` to its number. Messages are written to it, since a shell that cannot save a descriptor for
# a redirection may leave standard output at a file of the queue, and go on. In a door, 1 is the client's socket, and `out` stays 1
output_keep() {
  [ -z "$FLATQ_DOOR" ] || { stream_open 1; return 0; }
  { command exec 5>&1; } 2>/dev/null || die 74 'standard output is closed'
  out=5
}

# trap_stop FUNCTION - make HUP, INT and TERM call `FUNCTION SIGNAL`. Not under yash (R11): there, such a signal ends the verb as KILL does
trap_stop() {
  [ -z "$shell_yash" ] || return 0
  for trap_signal in HUP INT TERM; do
    # shellcheck disable=SC2064 # the names are put in now
    trap "reading=' '; $1 $trap_signal" "$trap_signal"
  done
}

# end_by SIGNAL - die of SIGNAL, as its sender expects. Process 1, as in a container, survives its own signals, and exits instead
end_by() {
  trap - "$1"
  kill -s "$1" "$$"
  case $1 in
  HUP) exit 129 ;;
  INT) exit 130 ;;
  QUIT) exit 131 ;;
  *) exit 143 ;;
  esac
}

# usage [TEXT] - exit with the usage line. `make install` makes a command of flatq alone
usage() {
  [ "${0##*/}" = "$FLATQ_VERB" ] || die 64 "${1:-usage}: see flatq $FLATQ_VERB -h"
  die 64 "${1:-usage}: see $FLATQ_VERB -h"
}

# other_option - for the `*)` of getopts: print the help if the option is -h, else exit with the usage line
other_option() {
  [ "$option" != h ] || { need engine/help; help; }
  usage
}

# operands WHAT WORD ... - exit if an option stands behind the first WORD, which is WHAT
operands() {
  operands_what=$1
  shift
  [ $# -lt 2 ] || for operands_word in "$@"; do
    case $operands_word in
    -?*) die 64 "options come before the $operands_what" ;;
    esac
  done
}

# no_options WORD ... - as getopts, for a verb that has none but -h
no_options() {
  OPTIND=1
  case ${1-} in
  --) OPTIND=2 ;;
  -?*) option=${1#-} option=${option%"${option#?}"}; other_option ;;
  esac
}

# is_number VALUE MAX - set `number` to VALUE without leading zeros; return 1 if VALUE is not a number or above MAX.
# Compares lengths, then text: mksh counts in 32 bits, and no shell counts in 200 digits.
is_number() {
  case $1 in
  '' | *[!0-9]*) return 1 ;;
  esac
  unpad "$1"
  number=$unpadded
  [ ${#number} -lt ${#2} ] || { [ ${#number} -eq ${#2} ] && ! [ "$number" \> "$2" ]; }
}

# option_number LETTER VALUE MAX - as is_number, but exit with an error line if VALUE is wrong
option_number() {
  is_number "$2" "$3" || die 65 "-$1 takes a number from 0 to $3"
}

# count_fits - make `number`, a count of messages, one that mksh can count to: no queue has more than 999999999
count_fits() {
  [ ${#number} -lt 10 ] || number=999999999
}

# unpad VALUE - set `unpadded` to VALUE without leading zeros, with which a shell would take it for octal
unpad() {
  unpadded=${1#"${1%%[!0]*}"}
  [ -n "$unpadded" ] || unpadded=0
}

# pad VALUE ZEROS - set `padded` to VALUE with zeros in front, as wide as ZEROS
pad() {
  padded=$1
  while [ ${#padded} -lt ${#2} ]; do padded=0$padded; done
}

# name_check NAME - return 65 unless NAME can be a queue's: characters that beanstalkd allows, and nothing that reads as a path upward
name_check() {
  case $1 in
  '' | -* | *[!A-Za-z0-9+/\;.\$_\(\)-]* | . | .. | ./* | ../* | */. | */.. | */./* | */../*)
    why="bad queue name: 1 to 200 of A-Z a-z 0-9 - + / ; . \$ _ ( ), no '-' in front, no '.' or '..' as a part"
    return 65 ;;
  esac
  [ ${#1} -le 200 ] || { why="bad queue name: longer than 200 bytes"; return 65; }
}

# name_to_disk NAME - set `name_disk` to NAME as one path component: `/` becomes `,` and a leading dot `%.`, which no NAME has
name_to_disk() {
  name_disk=$1
  while :; do
    case $name_disk in
    */*) name_disk=${name_disk%%/*},${name_disk#*/} ;;
    .*) name_disk=%$name_disk ;;
    *) return 0 ;;
    esac
  done
}

# clock_read - set `now` to the hundredths of a second since the system started, in 12 digits, so that times compare as text. It never goes back.
# Without /proc it is the wall clock. If the clock is there and cannot be read, the verb ends: by the other clock every lease would be over
clock_read() {
  # Twice: the first `read` of yash after one that met a NUL fails. `now` is set whole, at the end: a trap may use it at any time
  if clock_get || clock_get || clock_cat; then
    clock_now=000000000000${clock_now%.*}${clock_now#*.}
  elif [ -e "$FLATQ_PROC/uptime" ]; then
    die 74 'cannot read the clock'
  else
    clock_now=000000000000$(date +%s)00
  fi
  now=${clock_now#"${clock_now%????????????}"}
}

# clock_get - set clock_now to the seconds that the system counts since its start
clock_get() {
  { read -r clock_now clock_rest <"$FLATQ_PROC/uptime"; } 2>/dev/null
}

# clock_cat - set clock_now as clock_get does. RACE: in a trap, while another signal waits for its trap, every `read` of dash fails
clock_cat() {
  [ -e "$FLATQ_PROC/uptime" ] && clock_now=$(exec cat "$FLATQ_PROC/uptime" 2>/dev/null 9>&-) && clock_now=${clock_now%% *} && [ -n "$clock_now" ]
}

# clock_split TIME - set clock_s to its seconds, a number, and clock_c to its hundredths, two digits. TIME's 12 digits are too many for mksh, which counts in
# 32 bits
clock_split() {
  clock_c=${1#"${1%??}"}
  unpad "${1%??}"
  clock_s=$unpadded
}

# clock_between FROM TO - set between_s and between_c to the seconds and the hundredths, 0 to 99, from FROM to TO. If TO is earlier, between_s is
# below 0
clock_between() {
  clock_split "$1"
  between_s=$clock_s between_c=$clock_c
  clock_split "$2"
  between_s=$((clock_s - between_s)) between_c=$((1$clock_c - 1$between_c))
  [ "$between_c" -ge 0 ] || between_s=$((between_s - 1)) between_c=$((between_c + 100))
}

# clock_epoch TIME - set `epoch_time` to TIME as hundredths of a second since 1970, 12 digits. The spool's wall clock is the system's when a verb first
# saw this boot, plus the time since: setting the system's clock changes no order and no delay
clock_epoch() {
  clock_split "$1"
  clock_sum=$((clock_s + epoch))
  # mksh, which counts in 32 bits, stays in 2038
  [ "$clock_sum" -ge 0 ] || clock_sum=2147483647
  pad "$clock_sum" 0000000000
  epoch_time=$padded$clock_c
}

# owner_read - set `owner` to this process as PID-TIME, TIME being `now`, which it has read, or what owner_look finds, and owner_lease to `none` if
# other verbs can see its death, else to empty: the message's own lease
owner_read() {
  owner=$$-$now owner_lease=none
  # shellcheck disable=SC3013 # -ef is in every shell that is named in the README
  [ "${clock_same:-}" = same ] && [ "$FLATQ_PROC/self" -ef "$FLATQ_PROC/$$" ] && [ -e "$FLATQ_PROC/1/stat" ] || { need engine/owner; owner_look; }
}

# nonce_read - set `nonce` to 12 random hexadecimal digits; from /proc it needs no process
nonce_read() {
  nonce=
  if uuid_read; then nonce=${nonce##*-}; else nonce=$({ od -An -N6 -tx1 /dev/urandom | tr -d ' \n'; } 2>/dev/null </dev/null); fi
  # Never go on without one: the nonce is what makes a name unique
  [ ${#nonce} -eq 12 ] || die 74 'cannot read random numbers'
}

# uuid_read - set `nonce` to a random UUID of the kernel's. A function of its own, like clock_get: mksh leaves the function whose redirection fails
uuid_read() {
  { read -r nonce <"$FLATQ_PROC/sys/kernel/random/uuid"; } 2>/dev/null
}

part='engine/common'
