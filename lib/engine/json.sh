# engine/json.sh - what a verb prints, as JSON for programs: an object a line

need engine/piped

# json_print NAMES COMMAND ... - print COMMAND's lines as json_lines does, or end as COMMAND does
json_print() {
  json_names=$1
  shift
  json_said=$("$@") || exit
  # busybox's awk hides that it could not write
  [ -z "$json_said" ] || piped cat json_lines "$json_names" printf '%s\n' "$json_said" ||
    die 74 'the JSON could not be printed'
}

# json_lines NAMES COMMAND ... - print an object for each of COMMAND's lines. The words of a line
# are the values of NAMES: of NAME a number, of NAME$ a text, the last one to the end of the line;
# no word, or -, is null. In a text, the bytes 1 to 4 mean a newline, a blank, a tab and nothing
json_lines() {
  json_names=$1
  shift
  # The last line proves that all came (R6)
  { "$@" && printf '=\n'; } | awk -v "names=$json_names" '
    function value(kind, word) {
      if (word == "" || word == "-") return "null"
      if (kind == "$") return "\"" text(word) "\""
      while (word ~ /^-?0[0-9]/) sub(/0/, "", word)
      return word
    }
    # Bytes that are not UTF-8 become U+FFFD
    function text(word,  out, first) {
      for (; word != ""; word = substr(word, RLENGTH + 1)) {
        if (match(word, /^[] !#-[^-~]+/) || match(word, utf8)) out = out substr(word, 1, RLENGTH)
        else {
          RLENGTH = 1
          first = substr(word, 1, 1)
          out = out (first in escape ? escape[first] : "\\ufffd")
        }
      }
      return out
    }
    BEGIN {
      for (at = 5; at < 128; at++) escape[sprintf("%c", at)] = sprintf("\\u%04x", at)
      escape["\001"] = "\\n"
      escape["\002"] = " "
      escape["\003"] = "\\t"
      escape["\004"] = ""
      next_byte = "[\200-\277]"
      utf8 = "[\302-\337]|\340[\240-\277]|[\341-\354\356\357]" next_byte "|\355[\200-\237]"
      utf8 = utf8 "|(\360[\220-\277]|[\361-\363]" next_byte "|\364[\200-\217])" next_byte
      utf8 = "^(" utf8 ")" next_byte
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
