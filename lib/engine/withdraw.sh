# engine/withdraw.sh - take back a push that will not be acknowledged

need engine/slip engine/state engine/proof engine/sync

# push_not - the end of push_message without a slip
push_not() {
  push_abandon
  [ -n "$push_dup" ] || return "$push_code"
  id=$push_dup
  # CRASH: the push of the other message may have been killed before its sync
  sync_many "$q"
}

# push_abandon - remove what a push has written, if its slip cannot exist
push_abandon() {
  [ -n "$push_made" ] ||
    rm -f ${push_begun:+"$q/body/$slip_id"} ${push_dot_file:+"$q/tmp/$push_dot_file"}
}

# push_stopped SIGNAL - the trap of a push: remove what it has written, unless the slip may exist
push_stopped() {
  trap - HUP INT TERM
  push_abandon
  [ -z "${wait_fifo:-}" ] || { need engine/wait; wait_end; }
  end_by "$1"
}

# push_slip_again - return 0 if the slip should be created again
push_slip_again() {
  need engine/lock
  drop_wait
  push_code=$?
  [ $push_code -eq 1 ] || return "$push_code"
  # RACE: another verb may have removed an empty directory of delayed/, or a drop wal/
  [ "$push_again" -lt 5 ] || { disk_failed "$push_place"; return; }
  push_again=$((push_again + 1))
}

# push_unknown - set `why`, and return 74
push_unknown() {
  why="queue '$queue': it is unknown whether message $id was stored: a retry may store it twice"
  return 74
}

# push_withdraw - remove the slip; 1: a consumer has the message; 74: unknown
push_withdraw() {
  rename_path "$push_place/$slip" "$q/done/$slip.0.000000000000" && return 0
  [ $? -ne 74 ] && absent "$push_place/$slip" || { push_unknown; return; }
  # A subshell keeps the slip_ variables. A shell that fails may end it with 1 or 2
  (push_withdraw_moved) >/dev/null && return 0
  [ $? -ne 3 ] || return 1
  push_unknown
}

# push_withdraw_moved - push_withdraw for a slip that has moved; 3: a consumer has it
push_withdraw_moved() {
  for withdraw_try in 1 2 3 4 5; do
    message_find "$slip_id" || { [ $? -ne 66 ] || return 3; return 74; }
    case $slip_path in
    "$q"/out/*) return 3 ;;
    esac
    slip_format
    slip_move "$q/done/$slip.0.000000000000"
    withdraw_code=$?
    [ $withdraw_code -eq 66 ] || return $withdraw_code
  done
  return 74
}

# push_undo CODE - withdraw a push that fails with CODE; set push_withdraw_status. Return CODE if
# the message is not there (with 69: no queue has this name); 74: unknown
push_undo() {
  push_why=$why
  push_withdraw
  push_withdraw_status=$?
  [ $push_withdraw_status -eq 0 ] ||
    { [ "$push_withdraw_status.$1" = 74.69 ] && absent "$q"; } || { push_unknown; return; }
  why=$push_why
  return "$1"
}

# push_closed - withdraw a push if the queue was closed or dropped before its slip existed
push_closed() {
  # RACE: a pop may have said that the queue is closed and empty
  case $queue_files in
  *"$q/closed "*)
    push_withdraw
    case $? in
    0) why="queue '$queue' is closed"; return 69 ;;
    74) return 74 ;;
    esac ;;
  esac
  need engine/lock
  drop_wait
  push_code=$?
  [ $push_code -le 1 ] || { push_undo $push_code; return; }
  # RACE: there may be a new queue of the same name: ours has the body
  push_body_there && return 0
  push_code=$?
  # If the queue is there, a fold or a consumer has the message
  [ $push_code -ne 69 ] || { queue_there 8 && return 0; push_code=$?; }
  push_undo $push_code
  push_undo_code=$?
  # A consumer has taken the message: the push has succeeded
  [ "$push_withdraw_status" -ne 1 ] || [ $push_code -eq 74 ] || return 0
  return $push_undo_code
}

# push_unsynced - withdraw a push whose sync has failed
push_unsynced() {
  # RACE: a fold has moved the message into a flat file
  absent "$q/body/$slip_id" && queue_there 8 && sync_many "$q" && return 0
  push_withdraw
  case $? in
  0) sync_failed; return ;;
  # It was taken and settled, and swept
  1) ! absent "$q/body/$slip_id" || return 0 ;;
  esac
  push_unknown
}

# push_body_there - 69: the body, so the queue, is gone; 74: unknown
push_body_there() {
  there "$q/body/$slip_id"
  push_there=$?
  [ $push_there -eq 1 ] || return $push_there
  why="queue '$queue' is gone"
  return 69
}
