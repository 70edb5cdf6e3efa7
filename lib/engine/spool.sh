# engine/spool.sh - the spool and its queues on disk: opening, configuration, and what each push and pop needs of slips and log. lib/README.md
# ("Places") says what lies where

# spool_place - set FLATQ_DIR to the path of the spool
spool_place() {
  if [ -z "${FLATQ_DIR:-}" ]; then
    [ -z "$shell_yash" ] || { need engine/proof; place_unread; } || return $?
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
  # The set-gid bit says that the spool belongs to a group (create -g), which can read our files only with umask 007
  spool_shared=
  if twice test -g "$FLATQ_DIR"; then
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
  case $boot_code in
  0) spool_tools ;;
  66) need engine/boot; spool_boot ;;
  *) return $boot_code ;;
  esac
}

# spool_tools - boot_read has read a record of this boot: heed what it says of syncs, and try the tools unless it says that they were tried
spool_tools() {
  sync_mode
  tools_same && return 0
  need engine/boot
  spool_try_tools
}

# tools_find - set `tools` to FLATQ_SYNC and, behind a colon each, the directories in which the shell finds base64, mv and, unless that is `off`, sync,
# which each push and pop may need; and tools_new if one of them has another time than its stamp in .tools/ (tools_mark): what replaces a program may be older
tools_find() {
  # An empty entry of PATH means the working directory. Field splitting drops an empty entry at the end: so add a colon
  tools=$FLATQ_SYNC tools_path=${PATH:-}: tools_new=
  [ "$FLATQ_SYNC" = off ] && tools_sync='' || tools_sync=sync
  set -f
  IFS=:
  for tools_name in base64 mv $tools_sync; do
    tools_found='' tools_stamp=$FLATQ_DIR/.tools/$tools_name
    for tools_place in $tools_path; do
      case $tools_place in
      /*) ;;
      *) tools_place=$PWD/$tools_place ;;
      esac
      tools_file=$tools_place/$tools_name
      [ -x "$tools_file" ] && [ -f "$tools_file" ] || continue
      tools_found=$tools_place
      # shellcheck disable=SC3013 # -nt and -ot are in every shell that is named in the README
      [ ! "$tools_file" -nt "$tools_stamp" ] && [ ! "$tools_file" -ot "$tools_stamp" ] && [ -e "$tools_stamp" ] || tools_new=1
      break
    done
    tools=$tools:$tools_found
  done
  IFS=$blanks
  set +f
}

# tools_same - return 0 if the programs that tools_find finds, and this shell, were tried on this boot (engine/probe.sh); the record has the time of the
# shell's program (spool_boot_mark). Another container, with programs of its own, may use the same spool
tools_same() {
  tools_find
  [ "$tools" = "$boot_tools" ] && [ -z "$tools_new" ] || return 1
  tools_path=$FLATQ_PROC/$$/exe
  # shellcheck disable=SC3013
  { [ ! "$tools_path" -nt "$FLATQ_DIR/.boot/$boot" ] && [ ! "$tools_path" -ot "$FLATQ_DIR/.boot/$boot" ]; } || [ ! -e "$tools_path" ]
}

# boot_read - set epoch, base64_wrap, clock_same, sync_whole and boot_tools; return 66 if no verb has run since this boot. A file that exists and cannot
# be read is an error, not a new boot: recovery would put back what living owners hold. The shell calculates with the first line, so accept there only a
# number and the words that are known (R7); the second line is only compared
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
  [ -z "$spool_shared" ] || { need engine/lock; queue_no_links; } || return $?
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

# no_links PATH ... - return 74 if one of these is a link, or a FIFO, at which a verb that reads it would wait for ever
no_links() {
  for link_path in "$@"; do
    [ ! -h "$link_path" ] || { why="$link_path is a link"; return 74; }
    [ ! -p "$link_path" ] || { why="$link_path is a FIFO"; return 74; }
  done
}

# file_mark PATH - create the empty file PATH exclusively; if it exists, leave it as it is. A shell that cannot save its standard output creates the
# file nevertheless and says that it failed (R2), and mksh then leaves file_new
file_mark() {
  set -C
  file_new "$1"
  mark_code=$?
  set +C
  [ $mark_code -eq 0 ] || [ -e "$1" ]
}

# file_new PATH - the part of file_mark that may fail
file_new() {
  { true >"$1"; } 2>/dev/null
}

# queue_look - set queue_files to the paths of closed, conf, dropping and all else in $q that begins with c, d or l, each with a blank behind it. The
# listing must contain `lock`, or it has failed and proves nothing (R1)
queue_look() {
  set -- "$q"/[cdl]*
  queue_files="$* "
  case $queue_files in
  *"$q/lock "*) return 0 ;;
  esac
  need engine/proof
  queue_there || return $?
  why="queue '$queue': cannot be listed"
  return 74
}

# queue_conf - set queue_bound and queue_most_tries; 0 means no limit
queue_conf() {
  queue_bound=0 queue_most_tries=0
  queue_look || return $?
  case $queue_files in
  *"$q/conf "*) ;;
  *) return 0 ;;
  esac
  { read -r queue_bound queue_most_tries queue_rest <"$q/conf"; } 2>/dev/null || { need engine/proof; conf_read || return $?; }
  is_number "${queue_bound:-x}" 999999999 && queue_bound=$number &&
    is_number "${queue_most_tries:-x}" 999999999 && queue_most_tries=$number ||
    { queue_bound=0 queue_most_tries=0 why="queue '$queue': conf is damaged"; return 65; }
}

# sync_mode - set FLATQ_SYNC=on if a verb with `on` has used this spool since the boot; until then the record's tools begin with `off`. Such a verb
# acknowledges messages: if it stored them in a queue that we made, or we moved them, and we did not sync, a power cut would lose them
sync_mode() {
  case $boot_tools in
  '' | off:*) ;;
  *) FLATQ_SYNC=on ;;
  esac
}

# slip_format - set `slip` to the name that the slip_ variables give, without an owner
slip_format() {
  slip=$slip_priority.$slip_id.$slip_tries.$slip_nonce.$slip_lease.$slip_delay.$slip_born.$slip_size.$slip_key.$slip_counts
}

# log_line VERB ID TRIES SIZE MILLISECONDS REASON - write these six words to the queue's log, behind epoch_time. If that fails, go on
log_line() {
  [ ! -h "$q/log" ] && { [ -z "$spool_shared" ] || [ ! -p "$q/log" ]; } || return 0
  { printf '%s.%s %s %s %s %s %s %s\n' "${epoch_time%??}" "${epoch_time#"${epoch_time%??}"}" "$@" >>"$q/log"; } 2>/dev/null || :
}

# wake DIRECTORY [COUNT] - wake COUNT (else 1) of the processes that wait there (engine/wait.sh). If that part, or one that it needs, cannot be read,
# go on: they look again by themselves after two seconds
wake() {
  for wake_path in "$1"/*; do break; done
  # RACE: the first that was listed may leave now, and others are there: so compare with the pattern, and do not ask whether the file is there
  [ "$wake_path" = "$1/*" ] || ! { part_read engine/clock && part_read engine/process && part_read engine/wait; } 2>/dev/null || wake_some "$@"
  :
}

part='engine/spool'
