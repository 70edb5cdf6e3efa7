# push.sh - storing a message
#
# A message is there from the moment its slip is: one exclusive creation, by the shell itself. Before it, the body is nobody's;
# after it, the body is whole. The push journal (ids_next) tells the checkpoint which bodies a killed push has left.

# push_message QUEUE [LENGTH] - stores standard input; with LENGTH, exactly so many bytes or nothing.
# In: push_priority push_delay push_lease push_key (empty: none) push_wait. Out: id; push_dup=1 where the key was taken.
# 65 too short, 66 never, 69 closed, 74 and 77 disk, 75 full
push_message() {
  push_dup='' push_made='' push_begun='' push_read='' push_at_slip='' push_signal='' push_dot_file='' push_need=1
  queue_open "$1" make || return
  queue_files || return
  case $queue_files in
  *' closed '*) why="queue '$queue' is closed"; return 69 ;;
  esac
  [ -z "${2:-}" ] || [ -z "${FLATQ_MOST_BYTES:-}" ] || number "$2" "$FLATQ_MOST_BYTES" ||
    { why="message of $2 bytes is over the limit of $FLATQ_MOST_BYTES"; return 65; }
  # full before it begins: refused before anything is written, and without the lock, that an exact count needs
  case $queue_files.$push_wait.$push_key in
  *' conf '*.0.)
    need bound batch fold
    queue_conf || return
    queue_count
    [ "$queue_bound" = 0 ] || [ "$count" -lt "$queue_bound" ] || push_not_full || return ;;
  esac
  clock_read
  ids_next || return
  # which queue it is: by its end it may be another of that name (push_commit)
  { command exec 8<"$q/lock"; } 2>/dev/null ||
    { ids_end; need proof; queue_gone || return; why="queue '$queue': cannot open its lock"; return 74; }
  push_body "${2:-}" && push_commit
  push_code=$?
  exec 8<&-
  [ -z "$lock_held" ] || unlock_queue
  if [ $push_code -ne 0 ] || [ -n "$push_dup" ]; then
    push_abandon
    [ -n "$push_dup" ] || return $push_code
    id=$push_dup
    # who pushed the other one may have been killed before it was on the disk
    sync_many "$q" || { why="queue '$queue': cannot sync"; return 74; }
    return 0
  fi
  ids_end
  queue_log push
  wake "$q/wait"
}

# push_not_full - what a killed fold has left is counted twice: only under the lock, and recovered, full is full
push_not_full() {
  lock_queue || return
  queue_count
  unlock_queue
  [ "$count" -lt "$queue_bound" ] || { why="queue '$queue' is full"; return 75; }
}

# push_abandon - nothing is left of a push that made no slip. The body of one that did is the sweeper's
push_abandon() {
  # only a body that this push has made: one that was there is another's
  [ -n "$push_made" ] || rm -f ${push_begun:+"$q/body/$slip_id"} ${push_dot_file:+"$q/tmp/$push_dot_file"} 2>/dev/null
  ids_end
}

# push_body LENGTH - standard input to body/ID; sets slip_size
push_body() {
  push_read=1
  [ -z "${push_dot:-}" ] || { nonce_read; push_dot_file=$owner.$nonce; }
  set -C
  # The size of what base64 wrote is where it left the shared offset of the file: no process for it
  { push_begun=1 && encode "$1" && { read -r push_pos push_encoded <"$FLATQ_PROC/self/fdinfo/1" || push_encoded=''; } && printf '\n'; } \
    2>/dev/null >"$q/body/$slip_id" || { set +C; disk_failed "$q/body" "queue '$queue'"; return; }
  set +C
  if [ ! -e "$q/body/$slip_id" ]; then
    # input_failed took it away, or drop did
    [ -z "${push_dot:-}${FLATQ_MOST_BYTES:-}" ] || { why="queue '$queue': input failed"; return 74; }
    need proof
    push_gone || return
  fi
  # what a door reads behind a body shows that it is whole, without a look at its end. A dd that is killed has written nothing, whole pages of
  # its one block, or all; a body that is longer than whole pages by a byte or two looks the same as these do
  # shellcheck disable=SC2017 # a multiple of four
  if [ -n "${push_follows:-}" ] && [ -n "$1" ] && [ "$1" -le 65536 ] && { [ $(($1 % 4096)) -gt 2 ] || [ "$1" -le 4096 ]; } &&
    [ "$push_encoded" = $((($1 + 2) / 3 * 4)) ]; then
    size=$1
  else
    body_size "$q/body/$slip_id" "$push_encoded" || return
  fi
  slip_size=$size
  [ -n "$1" ] || door_whole || return
  [ -z "$1" ] || [ "$size" = "$1" ] || { input_ended || return; why="$size bytes came of the $1 announced"; return 65; }
  [ -z "$1" ] || door_body_end || return
  [ -z "${FLATQ_MOST_BYTES:-}" ] || [ "$size" -le "$FLATQ_MOST_BYTES" ] ||
    { why="message of $size bytes is over the limit of $FLATQ_MOST_BYTES"; return 65; }
  [ -z "${push_dot:-}" ] || input_dotted
}

# encode LENGTH - base64 in one line, no newline. GNU base64 wraps at 76; one that knows no -w does not wrap by itself
encode() {
  [ -n "$1${push_dot:-}${FLATQ_MOST_BYTES:-}" ] || { base64 "${base64_wrap:---}"; return; }
  need input
  [ -z "$1" ] || { input_exact "$1" exec | base64 "${base64_wrap:---}"; return; }
  # the left side of a pipe has no status to show: it says that it is through
  { encode_said=$({ { input_part && printf good >&3; } | base64 "${base64_wrap:---}" >&4; } 3>&1); } 4>&1 || return
  push_dotted=${encode_said%good}
  [ "$encode_said" != "$push_dotted" ] || input_failed
}

# body_size FILE ENCODED - sets `size`, in bytes, of a body whose base64 has ENCODED characters; empty: count them.
# The padding is at the end: a short line the shell reads itself, of a long one it has the end shown.
body_size() {
  size=$2
  [ -n "$size" ] || { need proof; measure -c "$1" && size=$((measured - 1)) || return; }
  [ "$size" -ge 0 ] || { why="queue '$queue': message cannot be counted"; return 74; }
  # what was not read in full says nothing: a `tail` may be killed, or its read fail
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

# push_commit - makes the slip, and returns when it is as safe as FLATQ_SYNC asks for
push_commit() {
  slip_key=-
  queue_conf || return
  # an exact bound and a key without a twin need the lock; nothing else does
  if [ "$queue_bound" != 0 ] || [ -n "$push_key" ]; then
    need bound settle reclaim batch fold wait
    [ -z "$push_key" ] || key_hash "$push_key" || return
    push_has=$q/body/$slip_id
    push_enter || { push_code=$? push_has=; return $push_code; }
    push_has=
    [ -z "$push_dup" ] || return 0
  fi
  clock_epoch "$now"
  pad "$push_priority" 0000000000
  slip_priority=$padded slip_tries=0 slip_nonce=0 slip_lease=$push_lease slip_delay=$push_delay slip_born=$epoch_time
  slip_counts=0-0-0-0
  slip_format
  while :; do
    push_place=$q/wal
    [ "$push_delay" = 0 ] || { delay_place "$push_delay" && push_place=$place; } || return
    set -C
    # a signal is heard when the shell knows whether there is a slip (push_stopped)
    push_at_slip=1
    { true >"$push_place/$slip"; } 2>/dev/null && break
    set +C
    push_heard
    # RACE: a drop looks whether the queue is empty
    drop_wait && continue
    [ $? -ne 69 ] || return 69
    # RACE: an empty place for delayed ones is removed when its time has come
    [ "$push_delay" != 0 ] && [ ! -d "$push_place" ] || { disk_failed "$push_place" "queue '$queue'"; return; }
  done
  set +C
  push_made=1
  push_heard
  [ "$slip_key" = - ] || key_sure
  # RACE: the queue may have been closed between our look and the slip. Whoever finds it closed and empty may say so for
  # good; so the push is withdrawn, unless somebody has taken the message already
  queue_files || { push_code=$?; push_withdraw; return $push_code; }
  case $queue_files in
  *' closed '*) push_withdraw && { why="queue '$queue' is closed"; return 69; } ;;
  esac
  # RACE: a drop that has counted before there was our slip holds the lock until it is through; one that was killed does not
  case $queue_files.$lock_held in
  *' dropping '*.) ! lock_queue || unlock_queue ;;
  esac
  # RACE: dropped, and made again, since the body was begun
  if [ ! -e "$q/body/$slip_id" ]; then
    need proof
    push_gone || { push_code=$?; if push_withdraw || [ $push_code -eq 74 ]; then return $push_code; fi; }
  fi
  if [ "$FLATQ_SYNC" = on ]; then
    set -- "$q/body/$slip_id" "$q/body" "$push_place"
    [ "$push_delay" = 0 ] || set -- "$@" "$q/delayed" "${push_place%/*}"
    [ "$slip_key" = - ] || set -- "$@" "$q/keys/$slip_key" "$q/keys"
    # RACE: a message that is taken at once, and was large, has no body any longer
    if ! sync_paths "$@" && { push_withdraw || [ -e "$q/body/$slip_id" ]; }; then
      why="queue '$queue': cannot sync"
      return 74
    fi
  fi
  # shellcheck disable=SC3013 # -ef is in every shell that is named in the README
  if [ -e "$FLATQ_PROC/self/fd/8" ] && ! [ "$q/lock" -ef "$FLATQ_PROC/self/fd/8" ]; then
    need proof
    queue_gone 8 || { push_code=$?; push_withdraw; return $push_code; }
  fi
}

# push_gone - 69 where the body is surely not there any longer, though only a drop removes it; 74 where nobody knows
push_gone() {
  there "$q/body/$slip_id"
  push_there=$?
  [ $push_there -eq 1 ] || return $push_there
  why="queue '$queue' is gone"
  return 69
}

push_heard() {
  push_at_slip=
  [ -z "$push_signal" ] || push_stopped "$push_signal"
}

# push_withdraw - a push that will not be acknowledged takes its slip back; 1 where somebody has it already
push_withdraw() {
  moved "$push_place/$slip" "$q/done/$slip.0.000000000000"
}

# delay_place SECONDS - sets `place`, and makes it: delayed/THOUSANDS/WHEN, so that one look at the first name tells whether
# anything is due, and one mv brings back all that are due together
delay_place() {
  clock_epoch "$now"
  clock_add "$1" "$epoch_time"
  place=$q/delayed/${later%?????}/$later
  # RACE: the checkpoint removes empty ones
  # without -p: of a queue that was dropped nothing is made again
  [ -d "$place" ] || { mkdir "${place%/*}" "$place" 2>/dev/null; [ -d "$place" ]; } || { disk_failed "$q/delayed" "queue '$queue'"; return; }
}

# door_body_end - reads what a door has behind a body of stated length
[ -n "${FLATQ_DOOR:-}" ] || door_body_end() {
  :
}

# door_whole - 0 where the input ended as its sender meant it to. A door puts a better one in this place
[ -n "${FLATQ_DOOR:-}" ] || door_whole() {
  :
}
