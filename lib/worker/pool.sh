# worker/pool.sh - several workers under one parent
#
# Each worker is a process of its own, in a session of its own: `work --child`. The parent passes
# signals on: USR1 to finish, HUP to give back. Whether the parent lives, a worker sees while it
# waits (door_turn), and its helper while a command runs. The workers hold the writing end of a
# pipe: its end tells the parent that all have ended. On a terminal they report there what they have
# done, since only the parent writes the line that counts.

need engine/process worker/run worker/outcome

# work_several COMMAND ... - start as many workers as -j says; end when all of them have
work_several() {
  pool_crew='' pool_number=0
  work_begin pool_pipe pool_tell
  while [ $pool_number -lt "$work_jobs" ] && [ -z "$take_stop" ]; do
    pool_share=
    if [ -n "$work_count" ]; then
      pool_share=$((work_count / work_jobs + (pool_number < work_count % work_jobs)))
      [ $pool_share -ne 0 ] || break
    fi
    work_again pool_start 1 "$pool_share" "$@"
    pool_number=$((pool_number + 1))
  done
  # RACE: the signal came before the last of them was in pool_crew
  [ -z "$take_stop" ] || pool_tell
  # From here on we only read the pipe
  exec 6</proc/self/fd/6
  until pool_over; do
    # Until the end of the pipe, or until a signal
    while read -r pool_what <&6; do work_count "$pool_what"; done
  done
  for pool_worker in $pool_crew; do
    wait "${pool_worker%-*}"
    pool_code=$?
    if [ $pool_code -gt 128 ]; then
      # Our signal may reach a worker before its traps are set: no failure if we were told to stop
      [ -n "$take_stop" ] || work_exit=70
    elif [ $pool_code -ne 0 ] && [ "$work_exit" -ne 70 ]; then
      work_exit=$pool_code
    fi
  done
  work_end
}

# pool_pipe - open the pipe from the workers, on 6
pool_pipe() {
  nonce_read
  pool_fifo=$FLATQ_DIR/.wait/$work_owner.$nonce
  mkfifo "$pool_fifo" && command exec 6<>"$pool_fifo" ||
    { disk_failed "$FLATQ_DIR/.wait" "spool $FLATQ_DIR"; return; }
  rm -f "$pool_fifo"
}

# pool_start WORD ... - start a worker
pool_start() {
  {
    work_environment
    exec setsid sh "$lib/work" --child "$work_owner" "$@"
  } 2>&5 0>/proc/self/fd/6 5>&- 6<&- &
  pool_pid=$!
  clock_read
  pool_crew="$pool_crew $pool_pid-$now"
}

# pool_tell - called by a trap: tell the workers to finish, or to give their messages back
pool_tell() {
  pool_signal=USR1
  [ -z "$work_abort" ] || pool_signal=HUP
  for pool_worker in $pool_crew; do
    # The PID of a worker that has ended may belong to another process
    owner_dead "$pool_worker" || kill "-$pool_signal" "${pool_worker%-*}"
  done
}

# pool_over - return whether all workers have ended
pool_over() {
  for pool_worker in $pool_crew; do
    owner_dead "$pool_worker" || { sleep 0.1; return 1; }
  done
}
