# spool.sh - the spool and its queues on disk: opening, locks, ids, configuration, log
#
#   $FLATQ_DIR/.ids/RANGE/N     the push journal: who was given which id (I1). Empty: that push has ended
#   $FLATQ_DIR/.boot/BOOT       this boot has been recovered; the wall clock when it began, and what base64 can do
#   $FLATQ_DIR/.wait/           FIFOs of those who wait (wait.sh)
#   $FLATQ_DIR/.lock            for ids, and for the first verb after a boot
#   $FLATQ_DIR/QUEUE/           body/ wal/ fold/ queue/ unfold/ head/ out/ done/ delayed/ buried/ keys/ wait/ room/ tmp/, lock, log, and
#                               where they are wanted conf (bound, most tries) and closed

# spool_open - finds the spool, makes it where there is none, and recovers it where it was not used since the system started
spool_open() {
  if [ -z "${FLATQ_DIR:-}" ]; then
    [ -n "${XDG_STATE_HOME:-}${HOME:-}" ] || { why='set FLATQ_DIR or HOME'; return 64; }
    FLATQ_DIR=${XDG_STATE_HOME:-$HOME/.local/state}/flatq
  fi
  case $FLATQ_DIR in
  /*) ;;
  *) FLATQ_DIR=$PWD/$FLATQ_DIR ;;
  esac
  # a spool with the set-gid bit belongs to a group (create -g)
  [ -g "$FLATQ_DIR" ] && umask 007
  { read -r boot <"$FLATQ_PROC/sys/kernel/random/boot_id"; } 2>/dev/null || boot=none
  { read -r epoch base64_wrap <"$FLATQ_DIR/.boot/$boot"; } 2>/dev/null || spool_boot || return
}

# spool_boot - the first verb after a boot puts back whatever was handed out, checks every line, and opens a new range of
# ids: those that were given and did not reach the disk are never given again (I1)
spool_boot() {
  mkdir -p "$FLATQ_DIR/.ids" "$FLATQ_DIR/.boot" "$FLATQ_DIR/.wait" 2>/dev/null ||
    { disk_failed "${FLATQ_DIR%/*}" "spool $FLATQ_DIR"; return; }
  lock_spool || return
  # RACE: another verb may have done it while this one waited for the lock
  if { read -r epoch base64_wrap <"$FLATQ_DIR/.boot/$boot"; } 2>/dev/null; then
    unlock_spool
    return 0
  fi
  clock_read
  base64_wrap=$(base64 -w0 </dev/null 2>/dev/null && printf '%s' -w0)
  pad "${now%??}" 0000000000
  epoch=$(($(date +%s) - ${padded#"${padded%%[!0]*}"}))
  spool_boot_queues && ids_open_range && spool_boot_mark
  spool_boot_code=$?
  unlock_spool
  return $spool_boot_code
}

spool_boot_queues() {
  need slip settle reclaim batch fold check wait push
  for q in "$FLATQ_DIR"/*/; do
    q=${q%/}
    [ -d "$q/wal" ] || continue
    queue_after_boot || return
  done
}

spool_boot_mark() {
  printf '%s %s\n' "$epoch" "$base64_wrap" >"$FLATQ_DIR/.boot/new.$$" &&
    mv -f "$FLATQ_DIR/.boot/new.$$" "$FLATQ_DIR/.boot/$boot" ||
    { disk_failed "$FLATQ_DIR/.boot" "spool $FLATQ_DIR"; return; }
  for boot_old in "$FLATQ_DIR"/.boot/*; do
    [ "$boot_old" = "$FLATQ_DIR/.boot/$boot" ] || rm -f "$boot_old"
  done
}

# queue_open NAME [make] - sets `queue` and `q`, its directory; 66 where there is none and none is to be made
queue_open() {
  name_check "$1" || return
  queue=$1
  name_to_disk "$1"
  q=$FLATQ_DIR/$disk
  [ -d "$q/wal" ] && return 0
  [ $# -eq 2 ] || { why="no queue '$1'"; return 66; }
  # wal comes last: it says that all the others are there
  mkdir -p "$q/body" "$q/fold" "$q/queue" "$q/unfold" "$q/head" "$q/out" "$q/done" "$q/delayed" "$q/buried" "$q/keys" \
    "$q/wait" "$q/room" "$q/tmp" "$q/wal" 2>/dev/null || { disk_failed "$FLATQ_DIR" "queue '$1'"; return; }
  sync_paths "$q" "$FLATQ_DIR" || { why="queue '$1': cannot sync"; return 74; }
}

# queue_conf - sets queue_bound and queue_most; 0 is no limit
queue_conf() {
  queue_bound=0 queue_most=0
  [ -e "$q/conf" ] || return 0
  { read -r queue_bound queue_most queue_rest <"$q/conf"; } 2>/dev/null
  number "${queue_bound:-x}" 999999999 && queue_bound=$number &&
    number "${queue_most:-x}" 999999999 && queue_most=$number ||
    { why="queue '$queue': conf is damaged"; return 65; }
}

# sync_paths PATH ... - returns when what the paths name is on the disk; at once where FLATQ_SYNC is off
sync_paths() {
  [ "$FLATQ_SYNC" = off ] || sync "$@" 2>/dev/null
}

# lock_queue - waits for the queue's lock, on descriptor 9. Children that write get it too (9>&9, which mksh needs said):
# a child that outlives its shell still holds it. All others get 9>&-.
lock_queue() {
  { true 9>>"$q/lock"; } 2>/dev/null || { disk_failed "$q" "queue '$queue'"; return; }
  exec 9>>"$q/lock"
  lock_held=1
  flock 9 9>&9 2>/dev/null || { unlock_queue; why='flock is missing or failed'; return 70; }
  # RACE: the queue may have been dropped, and made again, meanwhile
  # shellcheck disable=SC3013 # -ef is in every shell that is named in the README
  [ ! -e "$FLATQ_PROC/self/fd" ] || [ "$q/lock" -ef "$FLATQ_PROC/self/fd/9" ] ||
    { unlock_queue; why="queue '$queue' is gone"; return 69; }
}

unlock_queue() {
  exec 9>&-
  lock_held=
}

lock_spool() {
  { true 8>>"$FLATQ_DIR/.lock"; } 2>/dev/null || { disk_failed "$FLATQ_DIR" "spool $FLATQ_DIR"; return; }
  exec 8>>"$FLATQ_DIR/.lock"
  flock 8 8>&8 2>/dev/null || { exec 8>&-; why='flock is missing or failed'; return 70; }
}

unlock_spool() {
  exec 8>&-
}

# ids_last_range - sets `range`, the directory of the newest range. There are one or two
ids_last_range() {
  for range in "$FLATQ_DIR"/.ids/*; do :; done
  case $range in
  *'*') why='the spool has no range of ids'; return 74 ;;
  esac
}

# ids_open_range - opens the range that follows the newest. Under the spool's lock. It is on the disk before an id is taken from it
ids_open_range() {
  for range in "$FLATQ_DIR"/.ids/*; do :; done
  range=${range##*/}
  if [ "$range" = '*' ]; then
    pad 0 000000000
  else
    pad $((${range#"${range%%[!0]*}"} + ${1:-1})) 000000000
  fi
  mkdir "$FLATQ_DIR/.ids/$padded" 2>/dev/null && sync_paths "$FLATQ_DIR/.ids" ||
    disk_failed "$FLATQ_DIR/.ids" 'ids'
}

# ids_next - sets `id` and slip_id, and `journal`, the file that stands for the id: it says which process writes which
# message, until it is emptied. Nothing is unlinked in a range that is in use and each is filled from below, so that the last
# id is found by halving; a range is renamed away before it is removed, so that whoever still believes in it fails (I1).
ids_next() {
  while :; do
    ids_last_range || return
    ids_low=999 ids_high=2000
    while [ $((ids_high - ids_low)) -gt 1 ]; do
      ids_middle=$(((ids_low + ids_high) / 2))
      if [ -e "$range/$ids_middle" ]; then ids_low=$ids_middle; else ids_high=$ids_middle; fi
    done
    # RACE: others take ids too; who comes second tries the next one
    while [ "$ids_high" -le 1999 ]; do
      journal=$range/$ids_high
      set -C
      if { true >"$journal"; } 2>/dev/null; then
        set +C
        slip_id=${range##*/}${ids_high#1}
        id=${slip_id#"${slip_id%%[!0]*}"}
        # CRASH: an empty file is an id that was burnt
        { printf '%s %s %s\n' "$$" "$now" "${q##*/}" >|"$journal"; } 2>/dev/null ||
          { disk_failed "$range" "queue '$queue'"; return; }
        [ -n "$id" ] && return 0
        # no message has the id 0
        ids_end
      fi
      set +C
      [ -e "$journal" ] || break
      ids_high=$((ids_high + 1))
    done
    if [ "$ids_high" -gt 1999 ]; then
      lock_spool || return
      # RACE: another may have opened the next range while this one waited
      ids_full=$range
      ids_last_range && { [ "$range" != "$ids_full" ] || ids_open_range; } || { ids_code=$?; unlock_spool; return $ids_code; }
      unlock_spool
      ids_turned=1
    elif [ -d "$range" ]; then
      disk_failed "$range" 'ids'
      return
    fi
  done
}

# ids_end - the push that has the id has ended, well or not
ids_end() {
  { : >|"$journal"; } 2>/dev/null
}

# ids_block COUNT - sets ids_first: the first of COUNT times 1,000 ids of one's own, each later than all that were given
ids_block() {
  lock_spool || return
  ids_last_range && ids_open_range $(($1 + 1)) || { ids_code=$?; unlock_spool; return $ids_code; }
  unlock_spool
  range=${range##*/}
  pad $((${range#"${range%%[!0]*}"} + 1)) 000000000
  ids_first=${padded}000
}

# queue_log VERB [REASON] - one line of the queue's log, of the message in slip_*: time, verb, id, tries, size, milliseconds
# since it was pushed. A log that cannot be written changes nothing.
queue_log() {
  clock_epoch "$now"
  waited_s=${epoch_time%??} waited_c=1${epoch_time#"${epoch_time%??}"}
  born_s=${slip_born%??} born_c=1${slip_born#"${slip_born%??}"}
  { printf '%s.%s %s %s %s %s %s %s\n' "$waited_s" "${waited_c#1}" "$1" "$id" "$slip_tries" "$slip_size" \
    $(((${waited_s#"${waited_s%%[!0]*}"} - ${born_s#"${born_s%%[!0]*}"}) * 1000 + (waited_c - born_c) * 10)) "${2:--}" >>"$q/log"; } 2>/dev/null || :
}
