# engine/withdraw.sh - take back a push that will not be acknowledged, and find out whether its slip
# and its body are there

need engine/slip engine/settle engine/proof engine/sync

# push_not - the end of push_message without a slip of its own: push_code says why, or push_dup is
# set
push_not() {
  push_abandon
  [ -n "$push_dup" ] || return "$push_code"
  id=$push_dup
  # The push that stored the other message may have been killed before it synced
  sync_many "$q"
}

# push_abandon - remove what a push without a slip has written: the body, and of `push -e` the file
# in tmp/. Once the slip may exist (push_made), the body stays. CRASH: what is left has no slip, and
# the first verb after a boot removes it
push_abandon() {
  [ -n "$push_made" ] ||
    rm -f ${push_begun:+"$q/body/$slip_id"} ${push_dot_file:+"$q/tmp/$push_dot_file"}
}

# push_slip_again - called when the slip could not be created: return 0 to try again
push_slip_again() {
  # RACE: a drop that tests whether the queue is empty has removed wal/ for now: wait for its end,
  # and repeat
  need engine/lock
  drop_wait
  push_code=$?
  [ $push_code -eq 1 ] || return "$push_code"
  # RACE: another verb removes an empty directory of delayed/ when it is due. It, or wal/, may be
  # there again when we look: so try twice
  if [ -n "$push_again" ] && { [ "$push_delay" = 0 ] || [ -d "$push_place" ]; }; then
    disk_failed "$push_place"
    return
  fi
  push_again=1
}

# push_unknown - set `why`, and return 74
push_unknown() {
  why="queue '$queue': it is unknown whether message $id was stored: a retry may store it twice"
  return 74
}

# push_withdraw - remove the slip of a push that will not be acknowledged. Return 1 if it is proved
# that a consumer holds the message, or has settled it; 74 if it is there, or that is unknown
push_withdraw() {
  rename_path "$push_place/$slip" "$q/done/$slip.0.000000000000"
  case $? in
  0) return 0 ;;
  74) push_unknown; return ;;
  esac
  absent "$push_place/$slip" || { push_unknown; return; }
  # RACE: a fold, the end of its delay or a kick may have moved it. In a subshell, since it parses
  # other slips into the slip_ variables; a shell that fails may end it with 1 or 2
  (push_withdraw_moved; push_code=$?; [ $push_code -ne 1 ] || exit 3; exit $push_code) >/dev/null
  case $? in
  0) return 0 ;;
  3) return 1 ;;
  *) push_unknown ;;
  esac
}

# push_undo CODE - push_withdraw for a push that fails with CODE; set push_withdraw_status to its
# status. Return CODE, with `why` as it was, if it is proved that the message is not there: it was
# withdrawn, or CODE is 69 and there is no queue of this name. Else a consumer may have it: return
# 74, unknown
push_undo() {
  push_why=$why
  push_withdraw
  push_withdraw_status=$?
  # There may be a new queue of the same name, and the slip in it
  [ $push_withdraw_status -eq 0 ] || { [ "$1.$push_withdraw_status" = 69.74 ] && absent "$q"; } || {
    push_unknown
    return
  }
  why=$push_why
  return "$1"
}

# push_withdraw_moved - push_withdraw for a slip that is elsewhere by now
push_withdraw_moved() {
  for withdraw_try in 1 2 3 4 5; do
    message_find "$slip_id" || { [ $? -ne 66 ] || return 1; return 74; }
    case $slip_path in
    "$q"/out/*) return 1 ;;
    esac
    slip_format
    slip_move "$q/done/$slip.0.000000000000"
    withdraw_code=$?
    [ $withdraw_code -eq 66 ] || return $withdraw_code
  done
  return 74
}

# push_closed - called when the slip exists, and the queue is marked as closed or as being dropped,
# or our body is missing: withdraw the push if the queue was closed or dropped before the slip
# existed, unless the message has been taken already
push_closed() {
  # RACE: a pop may have reported the queue closed and empty before the slip was there, which must
  # stay true
  case $queue_files in
  *"$q/closed "*)
    push_withdraw
    case $? in
    0) why="queue '$queue' is closed"; return 69 ;;
    74) return 74 ;;
    esac ;;
  esac
  # RACE: a drop that found the queue empty before our slip existed holds the lock until it has
  # finished, unless it was killed: wait for that (the dot at the end: we do not hold the lock)
  case $queue_files.$lock_held in
  *"$q/dropping "*.)
    need engine/lock
    lock_queue || { push_undo $?; return; }
    unlock_queue ;;
  esac
  # RACE: another process may have dropped the queue and created a new one of the same name while we
  # wrote the body
  [ ! -e "$q/body/$slip_id" ] || return 0
  push_body_there && return 0
  push_code=$?
  if [ $push_code -eq 69 ]; then
    push_folded && return 0
    push_code=$?
    # RACE: it may have been folded, and be unfolded again by now
    [ $push_code -eq 69 ] || ! push_body_there || return 0
    [ $push_code -eq 69 ] || why="queue '$queue': cannot find out whether it was dropped"
  fi
  push_undo $push_code
  push_undo_code=$?
  # A consumer has taken the message: the push has succeeded
  [ "$push_withdraw_status" -ne 1 ] || [ $push_code -eq 74 ] || return 0
  return $push_undo_code
}

# push_unsynced - withdraw a push whose sync has failed, unless the message has been taken already
push_unsynced() {
  # RACE: a fold before our sync has moved the message into a flat file: then sync the whole file
  # system
  ! push_folded || ! sync_many "$q" || return 0
  push_withdraw
  case $? in
  0) sync_failed; return ;;
  # RACE: a message that was taken and settled at once has no body any more
  1) ! absent "$q/body/$slip_id" || return 0 ;;
  esac
  push_unknown
}

# push_folded - return 0 if it is proved that our body is gone and the queue is still the one that
# we opened: then a fold or a consumer has the message. 69: both are gone; 74: unknown, as without
# /proc, where nobody can tell that it is the same queue
push_folded() {
  absent "$q/body/$slip_id" || return 74
  queue_there 8 || return
  [ -e "/proc/self/fd" ] || return 74
}

# push_body_there - return 0 if the body is there, 69 if it is proved that it is gone, 74 if unknown
push_body_there() {
  there "$q/body/$slip_id"
  push_there=$?
  [ $push_there -eq 1 ] || return $push_there
  why="queue '$queue' is gone"
  return 69
}
