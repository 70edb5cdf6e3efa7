# engine/input.sh - read a message that ends before standard input does, or is on the command line

# input_text WORD ... - make the words standard input, and set text_length, by which a push sees
# whether their writer was killed
input_text() {
  text_length=$*
  text_length=${#text_length}
  command exec <<END || die 74 'the text could not be written to a pipe'
$*
END
}

# input_encode LENGTH - body_encode for a part of standard input. The left side of a pipe writes a
# word at its end (R6); of a stated length, input_whole sees whether all came. Set push_read to
# `all` if it was read, whether or not base64 could write it
input_encode() {
  encode_said=good
  if [ -n "$1" ]; then
    case $1 in
    ???????*) input_exact "$1" exec | { base64 "$base64_wrap" || { cat >/dev/null; false; }; } ;;
    *) input_exact "$1" exec | base64 "$base64_wrap" ;;
    esac
    input_code=$?
    [ $input_code -gt 1 ] || push_read=all
    return $input_code
  fi
  {
    encode_said=$({ { input_part && printf good >&3; } | base64 "$base64_wrap" >&4; } 3>&1)
  } 4>&1
}

# input_part - print the message: up to the line with the dot (push_dot), or input_most
input_part() {
  if [ -z "${push_dot:-}" ]; then
    input_most
  elif [ -n "${FLATQ_MOST_BYTES:-}" ]; then
    # If the message is too long, head ends before sed
    { input_to_dot && printf dotted >&3; } | input_most
  else
    input_to_dot && printf dotted >&3
  fi
}

# input_exact LENGTH [exec] - print LENGTH bytes of standard input, and read none behind them, as
# `head -c` may. `exec`: replace the shell that a pipe has started
input_exact() {
  case $1 in
  0) ;;
  ???????*) ${2:-} dd bs=65536 count="$1" iflag=fullblock,count_bytes ;;
  *) ${2:-} dd bs="$1" count=1 iflag=fullblock ;;
  esac
}

# input_ended - return 74 unless a read proves that standard input is at its end (R6)
input_ended() {
  ended_said=$(exec dd bs=1 count=1 2>&1 >/dev/null)
  case $?.$ended_said in
  0.0+0*) return 0 ;;
  esac
  why="queue '${queue:-}': input failed"
  return 74
}

# blanks_off TEXT MOST - set blanks_left to TEXT without the blanks and tabs around it; 1: they are
# more than MOST. One by one: the time of a pattern for all is quadratic
blanks_off() {
  blanks_left=$1 blanks_count=0
  while [ $blanks_count -le "$2" ]; do
    case $blanks_left in
    [\ \	]*) blanks_left=${blanks_left#?} ;;
    *[\ \	]) blanks_left=${blanks_left%?} ;;
    *) return 0 ;;
    esac
    blanks_count=$((blanks_count + 1))
  done
  return 1
}

# input_most - print standard input, up to one byte more than is allowed
input_most() {
  head -c "$((FLATQ_MOST_BYTES + 1))"
}

# input_to_dot - print standard input up to the line with the dot, which goes to a file in tmp/
input_to_dot() {
  input_dot='/^\.'${push_cr:+$push_cr*}'$/{w '$push_dot_file
  (cd "$q/tmp" && exec sed -n -e "$input_dot" -e q -e '}' -e p)
}

# input_whole LENGTH - return 65 if the body is too short or too long or has no dot, 74 if the input
# was not read in full
input_whole() {
  case ${push_dot:+dot}.$encode_said in
  .good | dot.good | dot.dottedgood) ;;
  *) why="queue '$queue': input failed"; return 74 ;;
  esac
  if [ -n "$1" ]; then
    [ "$slip_size" = "$1" ] || {
      push_read=1
      input_ended || return
      why="only $slip_size of the $1 announced bytes came"
      return 65
    }
    door_body_end || return
  fi
  [ -z "${FLATQ_MOST_BYTES:-}" ] || [ "$slip_size" -le "$FLATQ_MOST_BYTES" ] || {
    why="message of $slip_size bytes is over the limit of $FLATQ_MOST_BYTES"
    return 65
  }
  # RACE: a client may leave right after its dot, so there only the dot is asked
  if [ -n "${push_dot:-}" ]; then
    input_dotted
  elif [ -z "$1" ]; then
    door_whole "$slip_size"
  fi
}

# input_dotted - input_whole for the line with the dot
input_dotted() {
  [ "${encode_said%good}" = dotted ] || { why="queue '$queue': input failed"; return 74; }
  # Without its newline, the dot may have been the first byte of a line that was cut
  if ! read -r input_dot <"$q/tmp/$push_dot_file"; then
    need engine/proof
    measure -l "$q/tmp/$push_dot_file" || return
    [ "$measured" != 0 ] || { why='the input ended without a line with a single dot'; return 65; }
  fi
  rm -f "$q/tmp/$push_dot_file" || :
}
