# engine/help.sh - the text that -h prints

# help - print the verb's own header, from its second line to the last line of comment
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
  # The verb has finished: a door must not take this exit for an end by a signal (door_end)
  door_done=1
  exit 0
}

# help_say LINE - print it, or exit with 74
help_say() {
  printf '%s\n' "$1" 2>/dev/null || { printf '%s: the help could not be printed\n' "$FLATQ_VERB" >&2; exit 74; }
}

part='engine/help'
