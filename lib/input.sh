# input.sh - a message that ends before standard input does: after so many bytes, at a dot, or where it is too long

# input_part - what of standard input is the message: up to the line with the dot (push_dot), and not much more than FLATQ_MOST_BYTES
input_part() {
  if [ -z "${push_dot:-}" ]; then
    input_most
  elif [ -n "${FLATQ_MOST_BYTES:-}" ]; then
    # sed has no status to show here: it says that it is through. Where the message is too long, head ends first
    { input_to_dot && printf dotted >&3; } | input_most
  else
    input_to_dot && printf dotted >&3
  fi
}

# input_exact LENGTH [exec] - so many bytes of standard input, and not one more is read: what follows is not ours. A `head -c` may read
# ahead. `exec`: in place of the shell, which a pipe has started
input_exact() {
  case $1 in
  0) ;;
  ?????*) ${2:-} dd bs=65536 count="$1" iflag=fullblock,count_bytes ;;
  *) ${2:-} dd bs="$1" count=1 iflag=fullblock ;;
  esac 2>/dev/null
}

# input_ended - 74 unless standard input is seen to be at its end: a dd that was killed, or could not read, has not come to it (R6)
input_ended() {
  ended_said=$(exec dd bs=1 count=1 2>&1 >/dev/null)
  case $?.$ended_said in
  0.0+0*) return 0 ;;
  127.*) why='dd is missing'; return 70 ;;
  esac
  why="queue '${queue:-}': input failed"
  return 74
}

# input_most - standard input, and not more than one byte too much of it
input_most() {
  head -c "$((FLATQ_MOST_BYTES + 1))"
}

# input_to_dot - standard input up to the line with the dot, which goes to tmp/ instead: where it never came, that stays empty
input_to_dot() {
  (cd "$q/tmp" && exec sed -n -e '/^\.'"${push_cr:+$push_cr*}"'$/{w '"$push_dot_file" -e q -e '}' -e p)
}

# input_dotted - 65 where the input ended without its last line; 74 where it was not read in full
input_dotted() {
  [ "$push_dotted" = dotted ] || { why="queue '$queue': input failed"; return 74; }
  if [ ! -s "$q/tmp/$push_dot_file" ]; then
    # an empty one is proven
    need proof
    measure -c "$q/tmp/$push_dot_file" || return
    [ "$measured" != 0 ] || { why='the input ended without a line with a single dot'; return 65; }
  fi
  rm -f "$q/tmp/$push_dot_file" 2>/dev/null || :
}

# input_failed - a body that may be cut is taken away
input_failed() {
  rm -f "$q/body/$slip_id" 2>/dev/null
}
