# worker/pool.sh - several workers under one parent
#
# Each worker, `work --child`, has a session of its own. The parent passes signals on: USR1 to
# finish, HUP to give back. Whether the parent lives, a worker sees while it waits (door_turn), and
# its helper while a command runs. The workers hold the writing end of a pipe, whose end tells the
# parent that all have ended; work_count reports there.

need engine/process worker/run worker/outcome

# work_several WORD ... - start as many workers as -j says, with our own words; end when all have
work_several() {
  pool_crew='' pool_number=0
  work_begin work_pipe pool_tell
  while [ $pool_number -lt "$work_jobs" ] && [ -z "$take_stop" ]; do
    pool_share=
    if [ -n "$work_count" ]; then
      pool_share=$((work_count / work_jobs + (pool_number < work_count % work_jobs)))
      [ $pool_share -ne 0 ] || break
    fi
    pool_start "$@"
    pool_number=$((pool_number + 1))
  done
  # RACE: the last of them was not in pool_crew yet
  [ -z "$take_stop" ] || pool_tell
  exec 6</proc/self/fd/6
  until pool_over; do
    # Until the end of the pipe, or a signal
    while read -r pool_what <&6; do work_count "$pool_what"; done
  done
  for pool_worker in $pool_crew; do
    wait "${pool_worker%-*}"
    pool_code=$?
    if [ $pool_code -gt 128 ]; then
      # Our signal may reach a worker before its traps are set
      [ -n "$take_stop" ] || work_exit=70
    elif [ $pool_code -ne 0 ] && [ "$work_exit" -ne 70 ]; then
      work_exit=$pool_code
    fi
  done
  work_end
}

# pool_start WORD ... - start a worker, for pool_share messages
pool_start() {
  {
    work_environment
    exec setsid sh "$lib/work" --child "$work_owner" "$pool_share" "$@"
  } 2>&5 0>/proc/self/fd/6 5>&- 6<&- &
  pool_pid=$!
  clock_read
  pool_crew="$pool_crew $pool_pid-$now"
}

# pool_tell - the trap: tell the workers to finish, or to give their messages back
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
