# worker/watchdog.sh - the process beside a worker that kills the command if the worker is killed
#
# It reads a pipe that only the worker and its children write to. When the pipe ends, it kills what the last line names: so a command does not outlive
# a worker that is killed, and workers do not outlive their parent. If the watchdog itself was killed, the worker notices that at its next line and
# starts another one; and a command that could not name itself to a watchdog does not begin.

need engine/process

# watchdog - be the watchdog, where setsid is in a session of its own: KILL may be sent to the worker's whole process group
watchdog() {
  trap '' HUP INT QUIT TERM
  # Redirect here, not at the call: dash keeps a copy of what a function's redirection closes. Close 3, which --daemon reads to its end
  exec <&6 >/dev/null 2>&1 3>&- 4>&- 5>&- 6<&- 8<&-
  # shellcheck disable=SC2016 # for the new shell
  [ -z "$work_group" ] || exec setsid sh -c 'set -u; lib=$1; . "$lib/engine/common.sh"; shell_reset; need worker/watchdog; watchdog_read' work "$lib"
  watchdog_read
}

# watchdog_read - read lines until the pipe ends, and act on the last one. Its words are SIGNAL:PID-TIME, or SIGNAL:-PID-TIME for a process group; a line
# that begins with `+` adds a word to the line before
watchdog_read() {
  watchdog_last=
  while read -r watchdog_line; do
    case $watchdog_line in
    +*) watchdog_last="$watchdog_last ${watchdog_line#+}" ;;
    *) watchdog_last=$watchdog_line ;;
    esac
  done
  for watchdog_word in $watchdog_last; do
    work_kill "${watchdog_word%%:*}" "${watchdog_word#*:}"
  done
}

# work_kill SIGNAL PID-TIME - send SIGNAL to the process, or for -PID-TIME to its group, if it has one; not to one that has got the PID since
work_kill() {
  kill_named=${2#-}
  ! work_other "$kill_named" || return 0
  process_signal "$1" "${2%-*}" || owner_dead "$kill_named" || process_signal "$1" "${kill_named%-*}" || :
}

# work_other PID-TIME - return whether the PID belongs to another process now, which started later
work_other() {
  process_started "${1%-*}" && [ "$started" \> "${1#*-}" ]
}

# watchdog_tell WORD ... - write a line to the watchdog; return 1 if that was killed. Try twice, since a signal may interrupt a write. CONT: if it stayed
# stopped, its pipe would fill up, and we would wait in a write and renew no lease
watchdog_tell() {
  [ -z "$work_watchdog" ] || owner_dead "$work_watchdog_named" || process_signal CONT "$work_watchdog" || :
  twice watchdog_say "$*" || return 1
}

# watchdog_say LINE - in a function of its own: mksh leaves the one whose redirection fails (R12)
watchdog_say() {
  printf '%s\n' "$1" 2>/dev/null >&5
}

# watchdog_tell_sure WORD ... - as watchdog_tell, but if the watchdog was killed, start another one, and set watchdog_restarted
watchdog_tell_sure() {
  watchdog_tell "$@" && return $?
  watchdog_start || return $?
  watchdog_restarted=1
  watchdog_tell "$@" || { why="the worker's watchdog was killed"; return 70; }
}

# watchdog_tell_self SIGNAL:[-] - name this new process to the watchdog: its worker may be killed before it does. Without /proc a subshell does not
# know its PID, and names nothing. Return 1 if there is no watchdog
watchdog_tell_self() {
  { read -r self_pid self_rest <"$FLATQ_PROC/self/stat"; } 2>/dev/null || return 0
  work_name "$self_pid"
  watchdog_tell "+$1$work_named"
}

# work_name PID - set `work_named` to PID-TIME; if it is gone already, to a name that only its group matches
work_name() {
  twice process_started "$1" || started=000000000000
  work_named=$1-$started
}

# watchdog_tell_job - tell the watchdog what to kill if the worker dies: the command, if one runs, and the sleepers
watchdog_tell_job() {
  # shellcheck disable=SC2086 # words
  watchdog_tell_sure ${job_pid:+"KILL:-$job_named"} $timer_words
}

# work_pipe - open a pipe, on 6 for reading and on 7 for both
work_pipe() {
  nonce_read
  pipe_path=$FLATQ_DIR/.wait/$work_owner.$nonce
  mkfifo "$pipe_path" 2>/dev/null || { disk_failed "$FLATQ_DIR/.wait" "spool $FLATQ_DIR"; return $?; }
  # shellcheck disable=SC2094 # none of the openings waits for another
  { command exec 7<>"$pipe_path" 6<"$pipe_path"; } 2>/dev/null || disk_failed "$FLATQ_DIR/.wait" "spool $FLATQ_DIR"
}

# watchdog_start - start the watchdog; 5 is the pipe to it
watchdog_start() {
  work_pipe || return $?
  { command exec 5>"$pipe_path" 7>&-; } 2>/dev/null || { disk_failed "$FLATQ_DIR/.wait" "spool $FLATQ_DIR"; return $?; }
  watchdog &
  work_watchdog=$!
  close_descriptor 6
  rm -f "$pipe_path" 2>/dev/null || :
  work_name "$work_watchdog"
  work_watchdog_named=$work_named
}
