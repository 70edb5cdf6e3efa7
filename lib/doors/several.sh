# doors/several.sh - serve several doors: start a launch for each

need engine/process doors/guard doors/guard-look

# several WORD ... - start a launch for each door; end when one of them has ended. launch_doors has the PID-STARTED of each
several() {
  launch_doors='' launch_drain=''
  launch_dead=''
  twice works setpriv --pdeathsig TERM true && launch_dead='setpriv --pdeathsig TERM'
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    exec $launch_dead sh "$launch_self" --parent $$ "$@" &
    guard_start_time $!
    launch_doors="$launch_doors $!-$guard_started"
    options "$@"
    shift "$launch_words"
  done
  # The traps only take notes: process_started must not run inside itself. They are set only now: a child that is forked earlier would have them until
  # it runs `launch`, and lose a TERM. Without traps a TERM ends us, and each door ends when its parent has
  trap_stop pass
  trap 'launch_drain=1' USR1
  # A door that ends sends us TERM; one that was killed is noticed within a second
  while [ -z "$launch_signal" ]; do
    [ -z "$launch_drain" ] || { launch_drain=; several_signal USR1; }
    for launch_one in $launch_doors; do
      ! several_gone "$launch_one" || pass TERM
    done
    [ -z "$launch_signal" ] || break
    exec sleep 1 &
    launch_sleep=$!
    # A signal interrupts the wait: end the sleeper before we end
    wait "$launch_sleep" || { child_lives "$launch_sleep" && kill "$launch_sleep" && wait "$launch_sleep"; } 2>/dev/null
  done
  several_signal TERM
  launch_failed=0
  for launch_one in $launch_doors; do
    while :; do
      wait "${launch_one%%-*}"
      launch_code=$?
      [ $launch_code -gt 128 ] && ! several_gone "$launch_one" || break
      several_signal TERM
    done
    # bash reports -1 for a child that ended just when a signal came
    [ "$launch_code" -lt 0 ] || [ "$launch_code" -ge 128 ] || [ "$launch_failed" -ne 0 ] || launch_failed=$launch_code
  done
  # Each door sends us TERM when it ends: ignore that now
  trap '' HUP INT TERM
  [ -z "$launch_signal" ] || [ "$launch_failed" -ne 0 ] || end_by "$launch_signal"
  exit "$launch_failed"
}

# several_signal SIGNAL - send it to every door, but to no stranger
several_signal() {
  for launch_to in $launch_doors; do
    guard_stranger "$launch_to" || process_signal "$1" "${launch_to%%-*}"
  done
}

# several_gone PID-STARTED - return whether it is proved that the door has ended
several_gone() {
  set -- "${1%%-*}" "${1#*-}"
  guard_gone "$1" "${2#-}"
}

part='doors/several'
