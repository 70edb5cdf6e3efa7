# worker/run.sh - one worker: take a message, run the command for it (worker/job.sh), settle it
# (worker/outcome.sh), and so on
#
# Descriptors: lib/CONTRIBUTING.md; and 0 under a parent, the pipe to it (worker/pool.sh).
# take_stop: take no further message. work_abort: the signal on which to give the message back.

need engine/clock engine/process engine/take engine/wait engine/state \
  worker/helper worker/job worker/outcome

# work_alone COMMAND ... - be a worker
work_alone() {
  helper_named='' helper_jobs=0 job_last=''
  work_begin helper_pipes work_told_worker
  job_places job_litter
  trap 'job_late=1' ALRM
  [ -z "$work_parent" ] || trap 'take_stop=1; work_told_worker' USR1
  while [ -z "$take_stop" ] && [ "$work_count" != 0 ]; do
    # shellcheck disable=SC2086 # names without blanks
    take_wait "$work_wait" "$work_owner" "$work_lease" $work_queues
    work_code=$?
    case $work_code in
    0)
      [ -z "$work_count" ] || work_count=$((work_count - 1))
      work_message "$@" || die $? "$why" ;;
    66) break ;;
    69)
      [ "$why" != 'closed and empty' ] || break
      # RACE: a queue that was dropped meanwhile may be created again: wait
      sleep 1 ;;
    *) die $work_code "$why" ;;
    esac
    door_turn
  done
  # An rm may have been killed
  job_places job_litter
  [ -z "$helper_named" ] || owner_dead "$helper_named" || kill -KILL "${helper_named%-*}"
  work_end
}

# work_begin PIPE TOLD - name this process, set its traps, which call TOLD, call PIPE, write the pid
# file, and report that we can begin
work_begin() {
  work_told=$2
  take_stop='' work_abort='' job_pid='' work_tty=
  work_done=0 work_failed=0 work_buried=0 work_exit=0
  [ ! -t 5 ] || work_tty=1
  clock_read
  work_owner=$$-$now
  work_traps
  # Nobody may read our standard error
  trap : PIPE
  setsid true || die 70 'setsid is missing or failed'
  "$1" || die $? "$why"
  [ -z "$work_pid_file$work_ready" ] || need worker/daemon
  [ -z "$work_pid_file" ] || pid_file_take || die $? "$why"
  [ -z "$work_ready" ] || daemon_ready
  trap work_over EXIT
}

# work_over - the EXIT trap
work_over() {
  work_code=$?
  # Nobody else kills the command if the helper has ended likewise
  [ -z "$job_pid" ] || job_kill KILL
  case $work_code in
  # A shell that cannot start a process; 254: bash
  2 | 254) die 74 'cannot start a process' ;;
  esac
  [ -z "$work_pid_file" ] || pid_file_remove
}

# work_pipe - make a pipe, both of whose ends are open on 6
work_pipe() {
  nonce_read
  work_path=$FLATQ_DIR/.wait/$work_owner.$nonce
  mkfifo "$work_path" && command exec 6<>"$work_path" ||
    { disk_failed "$FLATQ_DIR/.wait" "spool $FLATQ_DIR"; return; }
  rm -f "$work_path" || :
}

work_traps() {
  trap 'work_stop INT' INT
  trap 'work_stop QUIT' QUIT
  trap 'work_stop TERM' TERM
  trap 'work_stop HUP' HUP
}

# work_stop SIGNAL - the trap: finish the job, then stop; on HUP, and on a second signal, end the
# command, and give its message back
work_stop() {
  trap '' HUP INT QUIT TERM
  [ "$1" != HUP ] && [ -z "$take_stop" ] || work_abort=$1
  take_stop=1
  "$work_told"
  [ -n "$work_abort" ] || work_traps
}

# work_told_worker - TOLD of a worker: end its wait for a message, and the command
work_told_worker() {
  # The sleeper is not reaped yet
  [ -z "${wait_sleeper:-}" ] || kill -KILL "$wait_sleeper"
  [ -z "$work_abort" ] || [ -z "$job_pid" ] || job_abort
}

# door_turn - after each turn of a wait, and each message: under a parent that is gone, stop
door_turn() {
  [ -z "$work_parent" ] || ! owner_dead "$work_parent" || take_stop=1
}

# work_end - end, by the signal if there was one
work_end() {
  [ -z "$work_tty" ] || [ -n "$work_parent" ] ||
    [ $((work_done + work_failed + work_buried)) -eq 0 ] || printf '\n' >&5
  if [ -n "$work_abort" ]; then
    # A shell that dies of a signal may not run its EXIT trap
    [ -z "$work_pid_file" ] || pid_file_remove
    need cli/usage
    end_by "$work_abort"
  fi
  exit "$work_exit"
}

# work_message COMMAND ... - run the command for the message that was taken, and settle it
work_message() {
  slip_path=$q/out/$taken slip_owner=$work_owner
  slip_format
  job_slip=$slip
  queue_conf || return
  work_most_here=$work_most
  if [ "$queue_most_tries" != 0 ] &&
    { [ "$work_most" = 0 ] || [ "$queue_most_tries" -lt "$work_most" ]; }; then
    work_most_here=$queue_most_tries
  fi
  # A message that kills its workers gets no exit code: bury it once it was put back so often (the
  # timeouts in COUNTS), and after as many more for each kick
  job_given=
  if [ -n "$take_stop" ]; then
    job_reason=untried
  elif [ "$work_most_here" != 0 ] &&
    [ $((${slip_counts%%-*} / work_most_here)) -gt "${slip_counts##*-}" ]; then
    job_reason=dead
  else
    job_run "$@" || return
  fi
  work_settle "$@"
}
