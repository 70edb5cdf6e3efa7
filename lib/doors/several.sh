# doors/several.sh - serve several doors: start a launch for each

need engine/process engine/usage

# several WORD ... - start a launch for each door, whose PID-TIME is in launch_doors; end when one
# of them has ended
several() {
  launch_doors=
  clock_read
  launch_self=$$-$now
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    exec sh "$lib/serve" --parent "$launch_self" "$@" 2>&5 5>&- &
    clock_read
    launch_doors="$launch_doors $!-$now"
    options "$@"
    shift "$launch_words"
  done
  # Before, a signal just ends us: each door ends when its parent has
  trap_stop several_end
  trap 'several_kill USR1' USR1
  while :; do
    for launch_one in $launch_doors; do
      ! owner_dead "$launch_one" || several_end TERM
    done
    sleep 1 &
    wait "$!"
  done
}

# several_end SIGNAL - end all doors; exit with the code of one that has failed, else by SIGNAL
several_end() {
  trap '' HUP INT TERM USR1
  several_kill TERM
  launch_code=0
  for launch_one in $launch_doors; do
    wait "${launch_one%-*}"
    several_code=$?
    # From 128 on: by a signal
    [ $several_code -ge 128 ] || [ $launch_code -ne 0 ] || launch_code=$several_code
  done
  [ $launch_code -ne 0 ] || end_by "$1"
  exit $launch_code
}

several_kill() {
  for launch_own in $launch_doors; do
    owner_dead "$launch_own" || kill "-$1" "${launch_own%-*}"
  done
}
