# engine/table.sh - what list and stat print, as a table

# table_print messages|queues|stat COMMAND ... - print COMMAND's lines as a table
table_print() {
  table_lines=$(shift; "$@") || exit
  # The last line proves that all came (R6)
  [ -z "$table_lines" ] || printf '%s\n=\n' "$table_lines" | awk -v "form=$1" \
    -f "$lib/engine/date.awk" -f "$lib/engine/table.awk" || die 74 'the table could not be printed'
}
