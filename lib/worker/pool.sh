# worker/pool.sh - several workers under one parent
#
# The parent passes signals on, and has a watchdog of its own: when the parent is killed, the watchdog makes its workers give back what they have.
# On a terminal, the teller is a process that counts for all of them and writes the one line.

need engine/process worker/run worker/watchdog worker/timer worker/outcome

# work_parent COMMAND ... - start as many workers as -j says; end when all of them have
work_parent() {
  work_self=$$ work_crew='' work_words=''
  work_name_owner
  work_traps
  trap 'work_trapped=1' ALRM
  trap 'work_trapped=1' PIPE
  work_begin || die $? "$why"
  [ -z "$work_tty" ] || teller_start || die $? "$why"
  work_crew_start "$@"
  close_descriptor 4
  work_before_wait=work_pass_signal
  for work_pid in $work_crew; do
    work_await "$work_pid"
    if [ "$work_code" -gt 128 ]; then
      # Our signal may reach a worker before its traps are set: no failure if we were told to stop
      [ -n "$take_stop" ] || work_exit=70
    elif [ "$work_code" -ne 0 ] && [ "$work_exit" -ne 70 ]; then
      work_exit=$work_code
    fi
  done
  [ -z "$work_teller" ] || wait "$work_teller"
  work_end_helpers
  work_exit_now
}

# work_crew_start COMMAND ... - start the workers; set work_crew to their PID-TIME
work_crew_start() {
  work_number=0
  while [ $work_number -lt "$work_jobs" ] && [ -z "$take_stop" ]; do
    work_share=$work_count
    if [ -n "$work_count" ]; then
      work_share=$((work_count / work_jobs + (work_number < work_count % work_jobs)))
      [ $work_share -ne 0 ] || break
    fi
    work_child "$work_share" "$@" &
    work_name $!
    work_crew="$work_crew $work_named" work_words="$work_words USR2:$work_named"
    # shellcheck disable=SC2086 # one word each
    watchdog_tell_sure $work_words || :
    work_number=$((work_number + 1))
  done
}

# work_pass_signal - if a signal came, pass it to the workers. They act only on their parent's, though a terminal sends its signals to the whole group
work_pass_signal() {
  [ -n "$work_pass" ] || return 0
  work_pass=
  work_signal_crew
  # From now on the `wait` must be woken, as work_await explains
  [ -n "$timer_pids" ] || sleeper_start 2
}

# work_signal_crew - tell the workers to finish (USR1), or to give their messages back (USR2)
work_signal_crew() {
  pass_signal=USR1
  [ -z "$work_abort" ] || pass_signal=USR2
  for pass_pid in $work_crew; do
    # The PID of a worker that has ended may belong to another process
    owner_dead "$pass_pid" || process_signal "$pass_signal" "${pass_pid%-*}" || :
  done
}

# work_child COUNT COMMAND ... - run a worker under a parent. $$ is that of the parent here
work_child() {
  trap '' INT QUIT
  trap work_note_signal HUP TERM
  trap 'work_trapped=1' PIPE
  trap work_take_no_more USR1
  trap 'work_on_hup USR2' USR2
  watchdog_tell_self USR2:
  close_descriptor 5
  work_watchdog=''
  { read -r work_self self_rest <"$FLATQ_PROC/self/stat"; } 2>/dev/null || work_self=$(exec sh -c 'printf %s "$PPID"')
  work_name_owner
  watchdog_start || die $? "$why"
  work_worker "$@"
  exit "$work_exit"
}

# teller_start - start the teller; 4 is the pipe to it
teller_start() {
  work_pipe || return $?
  { command exec 4>"$pipe_path" 7>&-; } 2>/dev/null || { disk_failed "$FLATQ_DIR/.wait" "spool $FLATQ_DIR"; return $?; }
  teller &
  work_teller=$!
  close_descriptor 6
  rm -f "$pipe_path" 2>/dev/null || :
}

# teller - count what the workers report, until the pipe ends
teller() {
  trap '' HUP INT QUIT TERM
  exec <&6 4>&- 5>&- 6<&-
  work_teller=
  while read -r tell_what; do work_count_one "$tell_what"; done
  [ $((work_done + work_failed + work_buried)) -eq 0 ] || printf '\n' >&3
}
