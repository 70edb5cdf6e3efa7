# engine/help.sh - the text that -h prints

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
