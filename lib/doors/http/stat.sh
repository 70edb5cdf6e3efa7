# doors/http/stat.sh - the queues in numbers: as JSON, for Prometheus, and as pages for people
#
# It holds no lock, and its time is linear: of a deep queue it reads the names that `stat` counts,
# 16 KiB of a flat file, 160 bytes of bodies, and 256 KiB of a log.

need engine/count engine/pause engine/queues engine/state

do_look() {
  stat_queues='' stat_form=page stat_status=200 stat_type='text/html; charset=utf-8'
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
      65 | 66) queue='' stat_form=missing stat_status=404 ;;
      *) say_failed $stat_code; return ;;
      esac
    fi ;;
  esac
  clock_read
  clock_epoch "$now"
  clock_split "$epoch_time"
  # awk fails without the line `logs`, behind which nothing is believed
  text=$({ stat_print | exec awk -v "form=$stat_form" -v "now=$clock_s" -v "epoch=$epoch" \
    -v "host=${host#x}" \
    -f "$lib/doors/http/stat.awk" - html=1 "$lib/doors/http/page.html"; } </dev/null) ||
    { why='the queues cannot be read'; say_failed 74; return; }
  case $stat_form in
  page | queue | missing)
    header Content-Security-Policy "default-src 'none'; img-src data:; style-src 'unsafe-inline'; \
base-uri 'none'; frame-ancestors 'none'"
    header X-Content-Type-Options nosniff ;;
  esac
  say $stat_status "$text" "$stat_type"
}

# stat_print - print the rows of all queues, their counts, a line `logs` if none is missing, and the
# ends of logs; or what page_one prints
stat_print() {
  case $stat_form in
  queue) page_one; return ;;
  missing) printf 'logs\n'; return ;;
  esac
  # shellcheck disable=SC2086 # names without blanks
  all_queues stat_row && queues_count $stat_queues && printf '%slogs\n' "$counts" && stat_logs
}

# stat_row QUEUE - print `row QUEUE CLOSED OLDEST BOUND MOST-TRIES PAUSED`; add QUEUE to stat_queues
stat_row() {
  queue_open "$1" || return
  queue_conf || [ $? -ne 74 ] || return 74
  queue_oldest
  stat_queues="$stat_queues $1"
  stat_closed=true
  [ -e "$q/closed" ] || stat_closed=false
  queue_paused || return
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

# page_one - print the row and the counts of $q; `buried PATH` of the last ten, `delayed PATH` of
# the ten that are due first, `reserved PATH` of ten, `ready SLIP [BASE64]` of the ten that come
# next; bodies, and what is kept of failed commands; and behind a line `logs` its log
page_one() {
  stat_row "$queue" && queues_count "$queue" && printf '%s' "$counts" && cd "$q" || return
  page_bodies='' page_whys=
  # The last ten directories of these (window.sh)
  set -- buried/*/*
  [ $# -le 10 ] || shift $(($# - 10))
  for page_path in "$@"; do
    shift
    set -- "$@" "$page_path"/*
  done
  [ $# -le 10 ] || shift $(($# - 10))
  page_left=10
  page_rows buried "$@"
  page_left=10
  for page_path in delayed/*/*; do
    [ "$page_left" -gt 0 ] || break
    page_rows delayed "$page_path"/*
  done
  page_left=10
  page_rows reserved out/*
  # The first flat file has the first of all that are in flat files
  for page_path in queue/*/*; do break; done
  page_next=$({ find wal head ! -type d; head -c 16384 "$page_path"; } |
    sed 's#^[hw].*/##' | sort | head -n 10 | cut -c 1-300)
  while read -r page_slip page_body; do
    printf 'ready %s %s\n' "$page_slip" "$page_body"
    slip_parse "$page_slip" && [ -z "$page_body" ] && page_bodies="$page_bodies body/$slip_id"
  done <<END
$page_next
END
  # shellcheck disable=SC2086 # names without blanks
  [ -z "$page_bodies" ] || head -c 160 /dev/null $page_bodies
  # shellcheck disable=SC2086
  [ -z "$page_whys" ] || { printf '\n'; tail -n 1 /dev/null $page_whys; }
  printf '\nlogs\n==> %s/log <==\n' "${q##*/}"
  [ ! -f log ] || tail -c 262144 log
}

# page_rows STATE PATH ... - print `STATE PATH` for page_left of these slips; note their files
page_rows() {
  page_state=$1
  shift
  for page_path in "$@"; do
    [ "$page_left" -gt 0 ] || return 0
    slip_of "$q/$page_path"
    slip_parse "$slip" && [ -e "$page_path" ] && ! is_settled "$page_path" || continue
    page_left=$((page_left - 1))
    printf '%s %s\n' "$page_state" "$page_path"
    page_bodies="$page_bodies body/$slip_id"
    [ ! -s "why/$slip_id" ] || page_whys="$page_whys why/$slip_id"
  done
}
