# engine/spool.sh - the spool and its queues on disk (lib/README.md, "Places")

# spool_find - set FLATQ_DIR to the path of the spool
spool_find() {
  if [ -z "${FLATQ_DIR:-}" ]; then
    [ -n "${XDG_STATE_HOME:-}${HOME:-}" ] || { why='set FLATQ_DIR or HOME'; return 64; }
    FLATQ_DIR=${XDG_STATE_HOME:-$HOME/.local/state}/flatq
  fi
  case $FLATQ_DIR in
  /*) ;;
  *) FLATQ_DIR=$PWD/$FLATQ_DIR ;;
  esac
}

# spool_open [make] - find the spool, recover it at its first use in this boot, and set `boot` to
# its id; return 66 if there is none, unless to `make` one
spool_open() {
  spool_find || return
  read -r boot <"$FLATQ_PROC/sys/kernel/random/boot_id" || {
    why='cannot read when the system was started: mount /proc'
    [ ! -e "$FLATQ_PROC/sys/kernel/random/boot_id" ] || return 74
    return 70
  }
  boot_read
  boot_code=$?
  [ $boot_code -ne 66 ] || { need engine/boot; spool_boot "$@"; boot_code=$?; }
  [ $boot_code -eq 0 ] || return $boot_code
  case ${FLATQ_SYNC:-} in
  "$spool_sync" | '') return 0 ;;
  esac
  why="spool $FLATQ_DIR was made with FLATQ_SYNC=$spool_sync, which cannot be changed"
  return 64
}

# boot_read - read the record of this boot (lib/README.md, "Places"): set epoch, base64_wrap,
# spool_sync, sync_how (`-f` or nothing), boot_unread; return 66, without proof, if it is not seen
boot_read() {
  set -- "$FLATQ_DIR/.boot/$boot".*
  [ "$1" != "$FLATQ_DIR/.boot/$boot.*" ] || return 66
  IFS=.
  # shellcheck disable=SC2086 # split at the dots
  set -- ${1#"$FLATQ_DIR/.boot/$boot."}
  IFS=$blanks
  case ${1:-} in
  v1) ;;
  v*) need engine/boot; spool_newer "${1#v}"; return ;;
  # An earlier version's
  *) set -- v0 "$@" ;;
  esac
  epoch=${2:-} base64_wrap=${3:-} sync_how='' spool_sync=${4:-} boot_unread=${5:+.$5}
  [ "$spool_sync" != on-f ] || spool_sync=on sync_how=-f
  # The shell calculates with the epoch (R7)
  case $epoch.$base64_wrap.$spool_sync in
  *[!0-9]*.*.* | ???????????*.-* | 0[0-9]*) ;;
  [0-9]*.-w0.on | [0-9]*.-w0.off | [0-9]*.--.on | [0-9]*.--.off)
    [ "$1" = v1 ] || return 66
    return 0 ;;
  esac
  why="spool $FLATQ_DIR: cannot read its record of this boot"
  return 74
}

# queue_open NAME [make] - set `queue`, and `q` to its directory; return 66 if there is none, unless
# to `make` it
queue_open() {
  name_check "$1" || return
  queue=$1 reclaim_saw=
  name_to_disk "$1"
  q=$FLATQ_DIR/$name_disk
  [ -z "$boot_unread" ] || { need engine/boot; queue_mend || return; }
  # The lock is created last
  [ -e "$q/lock" ] && return 0
  if [ $# -ne 2 ]; then
    need engine/proof
    expect_path "$q/wal" "no queue '$1'" || return
  fi
  need engine/boot
  queue_make
}

# file_new PATH - create the empty file PATH; fail if it is there
file_new() {
  set -C
  true >"$1"
  new_code=$?
  set +C
  return "$new_code"
}

# file_mark PATH - create the empty file PATH; if it exists, leave it as it is
file_mark() {
  file_new "$1" || [ -e "$1" ]
}

# queue_look - set queue_files to the paths in $q that begin with c, d or l, a blank behind each; a
# listing without `lock` has failed (R1)
queue_look() {
  set -- "$q"/[cdl]*
  queue_files="$* "
  case $queue_files in
  *"$q/lock "*) return 0 ;;
  esac
  need engine/proof
  queue_there || return
  not_listed
}

# queue_conf - set queue_bound and queue_most_tries, 0 means no limit; and queue_files
queue_conf() {
  queue_bound=0 queue_most_tries=0
  queue_look || return
  case $queue_files in
  *"$q/conf "*) need engine/proof; conf_read ;;
  esac
}

# slip_format - set `slip` to the name that the slip_ variables give, without an owner
slip_format() {
  slip=$slip_priority.$slip_id.$slip_tries.$slip_nonce.$slip_lease.$slip_delay.$slip_born
  slip=$slip.$slip_size.$slip_key.$slip_counts
}

# sync_paths PATH ... - sync these files and directories, if the spool syncs; return 74 if that
# fails
sync_paths() {
  [ "$spool_sync" = on ] || return 0
  # shellcheck disable=SC2086 # an option or none
  sync $sync_how "$@" && return 0
  # shellcheck disable=SC2086
  # A signal may have ended it: once more, but never after an error, which is reported only once
  [ $? -gt 128 ] && sync $sync_how "$@" && return 0
  sync_failed
}

# sync_failed - set `why`, and return 74
sync_failed() {
  why="queue '${queue:-}': cannot sync"
  return 74
}

# log_line VERB ID TRIES SIZE MILLISECONDS REASON - write epoch_time and these to the log, or go on
log_line() {
  printf '%s.%s %s %s %s %s %s %s\n' \
    "${epoch_time%??}" "${epoch_time#"${epoch_time%??}"}" "$@" >>"$q/log" || :
}

# wake DIRECTORY [COUNT] - wake COUNT (else 1) of the processes that wait there (engine/wait.sh)
wake() {
  for wake_path in "$1"/*; do break; done
  # RACE: the first may leave now, and others be there: so do not ask whether it is there
  [ "$wake_path" = "$1/*" ] || { need engine/wait; wake_some "$@"; }
}
