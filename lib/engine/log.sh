# engine/log.sh - the queues' logs, read while other processes write and rename them
#
# A log is known by its inode: the checkpoint renames `log` to log.TIME, and the next event begins another `log`. Members of a group may write into a
# log whatever they like: a line is shown only if it has the form of an event, which leaves no room for anything that a terminal would obey.

need engine/queues

# log_open [QUEUE] - set log_queue, which is empty for all, and log_path to its directory; return 66 if there is no such queue, or no spool
log_open() {
  log_queue=${1-} log_path=$FLATQ_DIR log_state='' log_seen=none
  if [ $# -eq 0 ]; then
    [ -d "$FLATQ_DIR" ] || { need engine/proof; expect_path "$FLATQ_DIR" "no spool $FLATQ_DIR"; }
    return $?
  fi
  name_check "$1" || return $?
  name_to_disk "$1"
  log_path=$FLATQ_DIR/$name_disk
  [ -d "$log_path/wal" ] || { need engine/proof; expect_path "$log_path/wal" "no queue '$1'"; }
}

# log_turn - print the events that have come since the last turn; return 69 if log_queue was dropped
log_turn() {
  # RACE: a log may be renamed, or a queue dropped, after it was listed: repeat
  for log_try in 1 2 3 4 5 6 7 8; do
    log_list || return $?
    [ -n "$log_listed" ] || continue
    [ "$log_listing" != "$log_seen" ] || return 0
    log_show || return $?
    [ -n "$log_again" ] || { log_seen=$log_listing; return 0; }
  done
  why='the logs are renamed faster than they can be read'
  return 74
}

# log_skip - let the next turn begin with the events that come from now on
log_skip() {
  log_list || return $?
  log_state=$(awk 'NF >= 7 && $2 ~ /^-/ { print "s", $1, $NF, $6 }' <<END_OF_LOGS
$log_listing
END_OF_LOGS
  )
}

# log_list - set log_listing to the lines of `ls` about all logs, and log_listed to 1; to nothing if their names have changed meanwhile
log_list() {
  log_listing='' log_listed=
  log_look || return $?
  log_before=$log_paths
  if [ -n "$log_paths" ]; then
    log_listing=$({ cd "$FLATQ_DIR" && log_ls && printf end; } 2>/dev/null) || return 0
    need engine/proof
    capture "$log_listing" || return $?
    log_listing=$captured
  fi
  # RACE: a log may be renamed, and another one begun, between the look and `ls`. And a glob can fail (EMFILE) and look
  # like absence
  log_look || return $?
  [ "$log_paths" != "$log_before" ] || log_listed=1
}

# log_look - set log_paths to the paths of all logs
log_look() {
  log_paths=
  [ -n "$log_queue" ] || { all_queues log_add; return $?; }
  queue=$log_queue q=$log_path
  [ -d "$q" ] || { need engine/proof; queue_there; } || return $?
  log_add "$queue" "$q"
}

# log_add NAME PATH - add the logs of that queue to log_paths; return 77 if one may not be read
log_add() {
  [ -z "$spool_shared" ] || no_links "$2" || return $?
  queue=$1 q=$2
  queue_look || return $?
  # Split at " $q/", not at blanks: the path of the spool may have blanks
  log_rest=${queue_files#"$q/"}
  while [ -n "$log_rest" ]; do
    log_name=${log_rest%%" $q/"*}
    case $log_rest in
    *" $q/"*) log_rest=${log_rest#*" $q/"} ;;
    *) log_name=${log_rest% } log_rest= ;;
    esac
    case $log_name in
    log | log.[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]) ;;
    *) continue ;;
    esac
    [ ! -h "$q/$log_name" ] || continue
    [ -r "$q/$log_name" ] || { why="queue '$queue': its log may not be read"; return 77; }
    log_paths="$log_paths ./$name_disk/$log_name"
  done
}

# log_ls - print inode, size and name of each of log_paths. By xargs, since arguments have a limit (R9)
log_ls() {
  xargs ls -nid <<END_OF_PATHS
$log_paths
END_OF_PATHS
}

# log_show - print the events of the logs in log_listing, from where the last turn ended (log_state); those of several queues in the order of their
# times. Set log_state, and log_again if a log was renamed before it could be opened
log_show() {
  # busybox's awk hides that it could not write, and a pipe hides how its parts have ended: so cat writes, and each part says that it has finished
  # (R6)
  { log_said=$({ if [ -n "$log_queue" ]; then log_one; else log_all; fi | cat >&4; } 2>/dev/null 3>&1); } 4>&1 ||
    { why='the log could not be printed'; return 74; }
  log_finished='events'
  [ -n "$log_queue" ] || log_finished='events
sorted
cut'
  case "
$log_said" in
  *"
end
$log_finished") ;;
  *) why='the log could not be read'; return 74 ;;
  esac
  log_state=$log_said log_again=
  case $log_said in
  *'again
end'*) log_again=1 ;;
  esac
}

# log_one - print the events of one queue, and report on 3 when that has finished
log_one() {
  log_events '' && printf 'events\n' >&3
}

# log_all - print the events of all queues in the order of their times. Each part of the pipe reports on 3 when it has finished (R6)
log_all() {
  { log_events 1 && printf 'events\n' >&3; } | { sort && printf 'sorted\n' >&3; } | { cut -d ' ' -f 3- && printf 'cut\n' >&3; }
}

# log_events MERGED - print the events; if MERGED, with two words in front that sort them. On descriptor 3, print `s INODE NAME BYTES` for each log,
# which is now read up to there, `again` if one was renamed before it could be opened, and `end`
log_events() {
  case $lib in
  /*) log_program=$lib/engine/log.awk ;;
  *) log_program=$PWD/$lib/engine/log.awk ;;
  esac
  (cd "$FLATQ_DIR" && exec awk -v "merged=$1" -f "$log_program" 2>&3) <<END_OF_LOGS
$log_state
list
$log_listing
END_OF_LOGS
}

# log_wait - wait for a second, and return 1; return 0 at once if standard output is a pipe that nobody reads. select and poll report the writing end
# of a pipe as readable only once its last reader is gone
log_wait() {
  need doors/door
  # 0>&1, since yash refuses <&1 where standard output cannot be read from
  # shellcheck disable=SC2016 # a variable of perl's
  door_ask '-p STDIN or sleep(1), exit 1; vec($ends, 0, 1) = 1; exit !(select($ends, undef, undef, 1) > 0)' 'import os, select, stat, time
if not stat.S_ISFIFO(os.fstat(0).st_mode):
    time.sleep(1)
    raise SystemExit(1)
look = select.poll()
look.register(0, 0)
raise SystemExit(not look.poll(1000))' 0>&1
  case $? in
  0) return 0 ;;
  1) return 1 ;;
  esac
  sleep 1
  return 1
}

part='engine/log'
