# engine/piped.sh - a pipe whose both sides must have succeeded

# piped FILTER COMMAND ... - print what FILTER makes of COMMAND's output; return 0 only if both have
# succeeded. COMMAND writes a word when it has finished, since a pipe loses its status (R6)
piped() {
  piped_filter=$1
  shift
  {
    piped_said=$({ { "$@" && printf good >&3; } | $piped_filter >&4; } 3>&1 </dev/null)
  } 4>&1 && [ "$piped_said" = good ]
}
