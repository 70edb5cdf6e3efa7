# doors/http/stat.sh - the queues in numbers: as JSON, for Prometheus, and as pages for people
#
# It holds no lock, and its time is linear: of a deep queue it reads the names that `stat` counts,
# 16 KiB of a flat file, 160 bytes of bodies, and 256 KiB of a log.

need engine/count engine/pause engine/queues

do_look() {
  stat_queues='' stat_form=page stat_type='text/html; charset=utf-8'
  case $request_path in
  /queue/stats) stat_form=json stat_type=application/json ;;
  /metrics) stat_form=metrics stat_type='text/plain; version=0.0.4; charset=utf-8' ;;
  *)
    query_parse || return
    if has queue; then
      stat_form=queue
      queue_open "$value"
      stat_code=$?
      case $stat_code in
      0) ;;
      65 | 66) queue=; say 404 'no such queue'; return ;;
      *) say_failed $stat_code; return ;;
      esac
    fi ;;
  esac
  clock_read
  clock_epoch "$now"
  clock_split "$epoch_time"
  stat_now=$clock_s
  # awk fails without the line `logs`, behind which nothing is believed
  text=$({ stat_print | exec awk -v "form=$stat_form" -v "now=$stat_now" -v "host=${host#x}" \
    -f "$lib/doors/http/stat.awk" - html=1 "$lib/doors/http/page.html"; } </dev/null) ||
    { why='the queues cannot be read'; say_failed 74; return; }
  case $stat_form in
  page | queue)
    header Content-Security-Policy "default-src 'none'; img-src data:; style-src 'unsafe-inline'; \
base-uri 'none'; frame-ancestors 'none'"
    header X-Content-Type-Options nosniff ;;
  esac
  say 200 "$text" "$stat_type"
}

# stat_print - print the rows of all queues, their counts, a line `logs` if none is missing, and the
# ends of logs; or what page_one prints
stat_print() {
  [ "$stat_form" != queue ] || { page_one; return; }
  # shellcheck disable=SC2086 # names without blanks
  all_queues stat_row && queues_count $stat_queues && printf 'logs\n' && stat_logs
}

# stat_row QUEUE - print `row QUEUE CLOSED OLDEST BOUND MOST-TRIES PAUSED`; add QUEUE to stat_queues
stat_row() {
  queue_open "$1" || return
  queue_conf || :
  queue_oldest
  stat_queues="$stat_queues $1"
  if [ -e "$q/closed" ]; then stat_closed=true; else stat_closed=false; fi
  queue_paused || :
  printf 'row %s %s %s %s %s %s\n' "$1" $stat_closed "$oldest" "$queue_bound" \
    "$queue_most_tries" "$paused_left"
}

# stat_logs - print the ends of logs that may have lines from the last minute, each after `==> FILE
# <==`
stat_logs() (
  cd "$FLATQ_DIR" || exit
  stat_recent=$(exec find -- */log -type f -mmin -3)
  # shellcheck disable=SC2086 # names without blanks
  [ -z "$stat_recent" ] || exec tail -c 262144 /dev/null $stat_recent
)

# page_one - print the row and the counts of $q, `buried NAME` of the last ten, `ready SLIP
# [BASE64]` and bodies of the ten that come next, and behind a line `logs` its log
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
