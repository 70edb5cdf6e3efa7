# worker/daemon.sh - a worker without a terminal, and its pid file
#
# The starting process waits until the worker reports success or failure on descriptor 3, so errors show at the start. The pid file is
# written and removed under the spool's lock.

need engine/boot engine/process

# daemon_start WORD ... - start `work WORD ...` in a session of its own. Exit with 0 once it works, else with its code, or 70 if it was killed
daemon_start() {
  exec 4>&1
  daemon_code=$(
    umask "$shell_umask"
    if [ -n "$shell_locale" ]; then LC_ALL=$shell_locale; else unset LC_ALL; fi
    if setsid --fork true >/dev/null 2>&1; then
      setsid --fork sh "$lib/work" --ready "$@"
    elif command -v setsid >/dev/null; then
      # This setsid does not fork, so start it with `&`, which makes it ignore INT and QUIT
      setsid sh "$lib/work" --ready "$@" &
    else
      sh "$lib/work" --ready "$@" &
    fi 2>&3 3>&1 >&4 4>&3 3>&- </dev/null
  )
  exit "${daemon_code:-70}"
}

# daemon_ready - report success; from here on, output goes nowhere unless it is a file
daemon_ready() {
  trap - EXIT
  [ -f /proc/self/fd/1 ] || exec >/dev/null
  [ -f /proc/self/fd/3 ] || exec 3>/dev/null
  work_tty=
  printf 0 >&4
  exec 4>&-
}

# pid_file_take - write our PID to $work_pid_file; return 75 if it names a running worker, 74 if that is unknown
pid_file_take() {
  case $work_pid_file in
  -*) work_pid_file=./$work_pid_file ;;
  esac
  [ ! -d "$work_pid_file" ] || { why="cannot write '$work_pid_file': a directory"; return 74; }
  lock_spool || return $?
  pid_file_read && pid_file_lives "$pid_there"
  pid_code=$?
  if [ $pid_code -ne 1 ]; then
    unlock_spool
    [ $pid_code -eq 0 ] || { why="cannot see whether '$work_pid_file' names a running worker"; return 74; }
    why="'$work_pid_file' names process $pid_there, a running worker"
    return 75
  fi
  # A worker that is killed here leaves FILE.new to the next one, which removes it. Not through a link of that name (set -C). RACE: a worker of another
  # spool has another lock, and may use this FILE too: so look whether it has our PID
  { rm -f "$work_pid_file.new" && set -C && printf '%s\n' "$$" >"$work_pid_file.new" && mv -f "$work_pid_file.new" "$work_pid_file" 8>&8; } 2>/dev/null &&
    pid_file_read && [ "$pid_there" = "$$" ]
  pid_code=$?
  set +C
  unlock_spool
  [ $pid_code -eq 0 ] || { rm -f "$work_pid_file.new" 2>/dev/null; why="cannot write '$work_pid_file'"; return 74; }
}

# pid_file_line - read pid_there. In a function of its own: mksh leaves the one whose redirection fails (R12)
pid_file_line() {
  read -r pid_there 2>/dev/null <"$work_pid_file"
}

# pid_file_read - set pid_there to the first line of the pid file; empty: there is none. Return 74 if it cannot be read
pid_file_read() {
  twice pid_file_line && return $?
  pid_there=
  need engine/proof
  there "$work_pid_file"
  case $? in
  1) return 0 ;;
  74) return 74 ;;
  esac
  # It is empty, or has no newline
  pid_said=$({ cat "$work_pid_file" && printf '\nend'; } 2>/dev/null 8>&-) && capture "$pid_said" || return 74
  pid_there=${captured%%'
'*}
}

# pid_file_lives PID - return 0 if it is a worker with this pid file, 1 if not, 74 if unknown. The PID in a killed worker's file may be another's
pid_file_lives() {
  is_number "$1" 9999999999 && [ "$number" -ne $$ ] || return 1
  [ -e "$FLATQ_PROC/self/cmdline" ] || { process_signal 0 "$number"; return $?; }
  # We may not signal another user's process, but can see it
  pid_lives=$number
  ! process_gone "$pid_lives" || return 1
  # A line for each word; a newline in a word becomes a blank
  pid_said=$({ tr '\000\n' '\n ' <"$FLATQ_PROC/$pid_lives/cmdline" && printf end; } 2>/dev/null 8>&-)
  case $pid_said in
  *end) pid_words "${pid_said%end}"; return $? ;;
  esac
  ! process_gone "$pid_lives" || return 1
  return 74
}

# pid_words WORDS - return 0 if one of these words, a line each, of the process $pid_lives names our pid file after --pid-file; 1 if not, 74 if
# unknown
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
    *) [ -e "$FLATQ_PROC/$pid_lives/cwd/." ] || return 74
      pid_word=$FLATQ_PROC/$pid_lives/cwd/$pid_word ;;
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
  { read -r pid_there <"$work_pid_file"; } 2>/dev/null || pid_there=
  [ "$pid_there" != "$$" ] || rm -f "$work_pid_file" 8>&8
  unlock_spool
}
