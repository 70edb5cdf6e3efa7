# engine/boot.sh - rare steps: the first use of a spool after a boot, the creation of a queue, the opening of a range of ids

need engine/sync engine/sync-all

# All places of a queue but wal/, which is created last (queue_make)
queue_places='body fold queue unfold head out done delayed buried claimed keys wait room tmp'

# spool_boot - called by the first verb after a boot: put back all messages that were handed out, check every line, and open a new range
# of ids, so that an id which did not reach the disk is never given again (I1)
spool_boot() {
  mkdir -p "$FLATQ_DIR/.ids" "$FLATQ_DIR/.boot" "$FLATQ_DIR/.wait" "$FLATQ_DIR/.try" 2>/dev/null ||
    { [ -d "$FLATQ_DIR" ] && disk_at=$FLATQ_DIR || disk_at=${FLATQ_DIR%/*}; disk_failed "$disk_at" "spool $FLATQ_DIR"; return $?; }
  lock_spool || return $?
  # RACE: another verb may have done this while we waited for the lock, perhaps without syncs
  boot_read
  spool_boot_code=$?
  case $spool_boot_code in
  0) unlock_spool; spool_tools; return $? ;;
  66) ;;
  *) unlock_spool; return $spool_boot_code ;;
  esac
  # On a full disk, make room and repeat: even the recovery of a queue may need a directory, to bury a message that has no tries left
  spool_boot_probe && spool_boot_sync && { spool_boot_queues || { spool_boot_room && spool_boot_queues; }; } &&
    { ids_open_range || { spool_boot_room && ids_open_range; }; } && { need engine/checkpoint; spool_sweep boot; } && spool_boot_mark
  spool_boot_code=$?
  unlock_spool
  return $spool_boot_code
}

# spool_try_tools [again] - the shell or the tools are not those that were tried (tools_same), or were tried without sync: try them, and note that for
# all verbs until the next boot. `again`: try them even if another verb has just done so
spool_try_tools() {
  [ -d "$FLATQ_DIR/.try" ] || mkdir "$FLATQ_DIR/.try" 2>/dev/null || { disk_failed "$FLATQ_DIR" "spool $FLATQ_DIR"; return $?; }
  lock_spool || return $?
  # RACE: another verb may have done this while we waited for the lock
  boot_read || { spool_tools_code=$?; unlock_spool; [ $spool_tools_code -ne 66 ] || { spool_boot; spool_tools_code=$?; }; return $spool_tools_code; }
  sync_mode
  ! tools_same || [ $# -eq 1 ] || { unlock_spool; return 0; }
  need engine/probe
  tools_probe && spool_sync_all
  spool_tools_code=$?
  # A full disk does not keep a verb from its work: the next one tries the tools again
  [ $spool_tools_code -ne 0 ] || spool_boot_mark || :
  unlock_spool
  return $spool_tools_code
}

# tools_print - try the tools again, and print what was tried; exit with an error line if that fails
tools_print() {
  spool_try_tools again || die $? "$why"
  printf '%s' "$probe_said" 2>/dev/null || die 74 'what was tried could not be printed'
}

# spool_sync_all - if this is the first verb with FLATQ_SYNC=on in a spool that was used with `off`: sync all that was done so far. Meanwhile the
# record's tools begin with `to`, which tells the other verbs to sync from now on, and the next verb to do this again if we are killed. If a full disk
# has no room for the record, the next verb does this again too; nobody can push there anyway
spool_sync_all() {
  # One by one: they hold directories of PATH, whose names may have anything in them
  case $tools in
  off:*) return 0 ;;
  esac
  case $boot_tools in
  on:*) return 0 ;;
  esac
  tools=to:${tools#on:} sync_marked=to
  # If that could not be recorded, verbs with `off` may store more behind our sync: the next one with `on` syncs all again
  ! spool_boot_mark || sync_marked=on
  sync_many "$FLATQ_DIR" || { why="spool $FLATQ_DIR: cannot sync"; return 74; }
  tools=$sync_marked:${tools#to:}
}

# spool_boot_probe - set epoch, base64_wrap, clock_same and sync_whole, for all verbs until the next boot. If a tool fails here, so does the verb
spool_boot_probe() {
  need engine/probe
  tools_find
  tools_probe || return $?
  clock_read
  is_number "$(date +%s)" 9999999999 || { why='date +%s failed'; return 70; }
  clock_split "$now"
  epoch=$((number - clock_s))
  # A wall clock that starts in 1970 may be behind the uptime
  [ $epoch -ge 0 ] || epoch=0
  # In a container, the uptime may be less than the start times in /proc/PID/stat, which count from another start (owner_look)
  need engine/process
  clock_same=-
  ! process_started $$ || [ "$now" \< "$started" ] || clock_same=same
}

# spool_boot_sync - sync the whole spool, since a verb with FLATQ_SYNC=off may have begun this recovery and been killed; and the directories above it,
# since a power cut could undo their creation too
spool_boot_sync() {
  set --
  spool_path=$FLATQ_DIR
  while [ -n "$spool_path" ]; do
    spool_path=${spool_path%/*}
    set -- "$@" "${spool_path:-/}"
  done
  # A directory above that we may not read cannot be synced: then sync the whole file system
  sync_many "$FLATQ_DIR" && { sync_paths "$@" || sync_many "$FLATQ_DIR"; } || { why="spool $FLATQ_DIR: cannot sync"; return 74; }
}

# spool_boot_queues - recover every queue, and check every file in it
spool_boot_queues() {
  need engine/proof engine/check
  q=$FLATQ_DIR queue=.
  names_in "$q" || { why="spool $FLATQ_DIR: cannot be listed"; return 74; }
  for boot_queue in $names; do
    q=$FLATQ_DIR/$boot_queue
    # A half-made queue has no wal/ yet. Look for the lock too, since a look that failed does not prove absence
    [ -d "$q/wal" ] || [ -e "$q/lock" ] || continue
    # Findings go to stderr: stdout belongs to the verb that triggered the recovery
    queue_after_boot >&2 || return $?
  done
}

# spool_boot_room - make room on a full disk by removing entries of the push journals: otherwise no verb would work after this boot, not even a pop,
# which would make room. All entries are from before the boot, and prove nothing any more (push_unmade). Every tenth stays; so does
# the range, since the number of the next one follows from it
spool_boot_room() {
  for boot_range in "$FLATQ_DIR"/.ids/[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]; do
    [ ! -h "$boot_range" ] || continue
    (cd "$boot_range" && exec rm -f 1[0-9][0-9][1-9] 8>&8) 2>/dev/null || { disk_failed "$FLATQ_DIR/.ids" 'cannot give an id'; return $?; }
  done
}

# tools_mark - give the stamps in .tools/ the times of the programs in `tools`. Another member of a group may have made a stamp a link, and touch would
# follow it: so make a new file under a random name, and rename it over the stamp. If this fails, as on a full disk, the next verb tries the tools again
tools_mark() {
  [ -d "$FLATQ_DIR/.tools" ] || mkdir "$FLATQ_DIR/.tools" || return 1
  set -f
  IFS=:
  # shellcheck disable=SC2086 # words
  set -- ${tools#*:}
  IFS=$blanks
  set +f
  for tools_name in base64 mv sync; do
    [ $# -gt 0 ] || break
    [ -n "$1" ] || { shift; continue; }
    tools_stamp=$FLATQ_DIR/.tools/$tools_name
    [ ! -d "$tools_stamp" ] && touch -r "$1/$tools_name" "$boot_new" && mv -f "$boot_new" "$tools_stamp" || return 1
    shift
  done
  tools_new=
}

# spool_boot_mark - write the record of this boot, .boot/BOOT, and put it in its place by one rename. tools_same compares its time, which is set to that
# of the shell's program
spool_boot_mark() {
  # Remove the old records first: a full disk may have no room for a second one
  for boot_old in "$FLATQ_DIR"/.boot/*; do
    [ "$boot_old" = "$FLATQ_DIR/.boot/$boot" ] || rm -f "$boot_old" 2>/dev/null
  done
  nonce_read
  boot_new=$FLATQ_DIR/.boot/new.$nonce
  {
    { [ -z "$tools_new" ] || tools_mark || rm -f "$boot_new"; } && set -C &&
      printf '%s %s %s\n%s\n' "$epoch" "$base64_wrap" "$clock_same${sync_whole:+ -f}" "$tools" >"$boot_new" && set +C &&
      { [ ! -e "$FLATQ_PROC/$$/exe" ] || touch -r "$FLATQ_PROC/$$/exe" "$boot_new"; } &&
      [ ! -d "$FLATQ_DIR/.boot/$boot" ] && mv -f "$boot_new" "$FLATQ_DIR/.boot/$boot"
  } 2>/dev/null || { set +C; disk_failed "$FLATQ_DIR/.boot" "spool $FLATQ_DIR"; return $?; }
}

# queue_made - return whether all places of the queue $q are seen, and its lock, which is created last, once the places are synced
queue_made() {
  queue_placed && [ -e "$q/lock" ]
}

# queue_placed - queue_made without the lock
queue_placed() {
  for made_place in $queue_places wal; do
    [ -d "$q/$made_place" ] || return 1
  done
  [ -e "$q/fold/~" ] && [ -e "$q/unfold/~" ]
}

# queue_make - create the places of the queue $q that are missing. RACE: a drop may have moved away what we had made, and another verb may be making a
# queue of the same name: so look whether all is there, and repeat, but not for ever
queue_make() {
  for made_try in 1 2 3 4 5; do
    queue_make_once || return $?
    ! queue_made || return 0
  done
  why="queue '$queue': its places cannot be seen"
  return 74
}

# queue_make_once - create the places of $q, the lock last, and only if the others are there
queue_make_once() {
  set --
  for made_place in $queue_places; do
    set -- "$@" "$q/$made_place"
  done
  # Create wal/ last and alone: its presence means that all the others exist
  make_code=0
  make_said=$(echo .; exec mkdir -p "$@" 2>&1) || make_code=$?
  [ -n "$make_said" ] || make_code=74
  [ $make_code -eq 0 ] && { true >>"$q/fold/~" && true >>"$q/unfold/~"; } 2>/dev/null &&
    { mkdir "$q/wal" 2>/dev/null || [ -d "$q/wal" ]; } || { queue_make_failed; return $?; }
  queue_placed || return 0
  sync_paths "$q" "$FLATQ_DIR" || return $?
  # A verb that sees the lock knows that the places are synced
  { true >>"$q/lock"; } 2>/dev/null || disk_failed "$q"
}

# queue_make_failed - return 69 if a drop renamed the queue that we were making: then mkdir missed a directory, or succeeded and there is none
queue_make_failed() {
  need engine/proof
  case $make_code.$make_said in
  *'o such file'*) ;;
  0..) absent "$q/fold" ;;
  *) false ;;
  esac && absent "$q/lock" && { why="queue '$queue' is gone"; return 69; }
  disk_failed "$FLATQ_DIR"
}

# lock_spool - wait for the spool's lock, on descriptor 8
lock_spool() {
  { command exec 8>>"$FLATQ_DIR/.lock"; } 2>/dev/null || { disk_failed "$FLATQ_DIR" "spool $FLATQ_DIR"; return $?; }
  flock 8 8>&8 2>/dev/null || { unlock_spool; why='flock is missing or failed: install util-linux (apk add flock)'; return 70; }
  # As in lock_queue
  [ -z "$spool_shared" ] || no_links "$FLATQ_DIR"/.[a-z]* || { lock_code=$?; unlock_spool; return $lock_code; }
}

# unlock_spool - give the spool's lock back
unlock_spool() {
  close_descriptor 8
}

# ids_open_range [COUNT] - under the spool's lock, open the range after the newest, or the one COUNT after it. It is synced before an id is taken from it
ids_open_range() {
  need engine/proof
  names_in "$FLATQ_DIR/.ids" || { why='cannot give an id: the ranges of ids cannot be listed'; return 74; }
  range=
  for ids_range in $names; do
    case $ids_range in
    *[!0-9]*) ;;
    ?????????) range=$ids_range ;;
    esac
  done
  if [ -z "$range" ]; then
    pad 0 000000000
  else
    unpad "$range"
    pad $((unpadded + ${1:-1})) 000000000
  fi
  mkdir "$FLATQ_DIR/.ids/$padded" 2>/dev/null && sync_paths "$FLATQ_DIR/.ids" && { true >"$FLATQ_DIR/.ids/$padded/open"; } 2>/dev/null ||
    disk_failed "$FLATQ_DIR/.ids" 'cannot give an id'
}

# ids_next_range - open the range after `range`, which is full
ids_next_range() {
  need engine/ids
  lock_spool || return $?
  # RACE: another push may have opened the next range while we waited
  ids_full=$range
  ids_last_range && { [ "$range" != "$ids_full" ] || ids_open_range; } || { ids_code=$?; unlock_spool; return $ids_code; }
  unlock_spool
  ids_opened=1
}

# ids_block COUNT - reserve COUNT times 1,000 ids, all later than those given before, and set ids_first to the first
ids_block() {
  need engine/ids
  lock_spool || return $?
  ids_last_range && ids_open_range $(($1 + 1)) || { ids_code=$?; unlock_spool; return $ids_code; }
  unlock_spool
  unpad "${range##*/}"
  pad $((unpadded + 1)) 000000000
  ids_first=${padded}000
}

part='engine/boot'
