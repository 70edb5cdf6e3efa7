# engine/bound.sh - the parts of a push that need the lock: an exact bound and a unique key; and the counting of messages

need engine/slip engine/spool engine/lock engine/proof engine/fold bulk/batch

# push_enter - take the lock and wait until there is room; set push_dup if the key is taken
push_enter() {
  push_deadline=
  push_wait_room
  push_room_code=$?
  [ -z "$push_deadline" ] || { need engine/wait; wait_end; [ -z "$wait_late" ] || wake "$q/room"; }
  [ $push_room_code -eq 0 ] && [ -z "$push_dup" ] || return $push_room_code
  # Enter the key before the slip is created, and confirm it afterwards (key_confirm)
  [ -z "$push_key" ] || key_enter
}

# push_wait_room - take the lock, and return 0 with it once there is room for push_need messages, or push_dup is set; else without it: 75 full
push_wait_room() {
  while :; do
    lock_queue || return $?
    # RACE: the bound may have been changed while we waited
    queue_conf || return $?
    [ "$queue_bound" = 0 ] || [ "$push_need" -le "$queue_bound" ] || { why="queue '$queue' has a bound below $push_need messages"; return 75; }
    # RACE: another process may have dropped the queue, and created it again, while we waited
    [ -z "${push_has:-}" ] || [ -e "$push_has" ] || { need engine/push; push_body_there || return $?; }
    queue_look || return $?
    case $queue_files in
    *' closed '*) why="queue '$queue' is closed"; return 69 ;;
    esac
    if [ -n "$push_key" ]; then
      key_find_dup || return $?
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
      wait_begin room "$queue" || return $?
      continue
    fi
    clock_read
    [ "$now" \< "$push_deadline" ] || { why="queue '$queue' is full"; return 75; }
    wait_due=
    wait_turn "$push_deadline"
    [ -z "$take_stop" ] || { why='the client is gone'; return 75; }
  done
}

# push_count_again - count again under the lock, which recovers first: without that, the messages of a killed fold are counted twice. Return 75 if full
push_count_again() {
  under_lock queue_count || return $?
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
# too few (R1), so a complete find must agree. RACE: find may count a message twice that is taken meanwhile: then count again
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
    *) [ -p "$oldest_path" ] || { IFS='	' read -r oldest_name oldest_rest <"$oldest_path"; } 2>/dev/null ;;
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

# sum_of PROGRAM COMMAND ... - set `sum` to what PROGRAM (md5sum, sha1sum, sha256sum) prints for COMMAND's output. COMMAND is the left side of a
# pipe, whose exit status is lost, so it writes a word when it has finished (R6): half a text has a sum, too. Returns 70 no PROGRAM, 74 not whole
sum_of() {
  sum_by=$1
  shift
  sum=$({ { "$@" 2>/dev/null && printf 'whole ' >&3; } | "$sum_by"; } 2>/dev/null 3>&1) || { why="$sum_by is missing, or failed"; return 70; }
  case $sum in
  'whole '*' '*-) sum=${sum#whole } sum=${sum%% *} ;;
  *) why="$sum_by did not get all of its input"; return 74 ;;
  esac
}

# key_hash KEY - set slip_key to the field for KEY: `k` and the first 32 digits of its SHA-1
key_hash() {
  sum_of sha1sum printf '%s' "$1" || return $?
  [ ${#sum} -eq 40 ] || { why='sha1sum prints no SHA-1'; return 70; }
  slip_key=k${sum%????????}
}

# keys/KEY holds the id of the message that has the key and, in a second line once its slip exists, `yes`. It is written only under the
# lock. Messages in done/ have left the queue; the sweep removes keys/KEY before it removes their names there.
# key_find_dup - if a message has the key of slip_key, set push_dup to its id. Keeps the slip_ variables, which the functions below set
key_find_dup() {
  set -- "$id" "$slip_id" "$slip_size" "$slip_key"
  key_find "$slip_key"
  key_code=$?
  id=$1 slip_id=$2 slip_size=$3 slip_key=$4
  return $key_code
}

# key_find KEY - if a message has the KEY, set push_dup to its id
key_find() {
  need engine/settle engine/reclaim
  key_is=''
  # The name of a settled batch does not show its ids: sweep first
  for key_path in "$q"/done/batch.*; do
    [ ! -e "$key_path" ] || queue_sweep || return $?
  done
  # Segments that a killed process has settled still have the key: finish removing them
  claims_recover || return $?
  key_look "$1" || { [ $? -eq 66 ] && return 0; return 74; }
  is_number "$key_id" 999999999999 || return 0
  key_id=$number
  pad "$key_id" 000000000000
  set -- "$1" "$padded" "$key_id"
  for key_path in "$q"/done/??????????."$2".*; do
    [ ! -e "$key_path" ] || return 0
  done
  if [ "$key_is" != yes ]; then
    # CRASH: a push may have been killed between key and slip: look for the message
    key_message "$2"
    case $? in
    0) ;;
    66) return 0 ;;
    *) return "$key_code" ;;
    esac
  fi
  key_lives "$1" "$2" "$3" || { [ $? -eq 66 ] && return 0; return 74; }
  push_dup=$3
}

# key_message ID - return 0 if the message with the 12-digit ID is in any place, 66 if it is in none; if that is unknown, what message_find and
# message_held return. RACE: a listing misses a message that moves against its order (R4), so look twice
key_message() {
  for key_turn in 1 2; do
    message_find "$1"
    key_code=$?
    if [ $key_code -eq 66 ]; then
      message_held "$1"
      key_code=$?
    fi
    [ $key_code -eq 66 ] || break
  done
  return "$key_code"
}

# key_lives KEY PADDED ID - return 66 if the message that has the KEY is settled after all. An answer `dup` stores nothing, so prove that what the
# globs above did not see in done/ and claimed/ is not there (R1)
key_lives() {
  files_below "done" claimed || return $?
  key_swept=
  for key_path in $names; do
    case $key_path in
    "done/"??????????."$2".*) return 66 ;;
    "done/batch."*) key_swept="$key_swept done" ;;
    claimed/*/settled.*) key_path=${key_path%/*} key_swept="$key_swept ${key_path#*/}" ;;
    esac
  done
  for key_path in $key_swept; do
    case $key_path in
    "done") queue_sweep ;;
    *) need bulk/claim; claim_open "$key_path" && claim_recover ;;
    esac || return 74
  done
  [ -n "$key_swept" ] || return 0
  key_look "$1" || return $?
  [ "$key_id" = "$3" ] || return 66
}

# key_enter - write the id of the message that is about to get its slip to keys/KEY
key_enter() {
  [ ! -h "$q/keys/$slip_key" ] || { why="queue '$queue': a key is a link"; return 74; }
  set -C
  { printf '%s\n' "$id" >"$q/keys/$slip_key"; } 2>/dev/null
  key_code=$?
  set +C
  # The key's message has left the queue: take the key over. A key that was not seen, and is there, may be another message's (R1)
  [ $key_code -eq 0 ] || { [ -n "$key_seen" ] && file_put "keys/$slip_key" "$id"; } || disk_failed "$q/keys"
}

# key_confirm - confirm the key. If this cannot be written, the next push with the key looks for the message itself
key_confirm() {
  [ -h "$q/keys/$slip_key" ] || { printf 'yes\n' >>"$q/keys/$slip_key"; } 2>/dev/null || :
}

part='engine/bound'
