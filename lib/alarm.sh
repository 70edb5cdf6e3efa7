# alarm.sh - what is due while a worker's command runs: a touch of its message, the end of its time
#
#   A sleeper sends ALRM to the worker when the next of these is due. It stays from one message to the next.

# work_later CENTISECONDS - sets `later`, so long after now
work_later() {
  later_c=$((1${now#"${now%??}"} - 100 + $1))
  later=${now%??}
  later=${later#"${later%%[!0]*}"}
  pad $((${later:-0} + later_c / 100)) 0000000000
  later=$padded
  pad $((later_c % 100)) 00
  later=$later$padded
}

# work_times - when the message is to be touched, and the command's time over. A message with a lease of no time gets a second
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
  work_kill_at='' work_limit_at=''
  [ -z "$work_limit" ] || { clock_add "$work_limit" "$now"; work_limit_at=$later; }
}

# work_look - does what is due while the command runs, and sets the alarm for what is next. A trap may come in the midst of it: that one
# only has it look again
work_look() {
  work_again=1
  [ -z "$work_looking" ] || return 0
  work_looking=1
  while [ -n "$work_again" ]; do
    work_again=
    clock_read
    if [ -z "$work_lost" ] && ! [ "$now" \< "$work_touch_at" ]; then
      work_touch
    fi
    work_look_limits
    later=${work_kill_at:-$work_limit_at}
    if [ -z "$later" ] || { [ -z "$work_lost" ] && [ "$work_touch_at" \< "$later" ]; }; then
      later=$work_touch_at
    fi
    if [ -n "$take_stop$work_gone" ]; then
      work_soon=$later
      work_later 200
      [ "$later" \< "$work_soon" ] || later=$work_soon
    fi
    work_alarm "$later"
  done
  work_looking=
}

work_look_limits() {
  if [ -z "$work_kill_at" ] && [ -n "$work_back$work_lost" ]; then
    work_end_job TERM 200
  elif [ -z "$work_kill_at" ] && [ -n "$work_limit_at" ] && ! [ "$now" \< "$work_limit_at" ]; then
    work_over=1
    work_end_job TERM 500
  elif [ -n "$work_kill_at" ] && ! [ "$now" \< "$work_kill_at" ]; then
    work_end_job KILL 500
  fi
}

# work_end_job SIGNAL CENTISECONDS - and KILL so much later
work_end_job() {
  work_later "$2"
  work_kill_at=$later
  work_kill "$1" "-$work_job"
}

# work_touch - where it fails for another reason than that the message is lost, the next third is early enough
work_touch() {
  work_later "$work_third"
  work_touch_at=$later
  message_touch "$work_given"
  case $? in
  0) found=$q/out/$slip.$slip_owner.$later ;;
  66) work_lost=1 ;;
  esac
}

# work_alarm TIME - ALRM comes at TIME by the clock, or before
work_alarm() {
  if [ -n "$work_clock" ]; then
    if [ "$now" \< "$work_clock_at" ] && ! [ "$1" \< "$work_clock_at" ]; then
      work_tell_job
      return 0
    fi
    work_alarm_end
  fi
  alarm_s=${1%??} alarm_from=${now%??}
  alarm_s=$((${alarm_s#"${alarm_s%%[!0]*}"} - ${alarm_from#"${alarm_from%%[!0]*}"}))
  alarm_c=$((1${1#"${1%??}"} - 1${now#"${now%??}"}))
  [ $alarm_c -ge 0 ] || alarm_s=$((alarm_s - 1)) alarm_c=$((alarm_c + 100))
  [ $alarm_s -ge 0 ] || alarm_s=0 alarm_c=0
  pad $alarm_c 00
  work_alarm_clock "$alarm_s.$padded" &
  work_clock=$! work_clock_at=$1
  work_name "$work_clock"
  work_clock_named=$named
  work_tell_job
}

# work_alarm_clock SECONDS - in the background. A signal that ends our group does not end it; VTALRM ends
# it and its sleeper: one that workers have no trap for, so that it is not lost on a process that is not yet itself
work_alarm_clock() {
  clock_sleeper='' clock_seconds=$1
  trap '' HUP INT QUIT TERM
  trap '[ -z "$clock_sleeper" ] || kill -KILL "$clock_sleeper"; exit 0' VTALRM
  work_tell_self "$work_clock_signal:"
  exec </dev/null >/dev/null 2>&1 4>&- 5>&-
  while :; do
    # `exec`, or yash has a shell in between
    { exec $work_pdeathsig sleep "$clock_seconds"; } &
    clock_sleeper=$!
    wait "$clock_sleeper"
    clock_sleeper=
    # again, until it is heard: of two signals at the same moment bash may forget one
    kill -ALRM "$work_self" || return 0
    clock_seconds=2
  done
}

# work_alarm_end - the shell waits for it later: in the trap of a `wait`, bash may hang in another
work_alarm_end() {
  [ -n "$work_clock" ] || return 0
  kill "-$work_clock_signal" "$work_clock" 2>/dev/null
  work_rung="$work_rung $work_clock" work_clock=
}

work_alarm_reap() {
  # shellcheck disable=SC2086 # process ids
  [ -z "$work_rung" ] || wait $work_rung 2>/dev/null
  work_rung=
}
