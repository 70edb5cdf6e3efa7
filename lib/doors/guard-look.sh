# doors/guard-look.sh - what the guard checks every second: connections that are dead, idle or slow, and lines that are too long

need engine/process doors/door doors/guard engine/clock

# guard_second - run the checks of a second; return 1 if launch is gone
guard_second() {
  guard_parent "$$" || return 1
  # RACE: if we were held up, seconds wait in the pipe. They count as one: nobody has had time to do anything between two looks that follow at once
  clock_read
  clock_between "$guard_last" "$now"
  [ "$between_s" -ne 0 ] || [ "$between_c" -ge 50 ] || return 0
  guard_last=$now guard_now=$((guard_now + 1))
  # With several doors: end when their parent has ended, if nothing else does that
  if [ -z "${launch_parent:-}" ]; then
    :
  elif [ -e "$FLATQ_PROC/self/stat" ]; then
    # A look that failed is repeated in a second
    guard_stat=") - $launch_parent "
    { read -r guard_stat <"$FLATQ_PROC/$$/stat"; } 2>/dev/null || ! process_gone "$$" || return 1
    guard_stat=${guard_stat##*') '}
    guard_stat=${guard_stat#* }
    [ "${guard_stat%% *}" = "$launch_parent" ] || return 1
  else
    process_signal 0 "$launch_parent" || return 1
  fi
  guard_checkpoint
  # Its end may have failed
  [ -z "$guard_denied" ] || guard_ncat_waits
  # If there are many, look at some each second, in turn: guard_look puts those into a new list, and the others come before it. One copy of the list a
  # second: with guard_take, there would be several for each connection
  # shellcheck disable=SC2086 # entries
  set -- $guard_list
  guard_looked=0 guard_list=' '
  while [ $# -gt 0 ] && [ $guard_looked -lt 32 ]; do
    guard_looked=$((guard_looked + 1))
    guard_fields "$1"
    shift
    guard_look
  done
  guard_list=" $*${1:+ }${guard_list# }"
  # A handler may outlive its ncat
  guard_alive=
  for guard_entry in $guard_groups; do
    ! guard_stranger "$guard_entry" || continue
    [ "${guard_entry%%-*}" != "$guard_group" ] && ! process_signal 0 "-${guard_entry%%-*}" || guard_alive="$guard_alive $guard_entry"
  done
  guard_groups=$guard_alive
}

# guard_checkpoint - run the checkpoint beside everything else, one at a time: within a second after a connection, and every ten seconds
guard_checkpoint() {
  # If the process that runs it was killed, its `w` never comes
  [ -z "$guard_wal" ] || ! guard_gone "$guard_wal" "${guard_wal_started#-}" || guard_checkpoint_ended
  [ -n "$guard_due" ] || [ $((guard_now % 10)) -eq 0 ] || return 0
  [ -z "$guard_wal" ] || return 0
  guard_due='' guard_wal_began=$guard_now
  { sh "$lib/wal" 6>&-; printf '\nw %s\n' "$guard_wal_began" >&6; } </dev/null &
  guard_wal=$!
  guard_start_time $guard_wal
  guard_wal_started=$guard_started
}

# guard_checkpoint_ended - the checkpoint has ended: the next one may begin. From here on its `w` is ignored, which may still be in the pipe
guard_checkpoint_ended() {
  wait "$guard_wal"
  guard_wal='' guard_wal_began=
}

# guard_look - check the connection in guard_pid and so on, which is not in the list now: is it dead, is its line too long, is it idle?
# RACE: what the handler has written to us may still be in the pipe. So a handler that is dead or has read much is left alone until the next look, for
# which all that is in the pipe now will have been read
guard_look() {
  if guard_gone "$guard_pid" "$guard_started"; then
    case $guard_state in
    line | 4?? | verb) guard_state=gone; guard_put ;;
    gone)
      # Processes that the handler has started would keep the connection open: end them through its ncat, which started no later than it
      guard_ncat=$guard_server
      twice guard_is_ncat && twice process_started "$guard_ncat" && ! [ "$started" \> "$guard_started" ] && process_signal TERM "$guard_ncat"
      guard_log killed ;;
    *) guard_log "$guard_state" ;;
    esac
    return 0
  fi
  case $guard_state in
  line | 4?? | verb) ;;
  *)
    # Who was refused a moment ago is still telling its client
    [ "$guard_state" = too-many ] && [ "$guard_began" -ge $((guard_now - 1)) ] || guard_send KILL
    guard_put
    return 0 ;;
  esac
  # This connection may be silent for ever (beanstalk and small-stalk)
  [ "$guard_quiet" -lt $((guard_now + 1000000)) ] || { guard_put; return 0; }
  guard_measure
  if [ "$guard_state" != verb ] && [ $((${guard_bytes:-0} - guard_from)) -ge 1000000 ]; then
    [ "$guard_unsent" = long ] || { guard_unsent=long; guard_put; return 0; }
    guard_too_long
    # Kill the handler before it sees its input end and answers that the line was cut. We write the answer; ncat passes it on and ends
    guard_state=line-too-long
    guard_family
    # shellcheck disable=SC2086 # process ids
    kill -KILL "$guard_pid" $guard_children 2>/dev/null
  elif [ "$launch_idle" -gt 0 ]; then
    # If its bytes cannot be measured, only the time counts
    [ $((guard_now - guard_quiet)) -lt "$launch_idle" ] || [ -z "$guard_mark" ] || guard_client_reads || guard_kill idle
    [ $((guard_now - guard_slow)) -lt $((launch_idle * 10)) ] || guard_kill slow
  fi
  guard_put
}

# guard_too_long - answer the client ourselves, by the handler's descriptor: the handler reads, and acts on nothing before it has the line
guard_too_long() {
  case $guard_state in
  414) guard_text='HTTP/1.1 414 URI Too Long' ;;
  431) guard_text='HTTP/1.1 431 Request Header Fields Too Large' ;;
  *) printf 'error 65 line too long\n'; return $? ;;
  esac
  printf '%s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n' "$guard_text"
} 2>/dev/null >"$FLATQ_PROC/$guard_pid/fd/5"

# guard_measure - update guard_mark and guard_coarse; if they changed, guard_quiet and guard_slow. Set guard_bytes to what the handler has read
guard_measure() {
  set -- "$guard_mark" "$guard_coarse"
  guard_mark='' guard_coarse='' guard_bytes=
  guard_family
  for guard_process in $guard_ncat $guard_children "$guard_pid"; do
    { read -r guard_line guard_read && read -r guard_line guard_written; } 2>/dev/null <"$FLATQ_PROC/$guard_process/io" || continue
    guard_mark=$guard_mark.$guard_read.$guard_written guard_coarse=$guard_coarse.${guard_read%????}.${guard_written%????}
    guard_bytes=$guard_read
  done
  # For a verb that waits, guard_quiet is in the future: leave it
  [ "$guard_mark" = "$1" ] || [ "$guard_quiet" -ge "$guard_now" ] || guard_quiet=$guard_now
  [ "$guard_coarse" = "$2" ] || [ "$guard_slow" -ge "$guard_now" ] || guard_slow=$guard_now
}

# guard_client_reads - return whether the client reads from what waits for it
guard_client_reads() {
  door_inode=
  while read -r guard_line guard_rest; do
    [ "$guard_line" != ino: ] || door_inode=$guard_rest
  done 2>/dev/null <"$FLATQ_PROC/$guard_pid/fdinfo/1"
  [ -n "$door_inode" ] && door_row && [ "$door_unsent" != "$guard_unsent" ] || return 1
  guard_unsent=$door_unsent guard_quiet=$guard_now
}

# guard_parent PID - return whether PID is still our parent or, where that cannot be seen, a process. When a parent
# is killed, its children have another one at once, even while it is a zombie
guard_parent() {
  twice guard_stat_read || { process_signal 0 "$1"; return $?; }
  guard_stat=${guard_stat##*') '}
  guard_stat=${guard_stat#* }
  [ "${guard_stat%% *}" = "$1" ]
}

# guard_stat_read - set guard_stat. In a function of its own: mksh leaves the one whose redirection fails (R12)
guard_stat_read() {
  read -r guard_stat 2>/dev/null <"$FLATQ_PROC/self/stat"
}

# guard_lives PID STARTED - return whether the process lives, and is the one that started then: only then it may be signalled
guard_lives() {
  if process_started "$1"; then [ "$started" = "$2" ]; else [ ! -e "$FLATQ_PROC/self/stat" ] && kill -0 "$1" 2>/dev/null; fi
}

# guard_gone PID [STARTED] - return whether it is proved that the process is gone: there is none, or one that started at another time (R1)
guard_gone() {
  if process_started "$1"; then [ "$started" != "${2:-$started}" ]; else process_gone "$1"; fi
}

part='doors/guard-look'
