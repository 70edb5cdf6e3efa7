# beside.sh - the guard that stands beside a worker while its command runs
#
# It reads a pipe that only the worker writes to. When that ends, it kills what the last line names: so the command does not outlive a worker
# that is killed, nor workers their parent.

# work_guard - the last line's words are SIGNAL:PID-TIME, or SIGNAL:-PID-TIME for a process group, which may have lost its first process;
# a line that begins with `+` adds one. A PID that was taken again is spared
work_guard() {
  trap '' HUP INT QUIT TERM
  # not where it is called: dash keeps a copy of what a function's redirection closes. 3: who starts a worker in the background reads it to its end
  exec <&6 >/dev/null 2>&1 3>&- 4>&- 5>&- 6<&-
  guard_last=
  while read -r guard_line; do
    case $guard_line in
    +*) guard_last="$guard_last ${guard_line#+}" ;;
    *) guard_last=$guard_line ;;
    esac
  done
  for guard_word in $guard_last; do
    guard_pid=${guard_word#*:}
    guard_time=${guard_pid##*-} guard_pid=${guard_pid%-*}
    process_started "${guard_pid#-}" && [ "$started" \> "$guard_time" ] || work_kill "${guard_word%%:*}" "$guard_pid"
  done
}

# work_kill SIGNAL PID - or -PID: its group or, where it has none, the process
work_kill() {
  kill "-$1" "$2" 2>/dev/null || kill "-$1" "${2#-}" 2>/dev/null || :
}

# work_tell WORD ... - to the guard
work_tell() {
  { printf '%s\n' "$*" >&5; } 2>/dev/null || :
}

# work_tell_self SIGNAL[:-] - said by a new process itself, where it can tell its number: its worker may be killed before it does
work_tell_self() {
  { read -r self_pid self_rest <"$FLATQ_PROC/self/stat"; } 2>/dev/null || return 0
  work_name "$self_pid"
  work_tell "+$1$named"
}

# work_name PID - sets `named`, PID-TIME. Of a process that is gone already, only its group is spoken of: whoever has the number, is another
work_name() {
  process_started "$1" || started=000000000000
  named=$1-$started
}

work_tell_job() {
  work_tell ${work_job:+"KILL:-$work_job_named"} ${work_clock:+"$work_clock_signal:$work_clock_named"}
}

# work_pipe - a pipe, on 6 to read and 7 to do both
work_pipe() {
  clock_read
  nonce_read
  pipe_path=$FLATQ_DIR/.wait/$work_self-$now.$nonce
  mkfifo "$pipe_path" 2>/dev/null || { disk_failed "$FLATQ_DIR/.wait" "spool $FLATQ_DIR"; return; }
  # shellcheck disable=SC2094 # none of the openings waits for another
  { command exec 7<>"$pipe_path" 6<"$pipe_path"; } 2>/dev/null || disk_failed "$FLATQ_DIR/.wait" "spool $FLATQ_DIR"
}

work_guard_start() {
  work_pipe || return
  { command exec 5>"$pipe_path" 7>&-; } 2>/dev/null || { disk_failed "$FLATQ_DIR/.wait" "spool $FLATQ_DIR"; return; }
  work_guard &
  work_guarded=$!
  exec 6<&-
  rm -f "$pipe_path" 2>/dev/null || :
}
