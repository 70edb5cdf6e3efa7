# doors/guard.sh - what launch does while ncat and the handlers run: it knows every connection, ends
# idle ones, and runs the checkpoint
#
# It reads lines from a pipe (6), which ncat has as 2, and each handler as 3:
#   s PID                the clock beside ncat
#   n PID                a new ncat
#   c PID NCAT TIME      a connection: its handler, the ncat that serves it, the clock at that time
#   l PID SECONDS VERB   the handler has read its line; the verb may wait this long
#   r PID STATUS         http: the handler begins to read a request line (STATUS 414) or header
#                        fields (431); if these get too long, answer STATUS
#   e PID                the handler has ended, and has written its line of log
#   t                    a second has passed
#   x                    ncat has ended, or what runs it
# and the messages of ncat, which writes a line in two pieces: so ours begin with a newline.
#
# guard_list has the PID of each handler, guard_of_PID these fields, in seconds from the start, and
# bytes: time, server, as above; began; verb; state: line (not read yet; for http 414 or 431), verb,
# gone (seen dead once: its `e` may still be in the pipe), or why it was ended; quiet: when its
# processes last moved bytes, or until when its verb may wait; mark: how many they have moved; slow,
# coarse: the same for 10,000 bytes; unsent: what waited for the client at the last look, or `long`
# if its line was too long then; from: what the handler had read before its line

need engine/process engine/clock doors/door

guard_begin() {
  guard_list=' ' guard_count=0 guard_now=0 guard_last=000000000000 guard_due=1 guard_wal='' \
    guard_code=69 guard_told='' guard_group='' guard_ncat='' guard_clock=
}

# guard - read lines until `x`, or until nobody writes any more, or tells the time
guard() {
  set -f
  while :; do
    IFS= read -r guard_line <&6 || {
      # USR1 may interrupt it, between two lines
      process_started "$guard_group" && continue
      break
    }
    # bash writes our newline by itself: so ours may stand behind the beginning of a line from ncat
    guard_line=${guard_line##*Ncat: }
    # shellcheck disable=SC2086 # words
    set -- $guard_line
    case ${1:-} in
    c)
      guard_connects "$@"
      # Without a clock, idle clients would keep their places for ever
      process_started "$guard_clock" || break ;;
    e) ! guard_take "${2:-}" || guard_forget; guard_due=1 ;;
    l) ! guard_heard "${2:-}" || { guard_state=verb guard_verb=$4; guard_waits "$3"; } ;;
    r)
      ! guard_heard "${2:-}" || {
        guard_state=$3
        read -r guard_line guard_from <"/proc/$2/io" || guard_from=0
        guard_waits 0
      } ;;
    t) guard_second || break ;;
    x) break ;;
    n) guard_ncat=${2:-} ;;
    s) guard_clock=${2:-} ;;
    '') ;;
    *) guard_ncat_says "$guard_line" ;;
    esac
  done
  set +f
}

# guard_take PID - set the variables to the fields of this connection; return 1 if there is none
guard_take() {
  case $1 in
  '' | *[!0-9]*) return 1 ;;
  esac
  eval "set -- $1 \${guard_of_$1:-}"
  [ $# -eq 12 ] || return 1
  guard_pid=$1 guard_time=$2 guard_server=$3 guard_began=$4 guard_state=$5 guard_verb=$6 \
    guard_quiet=$7 guard_mark=$8 guard_slow=$9
  shift 9
  guard_coarse=$1 guard_unsent=$2 guard_from=$3
}

guard_put() {
  eval "guard_of_$guard_pid=\"$guard_time $guard_server $guard_began $guard_state $guard_verb \
$guard_quiet $guard_mark $guard_slow $guard_coarse $guard_unsent $guard_from\""
}

# guard_forget - the connection in the variables has ended. Its PID stays in guard_list until the
# next look
guard_forget() {
  unset "guard_of_$guard_pid"
  guard_count=$((guard_count - 1))
}

# guard_serves - return whether the connection in the variables has not been seen dead, or ended
guard_serves() {
  case $guard_state in
  line | 4?? | verb) ;;
  *) return 1 ;;
  esac
}

# guard_heard PID - as guard_take, for a handler that has read something; return 1 also if it is to
# end. One that was refused may have missed the USR1
guard_heard() {
  guard_take "$1" || return
  guard_serves || { guard_kill TERM; return 1; }
}

# guard_connects c PID NCAT TIME - add a connection, or refuse it if there are more than launch -m:
# ncat does not count clients that send no more
guard_connects() {
  # The PID may be that of an earlier handler, which was killed
  ! guard_take "${2:-}" || { guard_log killed; guard_forget; }
  guard_pid=$2 guard_server=$3 guard_time=$4 guard_began=$guard_now guard_state=line \
    guard_verb=- guard_mark=0 guard_coarse=0 guard_from=0
  [ "$launch_door" != http ] || guard_state=414
  [ "$guard_count" -lt "$launch_most" ] || {
    guard_state=too-many
    # The handler tells its client
    ! guard_lives "$guard_pid" || kill -USR1 "$guard_pid"
  }
  guard_count=$((guard_count + 1))
  case $guard_list in
  *" $guard_pid "*) ;;
  *) guard_list="$guard_list$guard_pid " ;;
  esac
  guard_waits 0
}

# guard_waits SECONDS - the connection in the variables may be silent for so long
guard_waits() {
  guard_unsent=- guard_quiet=$((guard_now + $1)) guard_slow=$((guard_now + $1))
  guard_put
}

# guard_lives PID - return whether it is still the process that was there when the connection began
guard_lives() {
  process_started "$1" && ! [ "$started" \> "$guard_time" ]
}

# guard_family - set guard_pids to the handler, what it has started, and its ncat, if they live
guard_family() {
  guard_pids=
  ! guard_lives "$guard_pid" || {
    read -r guard_pids <"/proc/$guard_pid/task/$guard_pid/children"
    guard_pids="$guard_pid $guard_pids"
  }
  read -r guard_rest <"/proc/$guard_server/comm" && [ "$guard_rest" = ncat ] &&
    guard_lives "$guard_server" && guard_pids="$guard_pids $guard_server"
}

# guard_kill SIGNAL - signal the handler before ncat: if its input ended first, a push would take
# that for the end of the message
guard_kill() {
  guard_family
  # shellcheck disable=SC2086 # PIDs
  kill "-$1" $guard_pids
}

# guard_log OUTCOME - write the line of log for a connection whose handler could not
guard_log() {
  door_log "$guard_verb" - "$1" - $(((guard_now - guard_began) * 1000))
}

# guard_second - run the checks of a second; return 1 if the launch of several doors is gone
guard_second() {
  # RACE: if we were held up, seconds wait in the pipe. They count as one: nobody had time to do
  # anything between two looks
  clock_read
  clock_between "$guard_last" "$now"
  [ "$between_s" -ne 0 ] || [ "$between_c" -ge 50 ] || return 0
  guard_last=$now guard_now=$((guard_now + 1))
  [ -z "$launch_parent" ] || ! owner_dead "$launch_parent" || return 1
  guard_checkpoint
  # If there are many, look at some each second, in turn
  # shellcheck disable=SC2086 # PIDs
  set -- $guard_list
  guard_looked=0 guard_list=' '
  while [ $# -gt 0 ] && [ $guard_looked -lt 32 ]; do
    guard_looked=$((guard_looked + 1))
    ! guard_take "$1" || ! guard_look || guard_list="$guard_list$1 "
    shift
  done
  guard_list=" $*${1:+ }${guard_list# }"
}

# guard_checkpoint - run a checkpoint, one at a time: within a second after a connection, and every
# ten seconds
guard_checkpoint() {
  [ -z "$guard_wal" ] || process_started "$guard_wal" || { wait "$guard_wal"; guard_wal=; }
  [ -z "$guard_wal" ] && { [ -n "$guard_due" ] || [ $((guard_now % 10)) -eq 0 ]; } || return 0
  guard_due=
  exec sh "$lib/wal" </dev/null 2>&5 5>&- 6<&- 7>&- &
  guard_wal=$!
}

# guard_look - check the connection in the variables; return 1 if it has ended. RACE: what the
# handler has told us may still be in the pipe: leave one that is dead or has read much until the
# next look
guard_look() {
  if owner_dead "$guard_pid-$guard_time"; then
    ! guard_serves || { guard_state=gone; guard_put; return 0; }
    # What the handler has started would keep the connection open: end it through its ncat
    [ "$guard_state" != gone ] || { guard_kill TERM; guard_state=killed; }
    guard_log "$guard_state"
    guard_forget
    return 1
  elif ! guard_serves; then
    # One that was refused a moment ago is still telling its client
    [ "$guard_state" = too-many ] && [ "$guard_began" -ge $((guard_now - 1)) ] || guard_kill KILL
    return 0
  # beanstalk and small-stalk: it may be silent for ever
  elif [ "$guard_quiet" -ge $((guard_now + 1000000)) ]; then
    return 0
  fi
  guard_measure
  if [ "$guard_state" != verb ] && [ $((guard_read - guard_from)) -ge 1000000 ]; then
    if [ "$guard_unsent" = long ]; then guard_too_long; else guard_unsent=long; fi
  elif [ "$launch_idle" -eq 0 ]; then
    :
  elif [ $((guard_now - guard_slow)) -ge $((launch_idle * 10)) ]; then
    guard_state=slow
    guard_kill TERM
  # 0: they cannot be counted, so only the time counts
  elif [ $((guard_now - guard_quiet)) -ge "$launch_idle" ] && [ "$guard_mark" != 0 ] &&
    ! guard_client_reads; then
    guard_state=idle
    guard_kill TERM
  fi
  guard_put
}

# guard_too_long - answer the client ourselves, and kill the handler, which has done nothing yet,
# before it sees its input end. ncat passes our answer on, and ends
guard_too_long() {
  guard_text='HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n'
  # shellcheck disable=SC2059 # a format of ours
  case $guard_state in
  414) printf "$guard_text" '414 URI Too Long' ;;
  431) printf "$guard_text" '431 Request Header Fields Too Large' ;;
  *) printf 'error 65 line too long\n' ;;
  esac >"/proc/$guard_pid/fd/4"
  guard_state=line-too-long
  # shellcheck disable=SC2086 # PIDs
  kill -KILL ${guard_pids%" $guard_server"}
}

# guard_measure - note if the connection's processes have read or written some bytes, or many; set
# guard_read to what the handler has read
guard_measure() {
  guard_family
  guard_moved=0 guard_read=0
  for guard_process in $guard_pids; do
    { read -r guard_rest guard_in && read -r guard_rest guard_out; } \
      <"/proc/$guard_process/io" || continue
    guard_moved=$((guard_moved + guard_in + guard_out))
    [ "$guard_process" != "$guard_pid" ] || guard_read=$guard_in
  done
  # For a verb that waits, guard_quiet and guard_slow are in the future: leave them
  [ "$guard_moved" = "$guard_mark" ] ||
    { guard_mark=$guard_moved; [ "$guard_quiet" -ge "$guard_now" ] || guard_quiet=$guard_now; }
  # The bytes of a process that has ended may be missing from the sum
  guard_more=$((guard_moved - guard_coarse))
  [ "${guard_more#-}" -lt 10000 ] ||
    { guard_coarse=$guard_moved; [ "$guard_slow" -ge "$guard_now" ] || guard_slow=$guard_now; }
}

# guard_client_reads - return whether the client reads from what waits for it: a slow client does
# that for long before the handler can write more
guard_client_reads() {
  door_inode_read "$guard_pid" 1
  [ -n "$door_inode" ] && door_row && [ "$door_unsent" != "$guard_unsent" ] || return 1
  guard_unsent=$door_unsent guard_quiet=$guard_now
}

guard_ncat_says() {
  case $1 in
  *'Version '* | *'Connection from '* | *'Connection reset '*) return ;;
  *'Listening on '*)
    [ -z "$launch_group" ] ||
      { chgrp "$launch_group" "$launch_unix" && chmod 660 "$launch_unix"; } ||
      { guard_code=77; guard_say "cannot give $launch_unix to the group $launch_group"; stop 0; }
    [ -n "$guard_told" ] || guard_say "$launch_door door on $launch_where"
    guard_told=1
    return ;;
  *'already in use'*) guard_code=75 ;;
  *'ermission denied'*) guard_code=77 ;;
  # Without -k, it has closed its listener, and would wait for ever
  'New connection denied'*) [ -n "$launch_keep" ] || kill -TERM "$guard_ncat" ;;
  esac
  guard_say "${1%% QUITTING.}"
}

guard_say() {
  printf 'launch: %s\n' "$1" >&5
}

# guard_end - end what runs, and wait for that
guard_end() {
  [ -z "$guard_wal" ] || { kill -TERM "$guard_wal"; wait "$guard_wal"; }
  # It may not lead its group yet
  kill -TERM "-$guard_group" "$guard_group"
  guard_looks=0
  while kill -0 "-$guard_group" && [ $guard_looks -lt 60 ]; do
    guard_looks=$((guard_looks + 1))
    [ $guard_looks -lt 40 ] || kill -KILL "-$guard_group"
    # This also reaps those that have ended
    sleep 0.05
  done
}
