# bound.sh - what a push needs the lock for: an exact bound, and a key without a twin

# push_enter - takes the lock and waits until there is room; sets push_dup where the key is taken
push_enter() {
  push_deadline=
  push_room
  push_room_code=$?
  [ -z "$push_deadline" ] || { wait_end; [ -z "$wait_late" ] || wake "$q/room"; }
  [ $push_room_code -eq 0 ] && [ -z "$push_dup" ] || return $push_room_code
  # the key is entered before the slip, and marked as settled after it
  [ -z "$push_key" ] || key_enter
}

push_room() {
  [ "$queue_bound" = 0 ] || [ "$push_need" -le "$queue_bound" ] || { why="queue '$queue' never holds $push_need messages"; return 75; }
  while :; do
    lock_queue || return
    # RACE: dropped and made anew while we waited
    [ -z "${push_has:-}" ] || [ -e "$push_has" ] || { need proof; push_gone || return; }
    queue_files || return
    case $queue_files in
    *' closed '*) why="queue '$queue' is closed"; return 69 ;;
    esac
    if [ -n "$push_key" ]; then
      key_taken || return
      [ -z "$push_dup" ] || return 0
    fi
    [ "$queue_bound" != 0 ] || break
    queue_room "$push_need"
    push_room_code=$?
    [ $push_room_code -ne 0 ] || break
    [ $push_room_code -eq 75 ] || return $push_room_code
    # settled messages hold no room; nor do those whose turn to come back is now, but they do count
    unlock_queue
    [ -n "$push_wait" ] && [ "$push_wait" != 0 ] || { why="queue '$queue' is full"; return 75; }
    if [ -z "$push_deadline" ]; then
      clock_read
      clock_add "$push_wait" "$now"
      push_deadline=$later
      need wait
      wait_begin room "$queue" || return
      continue
    fi
    clock_read
    [ "$now" \< "$push_deadline" ] || { why="queue '$queue' is full"; return 75; }
    wait_due=
    wait_turn "$push_deadline"
    [ -z "$take_stop" ] || { why='the client is gone'; return 75; }
  done
}

# queue_count - sets `count`: messages ready, delayed and in flight. Exact under the lock as long as nothing is taken or settled
# meanwhile; else too high by what moved between two looks, never too low
queue_count() {
  count=0
  count_names "$q"/wal/*
  count_names "$q"/fold/*/*
  for count_path in "$q"/queue/*/*; do
    flat_parse "${count_path##*/}" && count=$((count + flat_count))
  done
  # unfolded, or not yet: without the lock
  for count_path in "$q"/unfold/*; do
    flat_parse "${count_path##*/}" && [ ! -d "$q/head/$run" ] && count=$((count + flat_count))
  done
  count_names "$q"/head/*/*
  count_names "$q"/delayed/*/*/*
  count_out
}

# queue_room NEED - under the lock: whether the bound has room for so many; 75 where it has not, 74 where nobody knows. A listing that failed has
# too few (R1); so a find that has read all must say the same. RACE: what is taken while it looks it counts twice: then both look again
queue_room() {
  for room_try in 1 2 3 4 5; do
    queue_count
    [ $((count + $1)) -le "$queue_bound" ] || return 75
    queue_count_all || return 74
    [ $((count + $1)) -gt "$queue_bound" ] || return 0
  done
  return 75
}

# queue_count_all - queue_count, from a listing that is whole
queue_count_all() {
  need proof
  find_names wal fold queue unfold head delayed out claimed \( ! -type d -o -path 'claimed/*' \) ! -name '~' ! -name '*[!!-~]*' || return 74
  count=0
  for count_path in $names; do
    case $count_path in
    claimed/*/*/*) ;;
    claimed/*/????????????.[1-9]*) [ -e "$q/$count_path.flat" ] || { count_path=${count_path##*/????????????.}; count=$((count + ${count_path%.flat})); } ;;
    claimed/*) ;;
    queue/* | unfold/*) ! flat_parse "${count_path##*/}" || count=$((count + flat_count)) ;;
    out/*)
      count_name=${count_path#out/}
      if [ -e "$q/done/${count_name%%/*}" ]; then
        :
      elif flat_parse "${count_path##*/}"; then
        count=$((count + flat_count))
      else
        count=$((count + 1))
      fi ;;
    *) count=$((count + 1)) ;;
    esac
  done
}

# queue_count_states - sets count_ready count_delayed count_reserved count_buried. What moves between two looks is counted twice: a
# difference may be below 0
queue_count_states() {
  queue_count
  count_all=$count count=0
  count_names "$q"/delayed/*/*/*
  count_delayed=$count count=0
  count_out
  count_reserved=$count count=0
  count_names "$q"/buried/*
  count_buried=$count count_ready=$((count_all - count_delayed - count_reserved))
  [ $count_ready -ge 0 ] || count_ready=0
}

# queue_oldest - sets `oldest`: seconds since the oldest message that is ready was pushed, by epoch_time; 0: none is. Ids grow: of those with
# the same priority in the same place the first is the oldest
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
    *) { IFS='	' read -r oldest_name oldest_rest <"$oldest_path"; } 2>/dev/null ;;
    esac
    slip_parse "$oldest_name" || continue
    [ -n "$oldest_born" ] && ! [ "$slip_born" \< "$oldest_born" ] || oldest_born=$slip_born
  done
  oldest=0 oldest_now=${epoch_time%??} oldest_born=${oldest_born%??}
  [ -z "$oldest_born" ] || oldest=$((${oldest_now#"${oldest_now%%[!0]*}"} - ${oldest_born#"${oldest_born%%[!0]*}"}))
  [ $oldest -ge 0 ] || oldest=0
}

# count_out - adds what is in flight to `count`
count_out() {
  for count_path in "$q"/out/*; do
    if [ -e "$q/done/${count_path##*/}" ]; then
      continue
    elif [ -d "$count_path" ]; then
      batch_count "$count_path"
    elif [ -e "$count_path" ]; then
      count=$((count + 1))
    fi
  done
  for count_path in "$q"/claimed/*/????????????.[1-9]*; do
    [ -e "$count_path" ] && [ ! -e "$count_path.flat" ] || continue
    count_path=${count_path##*/????????????.}
    count=$((count + ${count_path%.flat}))
  done
}

# count_names PATTERN-OR-PATHS - adds how many there are to `count`
count_names() {
  case $1 in
  *'*') [ -e "$1" ] || return 0 ;;
  esac
  count=$((count + $#))
}

# key_hash KEY - sets slip_key
key_hash() {
  # the left side says that it is through: of half a key there is a hash as well (R6)
  slip_key=$({ { printf '%s' "$1" && printf 'good ' >&3; } | sha1sum; } 2>/dev/null 3>&1) || { why='sha1sum is missing, or failed'; return 70; }
  case $slip_key in
  'good '????????????????????????????????*) slip_key=${slip_key#good } ;;
  *) why='the key could not be hashed'; return 74 ;;
  esac
  slip_key=k${slip_key%"${slip_key#????????????????????????????????}"}
}

# keys/KEY holds the id of the message that has the key and, in a second line once its slip was made, `yes`. It is written under
# the lock alone. What is in done/ has left the queue; the sweeper removes keys/KEY before it removes that.
# key_taken - sets push_dup to the id of the message that has the key of slip_key, where one has it
key_taken() {
  key_is=''
  # a settled batch does not show its ids
  set -- "$id" "$slip_id" "$slip_size" "$slip_key"
  for key_path in "$q"/done/batch.*; do
    [ ! -e "$key_path" ] || queue_sweep || return
  done
  # nor does what was claimed, and settled by a process that was killed then
  claims_recover || return
  id=$1 slip_id=$2 slip_size=$3 slip_key=$4
  key_read "$slip_key" || { [ $? -eq 66 ] && return 0; return 74; }
  number "$key_id" 999999999999 || return 0
  key_id=$number
  pad "$key_id" 000000000000
  for key_path in "$q"/done/??????????."$padded".*; do
    [ ! -e "$key_path" ] || return 0
  done
  if [ "$key_is" != yes ]; then
    # CRASH: a push was killed between the key and the slip; only a look at all places tells
    set -- "$id" "$slip_id" "$slip_key"
    message_find "$padded"
    key_code=$?
    id=$1 slip_id=$2 slip_key=$3
    if [ $key_code -eq 66 ]; then
      message_held "$padded"
      key_code=$?
    fi
    case $key_code in
    0) ;;
    66) return 0 ;;
    *) return $key_code ;;
    esac
  fi
  key_lives "$padded" || { [ $? -eq 66 ] && return 0; return 74; }
  push_dup=$key_id
}

# key_lives ID - 66 where the message that has slip_key's key is settled after all. Who says `dup` stores nothing: what the globs above have
# not seen in done/ and claimed/ must not be there (R1)
key_lives() {
  need proof
  set -- "$1" "$id" "$slip_id" "$slip_size" "$slip_key" "$key_id"
  files_below "done" claimed || return
  key_swept=
  for key_path in $names; do
    case $key_path in
    "done/"??????????."$1".*) return 66 ;;
    "done/batch."*) key_swept="$key_swept done" ;;
    claimed/*/settled.*) key_path=${key_path%/*} key_swept="$key_swept ${key_path#*/}" ;;
    esac
  done
  for key_path in $key_swept; do
    case $key_path in
    "done") queue_sweep ;;
    *) need claim; claim_open "$key_path" && claim_recover ;;
    esac || { id=$2 slip_id=$3 slip_size=$4 slip_key=$5; return 74; }
  done
  id=$2 slip_id=$3 slip_size=$4 slip_key=$5
  [ -z "$key_swept" ] || key_read "$slip_key" || return
  [ "$key_id" = "$6" ] || return 66
}

key_enter() {
  [ ! -h "$q/keys/$slip_key" ] || { why="queue '$queue': a key is a link"; return 74; }
  set -C
  { printf '%s\n' "$id" >"$q/keys/$slip_key"; } 2>/dev/null
  key_code=$?
  set +C
  # a key that its message has left
  [ $key_code -eq 0 ] || file_put "keys/$slip_key" "$id" || disk_failed "$q/keys" "queue '$queue'"
}

# where this cannot be written, the next push of the key looks for the message itself
key_sure() {
  [ -h "$q/keys/$slip_key" ] || { printf 'yes\n' >>"$q/keys/$slip_key"; } 2>/dev/null || :
}
