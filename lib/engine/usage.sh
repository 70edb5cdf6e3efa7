# engine/usage.sh - how a verb ends early: usage, help, closed standard streams, a signal

# usage_exit [TEXT] - exit with the usage line. `make install` makes a command of flatq alone
usage_exit() {
  [ "${0##*/}" = "$FLATQ_VERB" ] || die 64 "${1:-usage}: see flatq $FLATQ_VERB -h"
  die 64 "${1:-usage}: see $FLATQ_VERB -h"
}

# shell_closed STREAM - exit: standard input or output is closed, or there is no /proc
shell_closed() {
  [ -e /proc/self/fd/2 ] || die 70 "cannot see /proc/self: mount /proc"
  die 74 "descriptor $1, of standard input or output, is closed"
}

# title_read - set `title` to the first lines of a script: VERB ARGUMENTS - what it does
title_read() {
  read -r title && read -r title && title=${title#'# '} || return
  while read -r title_more && [ "$title_more" != '#' ]; do title="$title ${title_more#'#   '}"; done
}

# help - print the verb's own header
help() {
  {
    read -r help_line
    while read -r help_line; do
      case $help_line in
      '# shellcheck'*) ;;
      '#'*) help_line=${help_line#'#'}; help_say "${help_line#' '}" ;;
      *) break ;;
      esac
    done
  } <"$lib/$FLATQ_VERB"
  # So that a door does not take this exit for an end by a signal (door_end)
  door_done=1
  exit 0
}

# help_say LINE - print it, or exit with 74
help_say() {
  printf '%s\n' "$1" 2>/dev/null && return 0
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
