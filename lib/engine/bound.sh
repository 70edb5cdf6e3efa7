# engine/bound.sh - the part of a push that needs the lock, for an exact bound and a unique key; and the counting of messages

need engine/slip engine/lock engine/proof engine/fold bulk/batch engine/clock

# push_enter - take the lock and wait until there is room; set push_dup if the key is taken
push_enter() {
  push_deadline=
  push_wait_room
  push_room_code=$?
  [ -z "$push_deadline" ] || { need engine/wait; wait_end; [ -z "$wait_late" ] || wake "$q/room"; }
  [ $push_room_code -eq 0 ] && [ -z "$push_dup" ] || return $push_room_code
  # Enter the key before the slip is created, and confirm it afterwards (key_confirm)
  [ -z "$push_key" ] || { need engine/key; key_enter; }
}

# push_wait_room - take the lock, and return 0 with it once there is room for push_need messages, or push_dup is set. 75: full. With any other code than
# 0, the lock may still be held: push_message gives it back
push_wait_room() {
  while :; do
    lock_queue || return
    # RACE: the bound may have been changed while we waited
    queue_conf || return
    [ "$queue_bound" = 0 ] || [ "$push_need" -le "$queue_bound" ] || { why="queue '$queue' has a bound below $push_need messages"; return 75; }
    # RACE: another process may have dropped the queue, and created it again, while we waited
    [ -z "${push_body_file:-}" ] || [ -e "$push_body_file" ] || { need engine/withdraw; push_body_there || return; }
    queue_look || return
    case $queue_files in
    *"$q/closed "*) why="queue '$queue' is closed"; return 69 ;;
    esac
    if [ -n "$push_key" ]; then
      need engine/key
      key_find_dup || return
      [ -z "$push_dup" ] || return 0
    fi
    [ "$queue_bound" != 0 ] || break
    queue_room "$push_need"
    push_room_code=$?
    [ $push_room_code -ne 0 ] || break
    [ $push_room_code -eq 75 ] || return $push_room_code
    # Settled messages take no room. Messages whose delay or lease ends now still count, and become ready
    unlock_queue
    [ -n "$push_wait" ] && [ "$push_wait" != 0 ] || { why="queue '$queue' is full"; return 75; }
    if [ -z "$push_deadline" ]; then
      clock_read
      clock_add "$push_wait" "$now"
      push_deadline=$later
      need engine/wait
      wait_begin room || return
      continue
    fi
    clock_read
    [ "$now" \< "$push_deadline" ] || { why="queue '$queue' is full"; return 75; }
    wait_due=
    wait_turn "$push_deadline"
    [ -z "$take_stop" ] || { why='the client is gone'; return 75; }
  done
}

# push_count - return 75 if the queue is full: count without the lock first, and only if that says full, count again under it
push_count() {
  queue_conf || return
  queue_count
  [ "$queue_bound" = 0 ] || [ "$count_total" -lt "$queue_bound" ] || push_count_again
}

# push_count_again - count again under the lock, which recovers first: without that, the messages of a killed fold are counted twice. Return 75 if full
push_count_again() {
  under_lock queue_count || return
  [ "$count_total" -lt "$queue_bound" ] || { why="queue '$queue' is full"; return 75; }
}

# queue_count - set `count_total` to the number of messages that are ready, delayed or reserved. Under the lock it is exact, except that a message
# that is taken or settled between two looks may be counted too much; it is never too low
queue_count() {
  count_total=0
  count_names "$q"/wal/*
  count_names "$q"/fold/*/*
  for count_path in "$q"/queue/*/*; do
    flat_parse "${count_path##*/}" && count_total=$((count_total + flat_count))
  done
  # Without the lock, these may be unfolded already, or not yet
  for count_path in "$q"/unfold/*; do
    flat_parse "${count_path##*/}" && [ ! -d "$q/head/$run" ] && count_total=$((count_total + flat_count))
  done
  count_names "$q"/head/*/*
  count_windows delayed
  count_out
}

# queue_room NEED - under the lock, return 0 if the bound has room for NEED messages, 75 if not, 74 if unknown. A listing that failed counts
# too few (R1), so a complete find must agree. RACE: find may count a message that is taken meanwhile: then count again
queue_room() {
  for room_try in 1 2 3 4 5; do
    queue_count
    [ $((count_total + $1)) -le "$queue_bound" ] || return 75
    queue_count_proved || return 74
    [ $((count_total + $1)) -gt "$queue_bound" ] || return 0
  done
  return 75
}

# queue_count_proved - as queue_count, but from a listing that is proved to be complete
queue_count_proved() {
  find_names wal fold queue unfold head delayed out claimed \( ! -type d -o -path 'claimed/*' \) ! -name '~' ! -name '*[!!-~]*' || return 74
  count_total=0
  for count_path in $names; do
    case $count_path in
    claimed/*/*/*) ;;
    claimed/*/????????????.[1-9]*) [ -e "$q/$count_path.flat" ] || count_segment "${count_path##*/}" ;;
    claimed/*) ;;
    queue/* | unfold/*) ! flat_parse "${count_path##*/}" || count_total=$((count_total + flat_count)) ;;
    out/*)
      count_name=${count_path#out/}
      if [ -e "$q/done/${count_name%%/*}" ]; then
        :
      elif flat_parse "${count_path##*/}"; then
        count_total=$((count_total + flat_count))
      else
        count_total=$((count_total + 1))
      fi ;;
    *) count_total=$((count_total + 1)) ;;
    esac
  done
}

# queue_count_states - set count_ready count_delayed count_reserved count_buried. A message that moves between two looks is counted twice,
# so a difference of counts may be below 0
queue_count_states() {
  queue_count
  count_all=$count_total count_total=0
  count_windows delayed
  count_delayed=$count_total count_total=0
  count_out
  count_reserved=$count_total count_total=0
  count_windows buried
  count_buried=$count_total count_ready=$((count_all - count_delayed - count_reserved))
  [ $count_ready -ge 0 ] || count_ready=0
}

# queue_oldest - set `oldest` to the seconds since the oldest ready message was pushed, by epoch_time; 0: none is ready. Ids grow, so in each
# place the first message of a priority is the oldest
queue_oldest() {
  oldest_born='' oldest_seen=.
  for oldest_path in "$q"/wal/* "$q"/head/*/* "$q"/queue/*/*; do
    case $oldest_path in
    */'*' | "$oldest_seen"*) continue ;;
    esac
    oldest_name=${oldest_path##*/}
    oldest_seen=${oldest_path%"$oldest_name"}${oldest_name%%.*}.
    case $oldest_name in
    *.*.*.*.*.*.*) ;;
    *) [ -p "$oldest_path" ] || IFS='	' read -r oldest_name oldest_rest <"$oldest_path" ;;
    esac
    slip_parse "$oldest_name" || continue
    [ -n "$oldest_born" ] && ! [ "$slip_born" \< "$oldest_born" ] || oldest_born=$slip_born
  done
  oldest=0
  [ -z "$oldest_born" ] || { clock_split "$epoch_time"; oldest=$clock_s; clock_split "$oldest_born"; oldest=$((oldest - clock_s)); }
  [ $oldest -ge 0 ] || oldest=0
}

# count_out - add the messages in out/ that are not settled to `count_total`
count_out() {
  for count_path in "$q"/out/*; do
    if [ -e "$q/done/${count_path##*/}" ]; then
      continue
    elif [ -d "$count_path" ]; then
      batch_count "$count_path"
    elif [ -e "$count_path" ]; then
      count_total=$((count_total + 1))
    fi
  done
  for count_path in "$q"/claimed/*/????????????.[1-9]*; do
    [ -e "$count_path" ] && [ ! -e "$count_path.flat" ] || continue
    count_segment "${count_path##*/}"
  done
}

# count_segment NAME - add the messages of the segment NAME to `count_total` (R7)
count_segment() {
  need bulk/claim
  ! segment_parse "$1" || count_total=$((count_total + segment_count))
}

# count_windows PLACE - add the number of messages in delayed/ or buried/ to `count_total`
count_windows() {
  need engine/window
  windows "$1" count_window count
}

# count_window PATH ... - count_names, as `windows` calls it: 66 means that it goes on with the next directory
count_window() {
  count_names "$@"
  return 66
}

# count_names PATH ... - add the number of existing paths to `count_total`
count_names() {
  case $1 in
  *'*') [ -e "$1" ] || return 0 ;;
  esac
  count_total=$((count_total + $#))
}
