# doors/beanstalk/tube.sh - take jobs from several queues at once, and know those that are held
#
#   watched   the names of the watched queues
#   jobs      ID,QUEUE,NAME of each job that this connection holds, NAME being that in QUEUE/out/
#
# Each word of both lists has a blank on each side.

need engine/slip engine/clock engine/take engine/settle engine/reclaim

# tubes_take - hand out the first job of the watched tubes that are not paused; 66: it is proved that
# there is none (R1)
tubes_take() {
  # shellcheck disable=SC2086 # names without blanks
  take_message "$owner" '' $watched
  tubes_code=$?
  case $tubes_code in
  0) jobs_add ;;
  66) tubes_nowhere; return ;;
  esac
  return $tubes_code
}

# take_pick TUBE ... - replaces that of engine/take.sh: pick the tube whose first job comes first
take_pick() {
  take_queue='' take_open=1 take_there='' tubes_absent='' pick_place='' pick_name=
  for tube in "$@"; do
    tube_open "$tube" || { tubes_absent="$tubes_absent $name_disk"; continue; }
    ! tube_paused || continue
    take_there="$take_there $tube"
    tube_tend || return
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

# tubes_nowhere - 66: it is proved that the tubes in tubes_absent have no queue; else look there too
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
  tube_code=0
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

# tube_paused - return whether $q is paused in this boot; set paused_until and paused_seconds
tube_paused() {
  paused_until='' paused_seconds=0
  [ -e "$q/paused" ] || return 1
  # A read that fails does not end the pause (R1)
  for tube_try in 1 2; do
    ! read -r paused_until paused_boot paused_seconds <"$q/paused" || break
  done
  case $paused_until in
  *[!0-9]*) ;;
  ????????????) [ "$paused_boot" = "$boot" ] && [ "$now" \< "$paused_until" ] && return 0 ;;
  esac
  paused_until='' paused_seconds=0
  return 1
}

# word_take LIST KEY - set `word` to the word that begins with KEY, and `words` to LIST without it.
# One pattern for all would take the square of the length
word_take() {
  case $1 in
  *" $2"*) ;;
  *) return 1 ;;
  esac
  words=${1%%" $2"*} word_key=$2
  # shellcheck disable=SC2086 # words
  set -- $1
  while :; do
    case "$1 " in
    "$word_key"*) break ;;
    esac
    shift
  done
  word=$1
  shift
  words="$words $*${1:+ }"
}

# jobs_add - enter the job that was just handed out in `jobs`, in place of an older entry
jobs_add() {
  ! word_take "$jobs" "$id," || jobs=$words
  jobs="$jobs$id,$queue,$taken "
}

# job_take ID - take the job out of `jobs`, unless it is unknown whether we hold it; set slip_path,
# `taken` and what slip_parse and queue_open set. 66: we do not
job_take() {
  word_take "$jobs" "$1," || return 66
  job_others=$words taken=${word#*,}
  queue_open "${taken%%,*}" && job_look "${taken#*,}"
  job_code=$?
  case $job_code in
  0 | 66 | 69) jobs=$job_others ;;
  esac
  return $job_code
}

# job_look NAME - job_take for NAME in $q/out/
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

# jobs_back - give back all jobs that are held
jobs_back() {
  for job in $jobs; do
    clock_read
    job_take "${job%%,*}" && message_release '' 0 uncounted
  done
}

# jobs_soon_due - drop jobs whose lease is over; set soon_due to a second before the next one ends
jobs_soon_due() {
  soon_due=
  for job in $jobs; do
    job_deadline=${job##*.}
    if lease_over "$job_deadline"; then
      job_take "${job%%,*}"
    elif [ -z "$soon_due" ] || [ "$job_deadline" \< "$soon_due" ]; then
      soon_due=$job_deadline
    fi
  done
  [ -n "$stalk_beanstalkd" ] || soon_due=
  [ -z "$soon_due" ] || { clock_sub 1 "$soon_due"; soon_due=$earlier; }
}

# soon_is_due - return whether soon_due has come
soon_is_due() {
  [ -n "$soon_due" ] && ! [ "$now" \< "$soon_due" ]
}
