# engine/bound.sh - the part of a push that needs the lock, for an exact bound and a unique key

need engine/lock engine/count engine/clock

# push_enter - take the lock, and return 0 once there is room for push_need messages, or push_dup is
# set: the key is taken. Wait for room as push_wait says. With another code, it may hold the lock
push_enter() {
  [ -z "$push_key" ] || { need engine/key; key_hash "$push_key"; } || return
  push_try
  push_code=$?
  if [ $push_code -eq 66 ] && [ "${push_wait:-0}" != 0 ]; then
    need engine/wait
    clock_read
    clock_add "$push_wait" "$now"
    wait_begin room || return
    wait_until "$later" : push_try :
    push_code=$?
    wait_end
    # This wake was for somebody else
    [ -z "$wait_late" ] || wake "$q/room"
    [ -z "$take_stop" ] || { why='the client is gone'; return 75; }
  fi
  # With the `why` of queue_room
  [ $push_code -ne 66 ] || return 75
  [ $push_code -eq 0 ] && [ -z "$push_dup" ] || return $push_code
  # Before the slip is created; afterwards push_commit confirms it
  [ -z "$push_key" ] || { need engine/key; key_enter; }
}

# push_try - take the lock, and look whether the push may store its messages. 66: the queue is full;
# then the lock is given back, since wait_until sleeps
push_try() {
  lock_queue || return
  # RACE: bound and `closed` may have changed while we waited
  queue_conf && bound_allows "$push_need" || return
  # RACE: so may the queue: dropped, and created again
  [ -z "${push_begun:-}" ] || [ -e "$q/body/$slip_id" ] ||
    { need engine/withdraw; push_body_there || return; }
  case $queue_files in
  *"$q/closed "*) why="queue '$queue' is closed"; return 69 ;;
  esac
  if [ -n "$push_key" ]; then
    need engine/key
    key_find_dup || return
    [ -z "$push_dup" ] || return 0
  fi
  queue_room "$push_need"
  push_code=$?
  [ $push_code -ne 75 ] || { unlock_queue; return 66; }
  return $push_code
}

# bound_allows NEED - return 75 if the queue has a bound below NEED messages
bound_allows() {
  [ "$queue_bound" = 0 ] || [ "$1" -le "$queue_bound" ] ||
    { why="queue '$queue' has a bound below $1 messages"; return 75; }
}

# queue_room NEED - under the lock, return 0 if the bound has room for NEED messages, 75 if not; 74.
# Settled messages take no room; those whose delay or lease is over count
queue_room() {
  [ "$queue_bound" != 0 ] || return 0
  queue_count || return
  [ $((count_total + $1)) -le "$queue_bound" ] || { why="queue '$queue' is full"; return 75; }
}
