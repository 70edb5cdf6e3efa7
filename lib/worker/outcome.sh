# worker/outcome.sh - settle a worker's message when its command has ended, and report it

need engine/settle worker/run

# work_settle COMMAND ... - delete, give back or bury the message. 66 is no failure: another consumer has the message
work_settle() {
  clock_read
  if [ -n "$lease_lost" ]; then
    work_say "its lease ended, it was given to others"
    return 0
  elif [ -n "$work_abort" ]; then
    message_release '' 0
  elif [ -n "$take_stop$work_signalled" ] && work_not_begun; then
    work_untried
  elif [ -z "$work_reason" ]; then
    message_delete && work_count_one 'done'
  elif [ "$work_code" -eq 126 ] || [ "$work_code" -eq 127 ] && work_command_at_fault "$@"; then
    work_retry_later && { work_end_helpers; die "$work_exit" "$work_why"; }
  elif [ "$work_most_here" != 0 ] && [ "$slip_tries" -ge "$work_most_here" ] && [ "$work_reason" != unknown ]; then
    work_bury
  else
    work_retry_later && work_say "$work_reason, again in $work_pause s" && work_count_one failed
  fi
  work_code=$?
  [ "$work_code" -ne 66 ] || { work_say "its lease had ended, it is with others"; return 0; }
  return $work_code
}

# work_not_begun - return whether the command may not have begun, since a signal to our group, as timeout sends it, came before the command had a group of
# its own, or before its feeder ignored signals
work_not_begun() {
  case $work_reason.$work_code in
  signal-15.* | signal-1.* | unfed.75) return 0 ;;
  esac
  return 1
}

# work_command_at_fault COMMAND ... - return whether the command is at fault, not the message: it is gone, or has never exited with 0
work_command_at_fault() {
  work_why=
  work_find "$1" || { work_exit=$? work_why=$why; return 0; }
  [ "$work_done" -eq 0 ] || return 1
  work_exit=69
  [ "$work_code" -eq 127 ] || work_exit=77
  work_why="the command exited with $work_code, as if it was not found or not executable; message $id was given back"
}

# work_retry_later - give the message back with a delay, which doubles with each try
work_retry_later() {
  work_pause=$work_delay work_step=1
  while [ $work_step -lt "$slip_tries" ] && [ "$work_pause" -lt "$work_delay_most" ] && [ "$work_pause" -gt 0 ]; do
    work_pause=$((work_pause * 2)) work_step=$((work_step + 1))
  done
  [ "$work_pause" -le "$work_delay_most" ] || work_pause=$work_delay_most
  message_release '' "$work_pause"
}

work_bury() {
  message_bury '' "$work_reason" && work_say "$work_reason, buried" && work_count_one buried
}

# work_say TEXT - print one line about the message in hand. If that fails (a log on a full disk), go on
work_say() {
  [ -z "$work_tty" ] || printf '\r\033[K' >&3
  printf 'work: %s\n' "queue '$queue': message $id, try $slip_tries: $1" >&3 || :
}

# work_count_one WHAT - count one message as done, failed or buried; on a terminal, update the line. If that fails, go on
work_count_one() {
  case $1 in
  done) work_done=$((work_done + 1)) ;;
  failed) work_failed=$((work_failed + 1)) ;;
  buried) work_buried=$((work_buried + 1)) ;;
  esac
  if [ -n "$work_teller" ]; then
    { printf '%s\n' "$1" >&4; } 2>/dev/null || :
  elif [ -n "$work_tty" ]; then
    printf '\r\033[K%s' "work: $work_done done, $work_failed failed, $work_buried buried" >&3 || :
  fi
}
