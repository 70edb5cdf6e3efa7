# doors/http/stat.sh - the queues in numbers: as JSON, for Prometheus, and as pages for people
#
# awk writes them, in linear time. A page holds no lock, and of a deep queue reads only the names
# that `stat` counts: of a flat file the first 16 KiB, of bodies 160 bytes, of a log the last 256
# KiB.

need engine/count engine/queues engine/slip doors/http/query doors/http/say

# do_look - answer with what request_path names
do_look() {
  case $request_path in
  /) do_page ;;
  /metrics) do_stats metrics 'text/plain; version=0.0.4; charset=utf-8' ;;
  *) do_stats json application/json ;;
  esac
}

# do_stats json|metrics|page TYPE - answer with the numbers of all queues, as content type TYPE
do_stats() {
  queue='' slip_size=
  stat_clock
  text=$({ stat_all | stat_awk "$1"; } </dev/null)
  stat_said $? "$2"
}

# do_page - answer with the page of all queues, or of one
do_page() {
  query_parse || return
  if ! has queue; then
    do_stats page "$page_type"
    return
  fi
  slip_size='' stat_queues=
  queue_open "$value"
  page_code=$?
  case $page_code in
  0) ;;
  65 | 66) queue=; say 404 'no such queue'; return ;;
  *) say_failed $page_code; return ;;
  esac
  stat_clock
  text=$({ page_one | stat_awk queue; } </dev/null)
  stat_said $? "$page_type"
}

page_type='text/html; charset=utf-8'

# stat_clock - set stat_now to the time, in seconds
stat_clock() {
  clock_read
  clock_epoch "$now"
  unpad "${epoch_time%??}"
  stat_now=$unpadded
}

# stat_said CODE TYPE - answer with `text`, unless CODE says that it was not made
stat_said() {
  [ "$1" -eq 0 ] && [ -n "$text" ] || { why='the queues cannot be read'; say_failed 74; return; }
  if [ "$2" = "$page_type" ]; then
    header Content-Security-Policy "default-src 'none'; img-src data:; style-src 'unsafe-inline'; \
base-uri 'none'; frame-ancestors 'none'"
    header X-Content-Type-Options nosniff
  fi
  say 200 "$text" "$2"
}

# stat_awk json|metrics|page|queue - become a filter that makes the text of what it reads. It fails
# without the line `logs`, which says that no queue is missing, and behind which nothing is believed
stat_awk() {
  set -- -v "form=$1" -v "now=$stat_now" -v "host=${host#x}" -f "$lib/doors/http/stat.awk" -
  case $2 in
  form=page | form=queue) set -- "$@" html=1 "$lib/doors/http/page.html" ;;
  esac
  exec awk "$@"
}

# stat_all - print the rows of all queues, their counts, and behind a line `logs` the ends of logs
stat_all() {
  stat_queues=
  # shellcheck disable=SC2086 # names without blanks
  all_queues stat_row && queues_count $stat_queues && printf 'logs\n' && stat_logs
}

# stat_row QUEUE - print `row QUEUE CLOSED OLDEST BOUND MOST-TRIES`, OLDEST being the age of the
# oldest ready message; add QUEUE to stat_queues
stat_row() {
  queue_open "$1" || return
  queue_conf || :
  queue_oldest
  stat_queues="$stat_queues $1"
  if [ -e "$q/closed" ]; then stat_closed=true; else stat_closed=false; fi
  printf 'row %s %s %s %s %s\n' "$1" $stat_closed "$oldest" "$queue_bound" "$queue_most_tries"
}

# stat_logs - print the ends of logs with lines from the last minute, each after `==> FILE <==`
stat_logs() (
  cd "$FLATQ_DIR" || exit
  set -- /dev/null
  for stat_log in */log; do
    [ ! -f "$stat_log" ] || set -- "$@" "$stat_log"
  done
  stat_recent=$(tail -n 1 "$@" | awk -v "since=$((stat_now - 60))" '
    /^==> / { name = $2; next } $1 >= since { print name }')
  # shellcheck disable=SC2086 # names without blanks
  [ -z "$stat_recent" ] || tail -c 262144 /dev/null $stat_recent
)

# page_one - print of $q: its row, `buried NAME` of the last ten, `ready SLIP [BASE64]` and bodies
# of the ten that come next, and behind a line `logs` its log
page_one() {
  stat_row "$queue" && queues_count "$queue" || return
  # The last ten directories of these (window.sh)
  set -- "$q"/buried/*/*
  [ $# -le 10 ] || shift $(($# - 10))
  for page_path in "$@"; do
    printf 'buried %s\n' "$page_path"/*
  done
  cd "$q" || return
  # The first flat file has the first of all that are in flat files
  for page_path in queue/*/*; do break; done
  page_next=$({ find wal head ! -type d; head -c 16384 "$page_path"; } |
    sed 's#^[hw].*/##' | sort | head -n 10 | cut -c 1-300)
  set --
  while read -r page_slip page_body; do
    printf 'ready %s %s\n' "$page_slip" "$page_body"
    slip_parse "$page_slip" && [ -z "$page_body" ] && set -- "$@" "body/$slip_id"
  done <<END
$page_next
END
  [ $# -eq 0 ] || head -c 160 /dev/null "$@"
  printf '\nlogs\n==> %s/log <==\n' "${q##*/}"
  [ ! -f log ] || tail -c 262144 log
}
