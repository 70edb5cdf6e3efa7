# doors/several.sh - serve several doors: start a launch for each

need doors/guard-look

# several WORD ... - start a launch for each door; end when one of them has ended
several() {
  launch_pids=''
  trap_stop pass
  trap 'kill -USR1 $launch_pids 2>/dev/null' USR1
  launch_dead=''
  setpriv --pdeathsig TERM true 2>/dev/null && launch_dead='setpriv --pdeathsig TERM'
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    exec $launch_dead sh "$launch_self" --parent $$ "$@" &
    launch_pids="$launch_pids $!"
    options "$@"
    shift "$launch_words"
  done
  # A door that ends sends us TERM; one that was killed is noticed within a second
  while [ -z "$launch_signal" ]; do
    for launch_pid in $launch_pids; do
      ! guard_gone "$launch_pid" || pass TERM
    done
    [ -z "$launch_signal" ] || break
    exec sleep 1 &
    launch_sleep=$!
    # A signal interrupts the wait: end the sleeper before we end
    wait "$launch_sleep" || { kill "$launch_sleep" && wait "$launch_sleep"; } 2>/dev/null
  done
  launch_failed=0
  for launch_pid in $launch_pids; do
    while :; do
      wait "$launch_pid"
      launch_code=$?
      [ $launch_code -gt 128 ] && kill -0 "$launch_pid" 2>/dev/null || break
    done
    # bash reports -1 for a child that ended just when a signal came
    [ "$launch_code" -lt 0 ] || [ "$launch_code" -ge 128 ] || [ "$launch_failed" -ne 0 ] || launch_failed=$launch_code
  done
  # Each door sends us TERM when it ends: ignore that now
  trap '' HUP INT TERM
  [ -z "$launch_signal" ] || [ "$launch_failed" -ne 0 ] || end_by "$launch_signal"
  exit "$launch_failed"
}

# pass SIGNAL - send it to every door, and keep the first one, since each door that ends sends TERM
pass() {
  : "${launch_signal:=$1}"
  # shellcheck disable=SC2086 # numbers
  kill -TERM $launch_pids 2>/dev/null
}
