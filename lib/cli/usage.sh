# cli/usage.sh - how a verb ends early: usage, help, odd settings, closed standard
# streams, a signal

# usage_exit [TEXT [HINT]] - exit with the usage line. `make install` makes a command of flatq alone
usage_exit() {
  [ -z "${2-}" ] || die 64 "$1; $2"
  [ "${0##*/}" = "$FLATQ_VERB" ] || die 64 "${1:-usage}: see flatq $FLATQ_VERB -h"
  die 64 "${1:-usage}: see $FLATQ_VERB -h"
}

# option_odd - exit: getopts has met an option that is unknown, or needs a value
option_odd() {
  [ "$option" = '?' ] || usage_exit "-$OPTARG needs a value"
  near "-$OPTARG"
  usage_exit "unknown option '$near_shown'"
}

# near WORD NAME[=...] ... - set near_shown to WORD, as a terminal can show it; and near_said to
# `did you mean NAME?` for the first NAME that has a letter more, less, or another one, or two in
# another order
near() {
  near_shown=$1 near_said=
  case $1 in
  *[!A-Za-z0-9_-]* | ?????????????????????????????????????????*)
    near_shown=$(printf '%s' "$1" | tr -cd '[:print:]' | cut -c1-40) ;;
  esac
  shift
  [ $# -eq 0 ] || near_said=$(printf '%s\n' "$@" | awk -F = -v "word=$near_shown" '{
    for (at = 1; substr($1, 1, at - 1) == substr(word, 1, at - 1) && at <= length(word) + 1; at++) {
      of = substr($1, at)
      rest = substr(word, at)
      if (substr(of, 2) == rest || of == substr(rest, 2) || substr(of, 2) == substr(rest, 2) ||
        of == substr(rest, 2, 1) substr(rest, 1, 1) substr(rest, 3)) {
        print "did you mean " $1 "?"
        exit
      }
    }
  }')
}

# usage_terminal - say what a push waits for
usage_terminal() {
  printf '%s: the message is what you type, up to ^D\n' "${shell_name:-$FLATQ_VERB}" >&5
}

# shell_closed STREAM - exit: standard input or output is closed, or there is no /proc
shell_closed() {
  [ -e /proc/self/fd/2 ] || die 70 "cannot see /proc/self: mount /proc"
  die 74 "descriptor $1, of standard input or output, is closed"
}

# settings_check - exit if this is no shell that flatq was tried on, or one of FLATQ_SYNC,
# FLATQ_MOST_BYTES and FLATQ_RANGE has no value that it can have
settings_check() {
  [ -z "${KSH_VERSION-}${YASH_VERSION-}${ZSH_VERSION-}" ] ||
    die 70 'this shell is not one that flatq was tried on: use dash, busybox ash or bash'
  case ${FLATQ_SYNC:-on} in
  on | off) ;;
  *) die 64 'FLATQ_SYNC must be on or off' ;;
  esac
  if [ -n "${FLATQ_MOST_BYTES:-}" ]; then
    is_number "$FLATQ_MOST_BYTES" 2147483646 ||
      die 64 'FLATQ_MOST_BYTES must be a number from 0 to 2147483646'
    FLATQ_MOST_BYTES=${number#0}
  fi
  # The tests use smaller ranges of ids
  case $FLATQ_RANGE in
  1000 | [1-9] | [1-9][0-9] | [1-9][0-9][0-9]) ;;
  *) die 64 'FLATQ_RANGE must be a number from 1 to 1000' ;;
  esac
}

# title_read - set `title` to the first lines of a script: VERB ARGUMENTS - what it does
title_read() {
  read -r title && read -r title && title=${title#'# '} || return
  while read -r title_more && [ "$title_more" != '#' ]; do title="$title ${title_more#'#   '}"; done
}

# help - print the verb's header, up to the end of its Exit; with help_all, the whole header
help() {
  help_text=$(exec awk -v "all=${help_all-}" '
    /^#!/ { next }
    !/^#/ || $0 == "#" && exits && !all { exit }
    /^# Exit/ { exits = 1 }
    { sub(/^# ?/, ""); print }' "$lib/$FLATQ_VERB") || help_failed
  help_say "$help_text"
  # So that a door does not take this exit for an end by a signal (door_end)
  door_done=1
  exit 0
}

# help_say LINE - print it, or exit with 74
help_say() {
  printf '%s\n' "$1" 2>/dev/null || help_failed
}

help_failed() {
  # A door has not opened its log yet
  printf '%s: the help could not be printed\n' "$FLATQ_VERB" >&"${shell_quiet:-2}"
  exit 74
}

# end_by SIGNAL - die of SIGNAL, as its sender expects. Process 1 of a container survives its own
# signals, and exits instead
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
