# doors/beanstalk/wait.sh - wait for a job of several queues, and read from the client meanwhile

need doors/door engine/process engine/wait doors/beanstalk/tube doors/beanstalk/reader

# tubes_wait OWNER DEADLINE - as tubes_take, but wait until DEADLINE (or `none`) and return 66 then; 1 if the client has left; 75 if the lease of a
# held job ends within a second. The caller answers before it calls wait_leave, so that the client does not wait for that
tubes_wait() {
  tubes_owner=$1 tubes_deadline=$2 tubes_last='' take_code=74 wait_queues=$watched
  wait_begin wait || return $?
  # shellcheck disable=SC2086 # names without blanks
  set -- $watched
  tubes_few=
  [ $# -gt 8 ] || tubes_few=1
  client_read_ahead
  wait_until "$tubes_deadline" tubes_enter tubes_again tubes_wait_due
}

# tubes_enter - the ENTER of wait_until: enter us in each watched queue. If they are few, create the missing ones; if many, also enter us in
# .doors/wait, where the first put to a new queue looks
tubes_enter() {
  tubes_none=
  for tube in $watched; do
    if tube_open "$tube" || { [ -n "$tubes_few" ] && queue_open "$tube" make; }; then
      wait_enter "$q/wait"
    else
      tubes_none=1
    fi
  done
  [ -z "$tubes_none" ] || wait_enter_new
}

# tubes_again - the TAKE of wait_until for tubes_wait
tubes_again() {
  # The deadline has passed: take once more, quickly
  [ "$tubes_deadline" = none ] || [ "$now" \< "$tubes_deadline" ] || tubes_last=once
  # shellcheck disable=SC2086 # nothing, or a word
  tubes_take "$tubes_owner" $tubes_last
  tubes_code=$?
  [ $tubes_code -eq 66 ] || return $tubes_code
  ! client_is_gone || return 1
  jobs_soon_due
  [ -z "$soon_due" ] || [ "$now" \< "$soon_due" ] || return 75
  return 66
}

# tubes_wait_due - the DUE of wait_until for tubes_wait: set wait_due to the time when a watched tube may have a job, or soon_due has come
tubes_wait_due() {
  for tube in $watched; do
    tube_open "$tube" || continue
    # Jobs that are due in a paused tube stay there: wait for the end of the pause, or we would wake at once
    if tube_paused; then wait_due_lower "$paused_until"; else wait_due_queue; fi
  done
  [ -z "$soon_due" ] || wait_due_lower "$soon_due"
}

# client_read_ahead - let a child, one at a time, read the client's next line, or its end, into client_line for line_next. If the line cannot be
# stored, end the connection: what follows it may be a job's body
client_read_ahead() {
  [ -z "$client_reader" ] || return 0
  client_line=$FLATQ_DIR/.wait/$owner.$nonce.line
  if [ -n "$wait_pdeathsig" ] && [ -z "$FLATQ_GUARD" ]; then
    # Without a guard, only this ends the child of a killed parent, and with it the connection. RACE: if the parent was killed before setpriv, no
    # signal comes. mksh passes on only descriptors that are named
    # shellcheck disable=SC2016,SC2086 # the child expands it; words
    { exec $wait_pdeathsig sh -c '. "$1/doors/beanstalk/reader.sh"; owner=$2 client_line=$3 wait_fifo=$4; [ "$PPID" != "${2%-*}" ] || client_reader_run' client "$lib" \
      "$owner" "$client_line" "$wait_fifo" 4<&4; } &
  else
    client_reader_run &
  fi
  client_reader=$!
}

# client_is_gone - return whether the child has seen the client's end. If it has read a command, look at the connection instead (client_half: it
# ended, and input is still to be read)
client_is_gone() {
  # RACE: the file is there before its text
  if [ ! -s "$client_line" ]; then
    child_lives "$client_reader" && return 1
    # It was killed, and nobody knows how much it has read: end, as line_read does. RACE: it may just have finished
    [ -s "$client_line" ] || exit 74
  fi
  client_end=
  { read -r client_end; read -r client_end; } <"$client_line" && client_gone=1 && return 0
  if [ -n "$FLATQ_GUARD" ] && ! door_ncat_lives; then
    client_half=1
  elif [ -n "$door_inode" ]; then
    twice door_row && [ "$door_state" = 01 ] || client_half=1
  elif [ -z "$FLATQ_GUARD" ] && door_half_closed; then
    client_half=1
  fi
  [ -n "$client_half" ]
}

part='doors/beanstalk/wait'
