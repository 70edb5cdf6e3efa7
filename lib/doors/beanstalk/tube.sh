# doors/beanstalk/tube.sh - take jobs from several queues at once, and keep track of those that a connection holds
#
#   watched   the names of the watched queues, with a blank on each side
#   jobs      ID,QUEUE,NAME of each job that this connection holds, with a blank on each side; NAME is that in QUEUE/out/
#
# Unlike take_message, this takes the first message of all queues together, as beanstalkd does; and a queue may be paused.

need engine/slip engine/clock engine/take engine/settle engine/reclaim doors/beanstalk/tally

# tubes_take OWNER [once] - hand out the first message of all watched queues; return 66 if nothing is ready. `once`: leave what dead owners hold to
# queue_put_back_due
tubes_take() {
  take_owner=$1 take_lease='' tubes_looked=${2:-}
  clock_read
  while :; do
    tubes_first || return $?
    case $tubes_place in
    '')
      [ -z "$tubes_looked" ] || return 66
      tubes_looked=1
      for tube in $watched; do ! tube_open "$tube" || tube_reclaim || return $?; done
      continue ;;
    esac
    queue_open "$tubes_queue" || continue
    scan_place=$tubes_place scan_name=$tubes_name
    take_found
    tubes_code=$?
    [ $tubes_code -ne 0 ] || jobs_add
    # RACE: another process was faster, or dropped the queue: look again
    case $tubes_code in
    66 | 69) ;;
    *) return $tubes_code ;;
    esac
  done
}

# tubes_take_or_prove OWNER - as tubes_take, but 66 is proved (R1)
tubes_take_or_prove() {
  tubes_tries=
  while :; do
    tubes_take "$1"
    tubes_code=$?
    [ $tubes_code -eq 66 ] || return $tubes_code
    tubes_nothing
    tubes_code=$?
    [ $tubes_code -eq 0 ] || return $tubes_code
    # RACE: a job came meanwhile, and is gone when we look; or a listing failed. Repeat, but not for ever
    [ ${#tubes_tries} -lt 20 ] || { why='the tubes cannot be listed'; return 74; }
    tubes_tries=1$tubes_tries
  done
}

# tubes_nothing - return 66 if it is proved that no watched queue that is not paused has anything ready; 0: look again; 74: unknown
tubes_nothing() {
  need engine/proof
  clock_read
  tubes_absent=
  set --
  for tube in $watched; do
    if tube_open "$tube"; then
      tube_paused || set -- "$@" "$tube"
    else
      tubes_absent="$tubes_absent $name_disk"
    fi
  done
  # One listing proves that none of these is there. A queue whose lock is missing is only being made
  [ -z "$tubes_absent" ] || names_in "$FLATQ_DIR" || return $?
  for tube_disk in $tubes_absent; do
    case "
$names
" in
    *"
$tube_disk
"*)
      there "$FLATQ_DIR/$tube_disk/lock"
      tube_code=$?
      [ $tube_code -eq 1 ] || return $tube_code ;;
    esac
  done
  [ $# -eq 0 ] || { queues_nothing "$@"; return $?; }
  return 66
}

# tubes_first - set tubes_place, tubes_name and tubes_queue to the first message of all queues that are watched and not paused
tubes_first() {
  tubes_place='' tubes_name=
  for tube in $watched; do
    tube_open "$tube" || continue
    tube_paused && continue
    tube_any_lease_over && { tube_reclaim || return $?; }
    queue_put_back_due
    queue_scan
    [ -n "$scan_place" ] || continue
    if [ -z "$tubes_place" ] || [ "$scan_name" \< "$tubes_name" ]; then
      tubes_place=$scan_place tubes_name=$scan_name tubes_queue=$tube
    fi
  done
}

# tube_open NAME - queue_open of a tube that may not exist. A waiter looks again anyway, so save the proof, which costs a process each time
tube_open() {
  name_to_disk "$1"
  [ -e "$FLATQ_DIR/$name_disk/lock" ] && queue_open "$1"
}

# tube_reclaim - queue_reclaim, for a taker. RACE: it is no error if another process drops the queue meanwhile
tube_reclaim() {
  queue_reclaim
  tube_code=$?
  [ $tube_code -ne 69 ] || return 0
  return $tube_code
}

# tube_wake - wake all that wait in .doors/wait: one that waits for a tube that did not exist may not be entered in its queue yet
tube_wake() {
  [ ! -d "$FLATQ_DIR/.doors/wait" ] || wake "$FLATQ_DIR/.doors/wait" 1000
}

# tube_any_lease_over - return whether a lease in $q has ended
tube_any_lease_over() {
  for tube_path in "$q"/out/*; do
    ! lease_over "${tube_path##*.}" || return 0
  done
  return 1
}

# tube_paused - return whether $q is paused; set paused_until, by the clock, and paused_seconds. A boot ends all pauses
tube_paused() {
  paused_until='' paused_seconds=0
  # What is there and cannot be read is no end of the pause (R1): look twice
  pause_read || { [ -e "$q/paused" ] && pause_read; } || return 1
  case $paused_until in
  *[!0-9]*) ;;
  ????????????) [ "$paused_boot" = "$boot" ] && [ "$now" \< "$paused_until" ] && return 0 ;;
  esac
  paused_until='' paused_seconds=0
  return 1
}

pause_read() {
  { read -r paused_until paused_boot paused_seconds <"$q/paused"; } 2>/dev/null
}

# tube_pause SECONDS - pause $q
tube_pause() {
  clock_read
  clock_add "$1" "$now"
  need engine/lock
  file_put paused "$later $boot $1" || disk_failed "$q"
}

# jobs_add - enter the job that was just handed out in `jobs`, and drop an older entry for it, whose time is over
jobs_add() {
  ! word_take "$jobs" "$id," || jobs=$words
  jobs="$jobs$id,$queue,$taken "
}

# job_take ID - take the job out of `jobs`; set q, queue, slip_path, taken and the slip_ variables. Return 66 if we do not hold the job, or no longer
job_take() {
  word_take "$jobs" "$1," || return 66
  jobs=$words taken=${word#*,}
  queue_open "${taken%%,*}" || return $?
  taken=${taken#*,}
  slip_path=$q/out/$taken
  slip_parse "$taken" || return 66
  # A lease that is over is over, even if no verb has put the message back yet
  if lease_over "$slip_deadline"; then
    queue_conf && message_putback expired
    return 66
  fi
  [ -e "$slip_path" ] && return 0
  need engine/proof
  there "$slip_path"
  job_code=$?
  [ $job_code -ne 1 ] || return 66
  return $job_code
}

# job_take_or_keep ID - as job_take, but leave the job in `jobs` if we could not look at it
job_take_or_keep() {
  held_jobs=$jobs
  job_take "$1"
  held_code=$?
  case $held_code in
  0 | 66 | 69) ;;
  *) jobs=$held_jobs ;;
  esac
  return $held_code
}

# jobs_back - give back all jobs that are held
jobs_back() {
  while [ "$jobs" != ' ' ]; do
    job_id=${jobs# }
    clock_read
    job_take "${job_id%%,*}" && message_release '' 0 uncounted
  done
}

# jobs_soon_due - drop jobs whose lease is over; set soon_due to a second before the next lease ends, if any (and not in small-stalk)
jobs_soon_due() {
  soon_due=
  for job in $jobs; do
    job_deadline=${job##*.}
    if lease_over "$job_deadline"; then
      job_take "${job%%,*}" || :
      continue
    fi
    [ -n "$soon_due" ] && ! [ "$job_deadline" \< "$soon_due" ] || soon_due=$job_deadline
  done
  [ -n "$stalk_beanstalkd" ] || soon_due=
  [ -z "$soon_due" ] || { clock_sub 1 "$soon_due"; soon_due=$earlier; }
}

part='doors/beanstalk/tube'
