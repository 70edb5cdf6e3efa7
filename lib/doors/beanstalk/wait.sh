# doors/beanstalk/wait.sh - wait for a job of several queues, and read from the client meanwhile

need doors/door engine/process engine/wait doors/beanstalk/tube

# tubes_wait DEADLINE - as tubes_take, but wait until DEADLINE (or `none`) and return 66 then; 1 if
# the client has left; 75 if the lease of a held job ends within a second. The caller answers before
# it calls wait_leave, so that the client does not wait for that
tubes_wait() {
  take_code=74 wait_queues=$watched
  wait_begin wait || return
  client_read_ahead
  wait_until "$1" tubes_enter tubes_again tubes_wait_due
}

# tubes_enter - the ENTER of wait_until: enter us in each watched queue. If they are few, create the
# missing ones; if many, also enter us in .doors/wait, where the first put to a new queue looks
tubes_enter() {
  # shellcheck disable=SC2086 # names without blanks
  set -- $watched
  tubes_none=
  for tube in "$@"; do
    if tube_open "$tube" || { [ $# -le 8 ] && queue_open "$tube" make; }; then
      wait_enter "$q/wait"
    else
      tubes_none=1
    fi
  done
  [ -z "$tubes_none" ] || wait_enter_new
}

# tubes_again - the TAKE of wait_until for tubes_wait
tubes_again() {
  tubes_take
  tubes_code=$?
  [ $tubes_code -eq 66 ] || return $tubes_code
  ! client_is_gone || return 1
  jobs_soon_due
  [ -z "$soon_due" ] || [ "$now" \< "$soon_due" ] || return 75
  return 66
}

# tubes_wait_due - the DUE of wait_until for tubes_wait: set wait_due to the time when a watched
# tube may have a job, or soon_due has come
tubes_wait_due() {
  for tube in $watched; do
    tube_open "$tube" || continue
    # Jobs that are due in a paused tube stay there: wait for the end of the pause, or we would wake
    # at once
    if tube_paused; then wait_due_lower "$paused_until"; else wait_due_queue; fi
  done
  [ -z "$soon_due" ] || wait_due_lower "$soon_due"
}

# client_read_ahead - let a child, one at a time, read the client's next line: so the door sees at
# once, and without looking, that a client has left. It stores `line` and the line in client_line,
# or `end` and an empty line, for line_read, and wakes us
client_read_ahead() {
  [ -z "$client_reader" ] || return 0
  client_line=$FLATQ_DIR/.wait/$owner.$nonce.line
  # RACE: a signal before we know the child would leave it behind, with the connection open
  trap 'client_end=signal' HUP INT TERM
  # Standard input of what runs in the background is /dev/null. Without a guard, only setpriv ends
  # the child of a killed parent, and with it the connection; unless we were killed before
  # shellcheck disable=SC2016,SC2086 # the child expands it; words
  { { exec $wait_pdeathsig sh -c '
    trap "" HUP INT TERM
    [ "$PPID" = "$1" ] || exit
    said=line
    IFS= read -r text || said=end text=
    # If it cannot be stored, end the connection: what follows the line may be a job. One that
    # ignores the signal ends when it finds neither the file nor this process (client_is_gone)
    printf "%s\n%s\n" "$said" "$text" >"$2" || { rm -rf "$2"; kill -TERM "$1"; exit; }
    [ ! -p "$3" ] || printf "\n" 1<>"$3"
    ' reader "$$" "$client_line" "$wait_fifo"; } <&6 6<&- 3>&- 4>&- & } 6<&0
  client_reader=$!
  stalk_traps
  [ "$client_end" != signal ] || exit 75
}

# client_is_gone - return whether the child has seen the client's end. If it has read a command,
# look at the connection instead (client_end=half: it ended, and input is still to be read)
client_is_gone() {
  if [ ! -s "$client_line" ]; then
    process_started "$client_reader" && return 1
    # It was killed, and nobody knows how much it has read: end, as line_read does. RACE: it may
    # just have finished
    [ -s "$client_line" ] || exit 74
  fi
  read -r client_said <"$client_line"
  [ "$client_said" != end ] || return 0
  if [ -n "$door_inode" ]; then
    door_row && [ "$door_state" = 01 ] && return 1
  elif [ -n "$FLATQ_GUARD" ]; then
    door_ncat_lives && return 1
  else
    door_half_closed || return 1
  fi
  client_end=half
}

# door_half_closed - return whether the client of a socket that is not TCP has sent its last byte,
# read or not (SO_PEEK_OFF, MSG_PEEK | MSG_DONTWAIT)
door_half_closed() {
  [ -S /proc/self/fd/0 ] || return 1
  # shellcheck disable=SC2016 # perl's variables
  door_ask 'setsockopt(STDIN, 1, 42, 0) or exit 2;
    do { $from = recv(STDIN, $bytes, 65536, 0x42) } while defined $from && length $bytes;
    setsockopt(STDIN, 1, 42, -1); exit !defined $from' 'import select
look = select.poll()
look.register(0, select.POLLRDHUP)
raise SystemExit(not look.poll(0))'
}
