# doors/guard.sh - what serve does once ncat runs: it knows every connection, ends idle ones, and
# runs the checkpoint
#
# It reads lines from a pipe (6): of ncat, which writes a line in two pieces, and these, with a
# newline in front:
#   c PID NCAT TIME      a connection: its handler, the ncat that serves it, a time when both lived
#   l PID SECONDS VERB   the handler has its request; its client may be silent for SECONDS. http,
#                        for VERB: it begins to read a request line (414) or header fields (431)
#   e PID                the handler has ended, and has written its line of log
#   t                    a second has passed
#   x                    ncat has ended, or what runs it
#
# guard_of_PID has the fields of a connection; `quiet` and `slow` are times of guard_now:
#   time, server    TIME and NCAT
#   outcome         `-`; gone: its handler is dead, but `e` may still be in the pipe; or why it was
#                   ended
#   verb            VERB; `-`: the line is not read yet
#   quiet, mark     when bytes last moved, or until when it may be silent; how many had moved
#   slow, coarse    the same, in steps of 10,000 bytes
#   unsent          what waited for the client at the last look; `long`: the handler had then read a
#                   megabyte without a newline
#   from            the bytes that the handler had read before its line

need engine/process engine/clock doors/door

guard_list='' guard_count=0 guard_now=0 guard_last='' guard_due=1 guard_wal=0
guard_code=69 guard_told='' guard_group='' door_unix=''

# guard - read lines until `x`, or until nobody writes or tells the time
guard() {
  set -f
  while :; do
    IFS= read -r guard_text <&6 || {
      # USR1 may interrupt it
      process_started "$guard_group" && continue
      break
    }
    # bash writes our newline by itself: ncat's words may come in between
    guard_text=${guard_text##*Ncat: }
    # shellcheck disable=SC2086 # words
    set -- $guard_text
    case ${1:-} in
    c)
      guard_connects "$@"
      # Without a clock, idle clients would keep their places for ever
      process_started "$guard_group" || break ;;
    e) ! guard_take "${2:-}" || guard_forget; guard_due=1 ;;
    l)
      # One that was refused is not heard any more
      if guard_take "${2:-}" && [ "$guard_outcome" = - ]; then
        guard_verb=$4
        case $4 in
        414 | 431) read -r guard_rest guard_from <"/proc/$2/io" || guard_from=0 ;;
        esac
        guard_waits "$3"
      fi ;;
    t) guard_second || break ;;
    x) break ;;
    '') ;;
    *) guard_ncat_says "$guard_text" ;;
    esac
  done
  set +f
}

# guard_take PID - set the variables to the fields of this connection; return 1 if there is none
guard_take() {
  case $1 in
  '' | *[!0-9]*) return 1 ;;
  esac
  guard_pid=$1
  eval "eval \"\${guard_of_$1:-false}\""
}

# guard_put - keep the fields, as what guard_take runs
guard_put() {
  eval "guard_of_$guard_pid='guard_time=$guard_time guard_server=$guard_server \
guard_outcome=$guard_outcome guard_verb=$guard_verb guard_quiet=$guard_quiet \
guard_mark=$guard_mark guard_slow=$guard_slow guard_coarse=$guard_coarse \
guard_unsent=$guard_unsent guard_from=$guard_from'"
}

# guard_forget [OUTCOME] - forget the connection, and write the line of log with this OUTCOME; its
# PID stays in guard_list until the next look
guard_forget() {
  case $guard_verb in 4*) guard_verb=- ;; esac
  [ $# -eq 0 ] || door_log "$guard_verb" - "$1" - "$guard_time"
  unset "guard_of_$guard_pid"
  guard_count=$((guard_count - 1))
}

# guard_connects c PID NCAT TIME - add a connection; refuse it if there are too many
guard_connects() {
  # An earlier handler of that PID was killed
  ! guard_take "${2:-}" || guard_forget killed
  guard_pid=$2 guard_server=$3 guard_time=$4 guard_outcome=- guard_verb=- guard_mark=0 \
    guard_coarse=0 guard_from=0
  [ "$serve_door" != http ] || guard_verb=414
  guard_waits 0
  [ "$guard_count" -lt "$serve_most" ] || {
    guard_outcome=too-many
    # The handler tells its client
    owner_dead "$guard_pid-$guard_time" || kill -TERM "$guard_pid"
    guard_waits 2
  }
  guard_count=$((guard_count + 1)) guard_list="$guard_list $guard_pid"
}

# guard_waits SECONDS - let the connection be silent for so long
guard_waits() {
  guard_unsent=- guard_quiet=$((guard_now + $1)) guard_slow=$((guard_now + $1))
  guard_put
}

# guard_family - set guard_pids to the handler, its children and its ncat, if they live
guard_family() {
  guard_pids=
  owner_dead "$guard_pid-$guard_time" || {
    read -r guard_pids <"/proc/$guard_pid/task/$guard_pid/children"
    guard_pids="$guard_pid $guard_pids"
  }
  read -r guard_rest <"/proc/$guard_server/comm" && [ "$guard_rest" = ncat ] &&
    ! owner_dead "$guard_server-$guard_time" && guard_pids="$guard_pids $guard_server"
}

# guard_kill SIGNAL - signal the handler before ncat: if its input ended, a push would be whole
guard_kill() {
  guard_family
  # shellcheck disable=SC2086 # PIDs
  kill "-$1" $guard_pids
}

# guard_ends OUTCOME - end the connection
guard_ends() {
  guard_outcome=$1
  guard_kill TERM
}

# guard_second - do what is due each second; return 1 if the parent of several doors is gone
guard_second() {
  # Seconds that waited in the pipe count as one
  clock_read
  [ "${now%??}" != "$guard_last" ] || return 0
  guard_last=${now%??} guard_now=$((guard_now + 1))
  [ -z "$serve_parent" ] || ! owner_dead "$serve_parent" || return 1
  guard_checkpoint
  # If there are many, look at some each second, in turn
  # shellcheck disable=SC2086 # PIDs
  set -- $guard_list
  guard_looks=32 guard_list=
  while [ $# -gt 0 ] && [ $guard_looks -gt 0 ]; do
    # Those that have ended cost no look
    if guard_take "$1"; then
      guard_looks=$((guard_looks - 1))
      ! guard_look || guard_list="$guard_list $1"
    fi
    shift
  done
  guard_list="$*$guard_list"
}

# guard_checkpoint - run a checkpoint when a connection has ended, and every ten seconds
guard_checkpoint() {
  [ $((guard_now % 10)) -ne 0 ] || guard_due=1
  [ -n "$guard_due" ] && ! process_started "$guard_wal" || return 0
  wait "$guard_wal"
  guard_due=
  exec sh "$lib/wal" </dev/null 2>&5 5>&- 6<&- 7>&- &
  guard_wal=$!
}

# guard_look - check the connection; return 1 if it has ended. RACE: the handler's line may still be
# in the pipe: leave one that is dead, or has read much, until the next look
guard_look() {
  if owner_dead "$guard_pid-$guard_time"; then
    case $guard_outcome in
    -) guard_outcome=gone; guard_put; return 0 ;;
    # Its children would keep the connection open
    gone) guard_ends killed ;;
    esac
    guard_forget "$guard_outcome"
    return 1
  fi
  [ "$guard_quiet" -le "$guard_now" ] || return 0
  [ "$guard_outcome" = - ] || { guard_kill KILL; return 0; }
  guard_measure
  case $guard_verb.$((guard_read - guard_from)) in
  [-4]*.[1-9]??????*)
    if [ "$guard_unsent" = long ]; then guard_too_long; else guard_unsent=long; fi
    guard_put
    return 0 ;;
  esac
  if [ "$serve_idle" -eq 0 ]; then
    :
  elif [ $((guard_now - guard_slow)) -ge $((serve_idle * 10)) ]; then
    guard_ends slow
  elif [ $((guard_now - guard_quiet)) -ge "$serve_idle" ]; then
    # A slow client reads long before the handler can write more
    door_socket "$guard_pid" 1
    if [ -n "$door_inode" ] && door_row && [ "$door_unsent" != "$guard_unsent" ]; then
      guard_unsent=$door_unsent guard_quiet=$guard_now
    else
      guard_ends idle
    fi
  fi
  guard_put
}

# guard_too_long - answer for the handler: while its `read` gets bytes, no trap runs
guard_too_long() {
  case $guard_verb in
  -) printf 'error 65 line too long\n' ;;
  *)
    printf 'HTTP/1.1 %s Too Long\r\nContent-Length: 0\r\nConnection: close\r\n\r\n' \
      "$guard_verb" ;;
  esac >"/proc/$guard_pid/fd/4"
  guard_outcome=line-too-long
  kill -KILL "$guard_pid"
}

# guard_measure - note the bytes that the connection's processes have moved; set guard_read to those
# that the handler has read
guard_measure() {
  guard_family
  guard_moved=0 guard_read=0
  for guard_process in $guard_pids; do
    { read -r guard_rest guard_in && read -r guard_rest guard_out; } \
      <"/proc/$guard_process/io" || continue
    guard_moved=$((guard_moved + guard_in + guard_out))
    [ "$guard_process" != "$guard_pid" ] || guard_read=$guard_in
  done
  [ $guard_moved -eq "$guard_mark" ] || guard_mark=$guard_moved guard_quiet=$guard_now
  # The bytes of a process that has ended may be missing
  guard_more=$((guard_moved - guard_coarse))
  [ ${guard_more#-} -lt 10000 ] || guard_coarse=$guard_moved guard_slow=$guard_now
}

# guard_ncat_says TEXT - what `ncat -v` reports: set guard_code, say that the door is open, or pass
# it on
guard_ncat_says() {
  case $1 in
  *'Version '* | *'Connection from '* | *'Connection reset '*) return ;;
  *'Listening on '*)
    [ -z "$serve_group" ] ||
      { chgrp "$serve_group" "$serve_unix" && chmod 660 "$serve_unix"; } ||
      { guard_code=77; guard_say "cannot give $serve_unix to the group $serve_group"; stop 0; }
    [ -n "$guard_told" ] ||
      guard_say "$serve_door door on ${serve_unix:-$serve_address port $serve_port}"
    guard_told=1
    return ;;
  *'already in use'*) guard_code=75 ;;
  *'ermission denied'*) guard_code=77 ;;
  esac
  guard_say "${1%% QUITTING.}"
}

guard_say() {
  printf '%s: %s\n' "${shell_name:-serve}" "$1" >&5
}

# guard_end - end what runs, and wait for that
guard_end() {
  [ "$guard_wal" = 0 ] || { kill -TERM "$guard_wal"; wait "$guard_wal"; }
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
