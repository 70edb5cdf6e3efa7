# stalk-read.sh - reading what a client of beanstalkd's protocol sends: its lines, the numbers in them, bodies

# line_next [one] - sets `line`, a command without its CRLF; line_long where it was too long. 1 at the client's end.
# As beanstalkd: only CRLF ends a line, looked for at the first CR. `one`: with a newline in it, it is none, however short
line_next() {
  line='' line_long=
  while :; do
    line_read || return
    case $line_long$line_part in
    # of a line that is too long only its end is looked for: to put it together takes the square of its length
    1*"$cr") return 0 ;;
    1*) continue ;;
    esac
    line=$line$line_part
    case $line in
    *"$cr"*)
      if [ "${line%%"$cr"*}$cr" = "$line" ]; then
        line=${line%"$cr"}
        [ ${#line} -le "$line_most" ] || line_long=1
        return 0
      fi ;;
    esac
    line="$line
"
    # what has no end in 224 bytes is left out up to the next CRLF
    [ -z "${1:-}" ] && [ $((${#line} - 2)) -le "$line_most" ] || line_long=1 line=
    case $line_long$line_part in
    1*"$cr") return 0 ;;
    esac
  done
}

# line_read - sets line_part, what the client has sent up to a newline: from what was read ahead, or from it
line_read() {
  if [ -n "$line_ahead" ]; then
    line_part=${line_ahead#x} line_ahead=
  elif [ -n "$client_reader" ]; then
    wait "$client_reader"
    line_code=$?
    # what was read and is lost may be the line before a job's body
    [ $line_code -le 1 ] && IFS= read -r line_part <"$client_line" || exit 74
    rm -f "$client_line" 2>/dev/null
    client_reader=''
    [ $line_code -eq 0 ] || client_gone=1
    return $line_code
  else
    [ -z "$client_gone" ] && IFS= read -r line_part
  fi
}

# door_body_end - the CRLF behind a body: two bytes, whatever they are; sets body_wrong, what is said where they are others. The shell reads on
# to a newline; what it has too much is kept. body_whole says that all of it was read
door_body_end() {
  body_wrong='' body_whole='' why='the body was cut'
  IFS= read -r line_part || { client_gone=1; return 65; }
  [ "$line_part" != "$cr" ] || { body_whole=1; return 0; }
  body_wrong=EXPECTED_CRLF why='no CRLF behind the body'
  case $line_part in
  # the newline was the first byte of two: the next byte of the client is lost too
  '') IFS= read -r line_part || client_gone=1; line_ahead=x${line_part#?} ;;
  ?) ;;
  *) line_ahead=x${line_part#??} ;;
  esac
  return 65
}

# swallow LENGTH - a body that is refused
swallow() {
  input_exact "$1" >/dev/null
  door_body_end || :
}

# words_number TEXT MAX - sets `number` from the front of TEXT, and `rest`, what follows; 1 where there is none
words_number() {
  rest=${1#"${1%%[! ]*}"}
  case $rest in
  [0-9]*) ;;
  *) return 1 ;;
  esac
  set -- "${rest%%[!0-9]*}" "$2"
  rest=${rest#"$1"}
  number "$1" "$2"
}

# words_id TEXT - words_number of an id, with nothing behind it; sets job_id
words_id() {
  words_number "$1" 18446744073709551615 && job_id=$number && [ -z "$rest" ]
}
