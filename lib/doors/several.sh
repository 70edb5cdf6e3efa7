# doors/several.sh - serve several doors: start a launch for each

need engine/process

# several WORD ... - start a launch for each door, whose PID-TIME is in launch_doors; end when one
# of them has ended
several() {
  launch_doors='' launch_drain='' launch_signal=
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
  trap_stop several_noted
  trap 'launch_drain=1' USR1
  while [ -z "$launch_signal" ]; do
    [ -z "$launch_drain" ] || { launch_drain=; several_kill USR1; }
    for launch_one in $launch_doors; do
      ! owner_dead "$launch_one" || launch_signal=TERM
    done
    sleep 1 &
    wait "$!"
  done
  several_kill TERM
  launch_code=0
  for launch_one in $launch_doors; do
    wait "${launch_one%-*}"
    several_code=$?
    # From 128 on: by a signal
    [ $several_code -ge 128 ] || [ $launch_code -ne 0 ] || launch_code=$several_code
  done
  [ $launch_code -ne 0 ] || end_by "$launch_signal"
  exit $launch_code
}

several_noted() {
  launch_signal=$1
}

# several_kill SIGNAL - signal each door that lives
several_kill() {
  for launch_one in $launch_doors; do
    owner_dead "$launch_one" || kill "-$1" "${launch_one%-*}"
  done
}
