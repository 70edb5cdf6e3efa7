# engine/checkpoint.sh - the checkpoint of a queue and of the spool

need engine/slip engine/queues engine/lock engine/push engine/boot engine/proof engine/process \
  engine/flat engine/reclaim engine/clock engine/wait bulk/batch

# checkpoint QUEUE - steps 1 to 6 of `wal`. What cannot be put back does not keep the sweep from
# making room
checkpoint() {
  queue_open "$1" || return
  clock_read
  queue_promote && queue_reclaim
  checkpoint_code=$? checkpoint_why=$why
  under_lock checkpoint_locked || return
  why=$checkpoint_why
  return $checkpoint_code
}

checkpoint_locked() {
  claims_recover && queue_sweep && queue_fold && tmp_sweep && log_rotate
}

# checkpoint_turn - for the push that opens a range: the checkpoint of its queue, and of another in
# turn
checkpoint_turn() {
  clock_follow || :
  checkpoint "$queue"
  ids_last_range || return
  set -- "$FLATQ_DIR"/*/
  unpad "${range##*/}"
  shift $((unpadded % $#))
  spool_turn=${1%/}
  name_from_disk "${spool_turn##*/}"
  [ "$name_queue" = "$queue" ] || checkpoint "$name_queue"
  spool_sweep
}

# checkpoint_spool - run the checkpoint of every queue, and sweep what is beside them
checkpoint_spool() {
  clock_read
  clock_follow || :
  all_queues checkpoint
  spool_code=$? spool_why=$why
  spool_sweep || return
  why=$spool_why
  return $spool_code
}

# spool_sweep [boot] - remove what killed processes left beside the queues, and old ranges of ids;
# `boot`: all are dead
spool_sweep() {
  wait_sweep "$@"
  for spool_path in "$FLATQ_DIR"/.drop.* "$FLATQ_DIR"/.ids.old.* "$FLATQ_DIR"/.probe.* \
    "$FLATQ_DIR"/.doors/[0-9]*-[0-9]*; do
    [ -e "$spool_path" ] || continue
    [ $# -gt 0 ] || owner_dead "${spool_path##*[./]}" || continue
    rm -rf "$spool_path"
  done
  [ $# -gt 0 ] || { spark_sweep; under_spool ids_sweep; return; }
  # What disk_try has left. Only at a boot, since this lists all bodies
  for spool_path in "$FLATQ_DIR"/.[a-z]*/probe.*.*-000000000000 \
    "$FLATQ_DIR"/*/probe.*.*-000000000000 "$FLATQ_DIR"/*/*/probe.*.*-000000000000; do
    [ -e "$spool_path" ] || continue
    rm -f "$spool_path" || rmdir "$spool_path"
  done
}

# spark_sweep - remove what killed sinks of flatq.spark have staged in .spark/JOB, untouched for a
# week, unless there is a plan or a sink has the lock; of once-*, which cannot be started again, the
# plan too
spark_sweep() {
  for spark_job in "$FLATQ_DIR"/.spark/*/; do
    set -- "$spark_job"stage.*
    spark_plan='-path ./plan -o'
    case $spark_job in
    "$FLATQ_DIR"/.spark/once-*) set -- "$spark_job"; spark_plan= ;;
    esac
    [ ! -e "$1" ] || (
      cd "$spark_job" && exec 7<. && flock -n 7 || exit
      # shellcheck disable=SC2086 # words
      spark_found=$(find . \( $spark_plan -mtime -7 \) -print && printf end)
      [ "$spark_found" != end ] || exec rm -rf "$@"
    )
  done
}

# tmp_sweep [boot] - with the lock, empty tmp/, but for what was set aside, and what a living
# PID-TIME is writing
tmp_sweep() {
  for tmp_path in "$q"/tmp/*; do
    tmp_name=${tmp_path##*/}
    case $tmp_name in
    '*' | strange.*) continue ;;
    [0-9]*-[0-9]*.*) [ $# -gt 0 ] || owner_dead "${tmp_name%%.*}" || continue ;;
    esac
    rm -rf "$tmp_path" || { disk_failed "$q/tmp"; return; }
  done
}

# log_rotate - rename a log of over a MiB to log.TIME, and keep the ten newest
log_rotate() {
  [ -f "$q/log" ] && measure -c "$q/log" && [ "$measured" -gt 1048576 ] || return 0
  clock_epoch "$now"
  rename_path "$q/log" "$q/log.$epoch_time"
  set -- "$q"/log.*
  while [ $# -gt 10 ]; do
    rm -f "$1"
    shift
  done
}

# ids_sweep - under the spool's lock, remove each range of ids but the newest
ids_sweep() {
  ids_last_range || return
  clock_read
  for ids_range in "$FLATQ_DIR"/.ids/[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]; do
    [ "$ids_range" != "$range" ] || break
    # RACE: a push may have chosen this range, and sleep: without `open` it takes another id, but
    # must not find some removed: so rename it first
    nonce_read
    ids_old=$FLATQ_DIR/.ids.old.$nonce.$$-$now
    rm -f "$ids_range/open" && mv -f "$ids_range" "$ids_old" && rm -rf "$ids_old" || :
  done
}
