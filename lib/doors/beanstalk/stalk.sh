# doors/beanstalk/stalk.sh - the common part of beanstalkd's and small-stalk's protocols: a connection and its jobs

need doors/door engine/push engine/clock engine/process engine/look engine/settle engine/reclaim doors/beanstalk/tally doors/beanstalk/read doors/beanstalk/say doors/beanstalk/tube

# stalk_main WORD ... - serve one connection: do its commands until it ends. The door has its own command_do
stalk_main() {
  shell_reset
  door_help "$@"
  stalk_open "$@"
  while line_next; do
    trap '' USR1
    if [ -n "$line_long" ]; then reply BAD_FORMAT; else command_do || break; fi
    checkpoint_due
  done
  exit 0
}

# stalk_open WORD ... - open the connection and the spool, and set the traps for the end
stalk_open() {
  # A line of megabytes ends only its own connection
  # shellcheck disable=SC3045 # a shell without this option goes on without a limit
  ulimit -d 131072 2>/dev/null || :
  jobs=' ' used=default watched=' default ' client_reader='' client_gone='' client_half='' client_line='' line_ahead='' line_most=222
  door_producer=0 door_worker=0 door_waiting=0 taken='' wait_fifo=''
  cr=$(printf '\r')
  door_open "$@" || exit 75
  [ -n "$cr" ] || die 74 'cannot run printf'
  door_verb=$FLATQ_VERB
  : "${FLATQ_MOST_BYTES:=65535}"
  trap 'reading=" "; exit 75' HUP INT TERM
  spool_open || die $? "$why"
  { command exec 4<&0; } 2>/dev/null || die 74 'standard input cannot be kept'
  owner_read
  tally_begin || die $? "$why"
  trap stalk_close EXIT
  # This connection may be silent for ever, and what it reads is no single line
  door_tell 999999999 "$FLATQ_VERB" || exit 74
}

# door_die CODE TEXT - replaces die of engine/common.sh
door_die() {
  printf '%s: %s\n' "$FLATQ_VERB" "$2" >&2
  printf 'INTERNAL_ERROR\r\n' 2>/dev/null
  exit "$1"
}

# door_last - replaces that of doors/door.sh: the protocol has no last line
door_last() {
  door_ran=1
}

# door_busy - replaces that of doors/door.sh: answer the first command with an error
door_busy() {
  if [ -n "$stalk_beanstalkd" ]; then printf 'OUT_OF_MEMORY\r\n'; else printf 'INTERNAL_ERROR\r\n'; fi 2>/dev/null
  exit 75
}

# door_turn - replaces that of doors/door.sh: while we wait, a child reads from the client (client_is_gone)
door_turn() {
  :
}

# stalk_close - the trap at the end: give back the jobs that are held, and keep the counters
stalk_close() {
  door_code=$?
  trap - EXIT
  # A child that is signalled early may still have its parent's trap: do nothing there
  { read -r close_pid close_rest <"$FLATQ_PROC/self/stat"; } 2>/dev/null && [ "$close_pid" != "${owner%-*}" ] && exit 75
  # RACE: during a trap, while another signal waits for its own, each `read` of dash's fails
  # shellcheck disable=SC3013 # -ef is in every shell that is named in the README
  [ ! -e "$FLATQ_PROC/$$" ] || [ "$FLATQ_PROC/self" -ef "$FLATQ_PROC/$$" ] || exit 75
  trap '' HUP INT TERM
  # The lock is that of one queue, and the jobs may be in others
  [ -z "$lock_held" ] || { need engine/lock; unlock_queue; }
  [ -z "$wait_fifo" ] || { need engine/wait; wait_end; }
  twice stalk_close_children || :
  [ -z "$client_line" ] || rm -f "$client_line" 2>/dev/null
  jobs_back
  tally_end
  door_end "$door_code"
}

# stalk_close_children - end the reader and a sleeper. In a function of its own: mksh leaves the one whose redirection fails (R12)
stalk_close_children() {
  # RACE: a signal may come when the reader, or a sleeper, was started, and before the next command notes it: so end also what was started last.
  # Without /proc, $! may be another process by now
  for close_child in $client_reader ${!-}; do
    case $close_child in
    "$client_reader") ;;
    *) [ -e "$FLATQ_PROC/self/stat" ] || continue ;;
    esac
    ! child_lives "$close_child" || kill -KILL "$close_child"
  done 2>/dev/null
}

# job_find ID - message_search, after putting back jobs whose owner is dead or whose time is over
job_find() {
  [ ${#1} -le 12 ] || return 66
  pad "$1" 000000000000
  find_id=$padded
  message_search "$find_id" tend || return $?
  case $slip_path in
  "$q"/out/*)
    if { [ "$slip_owner" != 0 ] && owner_dead "$slip_owner"; } || lease_over "$slip_deadline"; then
      tube_reclaim || return $?
      message_find "$find_id"
    fi ;;
  esac
}

# job_find_free ID - as job_find, for a job that nobody holds
job_find_free() {
  job_find "$1" || return $?
  case $slip_path in
  "$q"/out/*) return 66 ;;
  esac
}

# id_command COUNTER FUNCTION TEXT - run a command whose only argument is an id
id_command() {
  words_number "$3" 18446744073709551615 && job_id=$number && [ -z "$rest" ] || { reply BAD_FORMAT; return $?; }
  [ -z "$1" ] || tally "$1"
  "$2"
}

# bare_command COUNTER REST FUNCTION [ARGUMENT] - run a command without arguments
bare_command() {
  [ -z "$2" ] || { reply BAD_FORMAT; return $?; }
  tally "$1"
  shift 2
  "$@"
}

# do_reserve SECONDS - reserve a job, waiting up to SECONDS; `none`: for ever
do_reserve() {
  door_worker=1
  clock_read
  jobs_soon_due
  if [ -n "$soon_due" ] && ! [ "$now" \< "$soon_due" ]; then
    tubes_take "$owner"
    reserve_code=$?
    [ $reserve_code -ne 66 ] || reserve_code=75
  else
    tubes_take_or_prove "$owner"
    reserve_code=$?
  fi
  if [ $reserve_code -eq 66 ] && [ "$1" != 0 ] && [ -z "$client_gone$client_half" ]; then
    reserve_deadline=none
    [ "$1" = none ] || { clock_add "$1" "$now"; reserve_deadline=$later; }
    door_waiting=1
    tally_write
    need doors/beanstalk/wait
    tubes_wait "$owner" "$reserve_deadline"
    reserve_code=$?
    [ $reserve_code -ne 66 ] || { tubes_take_or_prove "$owner"; reserve_code=$?; }
    door_waiting=0
  fi
  case $reserve_code.$client_gone$client_half in
  0.*) reply_job RESERVED ;;
  # 1: the client has left (tubes_wait). If it has not, mksh has left a function (R12), and nothing is proved
  1.?* | 66.*) reply TIMED_OUT ;;
  75.*) reply DEADLINE_SOON ;;
  *) reply_of $reserve_code ;;
  esac
  [ -z "$wait_fifo" ] || { need engine/wait; wait_leave; }
}

do_delete() {
  clock_read
  job_take_or_keep "$job_id"
  delete_code=$?
  [ $delete_code -ne 66 ] || { job_find_free "$job_id"; delete_code=$?; }
  [ $delete_code -eq 0 ] || { reply_of $delete_code; return $?; }
  message_delete
  delete_code=$?
  [ $delete_code -ne 0 ] || tally "tube-cmd-delete/$queue"
  case $slip_path in
  "$q"/out/*) job_reply $delete_code DELETED ;;
  *) reply_of $delete_code DELETED ;;
  esac
}

# job_reply CODE ANSWER - as reply_of; if the command failed, first enter the job again in `jobs`, from which job_take took it
job_reply() {
  [ "$1" -eq 0 ] || [ ! -e "$slip_path" ] || { taken=${slip_path##*/}; jobs_add; }
  reply_of "$@"
}

# do_peek STATE - show the first job in that state of the tube in use
do_peek() {
  queue_open "$used" || { reply_of $?; return $?; }
  job_show message_first "$1"
}

# job_show FUNCTION WORD - show the job that FUNCTION WORD finds. RACE: it may be folded or deleted once it is found: then look again
job_show() {
  for show_try in 1 2 3 4 5 6 7 8 9 10; do
    "$@" || { reply_of $?; return $?; }
    reply_job FOUND
    show_code=$?
    [ $show_code -eq 75 ] || return $show_code
  done
  exit 74
}

part='doors/beanstalk/stalk'
