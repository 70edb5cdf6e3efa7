# worker/outcome.sh - settle a worker's message when its command has ended, and report it

need engine/state worker/helper

# work_settle COMMAND ... - settle it. RACE: the helper may rename the slip once more
work_settle() {
  for settle_try in 1 2 3 4 5; do
    { [ -e "$slip_path" ] && slip_parse "${slip_path##*/}"; } || job_find
    work_code=$?
    [ $work_code -eq 0 ] || break
    clock_read
    work_outcome "$@"
    work_code=$?
    [ $work_code -eq 66 ] || break
  done
  [ "$work_code" -eq 66 ] || return "$work_code"
  work_say 'its lease ended, it was given to others'
}

# work_outcome COMMAND ... - delete, give back or bury the message; return 66: it is no longer ours
work_outcome() {
  case $job_reason in
  '') message_delete && work_count 'done' ;;
  aborted) message_release '' 0 ;;
  # No command was started for it, so that was no try
  untried) slip_tries=$((slip_tries - 1)); message_release '' 0 ;;
  damaged | unreadable) work_bury message_bury ;;
  dead) work_bury message_fail ;;
  *)
    if work_command_at_fault "$@"; then
      work_retry && die "$work_exit" "$work_why"
    elif tries_over "$work_most_here"; then
      work_bury message_fail
    else
      work_retry && work_say "${job_given:-$job_reason}, again in $work_pause s" &&
        work_count failed
    fi ;;
  esac
}

# work_command_at_fault COMMAND ... - return whether the command is gone, or never exited with 0
work_command_at_fault() {
  case $job_reason in
  exit-126) work_exit=77 ;;
  exit-127) work_exit=69 ;;
  *) return 1 ;;
  esac
  work_find "$1" || { work_exit=$? work_why=$why; return 0; }
  work_why="the command exited with $job_code, as if it was not found or not executable"
  work_why="$work_why; message $id was given back"
  [ "$work_done" -eq 0 ] || { work_exit=0; return 1; }
}

# work_retry - give the message back with a delay, which doubles with each try
work_retry() {
  work_pause=$work_delay work_step=1
  while [ $work_step -lt "$slip_tries" ] && [ "$work_pause" -gt 0 ] &&
    [ "$work_pause" -lt "$work_delay_most" ]; do
    work_pause=$((work_pause * 2)) work_step=$((work_step + 1))
  done
  [ "$work_pause" -le "$work_delay_most" ] || work_pause=$work_delay_most
  message_release '' "$work_pause" "${job_given:-$job_reason}"
}

work_bury() {
  fail_said=buried
  "$1" '' "${job_given:-$job_reason}" &&
    work_say "${job_given:-$job_reason}, $fail_said" && work_count buried
}

# work_say TEXT - print one line about the message in hand, or go on (a log on a full disk)
work_say() {
  [ -z "$work_tty" ] || printf '\r\033[K' >&5
  printf 'work: %s\n' "queue '$queue': message $id, try $slip_tries: $1" >&5 || :
}

# work_count WHAT - count one message as done, failed or buried; on a terminal, show it, or tell our
# parent
work_count() {
  case $1 in
  done) work_done=$((work_done + 1)) ;;
  failed) work_failed=$((work_failed + 1)) ;;
  buried) work_buried=$((work_buried + 1)) ;;
  esac
  [ -n "$work_tty" ] || return 0
  if [ -n "$work_parent" ]; then
    printf '%s\n' "$1" >&0
  else
    printf '\r\033[K%s' "work: $work_done done, $work_failed failed, $work_buried buried" >&5
  fi || :
}
