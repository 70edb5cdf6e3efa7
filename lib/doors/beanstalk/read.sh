# doors/beanstalk/read.sh - read what a client sends: lines, the numbers in them, bodies

need engine/input

# line_next [one] - set `stalk_line` to a command, and line_long if it was too long; return 1 at the
# end of the input. As in beanstalkd, only CRLF ends a line. `one`: a newline without CR makes it
# too long
line_next() {
  stalk_line='' line_long=
  while :; do
    line_read || return
    case $line_long.$line_part in
    # Once a line is too long, only look for its end: the time of putting it together grows by the
    # square of its length
    1.*"$cr") return 0 ;;
    1.*) continue ;;
    esac
    stalk_line=$stalk_line$line_part
    case $stalk_line in
    *"$cr"*)
      if [ "${stalk_line%%"$cr"*}$cr" = "$stalk_line" ]; then
        stalk_line=${stalk_line%"$cr"}
        [ ${#stalk_line} -le "$line_most" ] || line_long=1
        return 0
      fi ;;
    esac
    stalk_line="$stalk_line
"
    # If no CRLF comes within 224 bytes, skip to the next one
    [ -z "${1:-}" ] && [ $((${#stalk_line} - 2)) -le "$line_most" ] || line_long=1 stalk_line=
    case $line_long.$line_part in
    1.*"$cr") return 0 ;;
    esac
  done
}

# line_read - set line_part to the client's input up to a newline, from the rest of the line behind
# a body or from the connection; return 1 at its end
line_read() {
  if [ -n "$line_ahead" ]; then
    line_part=${line_ahead#x} line_ahead=
  else
    IFS= read -r line_part
  fi
}

# door_body_end - read the CRLF after a body, and set body_whole; if it is another two bytes, set
# body_wrong to the answer. The shell reads up to a newline: keep the rest
door_body_end() {
  body_wrong='' body_whole='' why='the body was cut'
  IFS= read -r line_part || return 65
  [ "$line_part" != "$cr" ] || { body_whole=1; return 0; }
  body_wrong=EXPECTED_CRLF why='no CRLF behind the body'
  case $line_part in
  # The first of the two bytes was a newline: drop the next byte too
  '') IFS= read -r line_part || return 65; line_ahead=x${line_part#?} ;;
  ?) ;;
  *) line_ahead=x${line_part#??} ;;
  esac
  return 65
}

# swallow LENGTH - read and drop a body that is refused. If dd was killed, or failed, end: the rest
# of the body would be taken for commands
swallow() {
  why='input failed'
  input_exact "$1" >/dev/null || { stalk_log; exit 74; }
  door_body_end || :
}

# words_number TEXT [MAX] - set `number` from the front of TEXT, and `rest` to what follows; return
# 1 if TEXT does not begin with a number, or it is above MAX (else 32 bits)
words_number() {
  rest=${1#"${1%%[! ]*}"}
  case $rest in
  [0-9]*) ;;
  *) return 1 ;;
  esac
  set -- "${rest%%[!0-9]*}" "${2:-4294967295}"
  rest=${rest#"$1"}
  is_number "$1" "$2"
}

# words_id TEXT - as words_number, and set job_id
words_id() {
  words_number "$1" 18446744073709551615 && job_id=$number
}
