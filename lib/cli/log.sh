# cli/log.sh - read the queues' logs, while others write them, and the checkpoint renames `log`
# to log.TIME. A log is known by its inode; a line that has not the form of an event is not shown

need engine/queues engine/proof engine/piped

# log_open [QUEUE] - begin to read the logs of QUEUE, or of all; 66: no such queue, or no spool
log_open() {
  log_queue=${1-} log_state='' log_seen=none
  [ -e "$FLATQ_DIR/.ids" ] || { need engine/boot; spool_there || return; }
  [ $# -gt 0 ] || return 0
  name_check "$1" || return
  name_to_disk "$1"
  log_path=$FLATQ_DIR/$name_disk
  expect_path "$log_path/wal" "no queue '$1'"
}

# log_turn - print the events since the last turn; in the first, the last log_last since log_since,
# where empty is all. 69: the queue was dropped
log_turn() {
  # RACE: a log may be renamed, or a queue dropped, after it was listed
  for log_try in 1 2 3 4 5 6 7 8; do
    log_list || return
    [ -n "$log_listed" ] || continue
    [ "$log_listing" != "$log_seen" ] || return 0
    log_show || return
    [ -n "$log_again" ] || { log_seen=$log_listing; return 0; }
  done
  why='the logs cannot be opened, or are renamed too fast'
  return 74
}

# log_list - set log_listing to what `ls` says of all logs, and log_listed, unless their names have
# changed meanwhile
log_list() {
  log_listing='' log_listed=
  log_look || return
  log_before=$log_paths
  # Arguments have a limit (R9)
  [ -z "$log_paths" ] ||
    log_listing=$(cd "$FLATQ_DIR" && printf '%s\n' "$log_paths" | xargs ls -nidU) || return 0
  log_look || return
  [ "$log_paths" != "$log_before" ] || log_listed=1
}

# log_look - set log_paths to the paths of all logs
log_look() {
  log_paths=
  if [ -n "$log_queue" ]; then log_add "$log_queue" "$log_path"; else all_queues log_add; fi
}

# log_add NAME PATH - add the logs of that queue to log_paths, the newest last. A listing without
# `lock` has failed
log_add() {
  log_lock='' log_newest=
  for log_file in "$2"/l*; do
    log_name=" ./${2##*/}/${log_file##*/}"
    case ${log_file##*/} in
    lock) log_lock=1; continue ;;
    log) log_newest=$log_name ;;
    log.[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9])
      log_paths=$log_paths$log_name ;;
    *) continue ;;
    esac
  done
  log_paths=$log_paths$log_newest
  [ -z "$log_lock" ] || return 0
  queue=$1 q=$2
  queue_there || return
  not_listed
}

# log_show - print the events of the logs in log_listing, from where log_state says, by their times;
# set log_state, and log_again if a log was renamed before it was opened
log_show() {
  case $log_last in
  '') log_filter='cat' ;;
  # tail -n 0 reads nothing
  0) log_filter='sed d' ;;
  *) log_filter="tail -n $log_last" ;;
  esac
  # Each part of the pipe says on 3 that it has finished (R6). busybox's awk hides that it could not
  # write: another program writes
  {
    log_state=$({
      { log_read && printf 'read ' >&3; } | { sort && printf 'sorted ' >&3; } |
        { log_cut && printf cut >&3; } | $log_filter >&4
    } 3>&1)
  } 4>&1 || { why='the log could not be printed'; return 74; }
  log_again=
  case $log_state in
  *'again
end
read sorted cut') log_again=1 ;;
  *'end
read sorted cut') ;;
  *) why='the log could not be read'; return 74 ;;
  esac
}

# log_cut - a filter: take off the words that sorted the events
log_cut() {
  set -- cut -d ' ' -f 3-
  [ -z "${log_json:-}" ] || set -- json_lines \
    'time queue$ event$ id tries size milliseconds count due reason$ text$' "$@"
  "$@"
}

# log_read - print the events, with two words in front that sort them. On 3, print `s INODE NAME
# BYTES` for each log, read up to there, `again` as log_again, and `end`
log_read() {
  printf '%s\n' "$log_state" "$log_listing" whole | FLATQ_DIR=$FLATQ_DIR awk \
    -v "json=${log_json:-}" -v "last=$log_last" -v "since=$log_since" -v "only=$log_id" \
    -f "$lib/cli/date.awk" -f "$lib/cli/log.awk" 2>&3
}

# log_wait - wait for a second, and return 1; 0: standard output is a pipe that nobody reads, whose
# writing end select then calls readable
log_wait() {
  if [ -p /proc/self/fd/1 ]; then
    need doors/door
    # shellcheck disable=SC2016 # a variable of perl's
    door_ask 'vec($ends, 0, 1) = 1; exit !(select($ends, undef, undef, 1) > 0)' 0>&1
    log_code=$?
    [ $log_code -gt 1 ] || return $log_code
  fi
  sleep 1
  return 1
}
