# worker/feed.sh - the process that feeds a worker's command its message, and how the worker knows that it did
#
# The feeder is not part of the job that the worker waits for, since a process that the command leaves behind may keep the job's input open.
# It reports how it ended, `NONCE good` or `NONCE bad`, on a pipe of its own, which the worker reads on 8. First it writes
# `NONCE PID-TIME`, with its PID and the time when it started. NONCE is that of the slip, so a late report is not taken for another message's.

need engine/disk worker/watchdog

# feed_prepare - open the pipe for reports on 8, and set feed_path, by which its other end is opened. If /proc does not lead to it, keep the FIFO
feed_prepare() {
  [ -z "$feed_open" ] || return 0
  feed_close
  work_pipe || return $?
  exec 8<&6 6<&- 7>&-
  if [ -e "$FLATQ_PROC/self/fd/8" ]; then
    rm -f "$pipe_path" 2>/dev/null || :
    feed_path=$FLATQ_PROC/self/fd/8
  else
    feed_path=$pipe_path feed_file=$pipe_path
  fi
  feed_open=1
}

feed_close() {
  feed_open=
  close_descriptor 8
  [ -z "$feed_file" ] || rm -f "$feed_file" 2>/dev/null || :
  feed_file=
}

# feed_body - open the body on 6, for the feeder. Return 66 if the message is no longer ours, 1 if the body cannot be opened: it is not
# there, or cannot be read, or there is no free descriptor
feed_body() {
  { command exec 6<"$q/body/$slip_id"; } 2>/dev/null || return 1
  # RACE: as in body_open. The feeder itself could not look for the slip, which each touch renames
  [ -e "$slip_path" ] || { need engine/proof; expect_path "$slip_path" "queue '$queue': message $id is no longer yours"; }
}

# feed_begin - the left side of work_run's pipe, a subshell: start the feeder in the background, and end. The feeder's standard output is the command's
# input, 7 the pipe for reports
feed_begin() {
  feed_message &
  # Without /proc, the feeder does not know its PID
  [ -e "$FLATQ_PROC/self/stat" ] || feed_name $!
}

# feed_name PID - tell the worker which process the feeder is
feed_name() {
  work_name "$1"
  printf '%s %s\n' "$slip_nonce" "$work_named" >&7
}

# feed_message - ignore signals, name this process to the worker, write a line with the nonce, for which work_exec waits, then the message. No signal to
# our process group may cut the message, since a command could take a part for the whole. Report before this process ends, since its end is the end of
# the command's input
feed_message() {
  # With PIPE ignored, base64 says `Broken pipe` only if the command has closed its input. A PIPE signal could have come from any process
  trap '' HUP INT QUIT TERM PIPE
  # The feeder may outlive the worker: close the worker's output, which another process may read to its end
  exec 2>/dev/null 3>&1 4>&- 5>&- 8<&-
  # The command begins only after the line, so when it ends, the worker can read its feeder's name (without /proc, feed_begin names it at any time).
  # If name or line cannot be written, end: else the worker would wait for the one, or work_exec take the message's first line for the other
  if [ -e "$FLATQ_PROC/self/stat" ]; then
    { read -r self_pid self_rest <"$FLATQ_PROC/self/stat" && feed_name "$self_pid"; } || exit
  fi
  printf '%s\n' "$slip_nonce" || exit
  feed_word=bad
  # The dot: bash that cannot make the pipe runs nothing (R6)
  feed_text=$(echo .; exec base64 -d <&6 2>&1 >&3 3>&- 6<&- 7>&-)
  case $?.$feed_text in
  0..) feed_word=good ;;
  # A command need not read to the end
  *) ! reader_gone "$feed_text" || feed_word=good ;;
  esac
  # If no report arrives, the worker gives back a message whose command has succeeded
  twice feed_report
}

# feed_report - report how the feeder ended. In a function of its own: mksh leaves the one whose redirection fails (R12)
feed_report() {
  printf '%s %s\n' "$slip_nonce" "$feed_word" >&7
}

# feed_whole - return whether the command, which exited with 0, could have read the whole message: the feeder has reported `good`, or still lives, so
# that the command ended before its input did. A feeder that is gone without a report may have written a part
feed_whole() {
  feed_part=
  while :; do
    work_trapped='' feed_line=
    IFS= read -r feed_line <&8 || {
      # A trap may interrupt a `read`: repeat it
      [ -n "$work_trapped" ] || return 1
      feed_part=$feed_part$feed_line
      continue
    }
    feed_line=$feed_part$feed_line feed_part=
    case $feed_line in
    "$slip_nonce good") return 0 ;;
    "$slip_nonce bad") return 1 ;;
    "$slip_nonce "[0-9]*)
      feed_lives "${feed_line#* }"
      feed_code=$?
      # If that is unknown, the message is given back: without its report, it may not have been fed
      [ $feed_code -eq 1 ] || { feed_open=; return $feed_code; } ;;
    esac
  done
}

# feed_look PID - set feed_stat to the first line of /proc/PID/stat. A function of its own (R12): a redirection that failed once is made again
feed_look() {
  { read -r feed_stat <"$FLATQ_PROC/$1/stat"; } 2>/dev/null
}

# feed_lives PID-TIME - return 0 if it still holds its files, 1 if not, 74 if unknown. An exiting process (PF_EXITING, 4) may have closed some of them
feed_lives() {
  feed_time=${1#*-}
  set -- "${1%-*}"
  twice feed_look "$1" || {
    need engine/process engine/proof
    ! process_gone "$1" || return 1
    # Without /proc
    ! absent "$FLATQ_PROC/self/stat" || return 0
    # It is there, but hidden: wait for its report
    ! absent "$FLATQ_PROC/$1" || return 1
    return 74
  }
  # shellcheck disable=SC2086 # the words are what is wanted
  set -- ${feed_stat##*') '}
  case $1 in
  Z | X) return 1 ;;
  esac
  # If the feeder was killed, its PID may belong to another process, which started at another time and may have a newline in its name
  [ $# -ge 20 ] || return 1
  pad "${20}" 000000000000
  [ "$padded" = "$feed_time" ] && [ $(($7 & 4)) -eq 0 ]
}
