# doors/beanstalk/stalk.sh - a connection and its jobs, for beanstalk and small-stalk. Each of them
# has its own command_do, tally, tally_begin, tally_write and tally_end

need doors/door engine/look engine/process engine/state engine/reclaim
need doors/beanstalk/read doors/beanstalk/say doors/beanstalk/tube

# stalk_main WORD ... - serve one connection. A command that fails has not been answered
stalk_main() {
  shell_reset
  door_help "$@"
  stalk_open "$@"
  while line_next; do
    trap 'exit 75' HUP INT TERM
    if [ -n "$line_long" ]; then reply BAD_FORMAT; else command_do || reply_failed $?; fi
    checkpoint_due
  done
  exit 0
}

# stalk_open WORD ... - open the connection and the spool
stalk_open() {
  jobs='' used=default watched=' default ' line_ahead='' line_most=222 taken='' wait_fifo='' \
    tube_meant='' tally_name='' cr=$(printf '\r')
  door_open "$@"
  door_limit
  door_verb=$FLATQ_VERB
  : "${FLATQ_MOST_BYTES:=65535}"
  spool_open make || die $? "$why"
  owner=$$-$now
  tally_begin || die $? "$why"
  # This connection may be silent for ever, and what it reads is no single line
  door_waits 999999999 || exit 74
}

door_die() {
  why=$2
  stalk_log
  printf 'INTERNAL_ERROR\r\n'
  exit "$1"
}
door_stopped() {
  printf '%s\r\n' "$stalk_busy"
  exit 75
}

# door_last - give back the jobs that are held
door_last() {
  # It is that of one queue only
  [ -z "$lock_held" ] || unlock_queue
  [ -z "$wait_fifo" ] || wait_end
  jobs_back
  [ -z "$tally_name" ] || tally_end
  queue=$tube_meant
}

# job_find - message_search for job_id; what has a dead owner, or is over, is put back
job_find() {
  [ ${#job_id} -le 12 ] || return 66
  pad "$job_id" 000000000000
  find_id=$padded
  message_search "$find_id" || return
  tube_meant=$queue
  case $slip_path in
  "$q"/out/*)
    { [ "$slip_owner" != 0 ] && owner_dead "$slip_owner"; } || lease_over "$slip_deadline" ||
      return 0
    queue_reclaim && message_find "$find_id" ;;
  esac
}

# job_find_free - job_find for a job that nobody holds
job_find_free() {
  job_find || return
  case $slip_path in
  "$q"/out/*) return 66 ;;
  esac
}

# do_reserve SECONDS - reserve a job, waiting up to SECONDS; `none`: for ever
do_reserve() {
  tally worker
  clock_read
  jobs_soon_due
  tubes_take
  reserve_code=$?
  if [ $reserve_code -eq 66 ] && soon_is_due; then
    reserve_code=75
  elif [ $reserve_code -eq 66 ] && [ "$1" != 0 ] && [ -z "$take_stop" ]; then
    reserve_deadline=none
    [ "$1" = none ] || { clock_add "$1" "$now"; reserve_deadline=$later; }
    tally waits=1
    tally_write
    need doors/beanstalk/wait
    tubes_wait "$reserve_deadline"
    reserve_code=$?
    [ "$reserve_code$take_stop" != 66 ] || { tubes_take; reserve_code=$?; }
    tally waits=0
  fi
  case $reserve_code in
  0) tube_meant=$queue; reply_job RESERVED ;;
  66) reply TIMED_OUT ;;
  75) reply DEADLINE_SOON ;;
  *) reply_failed $reserve_code ;;
  esac
  [ -z "$wait_fifo" ] || wait_leave
  return 0
}

do_delete() {
  job_take "$job_id"
  delete_code=$?
  [ $delete_code -ne 66 ] || { job_find_free; delete_code=$?; }
  [ $delete_code -eq 0 ] || return $delete_code
  message_delete && tally "deletes/$queue"
  job_done $? DELETED
}

# job_done CODE ANSWER - answer ANSWER if CODE is 0; else undo job_take, and return CODE
job_done() {
  tube_meant=$queue
  [ "$1" -ne 0 ] || { reply "$2"; return 0; }
  case $slip_path in
  "$q"/out/*) [ ! -e "$slip_path" ] || { taken=${slip_path##*/}; jobs_add; } ;;
  esac
  return "$1"
}

# do_peek STATE - show the first job in that state of the tube in use
do_peek() {
  tube_meant=$used
  queue_open "$used" || return
  job_show message_first "$1"
}

# job_show FUNCTION [WORD] - show the job that FUNCTION finds; if it moves meanwhile, look again
job_show() {
  for show_try in 1 2 3 4 5 6 7 8 9 10; do
    "$@" || return
    reply_job FOUND
    show_code=$?
    [ $show_code -eq 75 ] || return $show_code
  done
  exit 74
}
