# engine/piped.sh - a pipe whose both sides must have succeeded

# piped FILTER COMMAND ... - write what FILTER makes of COMMAND's output to standard output. Return
# 0 only if both have succeeded. COMMAND is the left side of a pipe, whose status is lost, so it
# writes a word when it has finished (R6)
piped() {
  piped_filter=$1
  shift
  {
    piped_said=$({ { "$@" && printf good >&3; } | $piped_filter >&4; } 3>&1 </dev/null)
  } 4>&1 && [ "$piped_said" = good ]
}
