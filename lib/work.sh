# work.sh - a worker: takes messages and runs the command; what feeds it is in feed.sh, what stands beside it in beside.sh and alarm.sh, what
# becomes of the message in after.sh
#
# All that is to happen while the command runs happens in work_look: in the traps that interrupt the `wait` for the command, and once
# before that wait. At any other time the traps only leave a note. Descriptors: 5 is the guard's pipe, 4 the teller's, 8 the feeder's (feed.sh).

# work_tools - sets work_group and work_pdeathsig: words before the command that give it a process group of its own, and kill it when
# its worker is killed, where the system can do that
work_tools() {
  work_group='' work_pdeathsig='' work_clock_signal=VTALRM work_tty='' work_teller='' work_guarded='' work_clock='' work_rung=''
  work_job='' work_running='' work_looking='' work_gone='' feed_open='' feed_file=''
  work_done=0 work_failed=0 work_buried=0 work_exit=0 work_back='' take_stop='' wait_sleeper='' taken=''
  ! command -v setsid >/dev/null 2>&1 || work_group=setsid
  ! setpriv --pdeathsig KILL true 2>/dev/null || work_pdeathsig='setpriv --pdeathsig KILL'
  # what was started in a trap hears no trap in yash. Whoever has inherited the variable lacks yash's options
  [ -z "${YASH_VERSION:-}" ] || case $(set -o) in
  *lepredict*) work_clock_signal=KILL ;;
  esac
  [ ! -t 2 ] || work_tty=1
}

# work_alone COMMAND ... - one worker, in this process
work_alone() {
  work_self=$$
  trap 'work_stop INT' INT
  trap 'work_stop QUIT' QUIT
  trap 'work_stop TERM' TERM
  trap 'work_give_back HUP' HUP
  work_begin || die $? "$why"
  work_worker "$work_count" "$@"
  work_leave
}

# work_begin - once signals are heard: the guard, and what is to be told, who we are and that we can begin
work_begin() {
  work_guard_start || return
  if [ -n "$work_pid_file" ]; then
    pid_file_take || return
  fi
  [ -z "$work_ready" ] || daemon_ready
  [ -z "$work_pid_file" ] || trap pid_file_leave EXIT
}

# work_leave - the end, as whoever sent a signal expects
work_leave() {
  if [ -n "$work_back" ]; then
    # a shell that dies of a signal may not run its trap for the end
    [ -z "$work_pid_file" ] || pid_file_leave
    end_by "$work_back"
  fi
  exit "$work_exit"
}

# work_stop SIGNAL - the first time: no more after the job in hand
work_stop() {
  if [ -n "$take_stop" ]; then
    work_give_back "$1"
  else
    work_finish
  fi
}

work_finish() {
  work_trapped=1 take_stop=1
  # where there is no job in hand but a wait for one, it ends. KILL: see wait_turn
  [ -z "$wait_sleeper" ] || kill -KILL "$wait_sleeper" 2>/dev/null || :
  # else the `wait` for it is to be woken, see work_wait
  [ -z "$work_running" ] || work_look
}

# work_give_back SIGNAL - nor the job in hand
work_give_back() {
  work_back=$1
  work_finish
}

# work_worker COUNT COMMAND ... - up to COUNT messages (empty: no limit), one after the other
work_worker() {
  work_left=$1
  shift
  trap 'work_trapped=1; [ -z "$work_running" ] || work_look' ALRM
  # a guard that was killed is no reason to die
  trap : PIPE
  clock_read
  process_started "$work_self" || started=$now
  work_owner=$work_self-$started
  while [ -z "$take_stop" ] && [ "$work_left" != 0 ]; do
    # shellcheck disable=SC2086 # names without blanks
    take_wait "$work_wait" "$work_owner" "$work_lease" $work_queues
    work_code=$?
    case $work_code in
    0)
      [ -z "$work_left" ] || work_left=$((work_left - 1))
      work_message "$@" || { work_code=$?; work_end; die $work_code "$why"; }
      taken='' ;;
    66) break ;;
    69)
      [ "$why" != 'closed and empty' ] || break
      # RACE: a queue that was dropped meanwhile may be made again
      sleep 1 ;;
    *) work_end; die $work_code "$why" ;;
    esac
  done
  work_end
}

# work_end - what stands beside the worker goes before it
work_end() {
  work_alarm_end
  work_alarm_reap
  work_tell
  exec 5>&-
  feed_close
  [ -z "$work_guarded" ] || { kill -KILL "$work_guarded"; wait "$work_guarded"; } 2>/dev/null
  work_guarded=
  [ -z "$work_tty" ] || [ -n "$work_teller" ] || [ $((work_done + work_failed + work_buried)) -eq 0 ] || printf '\n' >&2
}

# work_message COMMAND ... - what was taken is worked on and settled
work_message() {
  found=$q/out/$taken slip_owner=$work_owner
  queue_conf || return
  work_most_here=$work_most
  if [ "$queue_most" != 0 ] && { [ "$work_most" = 0 ] || [ "$queue_most" -lt "$work_most" ]; }; then
    work_most_here=$queue_most
  fi
  if [ -n "$take_stop" ]; then
    # told to stop between the look and the take
    message_release '' 0 || [ $? -eq 66 ]
    return
  fi
  # a message that its workers die of does not come to an exit code; each kick gives it as many tries again
  if [ "$work_most_here" != 0 ] &&
    [ $((${slip_counts%%-*} / work_most_here)) -gt "${slip_counts##*-}" ]; then
    work_reason=dead
    work_bury || [ $? -eq 66 ]
    return
  fi
  work_run "$@" || return
  work_settle "$@"
}

# work_run COMMAND ... - runs it; sets work_code, and work_reason where it failed
work_run() {
  feed_open || return
  work_times
  work_reason='' work_lost='' work_over=''
  export FLATQ_ID="$id" FLATQ_QUEUE="$queue" FLATQ_TRIES="$slip_tries"
  { command exec 7>"$feed_path"; } 2>/dev/null || { disk_failed "$FLATQ_DIR/.wait" "spool $FLATQ_DIR"; return; }
  feed_begin | work_exec "$@" &
  work_job=$!
  # from here on only the feeder has it: its end is the end of the words
  exec 7>&-
  work_name "$work_job"
  work_job_named=$named
  work_look
  # RACE: from here on the traps look; what came before, is looked at here
  work_running=1
  clock_read
  { [ -z "$work_back" ] || [ -n "$work_kill_at" ]; } && [ "$now" \< "$work_clock_at" ] || work_look
  work_wait "$work_job"
  work_running=
  work_alarm_reap
  # of what was to be killed nothing stays: its group is empty, or gets KILL
  [ -z "$work_kill_at" ] || [ -z "$work_group" ] || kill -KILL "-$work_job" 2>/dev/null || :
  work_job=
  work_tell_job
  if [ -n "$work_over" ]; then
    work_reason=timeout
  elif [ -n "$work_unknown" ]; then
    work_reason=unknown
  elif [ "$work_code" -gt 384 ]; then
    # as yash says it
    work_reason=signal-$((work_code - 384))
  elif [ "$work_code" -gt 128 ] && [ "$work_code" -le 192 ]; then
    work_reason=signal-$((work_code - 128))
  elif [ "$work_code" -ne 0 ]; then
    work_reason=exit-$work_code
  elif ! feed_ended; then
    work_reason=unfed
    base64 -d "$q/body/$slip_id" >/dev/null 2>&1 || work_reason=damaged
  fi
  # words that nobody has read to their end may be of a feeder that is still there
  [ "$work_reason" = '' ] || feed_open=
}

# work_exec COMMAND ... - in its own process
work_exec() {
  work_tell_self KILL:-
  umask "$shell_umask"
  if [ -n "$shell_locale" ]; then LC_ALL=$shell_locale; else unset LC_ALL; fi
  # shellcheck disable=SC2086 # no word or some
  exec $work_pdeathsig $work_group "$@" 4>&- 5>&- 7>&- 8<&-
}

# work_wait PID - waits for it, whatever traps come between; sets work_code. In bash a signal that comes in the instant in which a process of
# the pipeline ends, say the one that feeds it, makes it forget that one, and wait for it for ever: so from the first signal on it is woken every
# two seconds, and a process that is gone for a second has an end that nobody knows: 255, and work_unknown
work_wait() {
  work_first='' work_gone='' work_unknown=
  while :; do
    work_trapped=
    wait "$1" 2>/dev/null
    work_code=$?
    [ -n "$work_trapped" ] || break
    work_first=$work_code
    process_started "$1" && continue
    clock_read
    if [ -n "$work_gone" ]; then
      clock_add 1 "$work_gone"
      [ "$now" \< "$later" ] || { work_code=255 work_unknown=1; break; }
    else
      work_gone=$now
      [ -z "$work_running" ] || work_look
    fi
  done
  work_gone=
  # 127: it had ended, and was told, when the trap came
  [ "$work_code" -ne 127 ] || [ -z "$work_first" ] || work_code=$work_first
}
