# doors/beanstalk/tube.sh - take jobs from several queues at once, and know those that are held
#
#   watched   the names of the watched queues, with a blank on each side
#   jobs      the ids of the jobs that this connection holds, or has held
#   job_ID    QUEUE,NAME, if it holds the job; NAME is that in QUEUE/out/

need engine/slip engine/clock engine/take engine/state engine/reclaim

# tubes_take - hand out the first job of the watched tubes that are not paused; 66: it is proved
# that there is none
tubes_take() {
  # shellcheck disable=SC2086 # names without blanks
  take_message "$owner" '' $watched && { jobs_add; return; }
  tubes_code=$?
  [ $tubes_code -eq 66 ] || return $tubes_code
  tubes_nowhere
}

# take_pick TUBE ... - instead of engine/take.sh's: pick the tube whose first job comes first
take_pick() {
  take_queue='' take_open=1 take_there='' take_paused='' tubes_absent='' pick_place='' pick_name=
  for tube in "$@"; do
    tube_open "$tube" || { tubes_absent="$tubes_absent $name_disk"; continue; }
    tube_tend || return
    [ -z "$tend_paused" ] || continue
    take_there="$take_there $tube"
    queue_scan
    if [ -n "$scan_place" ] && { [ -z "$take_queue" ] || [ "$scan_name" \< "$pick_name" ]; }; then
      take_queue=$tube pick_place=$scan_place pick_name=$scan_name
    fi
  done
  [ -n "$take_queue" ] || return 0
  # RACE: it was dropped meanwhile: look again
  tube_open "$take_queue" || { take_pick "$@"; return; }
  scan_place=$pick_place scan_name=$pick_name
}

# tubes_nowhere - 66: it is proved (R1) that tubes_absent have no queue; else look there too
tubes_nowhere() {
  [ -n "$tubes_absent" ] || return 66
  need engine/proof
  names_in "$FLATQ_DIR" || return
  for tube_disk in $tubes_absent; do
    if named "$tube_disk"; then
      # Without a lock, it is only being made
      there "$FLATQ_DIR/$tube_disk/lock"
      case $? in
      0) tubes_take; return ;;
      74) return 74 ;;
      esac
    fi
  done
  return 66
}

# tube_open NAME - queue_open without a proof, which costs a process, if it fails
tube_open() {
  name_to_disk "$1"
  [ -e "$FLATQ_DIR/$name_disk/lock" ] && queue_open "$1"
}

# tube_tend - put back what is due in $q, or has a lease that is over. A drop meanwhile is no error
tube_tend() {
  tube_code=0 tend_paused=
  for tube_path in "$q"/out/*; do
    lease_over "${tube_path##*.}" && { queue_reclaim; tube_code=$?; break; }
  done
  [ $tube_code -ne 0 ] || { queue_put_back_due; tube_code=$?; }
  [ $tube_code -eq 69 ] || return $tube_code
}

# tube_wake - wake those that wait for a tube that did not exist (wait_enter_new)
tube_wake() {
  [ ! -d "$FLATQ_DIR/.doors/wait" ] || wake "$FLATQ_DIR/.doors/wait" 1000
}

# jobs_add - hold the job that was handed out as `taken`; set slip_path
jobs_add() {
  slip_path=$q/out/$taken
  eval "job_held=\${job_$id-none} job_$id=\$queue,\$taken"
  [ "$job_held" != none ] || jobs="$jobs $id"
}

# job_take ID - hold the job no longer, unless it is unknown whether we do; set slip_path and
# `taken`. 66: we do not hold it
job_take() {
  eval "job_held=\${job_$1:-}"
  [ -n "$job_held" ] || return 66
  queue_open "${job_held%%,*}" && job_look "${job_held#*,}"
  job_code=$?
  case $job_code in
  0 | 66 | 69) eval "job_$1=" ;;
  esac
  return $job_code
}

job_look() {
  taken=$1 slip_path=$q/out/$1
  slip_parse "$taken" || return 66
  if lease_over "$slip_deadline"; then
    queue_conf && message_putback expired
    return 66
  fi
  [ -e "$slip_path" ] && return 0
  need engine/proof
  expect_path "$slip_path" "message $id is no longer yours"
}

jobs_back() {
  for job in $jobs; do
    clock_read
    job_take "$job" && message_release '' 0 uncounted
  done
}

# jobs_soon_due - forget jobs that are no longer held; set soon_due to a second before the next
# lease ends
jobs_soon_due() {
  soon_due='' jobs_left=
  for job in $jobs; do
    eval "job_held=\$job_$job"
    [ -n "$job_held" ] || { unset "job_$job"; continue; }
    jobs_left="$jobs_left $job"
    if lease_over "${job_held##*.}"; then
      job_take "$job"
    elif [ -z "$soon_due" ] || [ "${job_held##*.}" \< "$soon_due" ]; then
      soon_due=${job_held##*.}
    fi
  done
  jobs=$jobs_left
  [ -n "$stalk_beanstalkd" ] || soon_due=
  [ -z "$soon_due" ] ||
    { unpad "$soon_due"; pad $((unpadded - 100)) 000000000000; soon_due=$padded; }
}

soon_is_due() {
  [ -n "$soon_due" ] && ! [ "$now" \< "$soon_due" ]
}
