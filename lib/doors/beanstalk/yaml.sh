# doors/beanstalk/yaml.sh - statistics and lists in the form that beanstalkd writes

need engine/slip engine/queues engine/take engine/fold engine/count doors/beanstalk/tally doors/beanstalk/say doors/beanstalk/stalk doors/beanstalk/tube engine/clock

# tube_known NAME - return 0 if a queue or a connection has the tube, or it is `default`; 66 if not, after two looks, since one may fail; 74: unknown
tube_known() {
  [ "$1" != default ] || return 0
  for tube_try in 1 2; do
    tubes_sum || return $?
    case $tubes_names in
    *"
$1
"*) return 0 ;;
    esac
  done
  return 66
}

# tubes_add - set tubes_tally to the sums over all connections
tubes_add() {
  need engine/proof
  tubes_tally=$(tally_sum && printf end) && capture "$tubes_tally" && tubes_tally=$captured || { why='the connections cannot be counted'; return 74; }
}

# tubes_sum - set tubes_tally, and tubes_names to the names, one a line, with a newline before and after each
tubes_sum() {
  need engine/proof engine/window
  tubes_add || return $?
  # `/`, which is no tube, ends the list (R6)
  tubes_names=$({
    printf 'default\n' && { printf '%s\n' "$tubes_tally" | sed -n 's/^\(using\|watching\)\/\(.*\) [0-9]*$/\2/p'; } && all_queues tubes_print && printf '/\n'
  } | awk '$0 == "/" { whole = 1; exit } !seen[$0]++ { print } END { if (whole) print "end" }') && capture "$tubes_names" ||
    { why='the tubes cannot be listed'; return 74; }
  tubes_names="
$captured
"
}

# tubes_print NAME PATH - print the name if the queue has a message. Sets q: run it in a process of its own
tubes_print() {
  q=$2
  tubes_any "$q"/wal/* "$q"/fold/* "$q"/queue/* "$q"/head/*/* "$q"/out/* || windows delayed tubes_any count || windows buried tubes_any count || return 0
  printf '%s\n' "$1"
}

# tubes_any PATH ... - return 66 if none of these is a message
tubes_any() {
  for tubes_entry in "$@"; do
    [ ! -e "$tubes_entry" ] || [ -e "$q/done/${tubes_entry##*/}" ] || [ "${tubes_entry##*/}" = '~' ] || return 0
  done
  return 66
}

# tubes_get NAME - set `tubes_value` to a sum, or 0. `${text#*NAME}` would take the square of the text's length (R8)
tubes_get() {
  tubes_value=0
  set -f
  IFS='
'
  for tubes_line in $tubes_tally; do
    case $tubes_line in
    "$1 "*) tubes_value=${tubes_line##* }; break ;;
    esac
  done
  IFS=$blanks
  set +f
}

# yaml_list NAME ... - set `text` to a list
yaml_list() {
  text='---
'
  for yaml_name in "$@"; do
    text="$text- $yaml_name
"
  done
}

# yaml KEY VALUE ... - add lines to `text`
yaml() {
  while [ $# -gt 1 ]; do
    text="$text$1: $2
"
    shift 2
  done
}

list_watched() {
  # shellcheck disable=SC2086 # names without blanks
  yaml_list $watched
  reply_text
}

list_tubes() {
  tubes_sum || { reply_of $?; return $?; }
  set -f
  # shellcheck disable=SC2086
  yaml_list $tubes_names
  set +f
  reply_text
}

stats_job() {
  clock_read
  clock_epoch "$now"
  job_find "$job_id" || { reply_of $?; return $?; }
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
  text='---
'
  yaml id "$id" tube "$queue" state $stats_state pri "$stats_priority" age $((${epoch_time%??} - unpadded)) \
    delay "$slip_delay" ttr "$slip_lease" time-left "$stats_left" file 0 reserves "$slip_tries" timeouts "$1" releases "$2" buries "$3" kicks "$4"
  reply_text
}

# time_left THEN NOW - set stats_left to whole seconds
time_left() {
  clock_between "$2" "$1"
  stats_left=$between_s
  [ "$stats_left" -ge 0 ] || stats_left=0
}

stats_tube() {
  tally_write
  tubes_tally=
  tube_known "$1" && { [ -n "$tubes_tally" ] || tubes_add; } || { reply_of $?; return $?; }
  count_urgent=0 count_ready=0 count_reserved=0 count_delayed=0 count_buried=0 stats_pause=0 stats_left=0
  clock_read
  if queue_open "$1"; then
    # Messages that are due count as ready
    queue_put_back_due
    queue_count
    if tube_paused; then
      time_left "$paused_until" "$now"
      stats_pause=$paused_seconds
    fi
  fi
  text='---
'
  yaml name "$1" current-jobs-urgent "$count_urgent" current-jobs-ready "$count_ready" current-jobs-reserved "$count_reserved" \
    current-jobs-delayed "$count_delayed" current-jobs-buried "$count_buried"
  tubes_get "tube-total-jobs/$1"; yaml total-jobs "$tubes_value"
  tubes_get "using/$1"; yaml current-using "$tubes_value"
  tubes_get "watching/$1"; yaml current-watching "$tubes_value"
  tubes_get "waiting/$1"; yaml current-waiting "$tubes_value"
  tubes_get "tube-cmd-delete/$1"; yaml cmd-delete "$tubes_value"
  tubes_get "tube-cmd-pause-tube/$1"; yaml cmd-pause-tube "$tubes_value" pause "$stats_pause" pause-time-left "$stats_left"
  reply_text
}

# stats_count_tubes - set stats_tubes to the number of tubes, and stats_urgent, stats_ready and so on to the sums over them
stats_count_tubes() {
  stats_urgent=0 stats_ready=0 stats_reserved=0 stats_delayed=0 stats_buried=0 stats_tubes=0
  clock_read
  set -f
  # shellcheck disable=SC2086
  set -- $tubes_names
  set +f
  for stats_name in "$@"; do
    stats_tubes=$((stats_tubes + 1))
    queue_open "$stats_name" || continue
    queue_put_back_due
    queue_count
    stats_urgent=$((stats_urgent + count_urgent)) stats_ready=$((stats_ready + count_ready)) stats_reserved=$((stats_reserved + count_reserved))
    stats_delayed=$((stats_delayed + count_delayed)) stats_buried=$((stats_buried + count_buried))
  done
}

stats_all() {
  tally_write
  tubes_sum || { reply_of $?; return $?; }
  stats_count_tubes
  text='---
'
  yaml current-jobs-urgent "$stats_urgent" current-jobs-ready "$stats_ready" current-jobs-reserved "$stats_reserved" \
    current-jobs-delayed "$stats_delayed" current-jobs-buried "$stats_buried"
  for stats_name in put peek peek-ready peek-delayed peek-buried reserve reserve-with-timeout delete release use watch ignore bury kick \
    touch stats stats-job stats-tube list-tubes list-tube-used list-tubes-watched pause-tube; do
    tubes_get "cmd-$stats_name"
    yaml "cmd-$stats_name" "$tubes_value"
  done
  stats_total=$({ printf '%s\n' "$tubes_tally" | awk '/^tube-total-jobs\// { sum += $NF } END { if (NR) printf "%.0f", sum }'; } </dev/null)
  is_number "$stats_total" 999999999999999 || { why='the jobs cannot be counted'; reply_of 74; return $?; }
  tubes_get job-timeouts
  yaml job-timeouts "$tubes_value" total-jobs "$stats_total" max-job-size "$FLATQ_MOST_BYTES" current-tubes "$stats_tubes"
  tubes_get open; yaml current-connections "$tubes_value"
  tubes_get producers; yaml current-producers "$tubes_value"
  tubes_get workers; yaml current-workers "$tubes_value"
  tubes_get waiting; yaml current-waiting "$tubes_value"
  tubes_get connections; yaml total-connections "$tubes_value" pid "$$" version '"flatq"'
  stats_uptime=0
  { read -r stats_began <"$door_instance/began" && is_number "$stats_began" 999999999999; } 2>/dev/null && time_left "$now" "$stats_began" && stats_uptime=$stats_left
  { read -r stats_host <"$FLATQ_PROC/sys/kernel/hostname"; } 2>/dev/null || stats_host=$(uname -n)
  stats_draining=false
  [ ! -e "$door_instance/draining" ] || stats_draining=true
  yaml rusage-utime 0.000000 rusage-stime 0.000000 uptime "$stats_uptime" binlog-oldest-index 0 binlog-current-index 0 \
    binlog-records-migrated 0 binlog-records-written 0 binlog-max-size 0 draining $stats_draining id "$door_of" hostname "$stats_host" \
    os "$(uname -v)" platform "$(uname -m)"
  reply_text
}

part='doors/beanstalk/yaml'
