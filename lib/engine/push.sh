# engine/push.sh - store a message: it exists from the moment that its slip exists. The push journal (ids_next) tells the checkpoint which bodies without
# a slip a killed push has left

need engine/ids engine/sync

# push_message QUEUE [LENGTH] - store standard input; with LENGTH, exactly so many bytes or nothing. Reads push_priority push_delay push_lease push_key
# (empty: none) push_wait. Sets id; push_dup to the id of the message that has the key, if there is one; and push_read once it reads, for doors.
# Returns 65 too short or too long, no dot, bad name or conf; 69 closed; 74, 77 disk; 75 full; never 66
push_message() {
  push_dup='' push_made='' push_begun='' push_read='' push_at_slip='' push_signal='' push_dot_file='' push_need=1
  queue_open "$1" make || return $?
  queue_look || return $?
  case $queue_files in
  *"$q/closed "*) why="queue '$queue' is closed"; return 69 ;;
  esac
  [ -z "${2:-}" ] || [ -z "${FLATQ_MOST_BYTES:-}" ] || is_number "$2" "$FLATQ_MOST_BYTES" ||
    { why="message of $2 bytes is over the limit of $FLATQ_MOST_BYTES"; return 65; }
  # If the queue is full now, refuse before anything is written. push_count takes the lock only if a first count says full
  if [ "$push_wait" = 0 ] && [ -z "$push_key" ]; then
    case $queue_files in
    *"$q/conf "*)
      need engine/bound
      push_count || return $? ;;
    esac
  fi
  clock_read
  ids_next || return $?
  # Keep this queue's lock open, to recognize a new queue of the same name at the end (push_check_same)
  { command exec 8<"$q/lock"; } 2>/dev/null ||
    { ids_end; need engine/proof; queue_there || return $?; why="queue '$queue': cannot open its lock"; return 74; }
  push_body "${2:-}" && push_commit
  push_code=$? effect=
  close_descriptor 8
  [ -z "$lock_held" ] || { need engine/lock; unlock_queue; }
  if [ $push_code -ne 0 ] || [ -n "$push_dup" ]; then
    push_abandon
    [ -n "$push_dup" ] || return $push_code
    id=$push_dup
    # The push that stored the other message may have been killed before it synced
    need engine/sync-all
    sync_many "$q" || return $?
    return 0
  fi
  ids_end
  epoch_time=$slip_born
  log_line push "$id" 0 "$slip_size" 0 -
  wake "$q/wait"
}

# push_abandon - remove what a push without a slip has written, the body and push_dot_file: only what it has created itself, by these flags, since a
# signal may come at any time
#
#   push_begun      empty: no body yet, or one of another push; new: there was none, so one that is there now is ours; 1: the body is ours
#   push_made       the slip exists, so the body stays
#   push_at_slip    it is not known yet whether the slip exists: push_stopped waits until it is
#   push_dot_file   the file in tmp/ of a push -e
push_abandon() {
  [ -n "$push_made" ] || rm -f ${push_begun:+"$q/body/$slip_id"} ${push_dot_file:+"$q/tmp/$push_dot_file"} 2>/dev/null
  ids_end
}

# push_body LENGTH - write standard input to body/ID; set slip_size
push_body() {
  push_read=1
  [ -z "${push_dot:-}" ] || { nonce_read; push_dot_file=$owner.$nonce; }
  if [ -e "$q/body/$slip_id" ] || [ -h "$q/body/$slip_id" ]; then no_links "$q/body/$slip_id" || return $?; else push_begun=new; fi
  # Before standard error is closed: a part that cannot be read must be named
  [ -z "$1${push_dot:-}${FLATQ_MOST_BYTES:-}" ] || need engine/input
  set -C
  # base64 leaves the shared file offset at the end of what it wrote: so its size needs no process
  { push_begun=1 && body_encode "$1" && { read -r push_pos push_encoded <"$FLATQ_PROC/self/fdinfo/1" || push_encoded=''; } && printf '\n'; } \
    2>/dev/null >"$q/body/$slip_id" || { set +C; [ "$push_begun" != new ] || push_begun=''; disk_failed "$q/body"; return $?; }
  set +C
  # A shell that cannot restore its standard output would go on and print the id into the body
  # shellcheck disable=SC3013 # -ef is in every shell that is named in the README
  ! [ "$q/body/$slip_id" -ef "$FLATQ_PROC/self/fd/1" ] || { why="queue '$queue': cannot go back to standard output"; return 74; }
  if [ ! -e "$q/body/$slip_id" ]; then
    # body_encode removed the body, or a drop did
    [ -z "${push_dot:-}${FLATQ_MOST_BYTES:-}" ] || { why="queue '$queue': input failed"; return 74; }
    need engine/withdraw
    push_body_there || return $?
  fi
  # In a door, the bytes after the body (push_follows) prove that it was read to its end, so its length is believed. But a killed dd may have copied
  # whole 4096-byte pages only: then lengths 1 or 2 over a page have the same base64 length
  # shellcheck disable=SC2017 # a multiple of four
  if [ -n "${push_follows:-}" ] && [ -n "$1" ] && [ "$1" -le 65536 ] && { [ $(($1 % 4096)) -gt 2 ] || [ "$1" -le 4096 ]; } &&
    [ "$push_encoded" = $((($1 + 2) / 3 * 4)) ]; then
    size=$1
  else
    body_size "$q/body/$slip_id" "$push_encoded" || return $?
  fi
  slip_size=$size
  # RACE: a client may end the connection right after its dot, so of that only the dot itself is asked (input_dotted)
  [ -n "$1${push_dot:-}" ] || door_whole "$size" || return $?
  [ -z "$1" ] || [ "$size" = "$1" ] ||
    { need engine/input; input_ended <&"${push_input:-0}" || return $?; why="only $size of the $1 announced bytes came"; return 65; }
  [ -z "$1" ] || door_body_end || return $?
  [ -z "${FLATQ_MOST_BYTES:-}" ] || [ "$size" -le "$FLATQ_MOST_BYTES" ] ||
    { why="message of $size bytes is over the limit of $FLATQ_MOST_BYTES"; return 65; }
  [ -z "${push_dot:-}" ] || { need engine/input; input_dotted; }
}

# body_encode LENGTH - write base64 in one line, without a newline. GNU base64 wraps lines unless told -w0; those without -w do not wrap
body_encode() {
  [ -n "$1${push_dot:-}${FLATQ_MOST_BYTES:-}" ] || { base64 "${base64_wrap:---}" <&"${push_input:-0}"; return $?; }
  input_encode "$1" 6<&"${push_input:-0}" </dev/null
}

# body_size FILE ENCODED - set `size` to the bytes of a body whose base64 has ENCODED characters; empty: count them
body_size() {
  size=$2
  [ -n "$size" ] || { need engine/proof; measure -c "$1" && size=$measured || return $?; }
  # mksh counts in 32 bits
  [ $((2147483647 + 1)) -gt 0 ] || is_number "$size" 2147483647 || { why='message is too large for this shell'; return 65; }
  [ -n "$2" ] || size=$((size - 1))
  [ "$size" -ge 0 ] || { why="queue '$queue': message cannot be counted"; return 74; }
  # The padding is at the end. Use that only if it was read in full: `tail` may be killed, or fail to read
  body_end=
  if [ "$size" -le 1400 ]; then
    { read -r body_end <"$1" && [ ${#body_end} -eq "$size" ]; } 2>/dev/null
  else
    body_end=$(exec tail -c 4 "$1" 2>/dev/null 9>&-) && [ ${#body_end} -eq 3 ]
  fi && [ $((size % 4)) -eq 0 ] || { why="queue '$queue': message cannot be counted"; return 74; }
  # shellcheck disable=SC2017 # a multiple of four
  size=$((size / 4 * 3))
  case $body_end in
  *==) size=$((size - 2)) ;;
  *=) size=$((size - 1)) ;;
  esac
}

# push_commit - create the slip, and return when it is as safe as FLATQ_SYNC asks for. Sets push_dup if the key is taken
push_commit() {
  slip_key=-
  queue_conf || return $?
  # Only an exact bound and a unique key need the lock
  if [ "$queue_bound" != 0 ] || [ -n "$push_key" ]; then
    need engine/bound
    [ -z "$push_key" ] || { need engine/key; key_hash "$push_key"; } || return $?
    push_body_file=$q/body/$slip_id
    push_enter || { push_code=$? push_body_file=; return $push_code; }
    push_body_file=
    [ -z "$push_dup" ] || return 0
  fi
  push_slip && push_check_open && push_sync && push_check_same
}

# push_slip - note in the journal that the slip comes now, and create it: from here on the message exists
push_slip() {
  clock_epoch "$now"
  pad "$push_priority" 0000000000
  slip_priority=$padded slip_tries=0 slip_nonce=0 slip_lease=$push_lease slip_delay=$push_delay slip_born=$epoch_time
  slip_counts=0-0-0-0
  slip_format
  # CRASH: without this line, a killed push is proved to have created no slip, so its body can be removed (push_unmade)
  { [ ! -h "$journal" ] && printf 'slip\n' >>"$journal"; } 2>/dev/null || { disk_failed "${journal%/*}" 'cannot give an id'; return $?; }
  push_again='' push_syncs=sync_paths
  while :; do
    push_place=$q/wal
    # The parts that the sync needs are read before there is a slip
    [ "$push_delay" = 0 ] || { need engine/window engine/sync-all; push_syncs=sync_moving; delay_place "$push_delay" && push_place=$place; } || return $?
    # From here on, act on a signal only when we know whether there is a slip (push_stopped)
    push_at_slip=1
    file_mark "$push_place/$slip" && break
    need engine/withdraw
    push_slip_again || { push_code=$?; [ $push_code -ne 1 ] || break; return $push_code; }
  done
  push_made=1 effect="message $id may be stored, and a retry may store it twice"
  push_act_on_signal
  [ "$slip_key" = - ] || { need engine/key; key_confirm; }
}

# push_check_open - if the queue was closed or dropped since our first look, withdraw the push, unless the message has been taken already
push_check_open() {
  queue_look || { push_give_up $?; return $?; }
  case $queue_files in
  *"$q/closed "* | *"$q/dropping "*) ;;
  *) [ ! -e "$q/body/$slip_id" ] || return 0 ;;
  esac
  need engine/withdraw
  push_closed
}

# push_sync - sync body and slip; if that fails, withdraw the push
push_sync() {
  sync_asked || [ "$sync_code" -ne 0 ] || return 0
  set -- "$q/body/$slip_id" "$q/body" "$push_place"
  [ "$push_delay" = 0 ] || set -- "$@" "$q/delayed" "${push_place%/*}"
  [ "$slip_key" = - ] || set -- "$@" "$q/keys/$slip_key" "$q/keys"
  "$push_syncs" "$@" && return 0
  need engine/withdraw
  push_unsynced
}

# push_check_same - if the queue that was opened was dropped, and the slip is in a new one of the same name, withdraw the push
push_check_same() {
  # shellcheck disable=SC3013 # -ef is in every shell that is named in the README
  [ "$q/lock" -ef "$FLATQ_PROC/self/fd/8" ] || { need engine/proof; queue_there 8; } || { push_give_up $?; return $?; }
}

# push_give_up CODE - withdraw a push that has its slip already and fails with CODE; return CODE, or 74 (push_undo)
push_give_up() {
  need engine/withdraw
  push_undo "$1"
}

# push_act_on_signal - called once it is known whether there is a slip: act on a signal that came meanwhile
push_act_on_signal() {
  push_at_slip=
  [ -z "$push_signal" ] || push_stopped "$push_signal"
}

# door_body_end - read what follows a body of stated length. A door has its own version
[ -n "${FLATQ_DOOR:-}" ] || door_body_end() {
  :
}

# door_whole SIZE - return 0 if the input ended as its sender intended. A door has its own version, which checks
[ -n "${FLATQ_DOOR:-}" ] || door_whole() {
  :
}

part='engine/push'
