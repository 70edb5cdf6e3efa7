# engine/common.sh - sourced first: a clean shell, errors, numbers, names, the clock; the spool and
# its queues on disk (lib/README.md, "Places")

# flatq and the line door have read this file before the verb that they run in the same process
[ "${shell_own:-}" != "$$" ] || return 0

needed=' '

# shell_forget - unset names that lib reads with a default, and that a caller may have exported for
# ends of his own. Set FLATQ_VERB, the name of the script
shell_forget() {
  unset FLATQ_DOOR OPTARG batch epoch length method names plain putbacks q queue reason request \
    why help_all long_old long_used long_words push_expire push_when shell_name shell_quiet \
    stalk_beanstalkd
  FLATQ_VERB=${0##*/} shell_own=$$
}

shell_forget

# shell_reset [WORD ...] - undo what of the caller's settings would change a script. Every
# executable calls it first. If one of its WORDS begins with `--`, call main again with letters, and
# exit. From then on 5 is the caller's standard error, and 2 is /dev/null: verbs say in their own
# words what programs and shells say of a failure. In a door, door_open does that
shell_reset() {
  LC_ALL=C; export LC_ALL
  unset CDPATH TIME_STYLE QUOTING_STYLE BLOCK_SIZE LS_BLOCK_SIZE PERLIO PERL5OPT PERL_UNICODE \
    MAWK_OPTIONS TMOUT GAWK_READ_TIMEOUT
  set +f +C +e
  # shellcheck disable=SC3040 # bash that is not called sh has habits of its own
  [ -z "${BASH_VERSION:-}" ] || set -o posix
  blanks=' 	
'
  IFS=$blanks
  umask 077
  why='' lock_held='' take_stop='' take_lost='' slip_locked='' body_cut=''
  # A body from this size on is removed at once, and not by the sweep
  large_body=262144
  # For tests: FLATQ_PROC has another clock, boot and table of connections
  : "${FLATQ_PROC:=/proc}" "${FLATQ_DOOR:=}" "${FLATQ_RANGE:=1000}" "${FLATQ_QUEUE:=default}"
  case ${KSH_VERSION-}${YASH_VERSION-}${ZSH_VERSION-}${FLATQ_MOST_BYTES:-}.$FLATQ_RANGE.\
${FLATQ_SYNC:-on} in
  .1000.on | .1000.off) ;;
  *) need cli/usage; settings_check ;;
  esac
  if [ -z "$FLATQ_DOOR${shell_quiet:-}" ]; then
    # A program would take a file that it opens for the standard stream that is closed
    command exec 5>&2 || exit 74
    exec 2>/dev/null
    shell_quiet=5
    for shell_stream in 1 0; do
      [ -e "/proc/self/fd/$shell_stream" ] || { need cli/usage; shell_closed "$shell_stream"; }
    done
  fi
  case " $*" in
  *' --'[!\ ]*) [ -n "${long_words-}" ] || { need cli/long; long_main "$@"; } ;;
  esac
}

# disk_failed DIRECTORY [WHAT] - a write below DIRECTORY has failed: set `why` to WHAT (else the
# queue) and the reason. Return 77 not allowed, 69 the queue was dropped meanwhile, else 74
disk_failed() {
  need engine/disk
  disk_why "$@"
}

# need PART ... - source lib/PART.sh, once
need() {
  for need_part in "$@"; do
    case $needed in
    *" $need_part "*) continue ;;
    esac
    needed="$needed$need_part "
    # shellcheck source=/dev/null
    . "$lib/$need_part.sh"
  done
}

# die CODE TEXT - print one line on standard error, and exit. A door answers its client instead
die() {
  [ -z "${long_used-}" ] || { long_named "$2"; set -- "$1" "$long_text"; }
  [ -z "${FLATQ_DOOR:-}" ] || door_die "$@"
  printf '%s: %s\n' "${shell_name:-$FLATQ_VERB}" "$2" >&"${shell_quiet:-2}"
  exit "$1"
}

# trap_stop FUNCTION [PART] - make HUP, INT and TERM call `FUNCTION SIGNAL` of lib/PART.sh. It
# switches these traps off first, gives back what it can, and ends by end_by, or returns if all is
# done
trap_stop() {
  for trap_signal in HUP INT TERM; do
    # shellcheck disable=SC2064 # the names are put in now
    trap "need cli/usage ${2:-}; $1 $trap_signal" "$trap_signal"
  done
}

# usage [TEXT] - exit with the usage line
usage() {
  need cli/usage
  usage_exit "$@"
}

# other_option - for the `*)` of getopts: print the help for -h, else exit with the usage line
other_option() {
  need cli/usage
  [ "$option" != h ] || help
  option_odd
}

# operands WHAT WORD ... - exit if an option stands behind the first WORD, which is WHAT
operands() {
  [ $# -gt 2 ] || return 0
  for operands_word in "$@"; do
    case $operands_word in
    -?*) die 64 "options come before the $1" ;;
    esac
  done
}

# is_number VALUE MAX - set `number` to VALUE without leading zeros; return 1 if it is no number, or
# above MAX. Compared as text: no shell counts in 200 digits
is_number() {
  case $1 in
  '' | *[!0-9]*) return 1 ;;
  esac
  unpad "$1"
  number=$unpadded
  [ ${#number} -lt ${#2} ] || { [ ${#number} -eq ${#2} ] && ! [ "$number" \> "$2" ]; }
}

# is_seconds VALUE MAX - is_number, also of 90s, 10m, 2h or 1d
is_seconds() {
  case $1 in
  *[0-9]s) seconds_each=1 ;;
  *[0-9]m) seconds_each=60 ;;
  *[0-9]h) seconds_each=3600 ;;
  *[0-9]d) seconds_each=86400 ;;
  *) is_number "$1" "$2"; return ;;
  esac
  is_number "${1%?}" "$2" && is_number $((number * seconds_each)) "$2"
}
seconds_like='or a time like 90s, 10m, 2h or 1d'

# option_number LETTER VALUE MAX - is_number, or exit
option_number() {
  is_number "$2" "$3" || die 65 "-$1 takes a number from 0 to $3"
}

# option_seconds LETTER VALUE [MAX] - is_seconds, or exit. A door may shorten a -w
option_seconds() {
  is_seconds "$2" "${3-4294967295}" ||
    die 65 "-$1 takes a number from 0 to ${3-4294967295}, $seconds_like"
  [ "$1" != w ] || [ "$number" -le "${door_longest:-$number}" ] || number=$door_longest
}

# unpad VALUE - set `unpadded` to VALUE without leading zeros, which a shell takes for octal
unpad() {
  unpadded=${1#"${1%%[!0]*}"}
  [ -n "$unpadded" ] || unpadded=0
}

# pad VALUE ZEROS - set `padded` to VALUE with zeros in front, as wide as ZEROS
pad() {
  padded=$1
  while [ ${#padded} -lt ${#2} ]; do padded=0$padded; done
}

# letters_of SIZE - set `letters` to the length of SIZE bytes in base64; letters_awk: for awk
letters_of() {
  # shellcheck disable=SC2017 # whole threes
  letters=$((($1 + 2) / 3 * 4))
}
letters_awk='function letters(size) { return int((size + 2) / 3) * 4 }'

# name_check NAME - return 65 unless a queue may have that name: beanstalkd allows it, and it is no
# path upward
name_check() {
  case $1 in
  '' | -* | *[!A-Za-z0-9+/\;.\$_\(\)-]* | . | .. | ./* | ../* | */. | */.. | */./* | */../*) ;;
  *) [ ${#1} -gt 200 ] || return 0 ;;
  esac
  why='bad queue name: 1 to 200 of A-Z a-z 0-9 - + / ; . $ _ ( ),'
  why="$why no '-' in front, no '.' or '..' as a part"
  return 65
}

# name_to_disk NAME - set `name_disk` to NAME as one part of a path: `/` becomes `,` and a leading
# dot `%.`, which no NAME has
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

# seen PATH - as [ -e PATH ], but look twice: one look that failed is no absence (R1)
seen() {
  [ -e "$1" ] || [ -e "$1" ]
}

# clock_read - set `now` to the hundredths of a second since the system started, in 12 digits, so
# that times compare as text. It never goes back
clock_read() {
  read -r clock_now clock_rest <"$FLATQ_PROC/uptime" || die 74 'cannot read the clock'
  clock_now=000000000000${clock_now%.*}${clock_now#*.}
  now=${clock_now#"${clock_now%????????????}"}
}

# clock_epoch TIME - set `epoch_time` to TIME in hundredths of a second since 1970, 12 digits, by
# the spool's wall clock (lib/README.md, "Clocks")
clock_epoch() {
  unpad "$1"
  pad $((unpadded + epoch * 100)) 000000000000
  epoch_time=$padded
}

# nonce_read - set `nonce` to 12 random hexadecimal digits
nonce_read() {
  read -r nonce <"$FLATQ_PROC/sys/kernel/random/uuid" || die 74 'cannot read random numbers'
  nonce=${nonce##*-}
}

# spool_find - set FLATQ_DIR to the path of the spool
spool_find() {
  if [ -z "${FLATQ_DIR:-}" ]; then
    [ -n "${XDG_STATE_HOME:-}${HOME:-}" ] || { why='set FLATQ_DIR or HOME'; return 64; }
    FLATQ_DIR=${XDG_STATE_HOME:-$HOME/.local/state}/flatq
  fi
  case $FLATQ_DIR in
  /*) ;;
  *) FLATQ_DIR=$PWD/$FLATQ_DIR ;;
  esac
}

# spool_open [make] - find the spool, recover it at its first use in this boot, and set `boot` to
# its id; return 66 if there is none, unless to `make` one
spool_open() {
  spool_find || return
  boot_find
  boot_code=$?
  [ $boot_code -ne 66 ] || { need engine/boot; spool_boot "$@"; boot_code=$?; }
  [ $boot_code -eq 0 ] || return $boot_code
  case ${FLATQ_SYNC:-} in
  "$spool_sync" | '') return 0 ;;
  esac
  why="spool $FLATQ_DIR was made with FLATQ_SYNC=$spool_sync, which cannot be changed"
  return 64
}

# boot_find - set `boot` to the id of this boot, and read the spool's record of it: as boot_read
#
# dash and ash read a file in /proc byte by byte, 37 calls for this id. With `.` they read it at
# once, and run its line as a command: an alias, made of the id in the record's name, sets boot_is
boot_find() {
  [ -n "${BASH_VERSION:-}" ] || for boot_path in "$FLATQ_DIR"/.boot/*-*.v1.*; do
    boot=${boot_path#"$FLATQ_DIR/.boot/"} boot=${boot%%.*} boot_is=
    # shellcheck disable=SC2139 # the name is put in now
    alias "$boot=boot_is=this"
    # shellcheck source=/dev/null
    command . "$FLATQ_PROC/sys/kernel/random/boot_id"
    [ -z "$boot_is" ] || { boot_parse "$boot_path"; return; }
  done
  read -r boot <"$FLATQ_PROC/sys/kernel/random/boot_id" || {
    why='cannot read when the system was started: mount /proc'
    [ ! -e "$FLATQ_PROC/sys/kernel/random/boot_id" ] || return 74
    return 70
  }
  boot_read
}

# boot_read - read the record of this boot (lib/README.md, "Places"): set epoch, base64_wrap,
# spool_sync, sync_how (`-f` or nothing), boot_unread; return 66, without proof, if it is not seen
boot_read() {
  set -- "$FLATQ_DIR/.boot/$boot".*
  [ "$1" != "$FLATQ_DIR/.boot/$boot.*" ] || return 66
  boot_parse "$1"
}

# boot_parse PATH - what boot_read says, of the record at PATH
boot_parse() {
  IFS=.
  # shellcheck disable=SC2086 # split at the dots
  set -- ${1#"$FLATQ_DIR/.boot/$boot."}
  IFS=$blanks
  case ${1:-} in
  v1) ;;
  v*) need engine/boot; spool_newer "${1#v}"; return ;;
  # An earlier version's
  *) set -- v0 "$@" ;;
  esac
  epoch=${2:-} base64_wrap=${3:-} sync_how='' spool_sync=${4:-} boot_unread=${5:+.$5}
  [ "$spool_sync" != on-f ] || spool_sync=on sync_how=-f
  # The shell calculates with the epoch (R7)
  case $epoch.$base64_wrap.$spool_sync in
  *[!0-9]*.*.* | ???????????*.-* | 0[0-9]*) ;;
  [0-9]*.-w0.on | [0-9]*.-w0.off | [0-9]*.--.on | [0-9]*.--.off)
    [ "$1" = v1 ] || return 66
    return 0 ;;
  esac
  why="spool $FLATQ_DIR: cannot read its record of this boot"
  return 74
}

# queue_open NAME [make] - set `queue`, and `q` to its directory; return 66 if there is none, unless
# to `make` it
queue_open() {
  name_check "$1" || return
  queue=$1 reclaim_saw=
  name_to_disk "$1"
  q=$FLATQ_DIR/$name_disk
  [ -z "$boot_unread" ] || { need engine/boot; queue_mend || return; }
  # The lock is created last
  [ -e "$q/lock" ] && return 0
  if [ $# -ne 2 ]; then
    need engine/proof
    expect_path "$q/wal" "no queue '$1'" || return
  fi
  need engine/boot
  queue_make
}

# file_new PATH - create the empty file PATH; fail if it is there. 3 is mostly closed, so the shell
# need not keep it
file_new() {
  set -C
  true 3>"$1"
  new_code=$?
  set +C
  return "$new_code"
}

# file_mark PATH - create the empty file PATH; if it exists, leave it as it is
file_mark() {
  true 3>>"$1"
}

# queue_look - set queue_files to the paths in $q that begin with c, d or l, a blank behind each; a
# listing without `lock` has failed (R1)
queue_look() {
  set -- "$q"/[cdl]*
  queue_files="$* "
  case $queue_files in
  *"$q/lock "*) return 0 ;;
  esac
  need engine/proof
  queue_there || return
  not_listed
}

# queue_conf - set queue_bound, queue_most_tries and queue_expire, 0 means no limit; queue_dead; and
# queue_files
queue_conf() {
  queue_bound=0 queue_most_tries=0 queue_dead='' queue_expire=0
  queue_look || return
  case $queue_files in
  *"$q/conf "*) need engine/proof; conf_read ;;
  esac
}

# slip_format - set `slip` to the name that the slip_ variables give, without an owner
slip_format() {
  slip=$slip_priority.$slip_id.$slip_tries.$slip_nonce.$slip_lease.$slip_delay.$slip_born
  slip=$slip.$slip_size.$slip_key.$slip_counts
}

# sync_paths PATH ... - sync these files and directories, if the spool syncs; return 74 if that
# fails
sync_paths() {
  [ "$spool_sync" = on ] || return 0
  # shellcheck disable=SC2086 # an option or none
  sync $sync_how "$@" && return 0
  # shellcheck disable=SC2086
  # A signal may have ended it: once more, but never after an error, which is reported only once
  [ $? -gt 128 ] && sync $sync_how "$@" && return 0
  sync_failed
}

# sync_failed - set `why`, and return 74
sync_failed() {
  why="queue '${queue:-}': cannot sync"
  return 74
}

# log_line VERB ID TRIES SIZE MILLISECONDS REASON - write epoch_time and these to the log, or go on
log_line() {
  printf '%s.%s %s %s %s %s %s %s\n' \
    "${epoch_time%??}" "${epoch_time#"${epoch_time%??}"}" "$@" >>"$q/log" || :
}

# wake DIRECTORY [COUNT] - wake COUNT (else 1) of the processes that wait there (engine/wait.sh)
wake() {
  for wake_path in "$1"/*; do break; done
  # RACE: the first may leave now, and others be there: so do not ask whether it is there
  [ "$wake_path" = "$1/*" ] || { need engine/wait; wake_some "$@"; }
}
