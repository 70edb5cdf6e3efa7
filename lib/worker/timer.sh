# worker/timer.sh - the timer of a worker while its command runs: it renews the lease, and ends the command when its time is over
#
#   A sleeper is a process that sends ALRM to the worker when the next of these is due. A second sleeper is set to a little later: it matters only
#   if the first was killed or stopped, and the worker then replaces both. Both stay from one message to the next. timer_pids has their PIDs,
#   timer_at the time of the alarm, timer_words their names for the watchdog, timer_ended the PIDs of those that were ended and not yet reaped.

need engine/process engine/settle worker/watchdog engine/clock

# timer_after CENTISECONDS - set `later` to that time after now
timer_after() {
  clock_split "$now"
  later_c=$((1$clock_c - 100 + $1))
  pad $((clock_s + later_c / 100)) 0000000000
  later=$padded
  pad $((later_c % 100)) 00
  later=$later$padded
}

# timer_deadlines - set the time at which to renew the lease (a lease of 0 counts as a second), and read the clock
timer_deadlines() {
  lease_here=${work_lease:-$slip_lease}
  # The lease counts from the take, which may be long ago: the worker may have been stopped since (R5). timer_after counts from `now`
  now=$taken_at lease_renew_at=$taken_at
  # mksh counts in 32 bits, and the lease is multiplied by 100: renew a longer one for 9999999 seconds (115 days)
  [ ${#lease_here} -le 7 ] || lease_here=9999999
  if [ "$lease_here" = 0 ]; then
    lease_here=1 lease_renew_every=33
  else
    lease_renew_every=$((lease_here * 100 / 3))
    timer_after $lease_renew_every
    lease_renew_at=$later
  fi
  # The second sleeper wakes the worker this much later (hundredths of a second): at most a second, and before the renewal after this one
  sleeper_margin=$lease_renew_every
  [ "$sleeper_margin" -le 100 ] || sleeper_margin=100
  clock_read
}

# timer_limit - set the time at which to end the command
timer_limit() {
  job_kill_at='' job_killed='' job_limit_at=''
  [ -z "$work_limit" ] || { clock_read; clock_add "$work_limit" "$now"; job_limit_at=$later; }
}

# timer_run_due - do what is due, and set the alarm for what is next
timer_run_due() {
  clock_read
  if [ -z "$lease_lost" ] && ! [ "$now" \< "$lease_renew_at" ]; then
    lease_renew
  fi
  timer_check_limits
  later=${job_kill_at:-$job_limit_at}
  if [ -z "$later" ] || { [ -z "$lease_lost" ] && [ "$lease_renew_at" \< "$later" ]; }; then
    later=$lease_renew_at
  fi
  if [ -n "$take_stop$work_gone_since$work_signalled" ]; then
    timer_soon=$later
    timer_after 200
    [ "$later" \< "$timer_soon" ] || later=$timer_soon
  fi
  timer_arm "$later"
}

# timer_check_limits - end the command if its message is to be given back, its lease is lost, or its time is over
timer_check_limits() {
  if [ -n "$lease_lost" ] && [ -z "$job_killed" ]; then
    # Another worker may have begun with the message
    job_killed=1
    job_terminate KILL 500
  elif [ -z "$job_kill_at" ] && [ -n "$work_abort" ]; then
    job_terminate TERM 200
  elif [ -z "$job_kill_at" ] && [ -n "$job_limit_at" ] && ! [ "$now" \< "$job_limit_at" ]; then
    job_timed_out=1
    job_terminate TERM 500
  elif [ -n "$job_kill_at" ] && ! [ "$now" \< "$job_kill_at" ]; then
    job_terminate KILL 500
  fi
}

# job_terminate SIGNAL CENTISECONDS - send SIGNAL to the command now, and KILL after that time
job_terminate() {
  timer_after "$2"
  job_kill_at=$later
  work_kill "$1" "-$job_named"
}

# lease_renew - renew the lease; if that fails although the message is still ours, return the code, and try again at the next third of it, or before the
# lease ends. From then on another worker may have the message, so it counts as lost
lease_renew() {
  timer_after "$lease_renew_every"
  lease_renew_at=$later
  message_touch "$lease_here"
  lease_code=$?
  case $lease_code in
  0) slip_path=$q/out/$slip.$slip_owner.$later ;;
  66) lease_lost=1 lease_code=0 ;;
  *)
    lease_end=${slip_path##*.}
    if ! [ "$now" \< "$lease_end" ]; then
      lease_lost=1
    elif ! [ "$lease_renew_at" \< "$lease_end" ]; then
      clock_between "$now" "$lease_end"
      timer_after $(((between_s * 100 + between_c) / 2 + 1))
      lease_renew_at=$later
    fi ;;
  esac
  return $lease_code
}

# timer_arm TIME - have ALRM sent at TIME or before; keep the sleepers if they are that early
timer_arm() {
  if [ -n "$timer_pids" ]; then
    if [ "$now" \< "$timer_at" ] && ! [ "$1" \< "$timer_at" ]; then
      watchdog_tell_job
      return 0
    fi
    timer_disarm
  fi
  clock_between "$now" "$1"
  timer_s=$between_s timer_c=$between_c
  [ "$timer_s" -ge 0 ] || timer_s=0 timer_c=0
  pad "$timer_c" 00
  sleeper_start "$timer_s.$padded"
  timer_c=$((timer_c + sleeper_margin))
  pad $((timer_c % 100)) 00
  sleeper_start $((timer_s + timer_c / 100))."$padded"
  timer_at=$1
  watchdog_tell_job
}

# sleeper_start SECONDS - start a sleeper, which wakes the worker then; add it to timer_pids, and to timer_words for the watchdog
sleeper_start() {
  sleeper_run "$1" &
  timer_pids="$timer_pids $!"
  work_name $!
  timer_words="$timer_words VTALRM:$work_named"
}

# interrupter_start - called by a trap: start a process that sends ALRM until it is ended, and so interrupts a `wait` that begins after the trap
interrupter_start() {
  interrupter_run &
  interrupter_pids="$interrupter_pids $!"
}

# interrupter_run - what such a process runs. PIPE ends it, of which bash says nothing on standard error
interrupter_run() {
  trap '' HUP INT QUIT TERM
  exec </dev/null >/dev/null 2>&1 3>&- 4>&- 5>&-
  while ! owner_dead "$work_owner"; do
    sleep 0.1 || sleep 1
    kill -ALRM "$work_self"
  done
}

# interrupter_stop - end those processes; from here on, a trap starts none. RACE: one that was just forked still has our trap for PIPE, and goes on. So keep
# it until it is gone: its ALRM ends our next `wait`, behind which it gets PIPE again
interrupter_stop() {
  work_on_signal='' interrupter_left=
  for interrupter_pid in $interrupter_pids; do
    if child_lives "$interrupter_pid"; then
      kill -PIPE "$interrupter_pid" 2>/dev/null
      interrupter_left="$interrupter_left $interrupter_pid"
    else
      timer_ended="$timer_ended $interrupter_pid"
    fi
  done
  interrupter_pids=$interrupter_left
}

# sleeper_run SECONDS - what a sleeper runs. Only VTALRM ends it, whose trap also kills the `sleep`. A worker has no trap for VTALRM: so VTALRM also ends
# a child that was just forked and still has the worker's traps
sleeper_run() {
  sleeper_over=${!-} sleeper_seconds=$1
  # Not PIPE either, if the watchdog was killed: without its alarms the worker would lose the message
  trap '' HUP INT QUIT TERM PIPE
  # By $!, which a shell sets as it starts the `sleep`: the trap may run before the next command
  trap '[ "${!-}" = "$sleeper_over" ] || ! child_lives "$!" || kill -KILL "$!"; exit 0' VTALRM
  watchdog_tell_self VTALRM:
  exec </dev/null >/dev/null 2>&1 3>&- 4>&- 5>&-
  while :; do
    # With exec, or mksh would sleep by itself where there is no setpriv
    { exec $work_pdeathsig sleep "$sleeper_seconds"; } &
    wait "$!"
    sleeper_over=$!
    # Repeat until the worker reacts: bash may forget one of two signals. The PID of a killed worker may belong to another process
    ! owner_dead "$work_owner" && kill -ALRM "$work_self" || return 0
    sleeper_seconds=2
  done
}

# timer_disarm - end the sleepers. timer_reap waits for them later: in a trap that has interrupted a `wait`, bash may hang in another one
timer_disarm() {
  [ -n "$timer_pids" ] || return 0
  timer_ended="$timer_ended $timer_pids"
  for timer_pid in $timer_pids; do sleeper_kill "$timer_pid"; done
  timer_pids='' timer_words=
}

# sleeper_kill PID - end that sleeper; return 1 if it has ended already. CONT, since one that is stopped would not end
sleeper_kill() {
  child_lives "$1" || return 1
  kill -VTALRM "$1" 2>/dev/null
  kill -CONT "$1" 2>/dev/null
  return 0
}

# timer_reap - wait for the sleepers and interrupters that were ended. RACE: a sleeper may have got no VTALRM, since mksh forgets one that comes just before
# it suspends itself in a `wait`; and no signal was sent if standard error could not be redirected (R12). Such a sleeper would live for a third of the
# lease. So send VTALRM again while one lives, 100 times at most
timer_reap() {
  timer_ended="$timer_ended$interrupter_pids" interrupter_pids=
  [ -n "$timer_ended" ] || return 0
  timer_turns=100
  # shellcheck disable=SC2086 # process ids
  { while timer_insist; do sleep 0.025 || sleep 1; done; wait $timer_ended; } 2>/dev/null
  timer_ended=
}

# timer_insist - send VTALRM to those that still live; return 1 if none does, or after 100 times
timer_insist() {
  timer_turns=$((timer_turns - 1)) timer_lives=
  for timer_pid in $timer_ended; do
    ! sleeper_kill "$timer_pid" || timer_lives=1
  done
  [ -n "$timer_lives" ] && [ $timer_turns -gt 0 ]
}
