# engine/checkpoint.sh - the checkpoint of a queue and of the spool

need engine/slip engine/queues engine/lock engine/ids engine/boot engine/proof engine/process engine/fold engine/reclaim engine/wait bulk/batch

# checkpoint QUEUE - promote, put back; then, with the lock, recover, sweep, fold, rotate the log. Idempotent; runs beside all other verbs. A message
# that cannot be put back, since the disk is full, does not keep the sweep from making room
checkpoint() {
  queue_open "$1" || return $?
  clock_read
  queue_promote && queue_reclaim
  checkpoint_code=$? checkpoint_why=$why
  under_lock checkpoint_locked || return $?
  why=$checkpoint_why
  return $checkpoint_code
}

# checkpoint_locked - the steps of a checkpoint that need the lock
checkpoint_locked() {
  claims_recover && queue_sweep && queue_fold && tmp_sweep && log_rotate
}

# checkpoint_turn - called by the push that opens a new range of ids: run the checkpoint of its own queue and of one other, a different one each time.
# So queues with few pushes get theirs too, and no push has to run thousands of checkpoints
checkpoint_turn() {
  checkpoint "$queue"
  ids_last_range || return $?
  set -- "$FLATQ_DIR"/*/
  unpad "${range##*/}"
  shift $((unpadded % $#))
  spool_turn=${1%/}
  name_from_disk "${spool_turn##*/}"
  [ "$name_queue" = "$queue" ] || checkpoint "$name_queue"
  wait_sweep
  spark_sweep
  journal_sweep
}

# checkpoint_spool - run the checkpoint of every queue; then remove old ranges of ids, dead waiters and dropped queues
checkpoint_spool() {
  all_queues checkpoint
  spool_code=$? spool_why=$why
  spool_sweep
  spark_sweep
  journal_sweep || return $?
  why=$spool_why
  return $spool_code
}

# spool_sweep [boot] - remove what killed processes have left beside the queues. `boot`: every process and connection from before the boot is gone,
# even if another process has its PID now
spool_sweep() {
  spool_all=${1:-}
  wait_sweep "$spool_all"
  for spool_path in "$FLATQ_DIR"/.drop.* "$FLATQ_DIR"/.ids.old.* "$FLATQ_DIR"/.probe.* "$FLATQ_DIR"/.doors/secret.* ${spool_all:+"$FLATQ_DIR"/.doors/[0-9]*}; do
    [ -e "$spool_path" ] || continue
    [ -n "$spool_all" ] || [ ! -e "$FLATQ_PROC/1/stat" ] || owner_dead "${spool_path##*.}" || continue
    rm -rf "$spool_path" 2>/dev/null
  done
  [ -n "$spool_all" ] || return 0
  # What disk_try has left elsewhere: a file or an empty directory. Only at a boot, since this lists all bodies
  for spool_path in "$FLATQ_DIR"/.[a-z]*/probe.*.*-000000000000 "$FLATQ_DIR"/*/probe.*.*-000000000000 "$FLATQ_DIR"/*/*/probe.*.*-000000000000; do
    [ -e "$spool_path" ] && [ ! -h "${spool_path%/*}" ] || continue
    rm -f "$spool_path" 2>/dev/null || rmdir "$spool_path" 2>/dev/null
  done
}

# A sink of flatq.spark (python/flatq/spark) stages the flat files of its tasks in .spark/JOB/stage.*, and then writes .spark/JOB/plan, which says
# which of them go into the queue.
# spark_sweep - remove what killed sinks have staged, once nothing in .spark/JOB/ has changed for a week. If JOB has a plan, its stages stay, since
# the same job may be started again. A job once-* cannot be started again, so all of it is removed
spark_sweep() {
  for spark_job in "$FLATQ_DIR"/.spark/*/; do
    spark_job=${spark_job%/}
    set -- "$spark_job"/stage.*
    case ${spark_job##*/} in
    once-*) spark_remove "../${spark_job##*/}" ;;
    *) [ ! -e "$1" ] || spark_remove ;;
    esac
  done
}

# spark_remove [../JOB] - remove JOB, or only its stages, if nothing there is younger than a week. A sink holds a lock on JOB while it makes and
# carries out a plan. A sink that took longer than a week finds its stages gone before it makes a plan, and fails
spark_remove() (
  cd -P "$FLATQ_DIR" && spark_home=$PWD && cd -P "$spark_job" && [ "$PWD" = "${spark_home%/}/.spark/${spark_job##*/}" ] || exit
  exec 7<. && flock -n 7 7<&7 || exit
  if [ $# -eq 0 ]; then
    spark_found=$(find . \( -path ./plan -o -mtime -7 \) -print && printf end)
    set -- ./stage.*
  else
    spark_found=$(find . -mtime -7 -print && printf end)
  fi
  [ "$spark_found" != end ] || exec rm -rf "$@" 7<&7
) 2>/dev/null

# tmp_sweep [boot] - remove what killed holders of the lock have left in tmp/. The name of a file that was written there without the lock begins with
# its writer's PID-TIME: remove it only if that process is dead, or at a boot. What was set aside stays
tmp_sweep() {
  tmp_boot=${1:-}
  set --
  for tmp_path in "$q"/tmp/*; do
    tmp_name=${tmp_path##*/}
    case $tmp_name in
    '*' | strange.*) continue ;;
    [0-9]*-[0-9]*.*) [ -n "$tmp_boot" ] || owner_dead "${tmp_name%%.*}" || continue ;;
    esac
    set -- "$@" "./$tmp_name"
    [ $# -lt 100 ] || { tmp_remove "$@" || return $?; set --; }
  done
  [ $# -eq 0 ] || tmp_remove "$@"
}

# tmp_remove NAME ... - remove these from tmp/. In a group's spool, tmp may have become a link: so enter it first, and check where we are
tmp_remove() {
  (
    cd -P "$FLATQ_DIR" && tmp_home=$PWD && cd -P "$q/tmp" && [ "$PWD" = "${tmp_home%/}/${q##*/}/tmp" ] && exec rm -rf "$@" 9<&9
  ) 2>/dev/null || disk_failed "$q/tmp"
}

# log_rotate - rename a log of over a MiB to log.TIME, and keep the ten newest
log_rotate() {
  [ -f "$q/log" ] && measure -c "$q/log" && [ "$measured" -gt 1048576 ] || return 0
  clock_epoch "$now"
  rename_path "$q/log" "$q/log.$epoch_time"
  set -- "$q"/log.*
  while [ $# -gt 10 ]; do
    rm -f "$1" 9<&9 2>/dev/null
    shift
  done
}

# journal_sweep - for each range of ids that is no longer in use, remove what killed pushes have left, then the range. A range in which
# a push is still writing stays
journal_sweep() {
  lock_spool || return $?
  ids_last_range || { unlock_spool; return 74; }
  journal_live=$range
  for range in "$FLATQ_DIR"/.ids/[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]; do
    [ "$range" != "$journal_live" ] || break
    [ ! -h "$range" ] || continue
    [ -z "$spool_shared" ] || no_links "$range"/1* || continue
    # RACE: a push may have chosen this range before there was a newer one. So close it, unless all its ids are taken: from now on a push that enters
    # itself here goes elsewhere (ids_next), and what is listed below is all
    [ -e "$range/1999" ] || rm -f "$range/open" 2>/dev/null 8>&8 || continue
    journal_free=1
    journal_open=$(awk '$0 == "." { ended[FILENAME] }
      END { for (at = 1; at < ARGC - 1; at++) if (!(ARGV[at] in ended)) { name = ARGV[at]; sub(/.*\//, "", name); print name }; print "end" }' \
      "$range"/[0-9]* /dev/null 2>/dev/null) && capture "$journal_open" || {
      # No id was taken from it, as `push -l` leaves one each time; or it cannot be read
      rmdir "$range" 2>/dev/null
      continue
    }
    for journal in $captured; do
      # Accept only ids, and only the name of a queue: another member of a group may have written a path
      case $journal in
      1[0-9][0-9][0-9]) journal_id=${range##*/}${journal#1} journal=$range/$journal ;;
      *) continue ;;
      esac
      # CRASH: an empty file is an id that nobody uses
      [ -s "$journal" ] && [ ! -h "$journal" ] || continue
      # An entry without a line was torn when its push died. One that cannot be read now keeps its range until the next sweep (R1)
      journal_read "$journal_id" || {
        journal_whole && case $captured in
        *'
'*) false ;;
        esac || journal_free=
        continue
      }
      journal_dead || { journal_free=; continue; }
      case $journal_queue in
      '' | .* | */*) continue ;;
      esac
      journal_orphan "$journal_id"
    done
    [ -n "$journal_free" ] || continue
    # Rename it first: a push that has slept since it chose this range must not find it half empty, and take an id a second time
    clock_read
    nonce_read
    mv -f "$range" "$FLATQ_DIR/.ids.old.$nonce.$$-$now" 2>/dev/null 8>&8 && rm -rf "$FLATQ_DIR/.ids.old.$nonce.$$-$now" 2>/dev/null 8>&8
  done
  unlock_spool
}

# journal_orphan ID - remove the body of the killed push whose entry journal_read has read, if it is proved that it created no slip. A body in doubt
# stays until the next boot
journal_orphan() {
  q=$FLATQ_DIR/$journal_queue
  name_from_disk "$journal_queue"
  name_check "$name_queue" || return 0
  queue=$name_queue
  [ -z "$spool_shared" ] || queue_no_links || return 0
  if twice test -e "$q/body/$1"; then
    journal_unmade
    case $? in
    0) rm -f "$q/body/$1" 8>&8 2>/dev/null || { journal_free=; return $?; } ;;
    74) journal_free=; return 74 ;;
    esac
  fi
  ids_end
}

part='engine/checkpoint'
