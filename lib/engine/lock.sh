# engine/lock.sh - the lock of a queue: take it, recover first, change files under it

# lock_queue - wait for the queue's lock, on descriptor 9, then finish what a killed holder has
# begun (R3)
lock_queue() {
  # Opened for reading: that cannot create the lock of a queue that is only being made. Without
  # `command`, a failed exec would end the shell
  { [ -w "$q/lock" ] && command exec 9<"$q/lock"; } ||
    { need engine/proof; queue_there || return; disk_failed "$q"; return; }
  flock 9 || {
    lock_code=$?
    need engine/boot
    unlock_queue
    flock_failed "$lock_code"
    return
  }
  # Not before: a trap that comes while flock waits does not hold it
  lock_held=1
  # RACE: the queue may have been dropped, and made again, meanwhile
  # shellcheck disable=SC3013 # every shell of ours has -ef
  [ "$q/lock" -ef "/proc/self/fd/9" ] ||
    { need engine/proof; queue_there 9; } || { lock_code=$?; unlock_queue; return $lock_code; }
  # (R5)
  clock_read
  lock_recover || { lock_code=$?; unlock_queue; return $lock_code; }
}

# lock_recover - make the places again if a drop was killed, and finish a killed fold or unfold, in
# `$( )`, since that parses other slips into the caller's slip_ variables
lock_recover() {
  lock_left=
  if [ -e "$q/dropping" ]; then
    need engine/boot
    queue_make && rm -f "$q/dropping" || { disk_failed "$q"; return; }
  fi
  for lock_place in fold unfold; do
    place_first "$lock_place" || return
    [ "$place_name" = '~' ] || lock_left=1
  done
  for lock_path in "$q"/tmp/??????????.????????????.*; do
    [ ! -e "$lock_path" ] || lock_left=1
  done
  [ -n "$lock_left" ] || return 0
  need engine/flat
  lock_said=$(queue_recover || { lock_code=$?; printf '%s' "$why"; exit $lock_code; }) && return 0
  lock_code=$?
  why=${lock_said:-"queue '$queue': cannot be recovered"}
  case $lock_code in
  69 | 7?) return $lock_code ;;
  esac
  return 74
}

# drop_wait - called after a failure that a drop may have caused, which removes the places, and
# makes them again if it finds a message. Return 0 if we have waited for its end; 1 if there is
# none, or we hold the lock; else as lock_queue. RACE: it may have ended before we look, so a caller
# that gets 1 tries once more
drop_wait() {
  [ -z "$lock_held" ] && [ -e "$q/dropping" ] || return 1
  lock_queue || return
  unlock_queue
}

# place_first PLACE - set place_name to the first name in fold/ or unfold/, where a listing without
# the file `~` has failed (R1)
place_first() {
  for place_try in 1 2; do
    place_name='' place_seen=''
    for place_path in "$q/$1"/*; do
      place_name=${place_name:-${place_path##*/}}
      [ "$place_path" != "$q/$1/~" ] || place_seen=1
    done
    [ -z "$place_seen" ] || return 0
  done
  why="queue '$queue': cannot list $1"
  return 74
}

# unlock_queue - give the queue's lock back
unlock_queue() {
  lock_held=
  exec 9>&-
}

# under_lock FUNCTION [ARGUMENT ...] - run it under the lock, which we may hold already
under_lock() {
  [ -z "$lock_held" ] || { "$@"; return; }
  lock_queue || return
  "$@"
  under_code=$?
  # FUNCTION may have given the lock back
  [ -z "$lock_held" ] || unlock_queue
  return $under_code
}

# file_put NAME TEXT - replace the file $q/NAME as a whole
file_put() {
  put_path=$q/tmp/$$-$now.put
  printf '%s\n' "$2" >"$put_path" && mv -f "$put_path" "$q/$1"
}

# bodies_remove ID ... - remove these bodies, if any, and before them what a worker has kept
bodies_remove() {
  [ $# -gt 0 ] || return 0
  [ ! -d "$q/why" ] || (cd "$q/why" && exec rm -f "$@") || :
  (cd "$q/body" && exec rm -f "$@")
}

# set_aside PATH - move PATH, below $q, neither a slip nor a flat file, to tmp/strange.*; remove
# what disk_try has left. Set strange_shown to what a terminal may be shown
set_aside() {
  nonce_read
  strange_name=${1##*/}
  [ ${#strange_name} -le 200 ] || strange_name=long
  strange_shown=$1
  case $1 in
  *[![:print:]]*) strange_shown="${1%%/*}/?" ;;
  esac
  case $strange_name in
  probe.*-000000000000) ! { rm -f "$q/$1" || rmdir "$q/$1"; } || return 0 ;;
  esac
  mv -f "$q/$1" "$q/tmp/strange.$nonce.$strange_name" && return 0
  # RACE: another verb may have done it
  need engine/proof
  ! absent "$q/$1" || return 0
  disk_failed "$q/tmp" "queue '$queue': cannot set aside $strange_shown"
}
