# doors/http/stat.sh - the queues in numbers: as JSON, and as Prometheus reads them
#
# The shell counts and awk writes: the time for a shell to put a text together grows by the square of its length.

need engine/queues engine/slip engine/count

# stat_row NAME - print `row QUEUE CLOSED READY DELAYED IN-FLIGHT BURIED OLDEST BOUND MOST-TRIES` for the queue. OLDEST is the age in seconds of the
# oldest ready message. If its conf is damaged, it has no limits
stat_row() {
  queue_open "$1" || return $?
  queue_conf || queue_bound=0 queue_most_tries=0
  queue_count || return
  queue_oldest
  if [ -e "$q/closed" ]; then stat_closed=true; else stat_closed=false; fi
  printf 'row %s %s %s %s %s %s %s %s %s\n' "$queue" $stat_closed "$count_ready" "$count_delayed" "$count_reserved" "$count_buried" "$oldest" \
    "$queue_bound" "$queue_most_tries"
}

# stat_logs - print the ends of those logs that have lines from the last minute, each after a line `==> FILE <==`. Of a log, use only the
# last 256 KiB
stat_logs() (
  cd "$FLATQ_DIR" || exit
  # At a FIFO that a member of a group has made, tail would wait for ever
  set -- /dev/null
  for stat_log in */log; do
    [ ! -f "$stat_log" ] || [ -h "$stat_log" ] || set -- "$@" "$stat_log"
  done
  stat_recent=$(tail -n 1 "$@" 2>/dev/null | awk -v "since=$stat_since" '/^==> / { name = $2; next } $1 >= since { print name }')
  # shellcheck disable=SC2086 # names without blanks
  [ -z "$stat_recent" ] || tail -c 262144 /dev/null $stat_recent 2>/dev/null
)

# stat_clock SECONDS - set stat_now to the time, and stat_since to that many seconds before
stat_clock() {
  clock_read
  clock_epoch "$now"
  unpad "${epoch_time%??}"
  stat_now=$unpadded
  stat_since=$((stat_now - $1))
}

# stat_text json|metrics - set `text` to the numbers in that form; fail if some are missing. Only lines before the line `logs` are rows: the logs
# behind it may hold whatever a group's member writes
stat_text() {
  stat_clock 60
  text=$({ { all_queues stat_row && printf 'logs\n' && stat_logs; } | stat_awk "$1"; } </dev/null) && [ -n "$text" ] || { why='the queues cannot be read'; return 74; }
}

# stat_awk json|metrics - become a filter that makes the text of the rows, and of the lines of log behind `logs`
stat_awk() {
  exec awk -v "since=$stat_since" -v "now=$stat_now" -v "form=$1" '
    !logs && $1 == "row" { rows++; for (at = 2; at <= 10; at++) row[rows, at] = $at; next }
    $0 == "logs" { logs = 1; next }
    !logs { next }
    /^==> .* <==$/ { name = $2; sub(/\/log$/, "", name); sub(/^%/, "", name); gsub(/,/, "/", name); next }
    $1 >= since && $2 ~ /^(push|pop|delete|settle)$/ {
      n = 1
      if ($7 ~ /^bulk-[0-9]+$/) n = substr($7, 6)
      if ($2 == "push") pushed[name] += n; else gone[name] += n
    }
    # The name as it is in a URL
    function shown(name) {
      if (name !~ /^\$sha1\$/) gsub(/\$/, "%", name)
      gsub(/\+/, "%2B", name)
      return name
    }
    function numbers(comma, at, queue) {
      printf "{\"time\":%d,\"queues\":[", now
      for (at = 1; at <= rows; at++) {
        queue = row[at, 2]
        printf "%s\n{\"queue\":\"%s\",\"group\":\"%s\",\"ready\":%d,\"delayed\":%d,\"in_flight\":%d,\"buried\":%d,", comma, queue, shown(queue),
          row[at, 4], row[at, 5], row[at, 6], row[at, 7]
        printf "\"oldest_seconds\":%d,\"bound\":%s,\"most_tries\":%s,\"closed\":%s,\"pushed_last_minute\":%d,\"done_last_minute\":%d}",
          row[at, 8], row[at, 9], row[at, 10], row[at, 3], pushed[queue], gone[queue]
        comma = ","
      }
      printf "\n]}"
    }
    function head(name, help) { printf "%s# HELP %s %s\n# TYPE %s gauge", newline, name, help, name; newline = "\n" }
    function metrics(at, queue) {
      head("flatq_messages", "Messages of a queue that are in this state.")
      for (at = 1; at <= rows; at++) {
        queue = "\nflatq_messages{queue=\"" row[at, 2] "\",state="
        printf "%s\"ready\"} %d%s\"delayed\"} %d%s\"in_flight\"} %d%s\"buried\"} %d", queue, row[at, 4], queue, row[at, 5], queue, row[at, 6],
          queue, row[at, 7]
      }
      head("flatq_oldest_seconds", "Seconds since the oldest message that is ready was pushed.")
      for (at = 1; at <= rows; at++) printf "\nflatq_oldest_seconds{queue=\"%s\"} %d", row[at, 2], row[at, 8]
      head("flatq_pushed_last_minute", "Messages pushed in the last minute.")
      for (at = 1; at <= rows; at++) printf "\nflatq_pushed_last_minute{queue=\"%s\"} %d", row[at, 2], pushed[row[at, 2]]
      head("flatq_done_last_minute", "Messages deleted or popped in the last minute.")
      for (at = 1; at <= rows; at++) printf "\nflatq_done_last_minute{queue=\"%s\"} %d", row[at, 2], gone[row[at, 2]]
    }
    END { if (!logs) exit 1; if (form == "json") numbers(); else metrics() }'
}

part='doors/http/stat'
