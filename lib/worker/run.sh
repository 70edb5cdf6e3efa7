# worker/run.sh - a worker: take messages and run the command. feed.sh feeds the command, watchdog.sh and timer.sh run beside it, outcome.sh
# settles the message
#
# While the command runs, timer_run_due does all that is due, before each `wait` for the command. A trap sets variables, and
# interrupts that `wait`; what it sets depends on no exit status (R11).
# Descriptors: 5 leads to the watchdog, 4 to the teller, which counts for several workers (worker/pool.sh), 8 comes from the feeder (worker/feed.sh), 6 is
# the body, for the feeder.
#
# Its state: work_abort is the signal on which to end the command and give its message back; take_stop is set if no further message is to be taken;
# work_before_wait is what work_await calls before each `wait`; work_on_signal what each trap calls.

need engine/clock engine/process engine/take engine/settle worker/feed worker/watchdog worker/timer worker/outcome

# work_reset - begin with no message, no processes beside the worker, and all counts 0
work_reset() {
  job_pid='' take_stop='' taken='' work_abort='' work_before_wait='' work_gone_since='' work_on_signal='' work_pass='' work_signalled=''
  feed_open='' feed_file='' interrupter_pids='' timer_ended='' timer_pids='' timer_words='' wait_sleeper='' watchdog_restarted='' work_teller=''
  work_watchdog='' work_done=0 work_failed=0 work_buried=0 work_exit=0
}

# work_tools - see what the system can do. Set work_group and work_pdeathsig to words before the command that give it a process group of its own, and
# let it be killed with its worker, or to nothing; work_tty if standard error is a terminal
work_tools() {
  work_group='' work_pdeathsig='' work_tty=''
  ! twice works command -v setsid || work_group=setsid
  ! twice works setpriv --pdeathsig KILL true || work_pdeathsig='setpriv --pdeathsig KILL'
  [ ! -t 3 ] || work_tty=1
}

# work_check_signals - return 70 if a signal of our own processes does not arrive: whoever started us ignores or blocks it, which a shell cannot change.
# Without ALRM no lease would be renewed, and another worker would get the message too. Nor would one under busybox if CHLD is blocked: its `wait` does not
# return, so it would not see that a sleeper has ended. If CHLD is only ignored, `wait` works
work_check_signals() {
  # dash unblocks CHLD as it starts a program
  env true
  work_blocked=
  while read -r work_word work_mask; do
    # CHLD is signal 17, so bit 16
    case $work_word$work_mask in
    SigBlk:*[13579bdf]????) work_blocked=CHLD ;;
    esac
  done 2>/dev/null <"$FLATQ_PROC/self/status"
  for work_signal in ALRM VTALRM USR1 USR2 $work_blocked; do
    work_signalled=
    trap 'work_signalled=1' "$work_signal"
    kill -s "$work_signal" "$$"
    trap - "$work_signal"
    [ -n "$work_signalled" ] || { why="the signal $work_signal is ignored or blocked here: start the worker without that"; return 70; }
  done
  work_signalled=
}

# work_alone COMMAND ... - run one worker, in this process
work_alone() {
  work_self=$$
  work_name_owner
  work_traps
  work_begin || die $? "$why"
  work_worker "$work_count" "$@"
  work_exit_now
}

# work_traps - set the traps of a worker, or parent of workers, that was started by the user
work_traps() {
  trap 'work_on_first_signal INT' INT
  trap 'work_on_first_signal QUIT' QUIT
  trap 'work_on_first_signal TERM' TERM
  trap 'work_on_hup HUP' HUP
}

# work_begin - called once the traps are set: start the watchdog, write the pid file, and report that we can begin
work_begin() {
  watchdog_start || return $?
  if [ -n "$work_pid_file" ]; then
    need worker/daemon
    pid_file_take || return $?
  fi
  [ -z "$work_ready" ] || { need worker/daemon; daemon_ready; }
  [ -z "$work_pid_file" ] || { need worker/daemon; trap pid_file_remove EXIT; }
}

# work_exit_now - clean up and end, by the signal if there was one, as its sender expects
work_exit_now() {
  if [ -n "$work_abort" ]; then
    # A shell that dies of a signal may not run its EXIT trap
    [ -z "$work_pid_file" ] || { need worker/daemon; pid_file_remove; }
    end_by "$work_abort"
  fi
  exit "$work_exit"
}

# work_on_first_signal SIGNAL - the trap for a first signal: finish the job, then stop; for a second one, as work_on_hup
work_on_first_signal() {
  case $take_stop in
  ?*) work_abort=$1 ;;
  esac
  work_take_no_more
}

# work_take_no_more - take no further message
work_take_no_more() {
  work_trapped=1 work_noted=1 take_stop=1 work_pass=1
  $work_on_signal
  ${wait_sleeper:+work_end_wait}
}

# work_end_wait - end the sleeper of a wait for a message. KILL: see wait_sleeper_end. If this fails, the wait ends within two seconds
work_end_wait() {
  ! child_lives "$wait_sleeper" || process_signal KILL "$wait_sleeper" || :
}

# work_on_hup SIGNAL - the trap for HUP: stop the job too, and give its message back
work_on_hup() {
  work_abort=$1
  work_take_no_more
}

# work_note_signal - the trap of a worker under a parent for a signal that is not its parent's: note that it has interrupted a `wait`, and go on
work_note_signal() {
  work_trapped=1 work_noted=1 work_signalled=1
  $work_on_signal
}

# work_worker COUNT COMMAND ... - work on up to COUNT messages (empty: no limit), one after the other
work_worker() {
  work_left=$1
  shift
  trap 'work_trapped=1 work_noted=1' ALRM
  # Do not die of SIGPIPE if the watchdog was killed. Do not set work_noted: work_before_wait, which writes to the
  # watchdog, may itself cause this signal, and work_await would then begin anew and not wait
  trap 'work_trapped=1' PIPE
  while [ -z "$take_stop" ] && [ "$work_left" != 0 ]; do
    # shellcheck disable=SC2086 # names without blanks
    take_wait "$work_wait" "$work_owner" "$work_lease" $work_queues
    work_code=$?
    case $work_code in
    0)
      [ -z "$work_left" ] || work_left=$((work_left - 1))
      work_message "$@" || { work_code=$?; work_end_helpers; die $work_code "$why"; }
      taken='' ;;
    66) break ;;
    69)
      [ "$why" != 'closed and empty' ] || break
      # RACE: a queue that was dropped meanwhile may be created again: wait
      sleep 1 ;;
    *) work_end_helpers; die $work_code "$why" ;;
    esac
  done
  work_end_helpers
}

# work_name_owner - set work_owner to the PID-TIME of this worker, or parent of workers. By owner_read, which ends us if it cannot know: others would
# take a worker with a wrong name for dead, and get its message
work_name_owner() {
  clock_read
  owner_read
  work_owner=$owner
}

# work_end_helpers - end the processes beside the worker before it ends itself
work_end_helpers() {
  timer_disarm
  timer_reap
  # The PID of a watchdog that was killed may belong to another process
  watchdog_tell || work_watchdog=
  close_descriptor 5
  feed_close
  [ -z "$work_watchdog" ] || { work_kill KILL "$work_watchdog_named"; wait "$work_watchdog"; } 2>/dev/null
  work_watchdog=
  [ -z "$work_tty" ] || [ -n "$work_teller" ] || [ $((work_done + work_failed + work_buried)) -eq 0 ] || printf '\n' >&3
}

# work_message COMMAND ... - run the command for the message that was taken, and settle it
work_message() {
  slip_path=$q/out/$taken slip_owner=$work_owner
  queue_conf || return $?
  work_most_here=$work_most
  if [ "$queue_most_tries" != 0 ] && { [ "$work_most" = 0 ] || [ "$queue_most_tries" -lt "$work_most" ]; }; then
    work_most_here=$queue_most_tries
  fi
  if [ -n "$take_stop" ]; then
    # We were told to stop between the look and the take
    work_untried || { work_code=$?; [ "$work_code" -eq 66 ] || return "$work_code"; }
    return 0
  fi
  # A message that kills its workers never gets an exit code. So look how often it was put back (the timeouts in COUNTS): bury it after work_most_here
  # times, and after as many more for each kick
  if [ "$work_most_here" != 0 ] &&
    [ $((${slip_counts%%-*} / work_most_here)) -gt "${slip_counts##*-}" ]; then
    work_reason=dead
    work_bury || { work_code=$?; [ "$work_code" -eq 66 ] || return "$work_code"; }
    return 0
  fi
  until work_run "$@"; do
    work_code=$?
    [ "$work_code" -eq 1 ] || { work_why=$why; work_untried; why=$work_why; return "$work_code"; }
  done
  work_settle "$@"
}

# work_untried - give the message back, with as many tries as before, since no command was started for it
work_untried() {
  slip_tries=$((slip_tries - 1))
  message_release '' 0
}

# work_run COMMAND ... - run the command; set work_code, and work_reason if it failed. Return 1 if it was not started, as its watchdog was killed and
# replaced
work_run() {
  body_is_no_link && feed_prepare || return $?
  timer_deadlines
  work_reason='' lease_lost='' job_timed_out='' work_signalled='' watchdog_restarted=
  # If the worker was stopped since it took the message, another one may have it, or get it while the command begins. If the renewal fails while the lease
  # lasts, timer_run_due tries again
  [ "$now" \< "$lease_renew_at" ] || lease_renew || [ "$now" \< "${slip_path##*.}" ] || return "$lease_code"
  [ -z "$lease_lost" ] || return 0
  timer_limit
  feed_body
  work_code=$?
  case $work_code in
  0) ;;
  # As if the command had failed: the message comes back later, and is buried in the end
  1) work_code=75; work_unfed; return 0 ;;
  66) lease_lost=1; return 0 ;;
  *) return $work_code ;;
  esac
  export FLATQ_ID="$id" FLATQ_QUEUE="$queue" FLATQ_TRIES="$slip_tries"
  { command exec 7>"$feed_path"; } 2>/dev/null || { disk_failed "$FLATQ_DIR/.wait" "spool $FLATQ_DIR"; return $?; }
  work_whole || { why='a failed redirection has closed a descriptor'; return 74; }
  feed_begin | work_exec "$@" &
  job_pid=$!
  # From here on only the feeder holds the pipe, so we see its end
  close_descriptor 6
  close_descriptor 7
  work_name "$job_pid"
  job_named=$work_named
  work_before_wait=timer_run_due
  work_await "$job_named"
  work_before_wait=
  timer_reap
  # If the command was to be killed, kill what is left of its process group
  [ -z "$job_kill_at" ] || [ -z "$work_group" ] || work_kill KILL "-$job_named"
  job_pid=
  watchdog_tell_job
  work_told=$?
  # 75, and the watchdog was killed: work_exec found no watchdog, and has not started the command. Run it again. If the command itself exited with 75
  # just then, it gets its message once more, as after any death
  if [ "$work_code" -eq 75 ] && [ "$work_told$watchdog_restarted" != 0 ] && [ -z "$job_kill_at" ]; then
    feed_open=
    [ $work_told -ne 0 ] || work_told=1
    return $work_told
  fi
  work_judge
  # If the feeder's pipe was not read to its end, the feeder may still write to it: open a new one
  [ "$work_reason" = '' ] || feed_open=
}

# work_judge - set work_reason if the command has failed
work_judge() {
  if [ -n "$job_timed_out" ]; then
    work_reason=timeout
  elif [ -n "$work_unknown" ]; then
    work_reason=unknown
  elif [ "$work_code" -gt 128 ] && [ "$work_code" -le 192 ]; then
    work_reason=signal-$((work_code - 128))
  elif [ "$work_code" -ne 0 ]; then
    work_reason=exit-$work_code
    # Also 75: work_exec has not started the command, since its feeder was gone
    [ "$work_code" -ne 75 ] || feed_whole || work_reason=unfed
  elif ! feed_whole; then
    work_unfed
  fi
}

# work_unfed - set work_reason for a command that did not get the whole message
work_unfed() {
  work_reason=unfed
  base64 -d "$q/body/$slip_id" >/dev/null 2>&1 || work_reason=damaged
}

# work_exec COMMAND ... - become the command, in a process of its own
work_exec() {
  # Never begin without a watchdog: a command that outlives its worker has a message that others get
  trap : PIPE
  watchdog_tell_self KILL:- || exit 75
  # RACE: a signal to our group may kill the feeder before it ignores signals. The command would take the end of its input for an empty message. So wait
  # for the feeder's line, behind which `read` takes nothing. Another line means that our input is not the feeder's pipe: a dup2 has failed. Exit with 75,
  # not 0: feed_whole accepts a 0 while the feeder lives
  IFS= read -r work_line && [ "$work_line" = "$slip_nonce" ] || exit 75
  work_whole || exit 75
  # That wait may have been long: if our worker has died meanwhile, do not begin
  ! owner_dead "$work_owner" || exit 75
  umask "$shell_umask"
  if [ -n "$shell_locale" ]; then LC_ALL=$shell_locale; else unset LC_ALL; fi
  # shellcheck disable=SC2086 # no word or some
  exec $work_pdeathsig $work_group "$@" 2>&3 3>&- 4>&- 5>&- 6<&- 7>&- 8<&-
}

# work_whole - return whether standard input, output, error and the copy on 3 are open. A shell may close the one that it could not copy for a redirection
# (R12): then the next file that the command opens would get its number. Without /proc nobody can tell
work_whole() {
  set -- "$FLATQ_PROC/self/fd"
  [ ! -e "$1" ] || { [ -e "$1/0" ] && [ -e "$1/1" ] && [ -e "$1/2" ] && [ -e "$1/3" ]; }
}

# work_lives PID-TIME - return whether this child has not ended. If a look at it failed, then or now, it lives as long as it can be signalled
work_lives() {
  if process_started "${1%-*}"; then
    [ "${1#*-}" = 000000000000 ] || ! [ "$started" \> "${1#*-}" ]
  else
    [ -z "$started_over" ] && kill -0 "${1%-*}" 2>/dev/null
  fi
}

# work_await PID-TIME - wait for it, whatever traps interrupt; set work_code. If a signal comes just as a process of the pipeline ends, such as the
# feeder, bash forgets that process and waits for ever. So after the first signal, work_before_wait wakes the wait every two seconds; a process that
# has been gone for a second and five waits, since other signals may have ended some, has an unknown exit code: 255, and work_unknown
work_await() {
  work_first='' work_gone_since='' work_unknown=
  while :; do
    work_noted=''
    $work_before_wait
    work_trapped=''
    # RACE: from here on, a trap also starts a process that sends ALRM: it ends a `wait` before which the signal came
    work_on_signal=interrupter_start
    [ -z "$work_noted" ] || { interrupter_stop; continue; }
    work_waited=
    work_reap "${1%-*}" || :
    # Its redirection has failed: wait once more without it; the shell's message is visible then
    [ -n "$work_waited" ] || { wait "${1%-*}"; work_code=$?; }
    interrupter_stop
    # If it lives, this was not its exit code: a signal has ended the `wait`, and its trap may not have said so; or bash has forgotten it, since its wait4 has
    # failed. One without a start time (000000000000) had ended before we looked: do not ask, its PID may be another's
    if { [ "$work_code" -gt 128 ] || [ "${1#*-}" != 000000000000 ]; } && work_lives "$1"; then
      work_gone_since='' work_first=
      [ -n "$work_trapped" ] || [ "$work_code" -gt 128 ] || sleep 1
      continue
    fi
    [ -n "$work_trapped" ] || break
    work_first=$work_code
    clock_read
    if [ -n "$work_gone_since" ]; then
      work_gone_waits=$((work_gone_waits + 1))
      clock_add 1 "$work_gone_since"
      [ "$now" \< "$later" ] || [ "$work_gone_waits" -lt 5 ] || { work_code=255 work_unknown=1; break; }
    else
      work_gone_since=$now work_gone_waits=1
    fi
  done
  work_gone_since=
  # 127: the process had ended, and an earlier `wait` had read its exit code, when the trap came
  [ "$work_code" -ne 127 ] || [ -z "$work_first" ] || work_code=$work_first
}

# work_reap PID - wait for it, and say nothing of it; set work_code and work_waited. In a function of its own: mksh leaves the one whose redirection fails (R12)
work_reap() {
  { wait "$1"; work_code=$? work_waited=1; } 2>/dev/null
}
