# cli/table.sh - what a verb prints, as a table or, for programs, as JSON

need engine/piped

# table_print messages|queues|stat COMMAND ... - print COMMAND's lines as a table; exit with its
# code if it fails
table_print() {
  table_lines=$(shift; "$@")
  table_code=$?
  # The last line proves that all came (R6)
  [ -z "$table_lines" ] || printf '%s\n=\n' "$table_lines" | awk -v "form=$1" \
    -f "$lib/cli/date.awk" -f "$lib/cli/table.awk" || die 74 'the table could not be printed'
  [ $table_code -eq 0 ] || exit $table_code
}

# json_print NAMES COMMAND ... - print COMMAND's lines as json_lines does; exit with its code if
# it fails
json_print() {
  json_said=$(shift; "$@")
  json_code=$?
  # busybox's awk hides that it could not write
  [ -z "$json_said" ] || piped cat json_lines "$1" printf '%s\n' "$json_said" ||
    die 74 'the JSON could not be printed'
  [ $json_code -eq 0 ] || exit $json_code
}

# json_lines NAMES COMMAND ... - print an object for each of COMMAND's lines. The words of a line
# are the values of NAMES: of NAME a number, of NAME$ a text, the last one to the end of the line;
# no word, or -, is null. In a text, the bytes 1 to 4 mean a newline, a blank, a tab and nothing
json_lines() {
  # The last line proves that all came (R6)
  { shift; "$@" && printf '=\n'; } | awk -v "names=$1" '
    function value(kind, word) {
      if (word == "" || word == "-") return "null"
      if (kind == "$") return "\"" text(word) "\""
      return word
    }
    # Control characters, and bytes that are not UTF-8, become U+FFFD
    function text(word,  out) {
      gsub(/["\\]/, "\\\\&", word)
      gsub(/\001/, "\\n", word)
      gsub(/\002/, " ", word)
      gsub(/\003/, "\\t", word)
      gsub(/\004/, "", word)
      while (match(word, /[^ -~]/)) {
        out = out substr(word, 1, RSTART - 1)
        word = substr(word, RSTART)
        if (match(word, utf8)) out = out substr(word, 1, RLENGTH)
        else { out = out "\\ufffd"; RLENGTH = 1 }
        word = substr(word, RLENGTH + 1)
      }
      return out word
    }
    BEGIN {
      utf8 = "[\302-\337]|\340[\240-\277]|[\341-\354\356\357]N|\355[\200-\237]"
      utf8 = "^((" utf8 "|\360[\220-\277]N|[\361-\363]NN|\364[\200-\217]N)N)+"
      gsub("N", "[\200-\277]", utf8)
      count = split(names, name, " ")
      for (at = 1; at <= count; at++) {
        kind[at] = substr(name[at], length(name[at]))
        sub(/[$]$/, "", name[at])
      }
    }
    $0 == "=" { whole = 1; next }
    {
      rest = $0
      for (at = 1; at <= count; at++) {
        word = at < count || kind[at] != "$" ? $at : rest
        sub(/^[^ ]* ?/, "", rest)
        printf "%s\"%s\":%s", (at == 1 ? "{" : ","), name[at], value(kind[at], word)
      }
      print "}"
    }
    END { exit !whole }'
}
