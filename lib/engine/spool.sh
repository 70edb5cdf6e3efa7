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

# spool_open [make] - find the spool, and recover it if this is its first use since the system
# started. Return 66 if there is none, unless it is to `make` one, and may. Set `boot` to what the
# kernel calls this boot
spool_open() {
  spool_find || return
  # Without it nobody would look, after a power cut, for slips whose bodies did not reach the disk
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

# boot_read - read the record of this boot, whose name is BOOT.vFORMAT.EPOCH.BASE64_WRAP.SYNC: set
# epoch (the wall clock at the boot), base64_wrap, spool_sync (on or off), and sync_how (`-f` if
# sync takes nothing else); and boot_unread, if a queue could not be read then. Return 66 if no verb
# of this format has run since this boot. A record that cannot be seen is no new boot (R1): recovery
# would put back what living owners hold
boot_read() {
  set -- "$FLATQ_DIR/.boot/$boot".*
  [ "$1" != "$FLATQ_DIR/.boot/$boot.*" ] || { need engine/boot; boot_missing; return; }
  IFS=.
  # shellcheck disable=SC2086 # split at the dots
  set -- ${1#"$FLATQ_DIR/.boot/$boot."}
  IFS=$blanks
  case ${1:-} in
  v1) ;;
  v*) need engine/boot; spool_newer "${1#v}"; return ;;
  # An earlier flatq gave it none
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

# queue_open NAME [make] - set `queue`, and `q` to its directory; return 66 if there is none and
# `make` is not given
queue_open() {
  name_check "$1" || return
  queue=$1 reclaim_saw=
  name_to_disk "$1"
  q=$FLATQ_DIR/$name_disk
  [ -z "$boot_unread" ] || { need engine/boot; queue_mend || return; }
  # The lock is created last: if it exists, the places are synced
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

# queue_look - set queue_files to the paths of closed, conf, dropping and all else in $q that begins
# with c, d or l, each with a blank behind it. The listing must contain `lock`, or it has failed and
# proves nothing (R1)
queue_look() {
  set -- "$q"/[cdl]*
  queue_files="$* "
  case $queue_files in
  *"$q/lock "*) return 0 ;;
  esac
  need engine/proof
  queue_there || return
  why="queue '$queue': cannot be listed"
  return 74
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

# sync_paths PATH ... - sync these files and directories, if the spool is one that syncs; if it
# fails, return 74, with `why`
sync_paths() {
  [ "$spool_sync" = on ] || return 0
  # shellcheck disable=SC2086 # an option or none
  sync $sync_how "$@" && return 0
  # shellcheck disable=SC2086
  # A signal to a worker's group ends its `sync`, and not the worker: once more. Never after an
  # error, which the kernel may report only once
  [ $? -gt 128 ] && sync $sync_how "$@" && return 0
  sync_failed
}

# sync_failed - set `why`, and return 74
sync_failed() {
  why="queue '${queue:-}': cannot sync"
  return 74
}

# log_line VERB ID TRIES SIZE MILLISECONDS REASON - write these six words to the queue's log, behind
# epoch_time. If that fails, go on
log_line() {
  printf '%s.%s %s %s %s %s %s %s\n' \
    "${epoch_time%??}" "${epoch_time#"${epoch_time%??}"}" "$@" >>"$q/log" || :
}

# wake DIRECTORY [COUNT] - wake COUNT (else 1) of the processes that wait there (engine/wait.sh)
wake() {
  for wake_path in "$1"/*; do break; done
  # RACE: the first that was listed may leave now, and others are there: so compare with the
  # pattern, and do not ask whether the file is there
  [ "$wake_path" = "$1/*" ] || { need engine/wait; wake_some "$@"; }
}
