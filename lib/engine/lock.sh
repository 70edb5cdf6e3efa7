# engine/lock.sh - the lock of a queue: taking it, recovering first, and changing files under it

# lock_queue - wait for the queue's lock, on descriptor 9, then finish what a killed holder has begun, so that no caller can forget to (R3).
# Children that write inherit it (9<&9, which mksh must be told), so a child that outlives its shell still holds the lock. Others get 9>&-.
lock_queue() {
  # Without `command`, a failed exec would end the shell. Only read: who opened it for writing would create the lock of a queue that another verb is
  # only beginning to make, which says that all its places are synced
  { [ -w "$q/lock" ] && command exec 9<"$q/lock"; } 2>/dev/null ||
    { need engine/proof; queue_there || return $?; disk_failed "$q"; return $?; }
  flock 9 9<&9 2>/dev/null || { unlock_queue; why='flock is missing or failed: install util-linux (apk add flock)'; return 70; }
  # Not before: a signal may end flock while it waits, and the trap may then change files (R3)
  lock_held=1
  # RACE: another process may have dropped the queue, and created a new one of the same name, meanwhile
  # shellcheck disable=SC3013 # -ef is in every shell that is named in the README
  [ "$q/lock" -ef "$FLATQ_PROC/self/fd/9" ] ||
    { need engine/proof; queue_there 9; } || { lock_code=$?; unlock_queue; return $lock_code; }
  # The time before the wait is old: read the clock again (R5). So is the look for links: another member may have held the lock, and put one there
  clock_read
  { [ -z "$spool_shared" ] || queue_no_links; } && lock_recover || { lock_code=$?; unlock_queue; return $lock_code; }
}

# lock_recover - make the places again if a drop was killed; then finish the fold or unfold of a killed holder. queue_recover runs in
# `$( )`, since it parses other slips into the slip_ variables, which hold the caller's message
lock_recover() {
  lock_left=
  if [ -e "$q/dropping" ]; then
    need engine/boot
    queue_make && rm -f "$q/dropping" 2>/dev/null 9<&9 || { disk_failed "$q"; return $?; }
  fi
  for lock_place in fold unfold; do
    place_first "$lock_place" || return $?
    [ "$place_name" = '~' ] || lock_left=1
  done
  for lock_path in "$q"/tmp/??????????.????????????.*; do
    [ ! -e "$lock_path" ] || lock_left=1
  done
  [ -n "$lock_left" ] || return 0
  need engine/fold
  lock_said=$(queue_recover 9<&9 || { lock_code=$?; printf '%s' "$why"; exit $lock_code; }) && return 0
  lock_code=$?
  why=${lock_said:-"queue '$queue': cannot be recovered"}
  case $lock_code in
  69 | 7?) return $lock_code ;;
  esac
  return 74
}

# drop_wait - called after a failure that a drop may have caused: without -f, it removes the places, and makes them again if it finds a message. Return 0
# if a drop was at work, or was killed at it, and we have waited for its end; 1 if there is none, or we hold the lock; else what lock_queue returns
# (69: the queue is gone). RACE: a drop may have ended before we look, so a caller that gets 1 tries once more
drop_wait() {
  [ -z "$lock_held" ] && [ -e "$q/dropping" ] || return 1
  lock_queue || return $?
  unlock_queue
}

# place_first PLACE - set place_name to the first name in fold/ or unfold/. Each of the two holds an empty file `~`: a listing without it
# has failed (R1)
place_first() {
  for place_try in 1 2; do
    place_name='' place_seen=''
    for place_path in "$q/$1"/*; do
      place_name=${place_name:-${place_path##*/}}
      [ "$place_path" != "$q/$1/~" ] || place_seen=1
    done
    [ -z "$place_seen" ] || return 0
    # An older version of flatq did not create it
    { true >>"$q/$1/~"; } 2>/dev/null || break
  done
  why="queue '$queue': cannot list $1"
  return 74
}

# unlock_queue - give the queue's lock back. First forget it: if the descriptor stays open (R12), the next lock_queue opens it anew, and that frees the lock
unlock_queue() {
  lock_held=
  close_descriptor 9
}

# under_lock FUNCTION [ARGUMENT ...] - run it under the queue's lock; take the lock first, unless this process holds it
under_lock() {
  [ -z "$lock_held" ] || { "$@"; return $?; }
  lock_queue || return $?
  "$@"
  under_code=$?
  # FUNCTION may have given the lock back
  [ -z "$lock_held" ] || unlock_queue
  return $under_code
}

# pass_lock COMMAND ... - run a command that changes the queue. If we hold the lock, the command inherits it (mksh must be told so, by 9<&9), and
# keeps others out until it has done its work, even if we are killed
pass_lock() {
  if [ -n "$lock_held" ]; then "$@" 9<&9; else "$@"; fi
}

# file_put NAME TEXT - write TEXT to a new file (set -C: exclusively) and rename it to $q/NAME: a `>` would write through a link that another
# member of the group puts there meanwhile. CRASH: the checkpoint removes the file from tmp/
file_put() {
  put_path=$q/tmp/$$-$now.put
  set -C
  { printf '%s\n' "$2" >"$put_path"; } 2>/dev/null || { set +C; return 1; }
  set +C
  # If the name is a directory, or a link to one, mv would move the file into that
  [ ! -h "$q/$1" ] || rm -f "$q/$1" 2>/dev/null
  [ ! -d "$q/$1" ] && pass_lock mv -f "$put_path" "$q/$1" 2>/dev/null
}

# queue_no_links - in a group's spool, return 74 if a name that verbs use is a link: a member may have put it there to make us write elsewhere. Where
# there may be many names, the functions that use them look for links: queue_promote, window_visit, bulk_flats, queue_unfold, check_flats
queue_no_links() {
  no_links "$q" "$q"/* "$q"/buried/* "$q"/claimed/* "$q"/claimed/*/* "$q"/delayed/* "$q"/fold/* "$q"/head/* "$q"/out/batch.* "$q"/queue/* "$q"/tmp/* \
    "$q"/unfold/*
}

part='engine/lock'
