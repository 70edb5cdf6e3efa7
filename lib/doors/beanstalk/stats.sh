# doors/beanstalk/stats.sh - the commands that answer with statistics and lists, in YAML

need engine/slip engine/clock engine/queues engine/count engine/take engine/settle
need doors/beanstalk/tally doors/beanstalk/say doors/beanstalk/tube

# tubes_count FUNCTION - with tubes_add, set stats_counts to the sums over all queues; with that or
# list_add, set tally_tubes to a line `tube NAME` for each queue that has a job
tubes_count() {
  stats_counts='0 0 0 0 0' tally_tubes=
  clock_read
  all_queues "$1"
}

# tubes_add NAME - count one queue
tubes_add() {
  queue_open "$1" && tube_tend && queue_count || return
  # shellcheck disable=SC2086 # numbers
  set -- "$1" $stats_counts
  stats_counts="$(($2 + count_urgent)) $(($3 + count_ready)) $(($4 + count_reserved))"
  stats_counts="$stats_counts $(($5 + count_delayed)) $(($6 + count_buried))"
  [ $((count_total + count_buried)) -eq 0 ] || tally_tubes="${tally_tubes}tube $1
"
}

# jobs_yaml URGENT READY RESERVED DELAYED BURIED - set `jobs_yaml` to the lines for jobs, and those
# of `sums`
jobs_yaml() {
  jobs_yaml="current-jobs-urgent: $1
current-jobs-ready: $2
current-jobs-reserved: $3
current-jobs-delayed: $4
current-jobs-buried: $5
$sums"
}

# stats_sums WHAT [ASKED] - set `sums` to what stats.awk prints
stats_sums() {
  tally_write
  sums=$(tally_lock -s && tally_sums "$@") && return 0
  why='the connections cannot be counted'
  return 74
}

# tube_known NAME - return 0 if the tube has a job or a connection, or is `default`; 66 if it is
# proved that it has none (R1); 74: unknown. Sets `sums`, and the count_ variables
tube_known() {
  count_urgent=0 count_ready=0 count_reserved=0 count_delayed=0 count_buried=0 count_total=0 \
    tally_tubes=
  clock_read
  queue_open "$1" && tube_tend && queue_count
  case $? in
  0 | 66 | 69) ;;
  *) return 74 ;;
  esac
  stats_sums tube "$1" || return
  [ "$1" != default ] && [ $((count_total + count_buried)) -eq 0 ] || return 0
  case $sums in
  *'current-using: 0
current-watching: 0
'*) return 66 ;;
  esac
}

# list_add NAME PATH - the same for a list: a job that is seen needs no count
list_add() {
  for list_path in "$2"/wal/* "$2"/queue/*/* "$2"/head/*/*; do
    [ ! -e "$list_path" ] || { tally_tubes="${tally_tubes}tube $1
"; return 0; }
  done
  tubes_add "$1"
}

list_watched() {
  list_text=
  for list_name in $watched; do
    list_text="$list_text${list_text:+
}- $list_name"
  done
  reply_yaml "$list_text"
}

list_tubes() {
  tubes_count list_add && stats_sums list || return
  reply_yaml "$sums"
}

stats_job() {
  clock_read
  clock_epoch "$now"
  job_find "$job_id" || return
  slip_parse "$slip" || :
  stats_left=0
  case $slip_path in
  "$q"/out/*)
    stats_state=reserved
    slip_parse "${slip_path##*/}"
    time_left "$slip_deadline" "$now" ;;
  "$q"/delayed/*)
    stats_state=delayed stats_due=${slip_path%/*}
    time_left "${stats_due##*/}" "$epoch_time" ;;
  "$q"/buried/*) stats_state=buried ;;
  *) stats_state=ready ;;
  esac
  unpad "$slip_priority"
  stats_priority=$unpadded
  unpad "${slip_born%??}"
  IFS=-
  # shellcheck disable=SC2086 # timeouts, releases, buries, kicks
  set -- $slip_counts
  IFS=$blanks
  reply_yaml "id: $id
tube: $queue
state: $stats_state
pri: $stats_priority
age: $((${epoch_time%??} - unpadded))
delay: $slip_delay
ttr: $slip_lease
time-left: $stats_left
file: 0
reserves: $slip_tries
timeouts: $1
releases: $2
buries: $3
kicks: $4"
}

# time_left THEN NOW - set stats_left to whole seconds
time_left() {
  clock_between "$2" "$1"
  stats_left=$between_s
  [ "$stats_left" -ge 0 ] || stats_left=0
}

stats_tube() {
  tube_known "$1" || return
  stats_left=0
  ! tube_paused || time_left "$paused_until" "$now"
  jobs_yaml "$count_urgent" "$count_ready" "$count_reserved" "$count_delayed" "$count_buried"
  reply_yaml "name: $1
$jobs_yaml
pause: $paused_seconds
pause-time-left: $stats_left"
}

stats_all() {
  tubes_count tubes_add && stats_sums stats "$FLATQ_MOST_BYTES" || return
  stats_left=0
  read -r stats_began <"$door_instance/began" && time_left "$now" "$stats_began"
  stats_drains=false
  [ ! -e "$door_instance/draining" ] || stats_drains=true
  # NAME VERSION MACHINE, and only VERSION has blanks
  stats_uname=$(uname -nvm) stats_os=${stats_uname#* }
  # shellcheck disable=SC2086 # numbers
  jobs_yaml $stats_counts
  reply_yaml "$jobs_yaml
pid: $$
version: \"flatq\"
rusage-utime: 0.000000
rusage-stime: 0.000000
uptime: $stats_left
binlog-oldest-index: 0
binlog-current-index: 0
binlog-records-migrated: 0
binlog-records-written: 0
binlog-max-size: 0
draining: $stats_drains
id: $door_of
hostname: ${stats_uname%% *}
os: ${stats_os% *}
platform: ${stats_uname##* }"
}

# tube_pause NAME SECONDS - pause a tube that is known; set q
tube_pause() {
  tube_known "$1" && queue_open "$1" make || return
  clock_read
  clock_add "$2" "$now"
  need engine/lock
  file_put paused "$later $boot $2" || disk_failed "$q"
}
