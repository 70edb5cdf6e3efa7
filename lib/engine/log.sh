# engine/log.sh - the queues' logs, read while other processes write and rename them
#
# A log is known by its inode: the checkpoint renames `log` to log.TIME, and the next event begins
# another `log`. A line is shown only if it has the form of an event, which leaves no room for
# anything that a terminal would obey.

need engine/queues engine/proof engine/piped

# log_open [QUEUE] - set log_queue, which is empty for all, and log_path to its directory; return 66
# if there is no such queue, or no spool, 77 if it may not be read
log_open() {
  log_queue=${1-} log_path=$FLATQ_DIR log_state='' log_seen=none
  log_allowed "$FLATQ_DIR" || return
  [ -e "$FLATQ_DIR/.ids" ] || { need engine/boot; spool_there || return; }
  [ $# -gt 0 ] || return 0
  name_check "$1" || return
  name_to_disk "$1"
  log_path=$FLATQ_DIR/$name_disk
  log_allowed "$log_path" && expect_path "$log_path/wal" "no queue '$1'"
}

# log_allowed DIRECTORY - return 77 if it may not be read
log_allowed() {
  [ -d "$1" ] && { [ ! -r "$1" ] || [ ! -x "$1" ]; } || return 0
  why="$1: not allowed"
  return 77
}

# log_turn - print the events that have come since the last turn, of the first turn only the last
# log_last (empty: all) and those since log_since; return 69 if log_queue was dropped
log_turn() {
  # RACE: a log may be renamed, or a queue dropped, after it was listed: repeat
  for log_try in 1 2 3 4 5 6 7 8; do
    log_list || return
    [ -n "$log_listed" ] || continue
    [ "$log_listing" != "$log_seen" ] || return 0
    log_show || return
    [ -n "$log_again" ] || { log_seen=$log_listing; return 0; }
  done
  why='the logs are renamed faster than they can be read'
  return 74
}

# log_skip - let the next turn begin with the events that come from now on
log_skip() {
  log_list || return
  log_state=$(printf '%s\n' "$log_listing" | awk 'NF >= 7 { print "s", $1, $NF, $6 }')
}

# log_list - set log_listing to the lines of `ls` about all logs, and log_listed to 1; to nothing if
# their names have changed meanwhile
log_list() {
  log_listing='' log_listed=
  log_look || return
  log_before=$log_paths
  # By xargs, since arguments have a limit (R9)
  [ -z "$log_paths" ] ||
    log_listing=$(cd "$FLATQ_DIR" && printf '%s\n' "$log_paths" | xargs ls -nid) || return 0
  # RACE: a log may be renamed, and another one begun, between the look and `ls`
  log_look || return
  [ "$log_paths" != "$log_before" ] || log_listed=1
}

# log_look - set log_paths to the paths of all logs
log_look() {
  log_paths=
  if [ -z "$log_queue" ]; then
    for log_path in "$FLATQ_DIR"/*; do
      log_allowed "$log_path" || return
    done
    all_queues log_add
    return
  fi
  queue=$log_queue q=$log_path
  [ -d "$q" ] || queue_there || return
  log_add "$queue" "$q"
}

# log_add NAME PATH - add the logs of that queue to log_paths; return 77 if one may not be read. The
# listing must contain `lock`, or it has failed
log_add() {
  log_lock=
  for log_file in "$2"/l*; do
    case ${log_file##*/} in
    lock) log_lock=1 ;;
    log | log.[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9])
      if [ ! -r "$log_file" ]; then
        absent "$log_file" && continue
        why="queue '$1': its log may not be read"
        return 77
      fi
      log_paths="$log_paths ./${2##*/}/${log_file##*/}" ;;
    esac
  done
  [ -z "$log_lock" ] || return 0
  queue=$1 q=$2
  queue_there || return
  why="queue '$queue': cannot be listed"
  return 74
}

# log_show - print the events of the logs in log_listing, from where the last turn ended
# (log_state); those of several queues in the order of their times. Set log_state, and log_again if
# a log was renamed before it could be opened
log_show() {
  log_filter=cat log_again='' log_parts=events
  case $log_last in
  '') ;;
  # tail -n 0 reads nothing
  0) log_filter='sed d' ;;
  *) log_filter="tail -n $log_last" ;;
  esac
  [ -n "$log_queue" ] || log_parts='events
sorted
cut'
  # busybox's awk hides that it could not write, so another program writes. A pipe hides how its
  # parts have ended, so each part says on 3 that it has finished (R6)
  {
    log_state=$({ log_events | $log_filter >&4; } 3>&1)
  } 4>&1 || { why='the log could not be printed'; return 74; }
  case "
$log_state" in
  *"
end
$log_parts") ;;
  *) why='the log could not be read'; return 74 ;;
  esac
  case $log_state in
  *'again
end'*) log_again=1 ;;
  esac
}

# log_events - print the events
log_events() {
  if [ -n "$log_queue" ]; then
    log_read '' && printf 'events\n' >&3
  else
    { log_read 1 && printf 'events\n' >&3; } | { sort && printf 'sorted\n' >&3; } |
      { cut -d ' ' -f 3- && printf 'cut\n' >&3; }
  fi
}

# log_read MERGED - print the events; if MERGED, with two words in front that sort them. On
# descriptor 3, print `s INODE NAME BYTES` for each log, which is now read up to there, `again` if
# one was renamed before it could be opened, and `end`
log_read() {
  case $lib in
  /*) log_program=$lib/engine/log.awk ;;
  *) log_program=$PWD/$lib/engine/log.awk ;;
  esac
  # The last line proves that all came
  printf '%s\n' "$log_state" list "$log_listing" whole | (cd "$FLATQ_DIR" && exec awk \
    -v "merged=$1" -v "last=$log_last" -v "since=$log_since" -f "$log_program" 2>&3)
}

# log_wait - wait for a second, and return 1; return 0 at once if standard output is a pipe that
# nobody reads. select and poll report the writing end of a pipe as readable only once its last
# reader is gone
log_wait() {
  log_code=2
  if [ -p /proc/self/fd/1 ]; then
    need doors/door
    # shellcheck disable=SC2016 # a variable of perl's
    door_ask 'vec($ends, 0, 1) = 1; exit !(select($ends, undef, undef, 1) > 0)' 'import select
look = select.poll()
look.register(0, 0)
raise SystemExit(not look.poll(1000))' 0>&1
    log_code=$?
  fi
  [ $log_code -gt 1 ] || return $log_code
  sleep 1
  return 1
}
