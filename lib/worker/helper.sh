# worker/helper.sh - the process beside a worker: it renews the lease, ends a command whose time is
# over, and kills the command when the worker is gone
#
# Before a job (worker/job.sh) begins, it names itself to the helper on 3, by a line PID SINCE QUEUE
# SLIP LEASE END: SINCE is a time by which it had started, SLIP the slip as its name begins in out/,
# END when the command is to end (999999999999: never). The helper, `work --helper`, watches that
# job until it is over, says so to the worker on 4 if it was killed, and reads the next line.
#
#   the worker is killed    the lock on 3 is free: the helper kills the job's process group at once,
#                           reads the end of the pipe, and ends
#   the helper is killed    4 ends, since no other process writes to it for long: the worker starts
#                           another helper, and tells it the line
#   the worker is stopped   the lease is renewed as long as the command runs

need engine/clock engine/process engine/state

helper_pipes() {
  work_pipe && exec 3<&6 && work_pipe || return
  exec 4</proc/self/fd/6 6<&-
  flock 3 || { why='flock is missing or failed'; return 70; }
}

# helper_begin - see that a helper lives before a job begins; after 50 jobs, another one
helper_begin() {
  # RACE: one that was stopped reads nothing, and writing to 3 would block
  helper_jobs=$((helper_jobs + 1)) helper_tries=0
  if [ $((helper_jobs % 50)) -eq 0 ] && ! owner_dead "$helper_named"; then
    kill -KILL "${helper_named%-*}"
    helper_named=
  fi
  helper_look
}

# helper_look - see that the helper lives, else start one
helper_look() {
  [ -z "$helper_named" ] || owner_dead "$helper_named" || return 0
  setsid sh "$lib/work" --helper "$work_owner" "$work_parent" </proc/self/fd/3 4>/proc/self/fd/4 \
    >/dev/null 2>&1 3>&- 5>&- 6<&- 7<&- &
  helper_pid=$!
  clock_read
  [ -z "$job_pid" ] || helper_tell
  # One that cannot live must not cost all of the processor's time
  [ -z "$helper_named" ] || sleep 0.1
  helper_named=$helper_pid-$now helper_tries=$((helper_tries + 1))
  [ $helper_tries -lt 50 ] || die 74 'its helper does not live'
}

helper_tell() {
  printf '%s %s\n' "$job_pid" "$job_line" >&3
}

# helper_run OWNER PARENT - be the helper of the worker OWNER, whose PARENT may be empty
helper_run() {
  trap '' HUP INT QUIT TERM
  work_owner=$1 work_parent=$2
  spool_open || die $? "$why"
  while read -r job_pid job_since queue job_slip job_lease job_end; do
    name_to_disk "$queue"
    q=$FLATQ_DIR/$name_disk
    helper_watch
  done
  job_places job_litter
}

# helper_watch - watch the job until it is over. To calculate, times have a 1 in front
helper_watch() {
  helper_signal=TERM helper_end=1$job_end helper_renew=0
  # Until its slip was seen: the lease began before the job
  clock_read
  clock_add "$job_lease" "$now"
  slip_deadline=$later
  while ! owner_dead "$job_pid-$job_since"; do
    ! owner_dead "$work_owner" || { job_kill KILL; return; }
    # Nobody knows of a worker whose parent is gone: it gives its message back
    [ -z "$work_parent" ] || ! owner_dead "$work_parent" || kill -HUP "${work_owner%-*}"
    clock_read
    [ "1$now" -lt "$helper_end" ] || helper_end
    [ "1$now" -lt "$helper_renew" ] || helper_renew
    helper_nap
  done
  printf 'gone %s\n' "$job_pid" >&4
}

# helper_end - the time is over: tell the worker, send TERM, then KILL every five seconds
helper_end() {
  [ "$helper_signal" = KILL ] || kill -ALRM "${work_owner%-*}"
  job_kill "$helper_signal"
  helper_signal=KILL helper_end=$((1$now + 500))
}

# helper_renew - renew the lease when a third of it is over; kill the job if others may have it
helper_renew() {
  job_find
  helper_code=$?
  helper_third=$((job_lease * 100 / 3))
  if [ $helper_code -eq 0 ]; then
    helper_renew=$((1$slip_deadline - 2 * helper_third))
    [ "1$now" -ge "$helper_renew" ] || return 0
    message_touch "$job_lease"
    helper_code=$?
    [ $helper_code -ne 0 ] || { helper_renew=$((1$now + helper_third)); return 0; }
  fi
  helper_renew=$((1$now + 100))
  [ $helper_code -ne 66 ] && [ "$now" \< "$slip_deadline" ] ||
    owner_dead "$job_pid-$job_since" || job_kill KILL
}

# helper_nap - sleep until one of these is due or the worker's lock is free, for a second at most.
# What sleeps may outlive the helper, and must not hold 4 open
helper_nap() {
  nap=100
  for nap_until in "$helper_end" "$helper_renew"; do
    nap_left=$((nap_until - 1$now))
    [ $nap_left -ge $nap ] || nap=$nap_left
  done
  [ $nap -gt 0 ] || nap=1
  pad $nap 000
  nap=${padded%??}.${padded#?}
  flock -E 75 -w "$nap" 0 4>&-
  case $? in
  75) ;;
  # A process that ends gives its locks back first
  0) owner_dead "$work_owner" || sleep 0.02 ;;
  # busybox's flock has no -w
  *) sleep "$nap" 4>&- ;;
  esac
}

# job_kill SIGNAL - send SIGNAL to the job's process group, or to the job before it has one
job_kill() {
  # Another process may have got its number since
  ! process_started "$job_pid" || ! [ "$started" \> "$job_since" ] || return 0
  kill "-$1" "-$job_pid" || kill "-$1" "$job_pid"
}

# job_find - set slip_path, and the slip_ variables, to the message's slip in out/, which the helper
# renames; return 66: it is no longer there, 74
job_find() {
  for find_try in 1 2 3 4 5; do
    for slip_path in "$q/out/$job_slip.$work_owner".*; do
      [ ! -e "$slip_path" ] || { slip_parse "${slip_path##*/}"; return; }
    done
    need engine/proof
    names_in "$q/out" || return
    case $names in
    # RACE: it was renamed between the listing and the look
    *"$job_slip.$work_owner."*) ;;
    *) why="queue '$queue': the message is no longer yours"; return 66 ;;
    esac
  done
  why="queue '$queue': cannot look at a slip in out"
  return 74
}
