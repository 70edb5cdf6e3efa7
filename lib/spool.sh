# spool.sh - the spool and its queues on disk: opening, locks, ids, configuration, log
#
#   $FLATQ_DIR/.ids/RANGE/N     the push journal: who was given which id (I1); a second line, `.`: that push has ended
#   $FLATQ_DIR/.boot/BOOT       this boot has been recovered; the wall clock when it began, what base64 can do, and the clock
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
  spool_shared=
  if [ -g "$FLATQ_DIR" ]; then
    umask 007
    spool_shared=1
    no_links "$FLATQ_DIR"/.[a-z]* || return
  fi
  { read -r boot <"$FLATQ_PROC/sys/kernel/random/boot_id"; } 2>/dev/null || boot=none
  # one that is there and cannot be read is no new boot
  [ "$boot" != none ] || [ ! -e "$FLATQ_PROC/sys/kernel/random/boot_id" ] || { why='cannot read when the system was started'; return 74; }
  # after a power cut nobody would look for slips whose bodies did not reach the disk
  [ "$boot" != none ] || [ "$FLATQ_SYNC" = off ] ||
    { why='the system does not say when it was started: mount /proc, or set FLATQ_SYNC=off, and lose messages when the power goes'; return 70; }
  boot_read && return 0
  boot_code=$?
  [ $boot_code -eq 66 ] || return $boot_code
  need boot
  spool_boot
}

# boot_read - sets epoch, base64_wrap and clock_same; 66 where this boot was not seen yet. One that is there and cannot be read is not new: what the
# living hold would be put back. In a group's spool others write it, and the shell counts with it: nothing but numbers and two words (R7)
boot_read() {
  epoch='' base64_wrap='' clock_same=
  # RACE: another verb may have made it between the two looks: then a third
  for boot_try in 1 2; do
    { { read -r epoch base64_wrap clock_same || :; } <"$FLATQ_DIR/.boot/$boot"; } 2>/dev/null && break
    need proof
    ! absent "$FLATQ_DIR/.boot/$boot" || return 66
    case $absent_said in
    *'ermission denied'*) why="spool $FLATQ_DIR: not allowed"; return 77 ;;
    esac
  done
  case $epoch in
  '' | 0?* | *[!0-9]* | ???????????*) ;;
  *)
    case $base64_wrap.$clock_same in
    -w0.same | -w0.- | --.same | --.-) return 0 ;;
    esac ;;
  esac
  why="spool $FLATQ_DIR: cannot read when it was first used since the system was started"
  return 74
}

# queue_open NAME [make] - sets `queue` and `q`, its directory; 66 where there is none and none is to be made
queue_open() {
  name_check "$1" || return
  queue=$1
  name_to_disk "$1"
  q=$FLATQ_DIR/$disk
  [ -z "$spool_shared" ] || queue_plain || return
  # made last: its places are on the disk
  [ -e "$q/lock" ] && return 0
  if [ $# -ne 2 ] && [ ! -d "$q/wal" ]; then
    need proof
    if absent "$q/wal"; then
      why="no queue '$1'"
      return 66
    fi
    # RACE: another process may have made it since
    [ -d "$q/wal" ] || return 74
  fi
  need boot
  queue_make
}

# queue_plain - in a group's spool: 74 where a name that verbs go by is a link. Any member may have put it there, to have them write elsewhere
queue_plain() {
  no_links "$q" "$q"/* "$q"/claimed/* "$q"/head/* "$q"/queue/* "$q"/delayed/*
}

no_links() {
  for link_path in "$@"; do
    [ ! -h "$link_path" ] || { why="$link_path is a link"; return 74; }
  done
}

# file_put NAME TEXT - $q/NAME holds TEXT, as a new file that is renamed: a `>` would write through a link that another member of the group puts there
# meanwhile (set -C: exclusively). What is killed leaves a file that the checkpoint removes from tmp/
file_put() {
  put_path=$q/tmp/$$-$now.put
  set -C
  { printf '%s\n' "$2" >"$put_path"; } 2>/dev/null || { set +C; return 1; }
  set +C
  # in a directory that a link names, mv would make a file
  [ ! -h "$q/$1" ] || rm -f "$q/$1" 2>/dev/null
  if [ -n "$lock_held" ]; then mv -f "$put_path" "$q/$1" 2>/dev/null 9>&9; else mv -f "$put_path" "$q/$1" 2>/dev/null; fi
}

# file_mark PATH - the empty file PATH is there, and nothing is emptied where it was
file_mark() {
  set -C
  { true >"$1"; } 2>/dev/null
  set +C
  [ -e "$1" ]
}

# queue_files - sets queue_files: the files in $q itself whose names begin as closed, conf and dropping do. The listing must have `lock`: a file
# that could not be looked at is not one that is not there (R1)
queue_files() {
  queue_files=' '
  for queue_path in "$q"/[cdl]*; do queue_files="$queue_files${queue_path##*/} "; done
  case $queue_files in
  *' lock '*) return 0 ;;
  esac
  need proof
  queue_gone || return
  why="queue '$queue': cannot be listed"
  return 74
}

# queue_conf - sets queue_bound and queue_most; 0 is no limit
queue_conf() {
  if ! { read -r queue_bound queue_most queue_rest <"$q/conf"; } 2>/dev/null; then
    queue_bound=0 queue_most=0
    queue_files || return
    case $queue_files in
    *' conf '*) need proof; conf_read || return ;;
    *) return 0 ;;
    esac
  fi
  number "${queue_bound:-x}" 999999999 && queue_bound=$number &&
    number "${queue_most:-x}" 999999999 && queue_most=$number ||
    { why="queue '$queue': conf is damaged"; return 65; }
}

# sync_paths PATH ... - returns when what the paths name is on the disk; at once where FLATQ_SYNC is off
sync_paths() {
  [ "$FLATQ_SYNC" = off ] || sync "$@" 2>/dev/null
}

# lock_queue - waits for the queue's lock, on descriptor 9, and then finishes what a killed holder has begun, so that nobody can forget to (R3).
# Children that write get it too (9>&9, which mksh needs said): a child that outlives its shell still holds it. All others get 9>&-.
lock_queue() {
  # `command` keeps the shell alive where exec fails
  { command exec 9>>"$q/lock"; } 2>/dev/null ||
    { need proof; queue_gone || return; disk_failed "$q" "queue '$queue'"; return; }
  lock_held=1
  flock 9 9>&9 2>/dev/null || { unlock_queue; why='flock is missing or failed'; return 70; }
  # RACE: the queue may have been dropped, and made again, meanwhile
  # shellcheck disable=SC3013 # -ef is in every shell that is named in the README
  [ ! -e "$FLATQ_PROC/self/fd" ] || [ "$q/lock" -ef "$FLATQ_PROC/self/fd/9" ] ||
    { need proof; queue_gone 9; } || { lock_code=$?; unlock_queue; return $lock_code; }
  # what begins now begins after the wait (R5)
  clock_read
  lock_recover || { lock_code=$?; unlock_queue; return $lock_code; }
}

# lock_recover - where a killed holder of the lock has left anything, it is finished. In a process of its own, since it reads other messages'
# slips into the variables that the caller's are in
lock_recover() {
  lock_left=
  if [ -e "$q/dropping" ]; then
    need boot
    queue_make && rm -f "$q/dropping" 2>/dev/null 9>&9 || { disk_failed "$q" "queue '$queue'"; return; }
  fi
  for lock_place in fold unfold; do
    place_first "$lock_place" || return
    [ "$place_first" = '~' ] || lock_left=1
  done
  for lock_path in "$q"/tmp/??????????.????????????.*; do
    [ ! -e "$lock_path" ] || lock_left=1
  done
  [ -n "$lock_left" ] || return 0
  need slip fold rare proof
  lock_said=$(queue_recover 9>&9 || { lock_code=$?; printf '%s' "$why"; exit $lock_code; }) && return 0
  lock_code=$?
  why=${lock_said:-"queue '$queue': cannot be recovered"}
  case $lock_code in
  69 | 7?) return $lock_code ;;
  esac
  return 74
}

# drop_wait - 0 where a drop was at it, or was killed, and is through; 1 where there is none; 69 where the queue is gone
drop_wait() {
  [ -z "$lock_held" ] && [ -e "$q/dropping" ] || return 1
  lock_queue || return
  unlock_queue
}

# place_first PLACE - sets place_first: the first name in fold/ or unfold/. Each of the two holds an empty file `~`: a listing without it is
# none (R1)
place_first() {
  for place_try in 1 2; do
    place_first='' place_seen=''
    for place_path in "$q/$1"/*; do
      place_first=${place_first:-${place_path##*/}}
      [ "$place_path" != "$q/$1/~" ] || place_seen=1
    done
    [ -z "$place_seen" ] || return 0
    # an older version of flatq made none
    { true >>"$q/$1/~"; } 2>/dev/null || break
  done
  why="queue '$queue': cannot list $1"
  return 74
}

unlock_queue() {
  exec 9>&-
  lock_held=
}

# ids_last_range - sets `range`, the directory of the newest range that is open: on the disk. There are one or two
ids_last_range() {
  ids_found=
  for range in "$FLATQ_DIR"/.ids/[0-9]????????; do
    # looked at twice: an older one may have ids that are not on the disk
    [ ! -e "$range/open" ] && [ ! -f "$range/open" ] || ids_found=$range
  done
  range=$ids_found
  [ -n "$range" ] || { why='the spool has no range of ids'; return 74; }
}

# ids_next - sets `id` and slip_id, and `journal`, the file that stands for the id: it says which process writes which
# message, until that says it has ended. Nothing is unlinked in a range that is in use and each is filled from below, so that the last
# id is found by halving; a range is renamed away before it is removed, so that whoever still believes in it fails (I1).
ids_next() {
  owner_read
  while :; do
    ids_last_range || return
    # FLATQ_RANGE: how many of a range's thousand are used
    ids_low=999 ids_most=$((1000 + FLATQ_RANGE))
    ids_high=$ids_most
    while [ $((ids_high - ids_low)) -gt 1 ]; do
      ids_middle=$(((ids_low + ids_high) / 2))
      if [ -e "$range/$ids_middle" ]; then ids_low=$ids_middle; else ids_high=$ids_middle; fi
    done
    # RACE: others take ids too; who comes second tries the next one
    while [ "$ids_high" -lt "$ids_most" ]; do
      journal=$range/$ids_high
      set -C
      # one opening makes it and writes it
      if { command exec 8>"$journal"; } 2>/dev/null; then
        set +C
        slip_id=${range##*/}${ids_high#1}
        id=${slip_id#"${slip_id%%[!0]*}"}
        # CRASH: an empty file is an id that was burnt
        { printf '%s %s %s\n' "${owner%-*}" "${owner#*-}" "${q##*/}" >&8; } 2>/dev/null
        ids_code=$?
        exec 8>&-
        # RACE: the range may have been swept while it was empty
        [ $ids_code -eq 0 ] && [ -e "$journal" ] || { [ -d "$range" ] || break; disk_failed "$range" "queue '$queue'"; return; }
        [ -n "$id" ] && return 0
        # no message has the id 0
        ids_end
      fi
      set +C
      [ -e "$journal" ] || break
      ids_high=$((ids_high + 1))
    done
    if [ "$ids_high" -ge "$ids_most" ]; then
      need boot
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

# ids_end - the push that has the id has ended, well or not. A line more, since emptying a file costs a disk more than that
ids_end() {
  [ -h "$journal" ] || { printf '.\n' >>"$journal"; } 2>/dev/null || :
}

# queue_log VERB [REASON] - one line of the queue's log, of the message in slip_*: time, verb, id, tries, size, milliseconds
# since it was pushed. A log that cannot be written changes nothing.
queue_log() {
  clock_epoch "$now"
  [ ! -h "$q/log" ] || return 0
  waited_s=${epoch_time%??} waited_c=1${epoch_time#"${epoch_time%??}"}
  born_s=${slip_born%??} born_c=1${slip_born#"${slip_born%??}"}
  { printf '%s.%s %s %s %s %s %s %s\n' "$waited_s" "${waited_c#1}" "$1" "$id" "$slip_tries" "$slip_size" \
    $(((${waited_s#"${waited_s%%[!0]*}"} - ${born_s#"${born_s%%[!0]*}"}) * 1000 + (waited_c - born_c) * 10)) "${2:--}" >>"$q/log"; } 2>/dev/null || :
}

# wake DIRECTORY [COUNT] - wakes so many (1) of those who wait there (wait.sh)
wake() {
  for wake_path in "$1"/*; do
    [ ! -e "$wake_path" ] || { need wait; wake_some "$@"; }
    return 0
  done
}
