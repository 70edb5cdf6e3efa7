# doors/beanstalk/wait.sh - wait for a job of several queues

need engine/process engine/wait

# tubes_wait DEADLINE - as tubes_take, but wait until DEADLINE (or `none`); 75: the lease of a held
# job ends within a second. The caller calls wait_leave
tubes_wait() {
  take_code=74 wait_queues=$watched
  wait_begin wait || return
  wait_until "$1" tubes_enter tubes_again tubes_wait_due
}

# tubes_enter - the ENTER of wait_until: enter us in each watched queue. Of up to 8, create those
# that are missing; else also enter us in .doors/wait, where the first put to a new queue looks
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

# tubes_again - the TAKE of wait_until
tubes_again() {
  # A look without a process first
  # shellcheck disable=SC2086 # names without blanks
  take_pick $watched || return
  if [ -n "$take_queue" ]; then
    tubes_take
    tubes_code=$?
    [ $tubes_code -eq 66 ] || return $tubes_code
  fi
  jobs_soon_due
  ! soon_is_due || return 75
  return 66
}

# tubes_wait_due - the DUE of wait_until: when a watched tube may have a job, or soon_due
tubes_wait_due() {
  for tube in $watched; do
    ! tube_open "$tube" || wait_due_queue
  done
  [ -z "$soon_due" ] || wait_due_lower "$soon_due"
}

# door_turn - replaces that of doors/door.sh: as in beanstalkd, a client that sends no more is gone
door_turn() {
  [ -z "$wait_woken" ] || return 0
  if [ -n "$FLATQ_GUARD" ] && ! door_ncat_lives; then
    :
  elif [ -n "$door_inode" ]; then
    ! door_row || [ "$door_state" != 01 ] || return 0
  elif [ -n "$FLATQ_GUARD" ]; then
    return 0
  else
    # POLLRDHUP, and POLLHUP of a pipe
    # shellcheck disable=SC2016 # perl's variables
    door_ask 'use IO (); @in = (0, 0x2000); IO::Poll::_poll(0, @in); exit !$in[1]' >&0 || return 0
  fi
  take_stop=1
}
