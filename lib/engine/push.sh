# engine/push.sh - ids, and storing a message: it exists from the moment that its slip exists

# ids_next - take the next id: set `id` and slip_id. An id is an empty file in a range, a directory
# of a thousand ids, of which FLATQ_RANGE are used. It is filled from below, so halving finds the
# last id, and renamed before it is removed, so that a push which still uses it fails (I1)
ids_next() {
  while :; do
    ids_last_range || return
    ids_most=$((1000 + FLATQ_RANGE)) ids_high=999
    for ids_step in 512 256 128 64 32 16 8 4 2 1; do
      [ ! -e "$range/$((ids_high + ids_step))" ] || ids_high=$((ids_high + ids_step))
    done
    while ids_high=$((ids_high + 1)) && [ $ids_high -lt $ids_most ]; do
      if file_new "$range/$ids_high"; then
        slip_id=${range##*/}${ids_high#1}
        unpad "$slip_id"
        id=$unpadded
        # RACE: the sweep removes `open` before it renames a range
        [ -e "$range/open" ] || continue 2
        # No message has the id 0
        [ "$id" = 0 ] || return 0
      elif [ ! -e "$range/$ids_high" ]; then
        [ ! -d "$range" ] || { disk_failed "$range" 'cannot give an id'; return; }
        continue 2
      fi
      # RACE: another push was faster
    done
    need engine/boot
    ids_next_range || return
  done
}

# ids_last_range - set `range` to the newest open range, which is synced. There are few: each boot
# opens one, and the checkpoint removes the others
ids_last_range() {
  ids_found=
  # Digits only: shells calculate with the name (R7)
  for range in "$FLATQ_DIR"/.ids/[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]; do
    # Some ids of an older range may not be on the disk
    ! seen "$range/open" || ids_found=$range
  done
  range=$ids_found
  [ -n "$range" ] || { why='the spool has no range of ids'; return 74; }
}

# checkpoint_due - called after the answer: if this process has opened a range of ids, as happens
# once in a thousand messages, run the checkpoint, in a subshell, since nothing of it may change the
# answer
checkpoint_due() {
  [ -n "${ids_opened:-}" ] || return 0
  ids_opened=
  (need engine/checkpoint; checkpoint_turn) >/dev/null || :
}

# push_message QUEUE [LENGTH] - store standard input; with LENGTH, exactly so many bytes or nothing.
# Reads push_priority push_delay push_lease push_key push_wait. Sets id; push_dup to the id of the
# message that has the key; and for doors push_read: `all` once LENGTH bytes are read, else 1 once
# it reads. Returns 65 too short, too long, no dot, bad name or conf; 69 closed; 74, 77 disk; 75
# full
push_message() {
  push_dup='' push_made='' push_begun='' push_read='' push_dot_file='' push_need=1
  queue_open "$1" make && queue_conf || return
  case $queue_files in
  *"$q/closed "*) why="queue '$queue' is closed"; return 69 ;;
  esac
  if [ -n "${2:-}" ] && [ -n "${FLATQ_MOST_BYTES:-}" ] && ! is_number "$2" "$FLATQ_MOST_BYTES"; then
    why="message of $2 bytes is over the limit of $FLATQ_MOST_BYTES"
    return 65
  fi
  clock_read
  ids_next || return
  # Keep this queue's lock open, to know it from a new queue of the same name (queue_there)
  command exec 8<"$q/lock" || {
    need engine/proof
    queue_there || return
    why="queue '$queue': cannot open its lock"
    return 74
  }
  push_body "${2:-}" && push_commit
  push_code=$?
  exec 8>&-
  [ -z "$lock_held" ] || { need engine/lock; unlock_queue; }
  [ $push_code -eq 0 ] && [ -z "$push_dup" ] || { need engine/withdraw; push_not; return; }
  epoch_time=$slip_born
  push_said=-
  [ "$push_delay" = 0 ] || push_said=delay-$push_delay
  log_line push "$id" 0 "$slip_size" 0 "$push_said"
  wake "$q/wait"
}

# push_body LENGTH - write standard input to body/ID, as base64 in one line; set slip_size
push_body() {
  [ -z "${push_dot:-}" ] || { nonce_read; push_dot_file=$$-$now.$nonce; }
  push_at=none
  set -C
  # base64 leaves the file offset at the end of what it wrote: so its size needs no process
  { push_begun=1 push_read=1 && set +C && body_encode "$1" &&
    read -r push_pos push_encoded <"/proc/self/fdinfo/1" && printf '\n'; } \
    7<&0 >"$q/body/$slip_id" || { set +C; disk_failed "$q/body"; return; }
  # In a door, what follows the body (push_follows) proves that it was read to its end, so its
  # length is believed. But a killed dd may have copied whole 4096-byte pages only
  if [ -n "${push_follows:-}" ] && [ -n "$1" ] && [ "$1" -le 65536 ] &&
    { [ $(($1 % 4096)) -gt 2 ] || [ "$1" -le 4096 ]; } &&
    letters_of "$1" && [ "$push_encoded" = "$letters" ]; then
    slip_size=$1
  elif [ "$push_at" != none ] && letters_of "$push_at" && [ "$push_encoded" = "$letters" ]; then
    slip_size=$push_at
  else
    body_size || return
  fi
  [ -n "$1${push_dot:-}${FLATQ_MOST_BYTES:-}" ] || { door_whole "$slip_size"; return; }
  need engine/input
  input_whole "$1"
}

# body_encode LENGTH - write the message as base64 in one line, without a newline. If all of
# standard input is the message, and a file, set push_at to how far base64 has moved its offset
body_encode() {
  if [ -n "$1${push_dot:-}${FLATQ_MOST_BYTES:-}" ]; then
    need engine/input
    input_encode "$1"
  elif [ -f /proc/self/fd/7 ]; then
    read -r push_pos push_start </proc/self/fdinfo/7 && base64 "$base64_wrap" &&
      read -r push_pos push_at </proc/self/fdinfo/7 && push_at=$((push_at - push_start))
  else
    base64 "$base64_wrap"
  fi
}

# body_size - set slip_size by the padding at the end of the body, if it was read in full
body_size() {
  body_end=
  if [ "$push_encoded" -le 1400 ]; then
    read -r body_end <"$q/body/$slip_id" && [ ${#body_end} -eq "$push_encoded" ]
  else
    body_end=$(exec tail -c 4 "$q/body/$slip_id" 9>&-) && [ ${#body_end} -eq 3 ]
  fi && [ $((push_encoded % 4)) -eq 0 ] || {
    need engine/withdraw
    push_body_there || return
    why="queue '$queue': message cannot be counted"
    return 74
  }
  # shellcheck disable=SC2017 # a multiple of four
  slip_size=$((push_encoded / 4 * 3))
  case $body_end in
  *==) slip_size=$((slip_size - 2)) ;;
  *=) slip_size=$((slip_size - 1)) ;;
  esac
}

# push_commit - create the slip; return when it is as safe as the spool asks for, or with push_dup
push_commit() {
  slip_key=-
  # Only an exact bound and a unique key need the lock
  if [ "$queue_bound" != 0 ] || [ -n "$push_key" ]; then
    need engine/bound
    push_enter || return
    [ -z "$push_dup" ] || return 0
  fi
  clock_epoch "$now"
  pad "$push_priority" 0000000000
  slip_priority=$padded slip_tries=0 slip_nonce=0 slip_lease=$push_lease
  push_expires "$push_delay" || return
  slip_born=$epoch_time slip_counts=0-0-0-0 push_again=0
  slip_format
  while :; do
    push_place=$q/wal
    if [ "$push_delay" != 0 ]; then
      need engine/window
      delay_place "$push_delay" "${push_when-}" || return
      push_place=$place
    fi
    # A signal from here on finds that the slip may exist (push_stopped)
    push_made=1
    file_new "$push_place/$slip" && break
    push_made=
    need engine/withdraw
    push_slip_again || return
  done
  # If that fails, the next push with the key looks for the message
  [ "$slip_key" = - ] || printf 'yes\n' >>"$q/keys/$slip_key"
  push_check && push_sync
}

# push_expires DELAY - set slip_delay: to DELAY, or to 2^32 plus the seconds of push_expire, else of
# queue_expire
push_expires() {
  slip_delay=$1 push_seconds=${push_expire:-$queue_expire}
  [ "$push_seconds" != 0 ] || return 0
  slip_delay=$((4294967296 + push_seconds))
  file_mark "$q/expires" || { disk_failed "$q"; return; }
  # Also if another made it, who may have been killed before this
  sync_paths "$q"
}

# push_check - if the queue was closed or dropped since our first look, withdraw the push, unless
# the message has been taken already. Where our body is, the queue was not dropped
push_check() {
  queue_look || { push_code=$?; need engine/withdraw; push_undo $push_code; return; }
  case $queue_files in
  *"$q/closed "* | *"$q/dropping "*) ;;
  *) [ ! -e "$q/body/$slip_id" ] || return 0 ;;
  esac
  need engine/withdraw
  push_closed
}

# push_sync - sync body and slip; if that fails, withdraw the push
push_sync() {
  [ "$spool_sync" = on ] || return 0
  if [ "$push_delay$slip_key" = 0- ]; then
    sync_paths "$q/body/$slip_id" "$q/body" "$push_place" && return 0
  else
    set -- "$q/body/$slip_id" "$q/body" "$push_place"
    [ "$push_delay" = 0 ] || set -- "$@" "$q/delayed" "${push_place%/*}"
    [ "$slip_key" = - ] || set -- "$@" "$q/keys/$slip_key" "$q/keys"
    need engine/sync
    sync_moving "$@" && return 0
  fi
  need engine/withdraw
  push_unsynced
}

# A door has its own versions of these:
# door_whole SIZE - return 0 if the input ended as its sender intended
# door_body_end - read what follows a body of stated length
if [ -z "${FLATQ_DOOR:-}" ]; then
  door_whole() { :; }
  door_body_end() { :; }
fi
