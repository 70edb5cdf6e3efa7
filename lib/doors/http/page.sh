# doors/http/page.sh - the pages for people: all queues, and one queue
#
# A page is made anew by each request, and its reader needs no script. It holds no lock, and reads no more of a deep queue than the names that
# `stat` counts: of flat files the first 16 KiB of a few, of bodies the first 160 bytes, of a log the last 256 KiB.

need engine/slip engine/queues doors/http/query doors/http/say

do_page() {
  need doors/http/stat
  query_parse || return $?
  stat_clock 600
  queue='' slip_size='' page_code=0
  if has queue; then
    # From the form of `plain`: these two are the only characters of a queue's name that a URL must encode
    while :; do
      case $p_queue in
      *\$24*) p_queue=${p_queue%%\$24*}!${p_queue#*\$24} ;;
      *\$2B*) p_queue=${p_queue%%\$2B*}+${p_queue#*\$2B} ;;
      *) break ;;
      esac
    done
    while [ "${p_queue#*!}" != "$p_queue" ]; do p_queue=${p_queue%%!*}\$${p_queue#*!}; done
    name_check "$p_queue" || { say 404 'no such queue'; return $?; }
    queue_open "$p_queue"
    page_code=$?
    case $page_code in
    0) ;;
    66) say 404 'no such queue'; return $? ;;
    *) say_failed $page_code; return $? ;;
    esac
    text=$({ page_one | page_awk one; } </dev/null) || page_code=$?
  else
    text=$({ { all_queues stat_row && page_rotated "$FLATQ_DIR"/* && printf 'logs\n' && stat_logs; } | page_awk all; } </dev/null) || page_code=$?
  fi
  [ $page_code -eq 0 ] && [ -n "$text" ] || { why='the queues cannot be read'; say_failed 74; return $?; }
  header Content-Security-Policy "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
  header X-Content-Type-Options nosniff
  say 200 "$text" 'text/html; charset=utf-8'
}

# page_rotated PATH ... - print `rotated` and the directories of those of these queues whose log was rotated
page_rotated() {
  page_list=
  for page_path in "$@"; do
    for page_log in "$page_path"/log.[0-9]*; do
      [ ! -e "$page_log" ] || page_list="$page_list ${page_path##*/}"
      break
    done
  done
  [ -z "$page_list" ] || printf 'rotated%s\n' "$page_list"
}

# page_one - print what page_awk shows of $q: its row, `buried NAME` of the last ten, `ready SLIP [BASE64]` and bodies of the oldest ten, its log
page_one() {
  stat_row "$queue"
  # The last ten directories of these (window.sh)
  set -- "$q"/buried/*/*
  [ $# -le 10 ] || shift $(($# - 10))
  for page_place in "$@"; do
    for page_path in "$page_place"/*; do
      printf 'buried %s\n' "${page_path##*/}"
    done
  done
  cd "$q" || return $?
  page_oldest=$(page_ready)
  set --
  while read -r page_slip page_body; do
    [ -n "$page_slip" ] || continue
    printf 'ready %s %s\n' "$page_slip" "$page_body"
    slip_parse "$page_slip" && [ -z "$page_body" ] && [ -f "body/$slip_id" ] && set -- "$@" "body/$slip_id"
  done <<END
$page_oldest
END
  [ $# -eq 0 ] || head -c 160 /dev/null "$@" 2>/dev/null
  printf '\n'
  page_rotated "$q"
  printf 'logs\n==> %s/log <==\n' "${q##*/}"
  [ ! -f log ] || [ -h log ] || tail -c 262144 log 2>/dev/null
}

# page_ready - print `SLIP [BASE64]` of the ten oldest messages that are ready: of wal/ and head/, and of the first flat files of up to
# four priorities
page_ready() {
  set -- /dev/null
  page_seen=' '
  for page_path in queue/*/*; do
    page_slip=${page_path##*/}
    case $page_seen in
    *" ${page_slip%%.*} "*) continue ;;
    esac
    [ $# -le 4 ] && [ -f "$page_path" ] || break
    page_seen="$page_seen${page_slip%%.*} "
    set -- "$@" "$page_path"
  done
  { find wal head ! -type d; head -c 16384 "$@"; } 2>/dev/null | awk '
    { name = $1; sub(/.*\//, "", name)
      if (split(name, field, ".") != 10 || length(field[2]) != 12 || name ~ /[^0-9a-z.-]/) next
      for (at = count; at && id[at] > field[2] ""; at--) { id[at + 1] = id[at]; line[at + 1] = line[at] }
      id[at + 1] = field[2] ""; line[at + 1] = name " " substr($2, 1, 160)
      if (count < 10) count++ }
    END { for (at = 1; at <= count; at++) print line[at] }'
}

# page_awk all|one - become a filter that makes the page of what it reads. It fails without the line `logs`, the sign that no queue is missing
# shellcheck disable=SC2154 # stat_now: stat.sh
page_awk() {
  case ${host#x} in
  '' | *[!A-Za-z0-9.:-]*) page_host=localhost:5000 ;;
  *) page_host=${host#x} ;;
  esac
  exec awk -v "now=$stat_now" -v "form=$1" -v "host=$page_host" -f "$lib/doors/http/page.awk"
}

part='doors/http/page'
