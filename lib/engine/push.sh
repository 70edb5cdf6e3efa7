# engine/push.sh - ids, and storing a message: it exists from the moment that its slip exists

# ids_next - take the next id: set `id` and slip_id. An id is an empty file in a range, a directory of
# a thousand ids. A range is filled from below, so halving finds the last id. It is renamed away
# before it is removed, so that a push which still uses it fails (I1)
ids_next() {
  while :; do
    ids_last_range || return
    ids_find_free
    # RACE: other pushes take ids too; if one was faster, try the next id
    while [ "$ids_high" -lt "$ids_most" ]; do
      if file_new "$range/$ids_high"; then
        slip_id=${range##*/}${ids_high#1}
        unpad "$slip_id"
        id=$unpadded
        # RACE: the sweep removes `open` before it renames a range (ids_sweep)
        [ -e "$range/open" ] || continue 2
        [ "$id" = 0 ] || return 0
      elif [ ! -e "$range/$ids_high" ]; then
        break
      fi
      # Also after 0: no message has that id
      ids_high=$((ids_high + 1))
    done
    if [ "$ids_high" -ge "$ids_most" ]; then
      need engine/boot
      ids_next_range || return
    elif [ -d "$range" ]; then
      disk_failed "$range" 'cannot give an id'
      return
    fi
  done
}

# ids_last_range - set `range` to the directory of the newest open range, which is synced. There are
# few: each boot opens one, and the checkpoint removes the others
ids_last_range() {
  ids_found=
  # Digits only: shells calculate with the name (R7)
  for range in "$FLATQ_DIR"/.ids/[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]; do
    # Look twice before using an older range: some of its ids may not be on the disk (R1)
    [ ! -e "$range/open" ] && [ ! -e "$range/open" ] || ids_found=$range
  done
  range=$ids_found
  [ -n "$range" ] || { why='the spool has no range of ids'; return 74; }
}

# ids_find_free - by halving, set ids_high to the first number in `range` that is not taken; to
# ids_most if all are
ids_find_free() {
  # FLATQ_RANGE is the number of ids that are used of a range's thousand. 999: none is taken
  ids_most=$((1000 + FLATQ_RANGE)) ids_high=999
  for ids_step in 512 256 128 64 32 16 8 4 2 1; do
    [ ! -e "$range/$((ids_high + ids_step))" ] || ids_high=$((ids_high + ids_step))
  done
  ids_high=$((ids_high + 1))
}

# checkpoint_due - called after the answer: run the checkpoint if this process has opened a new range
# of ids, as happens once in a thousand messages. It runs in a subshell, so that nothing in it
# changes the caller's variables, answer or exit code
checkpoint_due() {
  [ -n "${ids_opened:-}" ] || return 0
  ids_opened=
  (need engine/checkpoint; checkpoint_turn) >/dev/null || :
}

# push_message QUEUE [LENGTH] - store standard input; with LENGTH, exactly so many bytes or nothing.
# Reads push_priority push_delay push_lease push_key (empty: none) push_wait. Sets id; push_dup to the
# id of the message that has the key, if there is one; and for doors push_read once it reads, and to
# `all` once LENGTH bytes are read.
# Returns 65 too short or too long, no dot, bad name or conf; 69 closed; 74, 77 disk; 75 full; never 66
push_message() {
  push_dup='' push_made='' push_begun='' push_read='' push_dot_file='' push_need=1
  queue_open "$1" make || return
  queue_look || return
  case $queue_files in
  *"$q/closed "*) why="queue '$queue' is closed"; return 69 ;;
  esac
  if [ -n "${2:-}" ] && [ -n "${FLATQ_MOST_BYTES:-}" ] && ! is_number "$2" "$FLATQ_MOST_BYTES"; then
    why="message of $2 bytes is over the limit of $FLATQ_MOST_BYTES"
    return 65
  fi
  clock_read
  ids_next || return
  # Keep this queue's lock open, to recognize a new queue of the same name at the end
  # (push_check_same)
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
  if [ $push_code -ne 0 ] || [ -n "$push_dup" ]; then
    push_abandon
    [ -n "$push_dup" ] || return $push_code
    id=$push_dup
    # The push that stored the other message may have been killed before it synced
    need engine/sync
    sync_many "$q"
    return
  fi
  epoch_time=$slip_born
  push_said=-
  [ "$push_delay" = 0 ] || push_said=delay-$push_delay
  log_line push "$id" 0 "$slip_size" 0 "$push_said"
  wake "$q/wait"
}

# push_abandon - remove what a push without a slip has written: the body, and of `push -e` the file in
# tmp/. Once the slip may exist (push_made), the body stays. CRASH: what is left has no slip, and the
# first verb after a boot removes it
push_abandon() {
  [ -n "$push_made" ] ||
    rm -f ${push_begun:+"$q/body/$slip_id"} ${push_dot_file:+"$q/tmp/$push_dot_file"}
}

# push_body LENGTH - write standard input to body/ID; set slip_size
push_body() {
  [ -z "${push_dot:-}" ] || { nonce_read; owner_read; push_dot_file=$owner.$nonce; }
  # A signal may come as soon as the body is there
  [ -e "$q/body/$slip_id" ] || push_begun=1
  set -C
  # base64 leaves the shared file offset at the end of what it wrote: so its size needs no process
  { push_begun=1 push_read=1 && set +C && body_encode "$1" &&
    read -r push_pos push_encoded <"/proc/self/fdinfo/1" && printf '\n'; } \
    >"$q/body/$slip_id" || { set +C; disk_failed "$q/body"; return; }
  # In a door, the bytes after the body (push_follows) prove that it was read to its end, so its
  # length is believed. But a killed dd may have copied whole 4096-byte pages only: then lengths 1
  # or 2 over a page have the same base64 length
  # shellcheck disable=SC2017 # a multiple of four
  if [ -n "${push_follows:-}" ] && [ -n "$1" ] && [ "$1" -le 65536 ] &&
    { [ $(($1 % 4096)) -gt 2 ] || [ "$1" -le 4096 ]; } &&
    [ "$push_encoded" = $((($1 + 2) / 3 * 4)) ]; then
    slip_size=$1
  else
    body_size "$q/body/$slip_id" "$push_encoded" || return
    slip_size=$size
  fi
  [ -n "$1${push_dot:-}${FLATQ_MOST_BYTES:-}" ] || { door_whole "$slip_size"; return; }
  need engine/input
  input_whole "$1"
}

# body_encode LENGTH - write base64 in one line, without a newline
body_encode() {
  if [ -z "$1${push_dot:-}${FLATQ_MOST_BYTES:-}" ]; then
    base64 "$base64_wrap"
  else
    need engine/input
    input_encode "$1"
  fi
}

# body_size FILE ENCODED - set `size` to the bytes of a body whose base64 has ENCODED characters. The
# padding is at the end. Use that only if it was read in full: `tail` may be killed
body_size() {
  body_end=
  if [ "$2" -le 1400 ]; then
    read -r body_end <"$1" && [ ${#body_end} -eq "$2" ]
  else
    body_end=$(exec tail -c 4 "$1" 9>&-) && [ ${#body_end} -eq 3 ]
  fi && [ $(($2 % 4)) -eq 0 ] || {
    [ -e "$1" ] || { need engine/withdraw; push_body_there || return; }
    why="queue '$queue': message cannot be counted"
    return 74
  }
  # shellcheck disable=SC2017 # a multiple of four
  size=$(($2 / 4 * 3))
  case $body_end in
  *==) size=$((size - 2)) ;;
  *=) size=$((size - 1)) ;;
  esac
}

# push_commit - create the slip, and return when it is as safe as the spool asks for. Sets push_dup if
# the key is taken
push_commit() {
  slip_key=-
  queue_conf || return
  # Only an exact bound and a unique key need the lock
  if [ "$queue_bound" != 0 ] || [ -n "$push_key" ]; then
    need engine/bound
    [ -z "$push_key" ] || { need engine/key; key_hash "$push_key"; } || return
    push_enter || return
    [ -z "$push_dup" ] || return 0
  fi
  push_slip && push_check_open && push_sync && push_check_same
}

# push_slip - create the slip: from here on the message exists
push_slip() {
  clock_epoch "$now"
  pad "$push_priority" 0000000000
  slip_priority=$padded slip_tries=0 slip_nonce=0 slip_lease=$push_lease slip_delay=$push_delay
  slip_born=$epoch_time slip_counts=0-0-0-0 push_again=''
  slip_format
  while :; do
    push_place=$q/wal
    [ "$push_delay" = 0 ] || { need engine/window; delay_place "$push_delay" || return; push_place=$place; }
    # A signal from here on finds that the slip may exist (push_stopped)
    push_made=1
    file_new "$push_place/$slip" && break
    push_made=
    need engine/withdraw
    push_slip_again || return
  done
  [ "$slip_key" = - ] || { need engine/key; key_confirm; }
}

# push_check_open - if the queue was closed or dropped since our first look, withdraw the push, unless
# the message has been taken already
push_check_open() {
  queue_look || { push_give_up $?; return; }
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

# push_check_same - if the queue that was opened was dropped, and the slip is in a new one of the same
# name, withdraw the push
push_check_same() {
  # shellcheck disable=SC3013 # -ef is in every shell that is named in the README
  [ "$q/lock" -ef "/proc/self/fd/8" ] || { need engine/proof; queue_there 8; } || push_give_up $?
}

# push_give_up CODE - withdraw a push that has its slip already and fails with CODE; return CODE, or
# 74 (push_undo)
push_give_up() {
  need engine/withdraw
  push_undo "$1"
}

# door_body_end - read what follows a body of stated length. A door has its own version
[ -n "${FLATQ_DOOR:-}" ] || door_body_end() {
  :
}

# door_whole SIZE - return 0 if the input ended as its sender intended. A door has its own version,
# which checks
[ -n "${FLATQ_DOOR:-}" ] || door_whole() {
  :
}
