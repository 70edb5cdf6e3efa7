# worker/timer.sh - the alarms while a worker's command runs: touch its message, end the command when its time is over
#
#   A sleeper sends ALRM to the worker when the next of these is due. A second sleeper is set a little later: the worker hears it only if the first
#   was killed or stopped, and then replaces both. Both stay from one message to the next. work_clock has their PIDs, work_clock_at the time of the
#   alarm, work_clock_words what the watchdog is told of them, and work_rung the PIDs of those that were ended and not yet reaped.

need engine/process engine/settle worker/watchdog

# work_later CENTISECONDS - set `later` to that time after now
work_later() {
  clock_split "$now"
  later_c=$((1$clock_c - 100 + $1))
  pad $((clock_s + later_c / 100)) 0000000000
  later=$padded
  pad $((later_c % 100)) 00
  later=$later$padded
}

# work_times - set the times at which to touch the message, and to end the command. A lease of 0 counts as a second
work_times() {
  work_given=${work_lease:-$slip_lease}
  clock_read
  work_touch_at=$now
  [ ${#work_given} -le 5 ] || work_given=99999
  if [ "$work_given" = 0 ]; then
    work_given=1 work_third=33
  else
    work_third=$((work_given * 100 / 3))
    work_later $work_third
    work_touch_at=$later
  fi
  # The second sleeper's alarm comes so much later: before the next third of the lease
  work_spare=$work_third
  [ "$work_spare" -le 100 ] || work_spare=100
  work_kill_at='' work_limit_at=''
  [ -z "$work_limit" ] || { clock_add "$work_limit" "$now"; work_limit_at=$later; }
}

# work_do_due - do what is due while the command runs, and set the alarm for what is next
work_do_due() {
  clock_read
  if [ -z "$work_lost" ] && ! [ "$now" \< "$work_touch_at" ]; then
    work_touch
  fi
  work_do_limits
  later=${work_kill_at:-$work_limit_at}
  if [ -z "$later" ] || { [ -z "$work_lost" ] && [ "$work_touch_at" \< "$later" ]; }; then
    later=$work_touch_at
  fi
  if [ -n "$take_stop$work_gone$work_heard" ]; then
    work_soon=$later
    work_later 200
    [ "$later" \< "$work_soon" ] || later=$work_soon
  fi
  work_alarm "$later"
}

# work_do_limits - end the command if we are to give its message back, or its time is over
work_do_limits() {
  if [ -z "$work_kill_at" ] && [ -n "$work_back$work_lost" ]; then
    work_end_job TERM 200
  elif [ -z "$work_kill_at" ] && [ -n "$work_limit_at" ] && ! [ "$now" \< "$work_limit_at" ]; then
    work_over=1
    work_end_job TERM 500
  elif [ -n "$work_kill_at" ] && ! [ "$now" \< "$work_kill_at" ]; then
    work_end_job KILL 500
  fi
}

# work_end_job SIGNAL CENTISECONDS - send SIGNAL to the command, and KILL after that time
work_end_job() {
  work_later "$2"
  work_kill_at=$later
  work_kill "$1" "-$work_job_named"
}

# work_touch - touch the message. If that fails although the message is still ours, try again at the next third of the lease
work_touch() {
  work_later "$work_third"
  work_touch_at=$later
  message_touch "$work_given"
  case $? in
  0) slip_path=$q/out/$slip.$slip_owner.$later ;;
  66) work_lost=1 ;;
  esac
}

# work_alarm TIME - have ALRM sent at TIME by the clock, or before
work_alarm() {
  if [ -n "$work_clock" ]; then
    if [ "$now" \< "$work_clock_at" ] && ! [ "$1" \< "$work_clock_at" ]; then
      watchdog_tell_job
      return 0
    fi
    work_alarm_end
  fi
  clock_between "$now" "$1"
  alarm_s=$between_s alarm_c=$between_c
  [ "$alarm_s" -ge 0 ] || alarm_s=0 alarm_c=0
  pad "$alarm_c" 00
  work_sleeper "$alarm_s.$padded"
  alarm_c=$((alarm_c + work_spare))
  pad $((alarm_c % 100)) 00
  work_sleeper $((alarm_s + alarm_c / 100))."$padded"
  work_clock_at=$1
  watchdog_tell_job
}

# work_sleeper SECONDS - start a sleeper, a process that runs work_alarm_clock
work_sleeper() {
  work_alarm_clock "$1" &
  work_clock="$work_clock $!"
  work_name $!
  work_clock_words="$work_clock_words $work_clock_signal:$work_named"
}

# work_wake - in a trap, start a process that sends ALRM until it is ended
work_wake() {
  work_ring &
  work_woken="$work_woken $!"
}

# work_ring - what work_wake starts. PIPE ends it, of which bash says nothing on standard error
work_ring() {
  trap '' HUP INT QUIT TERM
  exec </dev/null >/dev/null 2>&1 4>&- 5>&-
  while ! owner_dead "$work_owner"; do
    sleep 0.1 || sleep 1
    kill -ALRM "$work_self"
  done
}

# work_wake_end - from here on, a trap starts no such process; end those that were started
work_wake_end() {
  work_waker='' wake_signal=PIPE
  [ "$work_clock_signal" != KILL ] || wake_signal=KILL
  for wake_pid in $work_woken; do
    ! child_lives "$wake_pid" || kill "-$wake_signal" "$wake_pid" 2>/dev/null
  done
  work_rung="$work_rung$work_woken" work_woken=
}

# work_alarm_clock SECONDS - what a sleeper runs, in the background. Signals to our group do not end it; VTALRM ends it and its `sleep`. Workers have
# no trap for VTALRM, so that signal also ends a child that still has the worker's traps
work_alarm_clock() {
  clock_sleeper='' clock_seconds=$1
  # Not PIPE either, if the watchdog was killed: without its alarms the worker would lose the message
  trap '' HUP INT QUIT TERM PIPE
  trap '[ -z "$clock_sleeper" ] || ! child_lives "$clock_sleeper" || kill -KILL "$clock_sleeper"; exit 0' VTALRM
  watchdog_tell_self "$work_clock_signal:"
  exec </dev/null >/dev/null 2>&1 4>&- 5>&-
  while :; do
    # Without exec, yash would keep a shell in between
    { exec $work_pdeathsig sleep "$clock_seconds"; } &
    clock_sleeper=$!
    wait "$clock_sleeper"
    clock_sleeper=
    # Repeat until the worker reacts: of two signals at the same moment, bash may forget one. The PID of a worker that was killed may belong
    # to another process
    ! owner_dead "$work_owner" && kill -ALRM "$work_self" || return 0
    clock_seconds=2
  done
}

# work_alarm_end - end the sleepers. The shell waits for them later (work_alarm_reap): in a trap that has interrupted a `wait`, bash may hang in
# another one
work_alarm_end() {
  [ -n "$work_clock" ] || return 0
  for alarm_word in $work_clock_words; do
    alarm_named=${alarm_word#*:}
    # The PID of a sleeper that was killed may belong to another process
    ! owner_dead "$alarm_named" || continue
    # CONT, since one that is stopped would not end
    kill "-$work_clock_signal" "${alarm_named%-*}" 2>/dev/null && kill -CONT "${alarm_named%-*}" 2>/dev/null
  done
  work_rung="$work_rung $work_clock" work_clock='' work_clock_words=
}

# work_alarm_reap - wait for the sleepers that were ended
work_alarm_reap() {
  # shellcheck disable=SC2086 # process ids
  [ -z "$work_rung" ] || wait $work_rung 2>/dev/null
  work_rung=
}

part='worker/timer'
