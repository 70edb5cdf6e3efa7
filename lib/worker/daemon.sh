# worker/daemon.sh - a worker without a terminal, and its pid file
#
# The starter waits until the worker reports its exit code on descriptor 7, 0 once it can begin. A
# worker has its pid file open on 0, and locked.

# daemon_start WORD ... - start `work WORD ...` in a session of its own, and exit with the code that
# it reports, or 70 if it was killed
daemon_start() {
  exec 3>&1
  daemon_fork=
  ! setsid --fork true || daemon_fork=1
  daemon_code=$(
    work_environment
    if [ -n "$daemon_fork" ]; then
      setsid --fork sh "$lib/work" --ready "$@"
    else
      # Behind `&`, it ignores INT and QUIT
      setsid sh "$lib/work" --ready "$@" &
    fi 7>&1 >&3 3>&- 2>&5 5>&- </dev/null
  )
  exit "${daemon_code:-70}"
}

# daemon_failed - the EXIT trap before the worker is ready: report the exit code
daemon_failed() {
  daemon_code=$?
  # bash that is ended by a signal runs this with the status of its last command
  [ $daemon_code -ne 0 ] || daemon_code=70
  printf '%s' "$daemon_code" >&7
}

# daemon_ready - report success; output goes nowhere then unless it is a file
daemon_ready() {
  trap - EXIT
  [ -f /proc/self/fd/1 ] || exec >/dev/null
  [ -f /proc/self/fd/5 ] || exec 5>/dev/null
  work_tty=
  printf 0 >&7
  exec 7>&-
}

# pid_file_take - lock the pid file, and write our PID to it; return 75: a running worker has it, 74
pid_file_take() {
  # RACE: the worker that had it may remove it after we have opened it
  for pid_try in 1 2 3 4 5; do
    why="cannot write '$work_pid_file'"
    command exec 0<>"$work_pid_file" || break
    flock -n 0
    case $? in
    0) ;;
    1) why="'$work_pid_file' is that of a running worker"; return 75 ;;
    *) break ;;
    esac
    pid_file_ours || continue
    printf '%s\n' "$$" >/proc/self/fd/0 && return 0
    rm -f -- "$work_pid_file"
    break
  done
  return 74
}

# pid_file_ours - return whether the pid file is the file that is open on 0
pid_file_ours() {
  # shellcheck disable=SC3013 # -ef is in every shell that is named in the README
  [ -f "$work_pid_file" ] && [ "$work_pid_file" -ef /proc/self/fd/0 ]
}

# pid_file_remove - remove the pid file; from here on, ignore signals
pid_file_remove() {
  trap - EXIT
  trap '' HUP INT QUIT TERM
  ! pid_file_ours || rm -f -- "$work_pid_file"
}
