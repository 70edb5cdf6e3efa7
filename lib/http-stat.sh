# http-stat.sh - the queues in numbers: as JSON, and as Prometheus reads them

# stat_read - sets stat_lines: QUEUE READY DELAYED IN-FLIGHT BURIED OLDEST BOUND MOST-TRIES CLOSED PUSHED DONE of every queue, a line each.
# OLDEST: seconds since the oldest that is ready was pushed; PUSHED and DONE: how many in the last minute, by the queue's log
stat_read() {
  stat_lines=
  clock_read
  clock_epoch "$now"
  groups_all
  stat_rates
  for group in $groups; do
    queue_open "$group" && queue_conf || continue
    queue_count_states
    stat_oldest
    if [ -e "$q/closed" ]; then stat_closed=true; else stat_closed=false; fi
    stat_pushed=0 stat_done=0
    case $stat_rates in
    *"
$group "*)
      stat_pushed=${stat_rates#*"
$group "}
      stat_pushed=${stat_pushed%%"
"*}
      stat_done=${stat_pushed#* } stat_pushed=${stat_pushed% *} ;;
    esac
    stat_line="$queue $count_ready $count_delayed $count_reserved $count_buried $stat_age $queue_bound $queue_most $stat_closed $stat_pushed $stat_done"
    stat_lines="$stat_lines$stat_line
"
  done
}

# stat_oldest - sets stat_age
stat_oldest() {
  stat_least=
  for stat_path in "$q"/wal/* "$q"/head/*/* "$q"/queue/*/*; do
    stat_name=${stat_path##*/}
    case $stat_name in
    '*') continue ;;
    *.*.*.*.*.*.*) ;;
    *) { IFS='	' read -r stat_name stat_rest <"$stat_path"; } 2>/dev/null ;;
    esac
    slip_parse "$stat_name" || continue
    [ -n "$stat_least" ] && ! [ "$slip_born" \< "$stat_least" ] || stat_least=$slip_born
  done
  stat_age=0
  [ -z "$stat_least" ] || stat_age=$((${epoch_time%??} - ${stat_least%??}))
  [ $stat_age -ge 0 ] || stat_age=0
}

# stat_rates - sets stat_rates: a newline, then QUEUE PUSHED DONE, a line each. Of a log only the last 256 KiB are looked at
stat_rates() {
  stat_rates="
"
  set -- /dev/null
  for group in $groups; do
    queue_open "$group" && [ -e "$q/log" ] && set -- "$@" "$q/log"
  done
  [ $# -gt 1 ] || return 0
  stat_rates="
$(tail -c 262144 "$@" 2>/dev/null | awk -v "since=$((${epoch_time%??} - 60))" '
    /^==> .* <==$/ {
      name = $0
      sub(/\/log <==$/, "", name); sub(/.*\//, "", name); sub(/^%/, "", name); gsub(/,/, "/", name)
      next
    }
    $1 >= since && $2 ~ /^(push|pop|delete|settle)$/ {
      n = 1
      if ($7 ~ /^bulk-[0-9]+$/) n = substr($7, 6)
      if ($2 == "push") pushed[name] += n; else gone[name] += n
      seen[name]
    }
    END { for (name in seen) print name, pushed[name] + 0, gone[name] + 0 }')
"
}

# group_shown QUEUE - sets `shown`: the group's name as it stands in a URL
group_shown() {
  shown=$1
  case $shown in
  \$sha1\$*) ;;
  *) while :; do
      case $shown in
      *\$*) shown=${shown%%\$*}%${shown#*\$} ;;
      *) break ;;
      esac
    done ;;
  esac
  while :; do
    case $shown in
    *+*) shown=${shown%%+*}%2B${shown#*+} ;;
    *) break ;;
    esac
  done
}

# stat_json - sets `text`
stat_json() {
  stat_read
  # shellcheck disable=SC2086 # words
  set -- $stat_lines
  text="{\"time\":$((${epoch_time%??} + 0)),\"queues\":[" stat_comma=
  while [ $# -ge 11 ]; do
    group_shown "$1"
    text="$text$stat_comma
{\"queue\":\"$1\",\"group\":\"$shown\",\"ready\":$2,\"delayed\":$3,\"in_flight\":$4,\"buried\":$5,\"oldest_seconds\":$6,"
    text="$text\"bound\":$7,\"most_tries\":$8,\"closed\":$9,"
    shift 9
    text="$text\"pushed_last_minute\":$1,\"done_last_minute\":$2}" stat_comma=,
    shift 2
  done
  text="$text
]}"
}

# stat_metrics - sets `text`
stat_metrics() {
  stat_read
  text='# HELP flatq_messages Messages of a queue that are in this state.
# TYPE flatq_messages gauge'
  # shellcheck disable=SC2086 # words
  set -- $stat_lines
  while [ $# -ge 11 ]; do
    text="$text
flatq_messages{queue=\"$1\",state=\"ready\"} $2
flatq_messages{queue=\"$1\",state=\"delayed\"} $3
flatq_messages{queue=\"$1\",state=\"in_flight\"} $4
flatq_messages{queue=\"$1\",state=\"buried\"} $5"
    shift 11
  done
  stat_gauge flatq_oldest_seconds 6 'Seconds since the oldest message that is ready was pushed.'
  stat_gauge flatq_pushed_last_minute 10 'Messages pushed in the last minute.'
  stat_gauge flatq_done_last_minute 11 'Messages deleted or popped in the last minute.'
}

# stat_gauge NAME FIELD HELP - one gauge, from the FIELDth of stat_lines
stat_gauge() {
  text="$text
# HELP $1 $3
# TYPE $1 gauge"
  stat_gauge_name=$1 stat_gauge_field=$2
  # shellcheck disable=SC2086 # words
  set -- $stat_lines
  while [ $# -ge 11 ]; do
    stat_gauge_queue=$1
    shift $((stat_gauge_field - 1))
    text="$text
$stat_gauge_name{queue=\"$stat_gauge_queue\"} $1"
    shift $((12 - stat_gauge_field))
  done
}
