# doors/beanstalk/stats.sh - the commands that answer with statistics and lists, in YAML

need engine/slip engine/clock engine/queues engine/count engine/lock

# tubes_count - set tally_tubes to a line for each queue (engine/count.sh)
tubes_count() {
  tubes_all=
  clock_read
  all_queues tubes_add || return
  # shellcheck disable=SC2086 # names without blanks
  queues_count $tubes_all && tally_tubes=$counts
}

tubes_add() {
  queue_open "$1" && tube_tend && tubes_all="$tubes_all $1"
}

# stats_sums WHAT [ASKED] - set `sums` to what stats.awk prints; 66: there is no tube ASKED
stats_sums() {
  tally_write
  sums=$(exec 7>>"$door_instance/lock" && flock -s 7 && tally_sums "$@")
  case $? in
  0) return 0 ;;
  66) return 66 ;;
  esac
  why='the connections cannot be counted'
  return 74
}

# tube_known NAME - set `sums`; 66: it is proved that the tube has no job and no connection (R1)
tube_known() {
  tally_tubes=
  clock_read
  queue_open "$1" && tube_tend && queue_count
  case $? in
  0) tally_tubes="count ${q##*/} $count_said" ;;
  66 | 69) ;;
  *) return 74 ;;
  esac
  stats_sums tube "$1"
}

list_watched() {
  list_text=
  for list_name in $watched; do
    list_text="$list_text
- $list_name"
  done
  reply_yaml "${list_text#?}"
}

list_tubes() {
  tubes_count && stats_sums list || return
  reply_yaml "$sums"
}

stats_job() {
  clock_epoch "$now"
  job_find || return
  slip_parse "$slip" || :
  stats_left=0
  case $slip_path in
  "$q"/out/*)
    stats_state=reserved
    slip_parse "${slip_path##*/}"
    time_left "$slip_deadline" "$now" ;;
  "$q"/delayed/*)
    stats_state=delayed stats_due=${slip_path%/*}
    stats_top=${stats_due%/*} window_now=$now
    window_clock "${stats_top##*/}" || :
    time_left "${stats_due##*/}" "$window_now" ;;
  "$q"/buried/*) stats_state=buried ;;
  *) stats_state=ready ;;
  esac
  unpad "$slip_priority"
  stats_priority=$unpadded
  [ "$slip_delay" -le 4294967295 ] || slip_delay=0
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

# time_left THEN NOW - set stats_left to the seconds from NOW to THEN, at least 0
time_left() {
  clock_between "$2" "$1"
  stats_left=$between_s
  [ "$stats_left" -ge 0 ] || stats_left=0
}

stats_tube() {
  tube_known "$1" || return
  need engine/pause
  queue_paused || return
  reply_yaml "name: $1
$sums
pause: $paused_seconds
pause-time-left: $paused_left"
}

stats_all() {
  tubes_count && stats_sums stats "$FLATQ_MOST_BYTES" || return
  stats_left=0
  [ "$door_of" = 0 ] || time_left "$now" "${door_of#*-}"
  stats_drains=false
  [ ! -e "$door_instance/draining" ] || stats_drains=true
  # NAME VERSION MACHINE, and only VERSION has blanks
  stats_uname=$(uname -nvm) stats_os=${stats_uname#* }
  reply_yaml "$sums
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
