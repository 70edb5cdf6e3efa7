# doors/beanstalk/read.sh - read what a client sends: lines, the numbers in them, bodies

need engine/input

# line_next [one] - set `stalk_line` to the input up to a CRLF, and line_long if that is too long
# or, with `one`, has a newline in it; 1: the input has ended
line_next() {
  stalk_line='' line_long=
  while :; do
    # What door_body_end has kept
    if [ -n "$line_ahead" ]; then
      line_part=${line_ahead#x} line_ahead=
    else
      IFS= read -r line_part || return
    fi
    if [ -z "$line_long" ]; then
      stalk_line=$stalk_line$line_part
      if [ ${#stalk_line} -gt $((line_most + 1)) ]; then
        line_long=1
      elif [ "${stalk_line%%"$cr"*}$cr" = "$stalk_line" ]; then
        stalk_line=${stalk_line%"$cr"}
        return 0
      else
        line_long=${1:-} stalk_line="$stalk_line
"
      fi
    fi
    [ -z "$line_long" ] || [ "$line_part" = "${line_part%"$cr"}" ] || return 0
  done
}

# door_body_end - read the CRLF behind a body, and set body_whole; if it is another two bytes, set
# body_wrong to the answer, and keep the rest of the line
door_body_end() {
  body_wrong='' body_whole='' why='the body was cut'
  IFS= read -r line_part || return 65
  [ "$line_part" != "$cr" ] || { body_whole=1; return 0; }
  body_wrong=EXPECTED_CRLF why='no CRLF behind the body'
  case $line_part in
  # The first of the two bytes was a newline
  '') IFS= read -r line_part || return 65; line_ahead=x${line_part#?} ;;
  ?) ;;
  *) line_ahead=x${line_part#??} ;;
  esac
  return 65
}

# swallow LENGTH - drop a body that is refused; or end, since the rest of it would be a command
swallow() {
  why='input failed'
  input_exact "$1" >/dev/null || { stalk_log; exit 74; }
  door_body_end || :
}

# words_number TEXT [MAX] - set `number` to the number up to MAX (32 bits) at the front of TEXT, and
# `rest` to what follows; 1: there is none
words_number() {
  rest=${1#"${1%%[! ]*}"}
  set -- "${rest%%[!0-9]*}" "${2:-4294967295}"
  rest=${rest#"$1"}
  is_number "$1" "$2"
}

# words_id TEXT - as words_number, and set job_id
words_id() {
  words_number "$1" 18446744073709551615 && job_id=$number
}
