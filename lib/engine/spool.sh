# engine/spool.sh - the spool and its queues on disk: opening, locks, ids, configuration, log
#
#   $FLATQ_DIR/.ids/RANGE/N     the push journal: which process was given which id (I1), for which queue; a second line: on which boot; then
#                               `slip`: that push is about to create its slip; `.`: it has ended
#   $FLATQ_DIR/.boot/BOOT       the spool was recovered after this boot; holds the wall clock at its begin, what base64 can do, and the clock;
#                               on a second line the tools that were tried (tools_same)
#   $FLATQ_DIR/.try/            empty, for trying tools (engine/probe.sh)
#   $FLATQ_DIR/.wait/           FIFOs of the verbs that wait (engine/wait.sh)
#   $FLATQ_DIR/.lock            for ids, and for the first verb after a boot
#   $FLATQ_DIR/QUEUE/           body/ wal/ fold/ queue/ unfold/ head/ out/ done/ delayed/ buried/ keys/ wait/ room/ tmp/, lock, log, and
#                               if they are needed claimed/, conf (bound, most tries), closed, paused, tended and dropping. lib/README.md
#                               ("Places") says what lies in each

# spool_place - set FLATQ_DIR to the path of the spool
spool_place() {
  if [ -z "${FLATQ_DIR:-}" ]; then
    [ -n "${XDG_STATE_HOME:-}${HOME:-}" ] || { why='set FLATQ_DIR or HOME'; return 64; }
    FLATQ_DIR=${XDG_STATE_HOME:-$HOME/.local/state}/flatq
  fi
  case $FLATQ_DIR in
  /*) ;;
  *) FLATQ_DIR=$PWD/$FLATQ_DIR ;;
  esac
}

# spool_find - find the spool, and set spool_shared if it belongs to a group
spool_find() {
  spool_place || return $?
  # The set-gid bit says that the spool belongs to a group (create -g), whose members can read what we write only with umask 007. Look twice, since
  # one look may fail
  spool_shared=
  if [ -g "$FLATQ_DIR" ] || [ -g "$FLATQ_DIR" ]; then
    umask 007
    spool_shared=1
    no_links "$FLATQ_DIR"/.[a-z]* "$FLATQ_DIR"/.boot/* || return $?
  fi
}

# spool_open - find the spool; create it if there is none; recover it if this is its first use since the system started
spool_open() {
  spool_find || return $?
  { read -r boot <"$FLATQ_PROC/sys/kernel/random/boot_id"; } 2>/dev/null || boot=none
  # If boot_id exists and cannot be read, do not take that for a new boot
  [ "$boot" != none ] || { need engine/proof; absent "$FLATQ_PROC/sys/kernel/random/boot_id"; } || { why='cannot read when the system was started'; return 74; }
  # Without boot ids nobody would look, after a power cut, for slips whose bodies did not reach the disk
  [ "$boot" != none ] || [ "$FLATQ_SYNC" = off ] ||
    { why='cannot tell when the system was started: mount /proc, or set FLATQ_SYNC=off, which loses messages in a power cut'; return 70; }
  boot_read
  boot_code=$?
  if [ $boot_code -eq 0 ]; then
    sync_mode
    tools_same && return 0
    need engine/boot
    spool_try_tools
    return $?
  fi
  [ $boot_code -eq 66 ] || return $boot_code
  need engine/boot
  spool_boot
}

# tools_find - set `tools`: FLATQ_SYNC, and where the shell finds the programs that each push and pop needs. Done by the shell itself, since a
# process costs as much as they do
tools_find() {
  tools=$FLATQ_SYNC
  set -f
  IFS=:
  for tools_name in base64 mv sync; do
    for tools_place in ${PATH:-}; do
      [ ! -x "$tools_place/$tools_name" ] || { tools="$tools:$tools_place/$tools_name"; break; }
    done
  done
  IFS=$blanks
  set +f
}

# tools_same - return 0 if these programs and this shell were tried on this boot (engine/probe.sh), no program is newer than .boot/, and the shell has
# the time of the record. Another container, with programs of its own, may use the same spool
tools_same() {
  tools_find
  [ "$tools" = "$boot_tools" ] || return 1
  set -f
  IFS=:
  # shellcheck disable=SC2086 # split at the colons
  set -- $tools
  IFS=$blanks
  set +f
  shift
  for tools_path in "$@"; do
    # shellcheck disable=SC3013 # -nt and -ot are in every shell that is named in the README
    [ ! "$tools_path" -nt "$FLATQ_DIR/.boot" ] || return 1
  done
  tools_path=$FLATQ_PROC/$$/exe
  # shellcheck disable=SC3013
  [ ! -e "$tools_path" ] || { [ ! "$tools_path" -nt "$FLATQ_DIR/.boot/$boot" ] && [ ! "$tools_path" -ot "$FLATQ_DIR/.boot/$boot" ]; }
}

# boot_read - set epoch, base64_wrap, clock_same and sync_whole; return 66 if no verb has run since this boot. A file that exists and cannot be read is
# an error, not a new boot: recovery would put back what living owners hold. Members of a group may write this file and the shell
# calculates with it, so accept only numbers and two words (R7)
boot_read() {
  epoch='' base64_wrap='' clock_same='' sync_whole='' boot_tools=
  # RACE: another verb may have created it between two looks: then look again
  for boot_try in 1 2; do
    { { read -r epoch base64_wrap clock_same sync_whole && read -r boot_tools || :; } <"$FLATQ_DIR/.boot/$boot"; } 2>/dev/null && break
    need engine/proof
    ! absent "$FLATQ_DIR/.boot/$boot" || return 66
    case $absent_said in
    *'ermission denied'*) why="spool $FLATQ_DIR: not allowed"; return 77 ;;
    esac
  done
  case $epoch in
  '' | 0?* | *[!0-9]* | ???????????*) ;;
  *)
    case $base64_wrap.$clock_same in
    -w0.same | -w0.- | --.same | --.-) [ "${sync_whole:--f}" != -f ] || return 0 ;;
    esac ;;
  esac
  why="spool $FLATQ_DIR: cannot read its record of this boot"
  return 74
}

# queue_open NAME [make] - set `queue`, and `q` to its directory; return 66 if there is none and `make` is not given
queue_open() {
  name_check "$1" || return $?
  queue=$1 reclaim_saw=
  name_to_disk "$1"
  q=$FLATQ_DIR/$name_disk
  [ -z "$spool_shared" ] || queue_no_links || return $?
  # The lock is created last: if it exists, the places are synced
  [ -e "$q/lock" ] && return 0
  if [ $# -ne 2 ] && [ ! -d "$q/wal" ]; then
    need engine/proof
    if absent "$q/wal"; then
      why="no queue '$1'"
      return 66
    fi
    # RACE: another process may have created the queue since
    [ -d "$q/wal" ] || return 74
  fi
  need engine/boot
  queue_make
}

# each_queue FUNCTION - call `FUNCTION NAME PATH` for each queue of the spool. If it fails for one, go on with the others, and return its code, and `why`
each_queue() {
  each_code=0
  for each_path in "$FLATQ_DIR"/*/wal; do
    [ -d "$each_path" ] || continue
    each_path=${each_path%/wal}
    name_from_disk "${each_path##*/}"
    "$1" "$name_queue" "$each_path" || {
      each_last=$?
      # RACE: another process may drop the queue meanwhile: that is no error
      [ ! -d "$each_path" ] || [ $each_code -ne 0 ] || each_code=$each_last each_why=$why
    }
  done
  [ $each_code -eq 0 ] || why=$each_why
  return $each_code
}

# queue_no_links - in a group's spool, return 74 if a name that verbs use is a link: a member may have put it there to make us write elsewhere. Where
# there may be many names, the functions that use them look for links: queue_promote, window_visit, bulk_flats, queue_unfold, check_flats
queue_no_links() {
  no_links "$q" "$q"/* "$q"/buried/* "$q"/claimed/* "$q"/claimed/*/* "$q"/delayed/* "$q"/fold/* "$q"/head/* "$q"/out/batch.* "$q"/queue/* "$q"/tmp/* \
    "$q"/unfold/*
}

# no_links PATH ... - return 74 if one of these is a link, or a FIFO, at which a verb that reads it would wait for ever
no_links() {
  for link_path in "$@"; do
    [ ! -h "$link_path" ] || { why="$link_path is a link"; return 74; }
    [ ! -p "$link_path" ] || { why="$link_path is a FIFO"; return 74; }
  done
}

# pass_lock COMMAND ... - run a command that changes the queue. If we hold the lock, the command inherits it, which mksh must be told, and so keeps others
# out until it has done its work, even if we are killed
pass_lock() {
  if [ -n "$lock_held" ]; then "$@" 9>&9; else "$@"; fi
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

# file_mark PATH - create the empty file PATH exclusively; if it exists, leave it as it is. A shell that cannot save its standard output creates the
# file nevertheless and says that it failed (R2); and mksh then leaves the function, which is why file_new is one of its own
file_mark() {
  set -C
  file_new "$1"
  mark_code=$?
  set +C
  [ $mark_code -eq 0 ] || [ -e "$1" ]
}

file_new() {
  { true >"$1"; } 2>/dev/null
}

# queue_look - set queue_files to the names in $q itself that begin with c, d or l: the caller looks for closed, conf and dropping. The listing must
# contain `lock`, or it has failed and proves nothing (R1)
queue_look() {
  queue_files=' '
  for queue_path in "$q"/[cdl]*; do queue_files="$queue_files${queue_path##*/} "; done
  case $queue_files in
  *' lock '*) return 0 ;;
  esac
  need engine/proof
  queue_there || return $?
  why="queue '$queue': cannot be listed"
  return 74
}

# queue_conf - set queue_bound and queue_most; 0 means no limit
queue_conf() {
  if ! { read -r queue_bound queue_most queue_rest <"$q/conf"; } 2>/dev/null; then
    queue_bound=0 queue_most=0
    queue_look || return $?
    case $queue_files in
    *' conf '*) need engine/proof; conf_read || return $? ;;
    *) return 0 ;;
    esac
  fi
  is_number "${queue_bound:-x}" 999999999 && queue_bound=$number &&
    is_number "${queue_most:-x}" 999999999 && queue_most=$number ||
    { queue_bound=0 queue_most=0 why="queue '$queue': conf is damaged"; return 65; }
}

# sync_mode - FLATQ_SYNC=off counts only while no verb has used this spool with `on` since the boot, and so the record begins with `off`: a message that
# such a verb has acknowledged would be lost in a power cut with a queue that we made, or a file that we moved, and did not sync
sync_mode() {
  case $boot_tools in
  '' | off:*) ;;
  *) FLATQ_SYNC=on ;;
  esac
}

# sync_asked - return 0 if what was done must be synced, 1 if not; 2 if it must, but our `sync` is not fit for it. A verb with `on` may have come since we
# began (sync_mode). A record that cannot be read proves nothing (R1); before the first one, at a boot, boot_tools is empty
sync_asked() {
  [ "$FLATQ_SYNC" = off ] || return 0
  [ -n "$boot_tools" ] || return 1
  { read -r sync_line && read -r sync_line; } 2>/dev/null <"$FLATQ_DIR/.boot/$boot" || return 0
  case $sync_line in
  off:*) return 1 ;;
  esac
  boot_read
  FLATQ_SYNC=on
  tools_same || { need engine/probe; probe_said=''; probe_sync; } || { FLATQ_SYNC=off; return 2; }
}

# sync_paths PATH ... - sync these files and directories, if that is asked for. With uutils, sync_whole is -f (probe_sync_file): sync their whole file
# systems
sync_paths() {
  sync_asked
  case $? in
  0) sync ${sync_whole:+-f} "$@" 2>/dev/null ;;
  1) ;;
  *) return 74 ;;
  esac
}

# sync_moving PATH ... - as sync_paths, after a step that other verbs may follow: with the last message a directory of delayed/, buried/ or head/ is
# removed, and with a message that was taken its body. Where nothing else went wrong, sync the whole file system, wherever the message is now
sync_moving() {
  sync_asked
  case $? in
  1) return 0 ;;
  2) return 74 ;;
  esac
  sync_said=$(exec sync ${sync_whole:+-f} "$@" 2>&1 9>&-) && return 0
  [ -n "$sync_said" ] || return 74
  while [ -n "$sync_said" ]; do
    case ${sync_said%%'
'*} in
    *': No such file or directory') ;;
    *) return 74 ;;
    esac
    case $sync_said in
    *'
'*) sync_said=${sync_said#*'
'} ;;
    *) sync_said= ;;
    esac
  done
  sync_many "$q"
}

# sync_many PATH - as sync_paths, for many new files at once: sync the whole file system that PATH lies on
sync_many() {
  sync_asked
  case $? in
  0) sync -f "$1" 2>/dev/null ;;
  1) ;;
  *) return 74 ;;
  esac
}

# lock_queue - wait for the queue's lock, on descriptor 9, then finish what a killed holder has begun, so that no caller can forget to (R3).
# Children that write inherit it (9>&9, which mksh must be told), so a child that outlives its shell still holds the lock. Others get 9>&-.
lock_queue() {
  # Without `command`, a failed exec would end the shell. For reading too, or yash could not read from it (queue_there)
  { command exec 9<>"$q/lock"; } 2>/dev/null ||
    { need engine/proof; queue_there || return $?; disk_failed "$q" "queue '$queue'"; return $?; }
  lock_held=1
  flock 9 9>&9 2>/dev/null || { unlock_queue; why='flock is missing or failed: install it (apk add flock)'; return 70; }
  # RACE: another process may have dropped the queue, and created a new one of the same name, meanwhile
  # shellcheck disable=SC3013 # -ef is in every shell that is named in the README
  [ "$q/lock" -ef "$FLATQ_PROC/self/fd/9" ] ||
    { need engine/proof; queue_there 9; } || { lock_code=$?; unlock_queue; return $lock_code; }
  # The time before the wait is old: read the clock again (R5). So is the look for links: another member may have held the lock, and put one there
  clock_read
  { [ -z "$spool_shared" ] || queue_no_links; } && lock_recover || { lock_code=$?; unlock_queue; return $lock_code; }
}

# lock_recover - make the places again if a drop was killed; then finish the fold, unfold or bulk push of a killed holder. queue_recover runs in
# `$( )`, since it parses other slips into the slip_ variables, which hold the caller's message
lock_recover() {
  lock_left=
  if [ -e "$q/dropping" ]; then
    need engine/boot
    queue_make && rm -f "$q/dropping" 2>/dev/null 9>&9 || { disk_failed "$q" "queue '$queue'"; return $?; }
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
  lock_said=$(queue_recover 9>&9 || { lock_code=$?; printf '%s' "$why"; exit $lock_code; }) && return 0
  lock_code=$?
  why=${lock_said:-"queue '$queue': cannot be recovered"}
  case $lock_code in
  69 | 7?) return $lock_code ;;
  esac
  return 74
}

# drop_wait - if a drop is at work, or was killed at it, wait for its end and return 0; return 1 if there is none, or we hold the lock; else what
# lock_queue returns (69: the queue is gone)
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

unlock_queue() {
  exec 9>&-
  lock_held=
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

# ids_last_range - set `range` to the directory of the newest open range, which is synced. One or two ranges exist
ids_last_range() {
  ids_found=
  # Digits only: shells calculate with the name (R7)
  for range in "$FLATQ_DIR"/.ids/[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]; do
    # Look twice before using an older range: some of its ids may not be on the disk
    [ ! -e "$range/open" ] && [ ! -f "$range/open" ] || ids_found=$range
  done
  range=$ids_found
  [ -n "$range" ] || { why='the spool has no range of ids'; return 74; }
  [ -z "$spool_shared" ] || no_links "$range"
}

# ids_next - take the next id: set `id`, slip_id, and `journal`, a file that names this process and the queue until the push has ended.
# A range is filled from below, and nothing in it is unlinked while it is in use, so halving finds the last id. A range is renamed away
# before it is removed, so that a process which still uses it fails (I1).
ids_next() {
  owner_read
  while :; do
    ids_last_range || return $?
    ids_find_free
    # RACE: other pushes take ids too; if one was faster, try the next id
    while [ "$ids_high" -lt "$ids_most" ]; do
      journal=$range/$ids_high
      set -C
      # Open once, to create the file and to write it
      if { command exec 8>"$journal"; } 2>/dev/null; then
        set +C
        slip_id=${range##*/}${ids_high#1}
        unpad "$slip_id"
        id=$unpadded
        # CRASH: an empty file is an id that nobody uses
        { printf '%s %s %s\n%s\n' "${owner%-*}" "${owner#*-}" "${q##*/}" "$boot" >&8; } 2>/dev/null
        ids_code=$?
        exec 8>&-
        # RACE: a checkpoint may have removed the range while it was empty
        [ $ids_code -eq 0 ] && [ -e "$journal" ] || { [ -d "$range" ] || break; disk_failed "$range" "queue '$queue'"; return $?; }
        [ "$id" = 0 ] || return 0
        # Skip 0: no message has that id
        ids_end
      fi
      set +C
      [ -e "$journal" ] || break
      ids_high=$((ids_high + 1))
    done
    if [ "$ids_high" -ge "$ids_most" ]; then
      ids_next_range || return $?
    elif [ -d "$range" ]; then
      disk_failed "$range" 'ids'
      return $?
    fi
  done
}

# ids_find_free - by halving, set ids_high to the first number in `range` that is not taken; to ids_most if all are
ids_find_free() {
  # FLATQ_RANGE is the number of ids that are used of a range's thousand
  ids_low=999 ids_most=$((1000 + FLATQ_RANGE))
  ids_high=$ids_most
  while [ $((ids_high - ids_low)) -gt 1 ]; do
    ids_middle=$(((ids_low + ids_high) / 2))
    if [ -e "$range/$ids_middle" ]; then ids_low=$ids_middle; else ids_high=$ids_middle; fi
  done
}

# ids_next_range - open the range after `range`, which is full
ids_next_range() {
  need engine/boot
  lock_spool || return $?
  # RACE: another push may have opened the next range while we waited
  ids_full=$range
  ids_last_range && { [ "$range" != "$ids_full" ] || ids_open_range; } || { ids_code=$?; unlock_spool; return $ids_code; }
  unlock_spool
  ids_opened=1
}

# journal_read ID - set journal_path to the entry of the 12-digit ID in the push journal, and journal_pid, journal_time, journal_queue and
# journal_boot to what it says
journal_read() {
  journal_path=$FLATQ_DIR/.ids/${1%???}/1${1#?????????} journal_pid='' journal_time='' journal_queue='' journal_boot=
  { [ ! -p "$journal_path" ] && { read -r journal_pid journal_time journal_queue && { read -r journal_boot || :; }; } <"$journal_path"; } 2>/dev/null
}

# ids_end - note that the push with this id has ended, successfully or not. Appends a line, which is cheaper on disk than emptying the file
ids_end() {
  [ -h "$journal" ] || { printf '.\n' >>"$journal"; } 2>/dev/null || :
}

# queue_log VERB [REASON] - write a line about the message in slip_* to the queue's log: time, verb, id, tries, size, milliseconds
# since it was pushed
queue_log() {
  clock_epoch "$now"
  clock_between "$slip_born" "$epoch_time"
  log_line "$1" "$id" "$slip_tries" "$slip_size" $((between_s * 1000 + between_c * 10)) "${2:--}"
}

# log_line VERB ID TRIES SIZE MILLISECONDS REASON - write these six words to the queue's log, behind epoch_time. If that fails, go on
log_line() {
  [ ! -h "$q/log" ] && { [ -z "$spool_shared" ] || [ ! -p "$q/log" ]; } || return 0
  { printf '%s.%s %s %s %s %s %s %s\n' "${epoch_time%??}" "${epoch_time#"${epoch_time%??}"}" "$@" >>"$q/log"; } 2>/dev/null || :
}

# wake DIRECTORY [COUNT] - wake COUNT (else 1) of the processes that wait there (engine/wait.sh)
wake() {
  for wake_path in "$1"/*; do
    [ ! -e "$wake_path" ] || { need engine/wait; wake_some "$@"; }
    return 0
  done
}

part='engine/spool'
