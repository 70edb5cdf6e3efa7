# engine/input.sh - read a message that ends before standard input does: after a number of bytes, at a dot, or because it is too long

# input_encode LENGTH - as body_encode, of the part of descriptor 6 that is the message. Standard input is /dev/null: if yash cannot make a pipe, it runs
# both sides on our standard input, and base64 would read the message itself, or what follows it
input_encode() {
  [ -z "$1" ] || { input_exact "$1" exec <&6 | base64 "${base64_wrap:---}"; return $?; }
  # The left side of a pipe has no exit status, so it writes a word when it has finished (R6)
  { encode_said=$({ { input_part && printf good >&3; } | base64 "${base64_wrap:---}" >&4; } 3>&1); } 4>&1 || return $?
  push_dotted=${encode_said%good}
  # Unless the words say that both sides have finished, the body may be incomplete: remove it, which push_body notices
  case ${push_dot:+dot}.$encode_said in
  .good | dot.good | dot.dottedgood) ;;
  *) rm -f "$q/body/$slip_id" 2>/dev/null ;;
  esac
}

# input_part - print the part of descriptor 6 that is the message: up to the line with the dot (push_dot), or a little over FLATQ_MOST_BYTES
input_part() {
  if [ -z "${push_dot:-}" ]; then
    input_most <&6
  elif [ -n "${FLATQ_MOST_BYTES:-}" ]; then
    # In a pipe, sed's exit status is lost, so a word says that it has finished. If the message is too long, head ends first
    { input_to_dot <&6 && printf dotted >&3; } | input_most
  else
    input_to_dot <&6 && printf dotted >&3
  fi
}

# input_exact LENGTH [exec] - print LENGTH bytes of standard input, and read none of what follows, which is not ours; `head -c` may read
# ahead. `exec`: replace the shell, which a pipe has started
input_exact() {
  case $1 in
  0) ;;
  ?????*) ${2:-} dd bs=65536 count="$1" iflag=fullblock,count_bytes ;;
  *) ${2:-} dd bs="$1" count=1 iflag=fullblock ;;
  esac 2>/dev/null
}

# input_ended - return 74 unless a read proves that standard input is at its end: a dd that was killed, or could not read, does not (R6)
input_ended() {
  ended_said=$(exec dd bs=1 count=1 2>&1 >/dev/null)
  case $?.$ended_said in
  0.0+0*) return 0 ;;
  127.*) why='dd is missing'; return 70 ;;
  esac
  why="queue '${queue:-}': input failed"
  return 74
}

# input_most - print standard input, up to one byte more than is allowed
input_most() {
  head -c "$((FLATQ_MOST_BYTES + 1))"
}

# input_to_dot - print standard input up to the line with the dot. That line goes to a file in tmp/, which stays empty if it never comes
input_to_dot() {
  (cd "$q/tmp" && exec sed -n -e '/^\.'"${push_cr:+$push_cr*}"'$/{w '"$push_dot_file" -e q -e '}' -e p)
}

# input_dotted - return 65 if the input ended without the line with the dot, 74 if it was not read in full
input_dotted() {
  [ "$push_dotted" = dotted ] || { why="queue '$queue': input failed"; return 74; }
  # The file has a whole line only if the dot had its newline: else it may have been the first byte of a line that was cut
  if ! { read -r input_dot <"$q/tmp/$push_dot_file"; } 2>/dev/null; then
    need engine/proof
    measure -l "$q/tmp/$push_dot_file" || return $?
    [ "$measured" != 0 ] || { why='the input ended without a line with a single dot'; return 65; }
  fi
  rm -f "$q/tmp/$push_dot_file" 2>/dev/null || :
}

part='engine/input'
