# engine/boot.sh - the first use of a spool after a boot, new queues, ranges of ids

need engine/sync engine/clock

# The places of a queue but wal/, which is created last
queue_places='body fold queue unfold head out done delayed buried claimed keys wait room tmp'

# spool_boot [make] - for the first verb after a boot: recover the spool
spool_boot() {
  spool_there "$@" || return
  mkdir -p "$FLATQ_DIR/.ids" "$FLATQ_DIR/.boot" "$FLATQ_DIR/.wait" "$FLATQ_DIR/.try" ||
    { spool_failed; return; }
  under_spool spool_boot_locked
}

# spool_failed [DIRECTORY] - as disk_failed, for the spool
spool_failed() {
  disk_failed "${1:-$FLATQ_DIR}" "spool $FLATQ_DIR"
}

# spool_there [make] - return 66 if there is no spool; to `make` one, an empty directory will do
spool_there() {
  there_is='' why="no spool at $FLATQ_DIR"
  there_names=$(exec ls -A "$FLATQ_DIR/" 2>&1 9>&-)
  case $?.$there_names in
  0.*) ;;
  *'No such file or directory') spool_new "$@"; return ;;
  *'Not a directory') why="$why: this is no directory"; return 66 ;;
  *'ermission denied') why="spool $FLATQ_DIR: not allowed"; return 77 ;;
  *) why="spool $FLATQ_DIR: cannot be listed"; return 74 ;;
  esac
  for there_name in $there_names; do
    case $there_name in
    .format.1 | .boot | .ids | .sync.o*) there_is=spool ;;
    .format.*) spool_newer "${there_name#.format.}"; return ;;
    # CRASH: a power cut may keep only these of a spool that was being made
    .lock | .try | .wait | .probe.* | lost+found) ;;
    *) there_is=${there_is:-other} ;;
    esac
  done
  case $there_is.${1:-} in
  spool.* | .make) return 0 ;;
  other.make) why="$why: the directory is not empty" ;;
  esac
  return 66
}

# spool_new [make] - make the directory of a new spool
spool_new() {
  [ "${1:-}" = make ] || return 66
  set --
  [ "$FLATQ_DIR" != "${XDG_STATE_HOME:-${HOME:-}/.local/state}/flatq" ] || set -- -p
  # RACE: another verb may make it
  there_names=$(exec mkdir "$@" "$FLATQ_DIR" 2>&1) || [ -d "$FLATQ_DIR" ] && return 0
  case $there_names in
  *'No such file or directory' | *'Not a directory')
    why="$why: the directory above it is missing"
    return 66 ;;
  esac
  spool_failed "${FLATQ_DIR%/*}"
}

# spool_newer FORMAT - return 70, with `why`
spool_newer() {
  why="spool $FLATQ_DIR has format $1, and this flatq knows format 1: use a newer one"
  return 70
}

# spool_boot_locked - spool_boot under the spool's lock
spool_boot_locked() {
  # RACE: another verb may have done it
  boot_read
  boot_code=$?
  [ $boot_code -eq 66 ] || return $boot_code
  boot_unread=
  need engine/probe engine/proof
  spool_own && spool_marks || return
  tools_probe && spool_clock || return
  # Also what mkdir -p may have made above the spool, in the same file system
  sync_many "$FLATQ_DIR" || { why="spool $FLATQ_DIR: cannot sync"; return 74; }
  names_in "$FLATQ_DIR/.boot" || { why="cannot list $FLATQ_DIR/.boot"; return 74; }
  case $names in
  *"$boot".v*) why="spool $FLATQ_DIR: cannot read its record of this boot"; return 74 ;;
  # An older version has recovered the spool on this boot: what it has handed out is still held
  *"$boot"*) spool_boot_mark; return ;;
  esac
  boot_before=$epoch
  for boot_record in "$FLATQ_DIR"/.boot/*.v1.*; do
    boot_record=${boot_record##*.v1.}
    ! is_number "${boot_record%%.*}" 9999999999 || boot_before=$number
  done
  need engine/check
  q=$FLATQ_DIR queue=.
  names_in "$q" || { why="spool $FLATQ_DIR: cannot be listed"; return 74; }
  boot_left=$names
  # On a full disk, make room and repeat: the recovery may have to bury a message
  { spool_boot_queues || { ids_room && spool_boot_queues; } || spool_boot_unread; } &&
    { ids_open_range || { ids_room && ids_open_range; }; } &&
    { need engine/checkpoint; spool_sweep boot; } && spool_boot_mark
}

# spool_own - return 77 if the spool is a group's, as an older version made it
spool_own() {
  ! [ -g "$FLATQ_DIR" ] || case $(exec ls -ld "$FLATQ_DIR") in
  d????w*)
    why="spool $FLATQ_DIR is a group's: end its doors, then run as root"
    why="$why 'chown -R USER $FLATQ_DIR; chmod -R g-s,go= $FLATQ_DIR', and let others use a door"
    return 77 ;;
  esac
}

# spool_marks - note the format; set spool_sync to what the spool was made with, or note it
spool_marks() {
  sync_how=
  true >"$FLATQ_DIR/.format.1" || { spool_failed; return; }
  for spool_sync in on off; do
    there "$FLATQ_DIR/.sync.$spool_sync"
    case $? in
    0) return 0 ;;
    74) return 74 ;;
    esac
  done
  spool_sync=${FLATQ_SYNC:-on}
  true >"$FLATQ_DIR/.sync.$spool_sync" || spool_failed
}

# spool_clock - set epoch; return 70 if the uptime is not that of the processes, whose owners would
# seem to be dead
spool_clock() {
  clock_read
  clock_wall || { why='date +%s failed'; return 70; }
  epoch=$wall_epoch
  need engine/process
  process_started $$ && ! [ "$now" \< "$started" ] && return 0
  why="$FLATQ_PROC/uptime and /proc/$$/stat count from different starts, or show no processes"
  return 70
}

# spool_boot_queues - recover and check the queues of boot_left; return 74 if it fails for those
# that are left in it
spool_boot_queues() {
  boot_these=$boot_left boot_left=
  set --
  for boot_queue in $boot_these; do
    # Without wal/ and lock it is no queue, or was only half made
    if [ ! -d "$FLATQ_DIR/$boot_queue/wal" ] && [ ! -e "$FLATQ_DIR/$boot_queue/lock" ]; then
      absent "$FLATQ_DIR/$boot_queue/wal" || boot_left="$boot_left $boot_queue"
      continue
    fi
    set -- "$@" "$boot_queue"
    [ $# -lt 100 ] || { boot_some "$@"; set --; }
  done
  [ $# -eq 0 ] || boot_some "$@"
  [ -z "$boot_left" ] || return 74
}

# boot_some QUEUE ... - spool_boot_queues for these
boot_some() {
  boot_quiet "$@" || boot_busy=$*
  for boot_queue in $boot_busy; do
    q=$FLATQ_DIR/$boot_queue
    # Standard output belongs to the verb
    queue_after_boot >&"${check_doctor:-5}" || boot_left="$boot_left $boot_queue"
  done
}

# spool_boot_unread - mark the queues of boot_left, for queue_mend, with the time of the boot from
# which their delays count
spool_boot_unread() {
  for boot_queue in $boot_left; do
    boot_mark=$FLATQ_DIR/.unread.$boot_queue
    [ -s "$boot_mark" ] || printf '%s\n' "$boot_before" >"$boot_mark" || { spool_failed; return; }
  done
  boot_unread=.unread
}

# queue_mend [locked] - if the queue $q could not be recovered at the boot, try again. RACE: another
# verb may do it before we have the spool's lock
queue_mend() {
  queue_unread || return 0
  [ $# -gt 0 ] || { under_spool queue_mend locked; return; }
  need engine/check
  queue_after_boot >&"${check_doctor:-5}"
}

# queue_unread - return whether the recovery of $q at the boot has failed
queue_unread() {
  seen "$FLATQ_DIR/.unread.${q##*/}"
}

# boot_quiet QUEUE ... - set boot_busy to those that have more than single, whole messages in wal/;
# return 1 if they could not be listed
boot_quiet() {
  boot_roots='' boot_bodies=''
  for boot_mark in "$FLATQ_DIR"/.unread.*; do
    # Its recovery removes the mark
    [ ! -e "$boot_mark" ] || return 1
  done
  for boot_queue in "$@"; do
    boot_roots="$boot_roots ./$boot_queue" boot_bodies="$boot_bodies ./$boot_queue/body"
  done
  # shellcheck disable=SC2086,SC2012 # names without blanks
  boot_busy=$(cd "$FLATQ_DIR" && { find $boot_roots -name body -prune -print -o -print &&
    printf 'end\n' && ls -ln .try $boot_bodies && printf 'end\n'; } 9>&- |
    awk -v "places= $queue_places wal lock " "$letters_awk"'
      $0 == "end" { ends++; next }
      !ends {
        n = split($0, part, "/"); queue = part[2]; place = part[3]; name = part[n]
        if (n == 2) { all[queue]; next }
        if (n == 3 && index(places, " " place " ")) { seen[queue]++; next }
        if (n == 4 && place ~ /^(un)?fold$/ && name == "~") { seen[queue]++; next }
        if (n == 3 && place ~ /^(log|log\.[0-9]+|tended|paused|closed)$/) next
        if (n == 4 && place == "wal" && split(name, field, ".") == 10 && field[9] == "-" &&
            length(field[1]) == 10 && length(field[2]) == 12 && length(field[7]) == 12)
          size["./" queue "/body/" field[2]] = field[8]
        else busy[queue]
        next
      }
      /^\.\/.*:$/ { body = substr($0, 1, length($0) - 1); split($0, part, "/"); queue = part[2] }
      /^-/ && NF == 9 { bytes[body "/" $9] = $5 }
      /^[^-t.]/ { busy[queue] }
      END {
        if (ends != 2) exit
        for (file in size) bytes[file]
        for (file in bytes) {
          if (file in size && size[file] < 65536 && bytes[file] == letters(size[file]) + 1) {
            line = "?"
            getline line <file
            close(file)
            if (line ~ /^[A-Za-z0-9+\/]*=*$/) continue
          }
          split(file, part, "/")
          busy[part[2]]
        }
        for (queue in all) if (seen[queue] != 18) busy[queue]
        for (queue in busy) print queue
        print "~"
      }')
  case $boot_busy in
  *'~') boot_busy=${boot_busy%'~'} ;;
  *) return 1 ;;
  esac
}

# ids_room - remove nine tenths of the ids on a full disk: else not even a pop would make room. The
# ranges stay, from which the next one follows
ids_room() {
  for boot_range in "$FLATQ_DIR"/.ids/[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]; do
    (cd "$boot_range" && exec rm -f 1[0-9][0-9][1-9]) ||
      { disk_failed "$FLATQ_DIR/.ids" 'cannot give an id'; return; }
  done
}

# spool_boot_mark - make the record of this boot, and remove the old ones
spool_boot_mark() {
  boot_new=$FLATQ_DIR/.boot/$boot.v1.$epoch.$base64_wrap.$spool_sync$sync_how$boot_unread
  # Rename what is there: a full disk may have no room for another name
  for boot_stale in "$FLATQ_DIR"/.boot/*; do
    [ ! -e "$boot_stale" ] || mv -f "$boot_stale" "$boot_new"
  done
  [ -e "$boot_new" ] || true >"$boot_new" || { spool_failed "$FLATQ_DIR/.boot"; return; }
  sync_paths "$FLATQ_DIR/.boot"
}

# tools_print - try the tools again, and print what was tried, or exit with an error line
tools_print() {
  need engine/probe
  under_spool tools_probe || die $? "$why"
  printf '%s' "$probe_said" || die 74 'what was tried could not be printed'
}

# queue_placed - return whether $q has all places
queue_placed() {
  for made_place in $queue_places wal; do
    [ -d "$q/$made_place" ] || return 1
  done
  [ -e "$q/fold/~" ] && [ -e "$q/unfold/~" ]
}

# queue_make - create the places of $q that are missing, and its lock, which says that they are
# synced. RACE: others may move away what we make: so look, and repeat
queue_make() {
  set --
  for made_place in $queue_places; do
    set -- "$@" "$q/$made_place"
  done
  for made_try in 1 2 3 4 5; do
    # wal/ last: it means that the others exist
    mkdir -p "$@" && true >>"$q/fold/~" && true >>"$q/unfold/~" &&
      { mkdir "$q/wal" || [ -d "$q/wal" ]; } && queue_placed || continue
    sync_paths "$q" "$FLATQ_DIR" || return
    true >>"$q/lock" && queue_placed && return
  done
  disk_failed "$FLATQ_DIR"
}

# flock_failed CODE - set `why` for a flock that has ended with CODE, and return 70 or 74
flock_failed() {
  [ "$1" -eq 127 ] || { why='flock failed'; return 74; }
  why='flock is missing: install util-linux (apk add flock)'
  return 70
}

# under_spool FUNCTION [ARGUMENT] - run it under the spool's lock, on descriptor 8
under_spool() {
  command exec 8>>"$FLATQ_DIR/.lock" || { spool_failed; return; }
  if flock 8; then "$@"; else flock_failed $?; fi
  under_code=$?
  exec 8>&-
  return $under_code
}

# ids_open_range [COUNT] - with the spool's lock, open the range COUNT (else 1) after the newest
ids_open_range() {
  need engine/proof
  names_in "$FLATQ_DIR/.ids" || return
  ids_newest=-1
  for ids_range in $names; do
    case $ids_range in
    *[!0-9]*) ;;
    ?????????) unpad "$ids_range"; ids_newest=$unpadded ;;
    esac
  done
  pad $((ids_newest + ${1:-1})) 000000000
  mkdir "$FLATQ_DIR/.ids/$padded" && sync_paths "$FLATQ_DIR/.ids" &&
    true >"$FLATQ_DIR/.ids/$padded/open" ||
    disk_failed "$FLATQ_DIR/.ids" 'cannot give an id'
}

# ids_next_range - open the range after `range`, which is full
ids_next_range() {
  ids_full=$range
  under_spool ids_next_locked || return
  ids_opened=1
}

# ids_next_locked - ids_next_range under the spool's lock. RACE: another push may have done it
ids_next_locked() {
  ids_last_range && { [ "$range" != "$ids_full" ] || ids_open_range; }
}

# ids_block COUNT - reserve COUNT times 1,000 new ids, and set ids_first to the first
ids_block() {
  under_spool ids_open_range $(($1 + 1)) || return
  pad $((ids_newest + 1)) 000000000
  ids_first=${padded}000
}
