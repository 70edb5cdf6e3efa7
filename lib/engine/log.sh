# engine/log.sh - the queues' logs, read while other processes write and rename them
#
# A log is known by its inode: the checkpoint renames `log` to log.TIME, and the next event begins another `log`. Members of a group may write into a
# log whatever they like: a line is shown only if it has the form of an event, which leaves no room for anything that a terminal would obey.

need engine/spool engine/queues

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
  # RACE: a log may be renamed, and another one begun, between the look and `ls`. And one look may fail
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
  set -f
  for log_name in $queue_files; do
    case $log_name in
    log | log.[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]) ;;
    *) continue ;;
    esac
    [ ! -h "$q/$log_name" ] || continue
    [ -r "$q/$log_name" ] || { set +f; why="queue '$queue': its log may not be read"; return 77; }
    log_paths="$log_paths ./$name_disk/$log_name"
  done
  set +f
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
  (cd "$FLATQ_DIR" && exec awk -v "merged=$1" '
    # Seconds that the local time is ahead at that time
    function zone(time,  said, command) {
      time = sprintf("%.0f", time)
      if (time in zones) return zones[time]
      command = "date -d @" time " +%z 2>/dev/null"
      command | getline said
      close(command)
      if (said !~ /^[+-][0-9][0-9][0-9][0-9]$/) { failed = 1; exit 1 }
      return zones[time] = (substr(said, 1, 1) == "-" ? -1 : 1) * (substr(said, 2, 2) * 3600 + substr(said, 4, 2) * 60)
    }
    # One look for a day, unless the clocks change on it: then one for each quarter of an hour
    function ahead(time,  day) {
      day = int(time / 86400)
      if (!(day in days)) days[day] = zone(day * 86400) == zone(day * 86400 + 86400) ? zone(day * 86400) : "changes"
      return days[day] == "changes" ? zone(int(time / 900) * 900) : days[day]
    }
    function date(time,  day, era, year, month) {
      time += ahead(time)
      if (time < 0) time = 0
      # Years begin in March here, so that the leap day is the last
      day = int(time / 86400) + 719468
      era = int(day / 146097); day -= era * 146097
      year = int((day - int(day / 1460) + int(day / 36524) - int(day / 146096)) / 365)
      day -= 365 * year + int(year / 4) - int(year / 100)
      month = int((5 * day + 2) / 153)
      day -= int((153 * month + 2) / 5) - 1
      month += month < 10 ? 3 : -9
      return sprintf("%04d-%02d-%02d %02d:%02d:%02d", era * 400 + year + (month < 3), month, day, int(time / 3600) % 24, int(time / 60) % 60, time % 60)
    }
    function many(number, word) { return number " " word (number == "1" ? "" : "s") }
    # Why a message was set aside, came back, or whatever else there is to say
    function words(verb, tries, size, waited, reason,  bulk) {
      if (reason ~ /^bulk-[0-9]+$/) {
        bulk = many(substr(reason, 6), "message")
        return verb == "push" ? bulk ", " many(size, "byte") : bulk
      }
      waited = sprintf("%d.%02d s", waited / 1000, waited % 1000 / 10)
      if (verb == "push") return many(size, "byte")
      if (verb ~ /^(pop|reserve)$/) return "try " tries ", " waited " after its push"
      if (verb == "delete") return "done at try " tries ", " waited " after its push"
      if (verb == "touch") return "its lease is longer, try " tries
      if (verb == "kick") return "ready again"
      if (verb == "release") return "given back, try " tries
      if (verb == "bury" && reason in why) return "set aside: " why[reason] ", try " tries
      if (verb == "bury" && reason ~ /^exit-[0-9]+$/) return "set aside: its command ended with " substr(reason, 6) ", try " tries
      if (verb == "bury" && reason ~ /^signal-[0-9]+$/) return "set aside: its command was ended by signal " substr(reason, 8) ", try " tries
      if (verb == "bury") return "set aside: " reason ", try " tries
      if (verb in why) return "back: " why[verb] ", try " tries
      return reason == "-" ? "try " tries : reason
    }
    # Print the line if it is an event
    function event(line, queue,  part, time) {
      if (length(line) > 200 || split(line, part, " ") != 7 || line != part[1] " " part[2] " " part[3] " " part[4] " " part[5] " " part[6] " " part[7]) return 0
      if (part[1] !~ /^[0-9]+\.[0-9][0-9]$/ || length(part[1]) != 13 || part[2] !~ /^[a-z]+$/ || part[3] !~ /^([0-9]+|-)$/ || part[4] !~ /^[0-9]+$/ ||
        part[5] !~ /^[0-9]+$/ || part[6] !~ /^-?[0-9]+$/ || part[7] !~ /^[0-9A-Za-z_-]+$/) return 0
      # busybox reads a number with a zero in front as octal
      time = substr(part[1], 1, 10)
      sub(/^0+/, "", time)
      line = date(time + 0) substr(part[1], 11) " " queue " " part[2] " " part[3] " " words(part[2], part[4], part[5], part[6] + 0, part[7])
      if (merged) {
        # The lines of one queue stay in their order
        if (part[1] > last[queue] "") last[queue] = part[1] ""
        line = last[queue] " " sprintf("%09d", ++count) " " line
      }
      print line
    }
    # Read the log from byte `from` to byte `to`; return how far it was read. Return -1 if it was renamed: the opened file has another inode
    function read(name, inode, from, to, queue,  command, line, next_line, bytes) {
      command = "exec <\047" name "\047 && set -- $(ls -nid \047" name "\047) && [ \"$1\" = " inode " ] && echo open && tail -c +" \
        sprintf("%.0f", from + 1) " | head -c " sprintf("%.0f", to - from) " | tr \"\\000\" \"\\001\" && echo ."
      command = "{ " command "; } 2>/dev/null"
      if ((command | getline line) <= 0 || line != "open") { close(command); return -1 }
      if ((command | getline line) <= 0) { failed = 1; exit 1 }
      while ((command | getline next_line) > 0) {
        bytes += length(line) + 1
        event(line, queue)
        line = next_line
      }
      close(command)
      # The last line is what is not yet whole, and a dot
      if (line !~ /\.$/ || bytes + length(line) - 1 != to - from) { failed = 1; exit 1 }
      return from + bytes
    }
    function take(name, inode, size,  queue, from, to) {
      queue = name
      sub(/^\.\//, "", queue); sub(/\/log[.0-9]*$/, "", queue); sub(/^%/, "", queue); gsub(/,/, "/", queue)
      # An inode may be used again, for a new log
      from = was[inode] == name || name !~ /\/log$/ ? at[inode] + 0 : 0
      if (from > size) from = 0
      to = from < size ? read(name, inode, from, size, queue) : from
      if (to < 0) { again = 1; to = from; name = was[inode] }
      if (name != "") state = state "s " inode " " name " " sprintf("%.0f", to) "\n"
    }
    function place(name) { sub(/[^\/]*$/, "", name); return name }
    BEGIN {
      why["asked"] = "on request"; why["released"] = "given back at its last try"; why["expired"] = "its lease ended"; why["dead"] = "its owner died"
      why["boot"] = "the system was started anew"; why["undelivered"] = "its client was gone"; why["damaged"] = "its body is damaged or missing"
      why["timeout"] = "its command ran too long"; why["unfed"] = "its command did not get it in full"; why["too-big"] = "too large for where it was to go"
      why["unknown"] = "it is not known how its command ended"
    }
    $1 == "list" { list = 1; next }
    !list && $1 == "s" { was[$2] = $3; at[$2] = $4 }
    # Neither a link nor a FIFO, on which a reader would wait. `ls` knows, or has failed (R1)
    !list || NF < 7 || $2 !~ /^-/ { next }
    # `log` is newer than the others of its queue, and comes first
    held != "" && place($NF) != place(held) { take(held, held_inode, held_size); held = "" }
    $NF ~ /\/log$/ { held = $NF; held_inode = $1; held_size = $6 + 0; next }
    { take($NF, $1, $6 + 0) }
    END {
      if (failed) exit 1
      if (held != "") take(held, held_inode, held_size)
      if (failed) exit 1
      printf "%s%send\n", state, again ? "again\n" : "" | "cat 1>&2"
      close("cat 1>&2")
    }' 2>&3) <<END_OF_LOGS
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
