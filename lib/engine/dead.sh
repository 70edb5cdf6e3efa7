# engine/dead.sh - a dead-letter queue, which takes what would be buried (create -D)
#
# Order: 1 copy the body to that queue, and sync it; 2 rename the slip to that queue's wal/; 3 sync
#        both places; 4 remove the body here.
# Crash: before 2, the message is here, and the next boot removes the copy, a body without a slip;
#        after it, the message is there. A power cut before 3 may leave it in both queues.
#
# Under that queue's lock, perhaps with ours: so a dead-letter queue has none itself, or two
# processes could wait for each other. One that a boot could not recover takes none: to try again
# needs the spool's lock, which may be ours.

need engine/bound engine/key

# dead_move PRIORITY REASON - move `slip_path` to queue_dead; return 1 if that cannot take it
dead_move() {
  [ "$slip_key" = - ] || under_lock dead_key || return 1
  dead_slip=$slip_path
  (dead_locked "$@")
  case $? in
  0) ;;
  74) sync_failed; return ;;
  *) return 1 ;;
  esac
  queue_log bury "$2"
  wake "$q/room"
}

# dead_find ID - return whether queue_dead has the message with the 12-digit ID; say so in `why`
dead_find() {
  [ -n "$queue_dead" ] && queue_open "$queue_dead" && { find_slip "$1" || find_flat "$1"; } &&
    why="message $id was moved to queue '$queue', for dead letters"
}

# dead_key - let the next push with the key look for the message, as if ours had been killed
dead_key() {
  key_read "$slip_key" && [ "$key_id" = "$id" ] && file_put "keys/$slip_key" "$id"
}

# dead_locked PRIORITY REASON - the steps, in a process of its own, with q for that queue
dead_locked() {
  dead_q=$q dead_from=$queue dead_tries=$slip_tries
  [ -z "$1" ] || { pad "$1" 0000000000; slip_priority=$padded; }
  slip_count buries
  slip_tries=0 slip_key=- slip_counts=0-${slip_counts#*-}
  [ "$slip_delay" -le 4294967295 ] || slip_delay=0
  slip_format
  name_to_disk "$queue_dead"
  ! seen "$FLATQ_DIR/.unread.$name_disk" && queue_open "$queue_dead" &&
    queue_conf && [ -z "$queue_dead" ] && lock_queue || return 1
  # RACE: another process may have moved it while we waited for the lock
  queue_conf && ! seen "$q/closed" && queue_room 1 && [ -e "$dead_slip" ] || return 1
  {
    cat "$dead_q/body/$slip_id" >"$q/tmp/$$-$now.dead" && sync_paths "$q/tmp/$$-$now.dead" &&
      rename_path "$q/tmp/$$-$now.dead" "$q/body/$slip_id" && sync_paths "$q/body"
  } || { rm -f "$q/tmp/$$-$now.dead"; return 1; }
  rename_path "$dead_slip" "$q/wal/$slip" ||
    { [ $? -eq 74 ] || rm -f "$q/body/$slip_id"; return 1; }
  { [ -d "$q/why" ] || mkdir "$q/why"; } && {
    printf 'from %s:%s at try %s: %s\n' "$dead_from" "$id" "$dead_tries" "$2"
    cat "$dead_q/why/$slip_id"
  } >"$q/why/$slip_id"
  queue_log push dead-letter
  wake "$q/wait"
  sync_moving "$q/wal" "${dead_slip%/*}" || return
  q=$dead_q
  bodies_remove "$slip_id" || :
}
