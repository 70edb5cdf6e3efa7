# tube.sh - jobs of one connection over several queues at once: the first of all that are watched, what is held
#
#   watched   the names of the queues that are watched, with a blank on each side
#   jobs      what this connection holds: ID,QUEUE,NAME of each, with a blank on each side; NAME is that in QUEUE/out/
#
# What is different from take_message: the first message is that of all queues together, as beanstalkd has it; a queue may be paused.

# tubes_take OWNER [once] - hands out the first message of all that are watched (take.sh). 66: nothing is ready. `once`: what dead owners
# hold, that queue_tend has not brought back in the last second, stays there
tubes_take() {
  take_owner=$1 take_lease='' tubes_looked=${2:-}
  clock_read
  while :; do
    tubes_first || return
    case $tubes_place in
    '')
      [ -z "$tubes_looked" ] || return 66
      tubes_looked=1
      tubes_each tube_reclaim || return
      continue ;;
    esac
    queue_open "$tubes_queue" || continue
    scan_place=$tubes_place scan_name=$tubes_name
    case $scan_place in
    wal | head/*)
      take_slip && { jobs_add; return 0; }
      [ ! -e "$q/$scan_place/$scan_name" ] || { take_failed; return; } ;;
    *) take_unfold || return ;;
    esac
  done
}

# tubes_first - sets tubes_place, tubes_name and tubes_queue: what comes first in all queues that are watched and not paused
tubes_first() {
  tubes_place='' tubes_name=
  for tube in $watched; do
    tube_open "$tube" || continue
    tube_paused && continue
    tube_over && { tube_reclaim || return; }
    queue_tend
    queue_scan
    [ -n "$scan_place" ] || continue
    if [ -z "$tubes_place" ] || [ "$scan_name" \< "$tubes_name" ]; then
      tubes_place=$scan_place tubes_name=$scan_name tubes_queue=$tube
    fi
  done
}

# tube_open NAME - queue_open of a tube that may not be there: whoever waits looks again, so that needs no proof, which is a process each time
tube_open() {
  name_to_disk "$1"
  [ -e "$FLATQ_DIR/$disk/lock" ] && queue_open "$1"
}

tubes_each() {
  for tube in $watched; do
    tube_open "$tube" || continue
    "$1" || return
  done
}

# tube_wake - who waits for a tube that was not there may not wait in its queue yet. All look: any of them may be the one
tube_wake() {
  [ ! -d "$FLATQ_DIR/.doors/wait" ] || wake "$FLATQ_DIR/.doors/wait" 1000
}

tube_reclaim() {
  queue_reclaim
}

# tube_over - whether a lease of $q has ended
tube_over() {
  for tube_path in "$q"/out/*; do
    ! lease_over "${tube_path##*.}" || return 0
  done
  return 1
}

# tube_paused - whether $q is paused; sets paused_until, by the clock, and paused_seconds. A pause ends with the boot it was made in
tube_paused() {
  paused_until='' paused_seconds=0
  { read -r paused_until paused_boot paused_seconds <"$q/paused"; } 2>/dev/null || return 1
  case $paused_until in
  ????????????) [ "$paused_boot" = "$boot" ] && [ "$now" \< "$paused_until" ] && return 0 ;;
  esac
  paused_until='' paused_seconds=0
  return 1
}

# tube_pause SECONDS
tube_pause() {
  clock_read
  clock_add "$1" "$now"
  file_put paused "$later $boot $1" || disk_failed "$q" "queue '$queue'"
}

# jobs_add - what was just handed out is held. It may have been before, for a time that is over: that is forgotten
jobs_add() {
  case $jobs in
  *" $id,"*) job_rest=${jobs#*" $id,"}; jobs="${jobs%%" $id,"*} ${job_rest#* }" ;;
  esac
  jobs="$jobs$id,$queue,$taken "
}

# job_mine ID - takes the job out of `jobs`; sets q, queue, found, taken and the slip_ variables. 66 where it is not held, or no longer
job_mine() {
  case $jobs in
  *" $1,"*) ;;
  *) return 66 ;;
  esac
  taken=${jobs#*" $1,"}
  taken=${taken%% *}
  jobs="${jobs%%" $1,"*} ${jobs#*" $1,$taken "}"
  queue_open "${taken%%,*}" || return
  taken=${taken#*,} found=$q/out/${taken#*,}
  slip_parse "$taken" || return 66
  # a lease that is over is over, though nobody may have looked
  if lease_over "$slip_deadline"; then
    queue_conf && message_putback expired
    return 66
  fi
  [ -e "$found" ] && return 0
  need proof
  there "$found"
  job_code=$?
  [ $job_code -ne 1 ] || return 66
  return $job_code
}

# job_held ID - job_mine; a job that could not be looked at is held still
job_held() {
  held_jobs=$jobs
  job_mine "$1"
  held_code=$?
  case $held_code in
  0 | 66 | 69) ;;
  *) jobs=$held_jobs ;;
  esac
  return $held_code
}

# jobs_back - all that is held goes back
jobs_back() {
  while [ "$jobs" != ' ' ]; do
    job_id=${jobs# }
    clock_read
    job_mine "${job_id%%,*}" && message_release '' 0 uncounted
  done
}

# jobs_soon - sets soon_due, the time a second before the first lease of what is held ends; empty: nothing is held, or the dialect knows no
# margin (small-stalk's). What is over is let go
jobs_soon() {
  soon_due=
  for job in $jobs; do
    job_deadline=${job##*.}
    if lease_over "$job_deadline"; then
      job_mine "${job%%,*}" || :
      continue
    fi
    [ -n "$soon_due" ] && ! [ "$job_deadline" \< "$soon_due" ] || soon_due=$job_deadline
  done
  [ -n "$stalk_length" ] || soon_due=
  [ -z "$soon_due" ] || { clock_sub 1 "$soon_due"; soon_due=$earlier; }
}

# clock_sub SECONDS TIME - sets `earlier`
clock_sub() {
  earlier=${2%??}
  earlier=$((${earlier#"${earlier%%[!0]*}"} - $1))
  [ $earlier -ge 0 ] || earlier=0
  pad $earlier 0000000000
  earlier=$padded${2#"${2%??}"}
}
