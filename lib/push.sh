# push.sh - storing a message
#
# A message is there from the moment its slip is: one exclusive creation, by the shell itself. Before it, the body is nobody's;
# after it, the body is whole. The push journal (ids_next) tells the checkpoint which bodies a killed push has left.

# push_message QUEUE [LENGTH] - stores standard input; with LENGTH, exactly so many bytes or nothing.
# In: push_priority push_delay push_lease push_key (empty: none) push_wait. Out: id; push_dup=1 where the key was taken.
# 65 too short, 66 never, 69 closed, 74 and 77 disk, 75 full
push_message() {
  push_dup='' push_made='' push_need=1
  queue_open "$1" make || return
  [ ! -e "$q/closed" ] || { why="queue '$queue' is closed"; return 69; }
  clock_read
  ids_next || return
  push_body "${2:-}" && push_commit
  push_code=$?
  [ -z "$lock_held" ] || unlock_queue
  if [ $push_code -ne 0 ] || [ -n "$push_dup" ]; then
    push_abandon
    [ -z "$push_dup" ] || id=$push_dup
    return $push_code
  fi
  ids_end
  clock_read
  queue_log push
  wake "$q/wait"
}

# push_abandon - nothing is left of a push that made no slip. The body of one that did is the sweeper's
push_abandon() {
  [ -n "$push_made" ] || rm -f "$q/body/$slip_id"
  ids_end
}

# push_body LENGTH - standard input to body/ID; sets slip_size
push_body() {
  set -C
  # The size of what base64 wrote is where it left the shared offset of the file: no process for it
  { encode "$1" && { read -r push_pos push_encoded <"$FLATQ_PROC/self/fdinfo/1" || push_encoded=''; } && printf '\n'; } \
    2>/dev/null >"$q/body/$slip_id" || { set +C; disk_failed "$q/body" "queue '$queue'"; return; }
  set +C
  body_size "$q/body/$slip_id" "$push_encoded"
  slip_size=$size
  [ -z "$1" ] || [ "$size" = "$1" ] || { why="$size bytes came of the $1 announced"; return 65; }
  [ -z "${FLATQ_MOST_BYTES:-}" ] || [ "$size" -le "$FLATQ_MOST_BYTES" ] ||
    { why="message of $size bytes is over the limit of $FLATQ_MOST_BYTES"; return 65; }
}

# encode [LENGTH] - base64 in one line, no newline. GNU base64 wraps at 76; one that knows no -w does not wrap by itself
encode() {
  if [ -n "${1:-}" ]; then
    # one more byte than announced is not looked for: what follows is not ours
    head -c "$1" | base64 $base64_wrap
  elif [ -n "${push_dot:-}" ]; then
    sed -n '/^\.'"$push_cr"'*$/q;p' | base64 $base64_wrap
  elif [ -n "${FLATQ_MOST_BYTES:-}" ]; then
    head -c "$((FLATQ_MOST_BYTES + 1))" | base64 $base64_wrap
  else
    base64 $base64_wrap
  fi
}

# body_size FILE ENCODED - sets `size`, in bytes, of a body whose base64 has ENCODED characters; empty: count them.
# The padding is at the end: a short line the shell reads itself, of a long one it has the end shown.
body_size() {
  size=$2
  [ -n "$size" ] || { size=$(wc -c <"$1"); size=$((size - 1)); }
  if [ "$size" -le 1400 ]; then
    read -r body_end <"$1"
  else
    body_end=$(tail -c 4 "$1" 9>&-)
  fi
  size=$((size / 4 * 3))
  case $body_end in
  *==) size=$((size - 2)) ;;
  *=) size=$((size - 1)) ;;
  esac
}

# push_commit - makes the slip, and returns when it is as safe as FLATQ_SYNC asks for
push_commit() {
  clock_epoch "$now"
  pad "$push_priority" 0000000000
  slip_priority=$padded slip_tries=0 slip_nonce=0 slip_lease=$push_lease slip_delay=$push_delay slip_born=$epoch_time
  slip_key=- slip_counts=0-0-0-0
  queue_conf || return
  # an exact bound and a key without a twin need the lock; nothing else does
  if [ "$queue_bound" != 0 ] || [ -n "$push_key" ]; then
    [ -z "$push_key" ] || key_hash "$push_key" || return
    push_enter || return
    [ -z "$push_dup" ] || return 0
  fi
  slip_format
  while :; do
    push_place=$q/wal
    [ "$push_delay" = 0 ] || { delay_place "$push_delay" && push_place=$place; } || return
    set -C
    { true >"$push_place/$slip"; } 2>/dev/null && break
    set +C
    # RACE: an empty place for delayed ones is removed when its time has come
    [ "$push_delay" != 0 ] && [ ! -d "$push_place" ] || { disk_failed "$push_place" "queue '$queue'"; return; }
  done
  set +C
  push_made=1
  [ "$slip_key" = - ] || key_sure
  # RACE: the queue may have been closed between our look and the slip. Whoever finds it closed and empty may say so for
  # good; so the push is withdrawn, unless somebody has taken the message already
  if [ -e "$q/closed" ]; then
    push_withdraw && { why="queue '$queue' is closed"; return 69; }
  fi
  if [ "$FLATQ_SYNC" = on ]; then
    set -- "$q/body/$slip_id" "$q/body" "$push_place"
    [ "$push_delay" = 0 ] || set -- "$@" "$q/delayed" "${push_place%/*}"
    [ "$slip_key" = - ] || set -- "$@" "$q/keys/$slip_key" "$q/keys"
    sync_paths "$@" ||
      { push_withdraw; why="queue '$queue': cannot sync"; return 74; }
  fi
}

# push_withdraw - a push that will not be acknowledged takes its slip back; 1 where somebody has it already
push_withdraw() {
  mv -f "$push_place/$slip" "$q/done/$slip.0.000000000000" 2>/dev/null
}

# delay_place SECONDS - sets `place`, and makes it: delayed/THOUSANDS/WHEN, so that one look at the first name tells whether
# anything is due, and one mv brings back all that are due together
delay_place() {
  clock_epoch "$now"
  clock_add "$1" "$epoch_time"
  place=$q/delayed/${later%?????}/$later
  # RACE: the checkpoint removes empty ones
  [ -d "$place" ] || mkdir -p "$place" 2>/dev/null || { disk_failed "$q/delayed" "queue '$queue'"; return; }
}

# push_enter - takes the lock and waits until there is room; sets push_dup where the key is taken
push_enter() {
  push_deadline=
  [ "$queue_bound" = 0 ] || [ "$push_need" -le "$queue_bound" ] || { why="queue '$queue' never holds $push_need messages"; return 75; }
  while :; do
    lock_queue && queue_recover || return
    [ ! -e "$q/closed" ] || { why="queue '$queue' is closed"; return 69; }
    if [ -n "$push_key" ]; then
      key_taken || return
      [ -z "$push_dup" ] || return 0
    fi
    [ "$queue_bound" != 0 ] || break
    queue_count
    [ $((count + push_need)) -gt "$queue_bound" ] || break
    # settled messages hold no room; nor do those whose turn to come back is now, but they do count
    unlock_queue
    [ -n "$push_wait" ] && [ "$push_wait" != 0 ] || { why="queue '$queue' is full"; return 75; }
    if [ -z "$push_deadline" ]; then
      clock_read
      clock_add "$push_wait" "$now"
      push_deadline=$later
      wait_begin room "$queue" || return
      continue
    fi
    clock_read
    [ "$now" \< "$push_deadline" ] || { wait_end; why="queue '$queue' is full"; return 75; }
    wait_due=
    wait_turn "$push_deadline"
  done
  [ -z "$push_deadline" ] || wait_end
  # the key is entered before the slip, and marked as settled after it
  [ -z "$push_key" ] || key_enter
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
  count_names "$q"/head/*/*
  count_names "$q"/delayed/*/*/*
  count_out
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
  slip_key=$(printf '%s' "$1" | sha1sum 2>/dev/null) || { why='sha1sum is missing'; return 70; }
  slip_key=k${slip_key%"${slip_key#????????????????????????????????}"}
}

# keys/KEY holds the id of the message that has the key and, in a second line once its slip was made, `yes`. It is written under
# the lock alone. What is in done/ has left the queue; the sweeper removes keys/KEY before it removes that.
# key_taken - sets push_dup to the id of the message that has the key of slip_key, where one has it
key_taken() {
  key_is=''
  # a settled batch does not show its ids
  for key_path in "$q"/done/batch.*; do
    [ ! -e "$key_path" ] || queue_sweep || return
  done
  { { read -r key_id && { read -r key_is || :; }; } <"$q/keys/$slip_key"; } 2>/dev/null || return 0
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
    [ $key_code -eq 0 ] || return 0
  fi
  push_dup=$key_id
}

key_enter() {
  { printf '%s\n' "$id" >|"$q/keys/$slip_key"; } 2>/dev/null || disk_failed "$q/keys" "queue '$queue'"
}

# where this cannot be written, the next push of the key looks for the message itself
key_sure() {
  { printf 'yes\n' >>"$q/keys/$slip_key"; } 2>/dev/null || :
}
