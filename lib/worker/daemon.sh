# worker/daemon.sh - a worker without a terminal, and its pid file
#
# The starting process waits until the worker reports success or failure on descriptor 7, so errors
# show at the start. The pid file is written and removed under the spool's lock.

need engine/boot engine/process engine/proof

# daemon_start WORD ... - start `work WORD ...` in a session of its own. Exit with 0 once it works,
# else with its code, or 70 if it was killed
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

# daemon_failed - the EXIT trap before the worker is ready: report the exit code. If a signal ends
# bash, it runs the trap with the status of its last command, so report 0 as 70
daemon_failed() {
  daemon_code=$?
  [ $daemon_code -ne 0 ] || daemon_code=70
  printf '%s' "$daemon_code" >&7
}

# daemon_ready - report success; from here on, output goes nowhere unless it is a file
daemon_ready() {
  trap - EXIT
  [ -f /proc/self/fd/1 ] || exec >/dev/null
  [ -f /proc/self/fd/5 ] || exec 5>/dev/null
  work_tty=
  printf 0 >&7
  exec 7>&-
}

# pid_file_take - write our PID to $work_pid_file; return 75 if it names a running worker, 74 if
# that is unknown
pid_file_take() {
  case $work_pid_file in
  -*) work_pid_file=./$work_pid_file ;;
  esac
  [ ! -d "$work_pid_file" ] || { why="cannot write '$work_pid_file': a directory"; return 74; }
  lock_spool || return
  pid_file_read && pid_file_lives "$pid_there"
  case $? in
  0)
    unlock_spool
    why="'$work_pid_file' names process $pid_there, a running worker"
    return 75 ;;
  1) ;;
  *)
    unlock_spool
    why="cannot see whether '$work_pid_file' names a running worker"
    return 74 ;;
  esac
  # A worker that is killed here leaves FILE.new to the next one, which removes it. Not through a
  # link of that name (set -C). RACE: a worker of another spool has another lock, and may use this
  # FILE too: so look whether it has our PID
  rm -f "$work_pid_file.new"
  set -C
  printf '%s\n' "$$" >"$work_pid_file.new" && mv -f "$work_pid_file.new" "$work_pid_file" &&
    pid_file_read && [ "$pid_there" = "$$" ]
  pid_code=$?
  set +C
  unlock_spool
  [ $pid_code -ne 0 ] || return 0
  rm -f "$work_pid_file.new"
  why="cannot write '$work_pid_file'"
  return 74
}

# pid_file_read - set pid_there to the first line of the pid file; empty: there is none. Return 74
# if it cannot be read
pid_file_read() {
  pid_there=
  there "$work_pid_file"
  case $? in
  0) pid_there=$(exec head -n 1 "$work_pid_file" 8>&-) || return 74 ;;
  74) return 74 ;;
  esac
}

# pid_file_lives PID - return 0 if it is a worker with this pid file, 1 if not, 74 if unknown. The
# PID in a killed worker's file may be another's
pid_file_lives() {
  is_number "$1" 9999999999 && [ "$number" -ne $$ ] || return 1
  pid_lives=$number
  ! owner_dead "$pid_lives-999999999999" || return 1
  # A line for each word; a newline in a word becomes a blank
  pid_said=$({ tr '\000\n' '\n ' <"/proc/$pid_lives/cmdline" && printf end; } 8>&-)
  case $pid_said in
  *end) pid_words "${pid_said%end}"; return ;;
  esac
  owner_dead "$pid_lives-999999999999" || return 74
  return 1
}

# pid_words WORDS - return 0 if one of these words, a line each, of the process $pid_lives names our
# pid file after --pid-file; 1 if not, 74 if unknown
pid_words() {
  pid_rest=$1 pid_newline='
'
  while [ -n "$pid_rest" ]; do
    pid_word=${pid_rest%%"$pid_newline"*}
    pid_rest=${pid_rest#*"$pid_newline"}
    case $pid_word in
    --pid-file) pid_word=${pid_rest%%"$pid_newline"*} ;;
    --pid-file=*) pid_word=${pid_word#*=} ;;
    *) continue ;;
    esac
    case $pid_word in
    /*) ;;
    # The directory of another user's process may not be shown
    *)
      [ -e "/proc/$pid_lives/cwd/." ] || return 74
      pid_word=/proc/$pid_lives/cwd/$pid_word ;;
    esac
    # shellcheck disable=SC3013 # -ef is in every shell that is named in the README
    ! [ "$pid_word" -ef "$work_pid_file" ] || return 0
  done
  return 1
}

# pid_file_remove - remove the pid file, at the end; from here on, ignore signals
pid_file_remove() {
  trap - EXIT
  trap '' HUP INT QUIT TERM
  lock_spool || return 0
  read -r pid_there <"$work_pid_file" || pid_there=
  [ "$pid_there" != "$$" ] || rm -f "$work_pid_file"
  unlock_spool
}
