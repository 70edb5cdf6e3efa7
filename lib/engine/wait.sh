# engine/wait.sh - waiting for a message, or for room, without a busy loop
#
# A waiter makes a FIFO in .wait/, enters its name in the wait/ (or room/) of each queue, and then
# looks for a message. A pusher looks for waiters once its message is in place: so one of the two
# sees the other. The pusher marks a waiter exclusively and writes one byte: one message wakes one
# waiter, and no pusher blocks on a stopped one. Else only a sleep in the background holds a writing
# end: when it ends, the waiter reads the end of the file. Every waiter looks again after two
# seconds, so a woken one may die.

need engine/process engine/clock

# wait_begin wait QUEUE ... - wait for a message of each QUEUE, which is created if needed
# wait_begin room [.all] - wait for room in the queue that is open; `.all`: be woken each time, and
# take the wake from nobody
wait_begin() {
  wait_kind=$1
  shift
  nonce_read
  owner=$$-$now
  wait_name=$owner.$nonce wait_woken='' wait_sleeper=
  [ "$wait_kind" = wait ] || wait_name=$wait_name${1-}
  wait_fifo=$FLATQ_DIR/.wait/$wait_name
  mkfifo "$wait_fifo" 9>&- || { disk_failed "$FLATQ_DIR/.wait" 'cannot wait'; return; }
  [ "$wait_kind" = wait ] || { wait_enter "$q/room"; return; }
  for wait_queue in "$@"; do
    queue_open "$wait_queue" make && wait_enter "$q/wait" || return
  done
}

# wait_enter DIRECTORY - enter our name there, unless it is entered
wait_enter() {
  [ ! -e "$1/$wait_name" ] || return 0
  file_new "$1/$wait_name" || { [ ! -d "$1" ] || disk_failed "$1" 'cannot wait'; }
}

# wait_enter_new - wait for the first push to a new queue
wait_enter_new() {
  set -- "$FLATQ_DIR/.doors/wait"
  { [ -d "$1" ] || mkdir -p "$1"; } && wait_enter "$1"
}

# wait_turn - wait until a pusher wakes us, wait_due, or two seconds have passed. The mark of a wake
# stays until we have looked for a message, so that pushers meanwhile wake others. If we found none,
# remove it, and look once more
wait_turn() {
  [ -z "$wait_woken" ] || { rm -f "$wait_fifo.woken" 9>&- || sleep 1; wait_woken=''; return 0; }
  clock_read
  wait_span=200
  # With the 1, 08 is not octal
  [ -z "$wait_due" ] || [ $((1$wait_due - 1$now)) -ge 200 ] || wait_span=$((1$wait_due - 1$now))
  [ $wait_span -gt 0 ] || wait_span=1
  pad $wait_span 000
  # Once a cleanup has removed our FIFO, look each second
  # shellcheck disable=SC2094 # a FIFO
  if [ ! -p "$wait_fifo" ] || ! command exec 7<>"$wait_fifo" 6<"$wait_fifo"; then
    sleep 1
    door_turn
    return
  fi
  # RACE: a pusher that came before we opened the FIFO has marked us, but its byte is lost
  [ ! -e "$wait_fifo.woken" ] || { exec 6>&-; exec 7>&-; wait_woken=1; return 0; }
  # It may outlive us, and must not hold our caller's pipe open (3 to 5)
  sleep "${padded%??}.${padded#?}" >&7 7>&- 6<&- 3>&- 4>&- 5>&- 9>&- &
  wait_sleeper=$!
  exec 7>&-
  read -r wait_byte <&6
  # Before any other function: bash would report there that the sleeper was killed
  wait_sleeper_end
  exec 6>&-
  [ ! -e "$wait_fifo.woken" ] || wait_woken=1
  door_turn
}

# wait_sleeper_end - end the sleeper, by KILL: at first it may have our traps. With `wait`, or bash
# reports that it was killed
wait_sleeper_end() {
  [ -n "$wait_sleeper" ] || return 0
  kill -KILL "$wait_sleeper"
  wait "$wait_sleeper"
  wait_sleeper=
}

# door_turn - called after each turn. A door's own sets take_stop if its client is gone
[ -n "${FLATQ_DOOR:-}" ] || door_turn() {
  :
}

# wait_due_queue - lower wait_due to when a delayed or leased message of $q, or the end of its
# pause, is due
wait_due_queue() {
  if [ -d "$q/tended" ]; then
    need engine/pause
    queue_paused
    if [ "$paused_left" -gt 0 ]; then
      [ "$paused_until" = - ] || wait_due_lower "$paused_until"
      return 0
    fi
  fi
  due_seen=
  for due_top in "$q"/delayed/*; do
    # The first window of each clock is enough
    due_clock=${due_top%???????}
    [ "$due_clock" != "$due_seen" ] || continue
    window_ahead=
    window_clock "${due_top##*/}" || [ -n "$window_ahead" ] || continue
    for due_path in "$due_top"/*; do
      case ${due_path##*/} in
      *[!0-9]*) ;;
      ????????????)
        due_seen=$due_clock
        clock_move "${due_path##*/}" $((-window_ahead))
        wait_due_lower "$moved"
        break ;;
      esac
    done
  done
  for due_path in "$q"/out/*; do
    case ${due_path##*.} in
    000000000000 | *[!0-9]*) ;;
    ????????????) is_settled "$due_path" || wait_due_lower "${due_path##*.}" ;;
    esac
  done
}

# wait_due_lower TIME - set wait_due to TIME, unless it is earlier already
wait_due_lower() {
  [ -n "$wait_due" ] && ! [ "$1" \< "$wait_due" ] || wait_due=$1
}

# wait_end - remove our FIFO and names. Set wait_late if a wake came after we had found a message:
# the caller passes it on
wait_end() {
  wait_late=
  [ -n "${wait_fifo:-}" ] || return 0
  [ -z "${wait_sleeper:-}" ] || wait_sleeper_end
  set -- "$wait_fifo" ${wait_woken:+"$wait_fifo.woken"}
  for wait_path in "$FLATQ_DIR"/*/"$wait_kind/$wait_name" "$FLATQ_DIR/.doors/wait/$wait_name"; do
    [ ! -e "$wait_path" ] || set -- "$@" "$wait_path"
  done
  rm -f "$@" 9>&-
  # Now no other pusher can find us
  [ ! -e "$wait_fifo.woken" ] || { wait_late=1; rm -f "$wait_fifo.woken" 9>&-; }
  wait_fifo=
}

# wake_some DIRECTORY [COUNT] - the part of wake for when there are waiters
wake_some() {
  wake_left=${2:-1}
  for wake_path in "$1"/*; do
    case $wake_left$wake_path in
    0*.all) ;;
    0*) continue ;;
    esac
    wake_fifo=$FLATQ_DIR/.wait/${wake_path##*/}
    [ -e "$wake_path" ] || continue
    wake_pid=${wake_path##*/}
    if [ ! -p "$wake_fifo" ] || [ ! -e "/proc/${wake_pid%%-*}" ]; then
      # That waiter was killed
      rm -f "$wake_path" "$wake_fifo" "$wake_fifo.woken" 9>&-
      continue
    fi
    # A shell would open a FIFO of that name, and wait, in spite of set -C
    [ ! -e "$wake_fifo.woken" ] && file_new "$wake_fifo.woken" || continue
    # RACE: the waiter may have left before we marked it. It removes its entry before it looks for
    # the mark (wait_end): while the entry is there, it will see the mark
    [ -e "$wake_path" ] || { rm -f "$wake_fifo.woken" 9>&-; continue; }
    # RACE: it may be gone: then this creates a file, which wait_sweep finds. Opened for reading and
    # writing, a FIFO never blocks
    printf '\n' 1<>"$wake_fifo"
    case $wake_path in
    *.all) ;;
    *) wake_left=$((wake_left - 1)) ;;
    esac
  done
}

# wait_sweep [boot] - remove what killed waiters have left; at a boot, all are dead
wait_sweep() {
  sweep_all=${1:-}
  for sweep_wait in "$FLATQ_DIR"/.wait/[0-9]*-* "$FLATQ_DIR"/*/wait/[0-9]*-* \
    "$FLATQ_DIR"/*/room/[0-9]*-* "$FLATQ_DIR"/.doors/wait/[0-9]*-*; do
    sweep_name=${sweep_wait##*/}
    [ -e "$sweep_wait" ] || continue
    [ -n "$sweep_all" ] || owner_dead "${sweep_name%%.*}" || continue
    rm -f "$sweep_wait" 9>&-
  done
}

# wait_until DEADLINE ENTER TAKE DUE - call TAKE until it returns another code than 66, DEADLINE
# (`none`) has come, or a trap or door_turn has set take_stop. Return its code, also in take_code;
# set wait_found to the queue it took from. ENTER, before each TAKE, enters us wherever a message
# may come: a queue may be dropped, and made again, meanwhile. DUE, before each sleep, sets wait_due
# to when a message may be there without a push
wait_until() {
  take_code=66
  while [ -z "$take_stop" ]; do
    clock_read
    "$2"
    "$3"
    take_code=$?
    [ $take_code -eq 66 ] && [ -z "$take_stop" ] || break
    [ "$1" = none ] || [ "$now" \< "$1" ] || break
    wait_due=
    "$4"
    [ "$1" = none ] || wait_due_lower "$1"
    wait_turn
  done
  wait_found=${queue:-}
  return "$take_code"
}

# wait_enter_queues - the ENTER that waits for the queues in wait_queues
wait_enter_queues() {
  for wait_queue in $wait_queues; do
    ! queue_open "$wait_queue" || wait_enter "$q/wait"
  done
}

# wait_due_queues - the DUE for the queues in wait_queues
wait_due_queues() {
  for wait_queue in $wait_queues; do
    ! queue_open "$wait_queue" || wait_due_queue
  done
}

# wait_leave - wait_end, and pass on a wake that was not for what we took, or that we cannot use
wait_leave() {
  wait_end
  for wait_queue in $wait_queues; do
    [ "$take_code" -eq 0 ] && [ "$wait_queue" = "$wait_found" ] && [ -z "$wait_late" ] ||
      { name_to_disk "$wait_queue"; wake "$FLATQ_DIR/$name_disk/wait"; }
  done
}

# take_waiting TAKE QUEUE ... - the rest of take_wait if nothing was ready: for take_seconds, call
# TAKE, which takes from wait_queues
take_waiting() {
  take_turn=$1
  shift
  need engine/take
  take_deadline=none
  [ "$take_seconds" = none ] || { clock_add "$take_seconds" "$now"; take_deadline=$later; }
  wait_begin wait "$@" || return
  wait_queues=$*
  wait_until "$take_deadline" wait_enter_queues "$take_turn" wait_due_queues
  wait_leave
  return "$take_code"
}

# take_again - the TAKE of take_wait
take_again() {
  # shellcheck disable=SC2086 # names
  take_message "$take_for" "$take_for_lease" $wait_queues
}
