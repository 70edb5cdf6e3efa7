# reclaim.sh - what comes back by itself: the due, the expired, what dead owners held; and what is swept: the settled, the abandoned

# queue_promote - delayed messages whose time has come are ready. One mv for many: their names stay as they are
queue_promote() {
  clock_epoch "$now"
  set --
  promote_empty=
  for promote_path in "$q"/delayed/*/*; do
    [ "${promote_path##*/}" != '*' ] && ! [ "$epoch_time" \< "${promote_path##*/}" ] || break
    promote_empty="$promote_empty ${promote_path#"$q/delayed/"}"
    for promote_slip in "$promote_path"/*; do
      [ -e "$promote_slip" ] || continue
      set -- "$@" "$promote_slip"
      [ $# -lt 100 ] || { promote_these "$@"; set --; }
    done
  done
  [ $# -eq 0 ] || promote_these "$@"
  if [ -n "$promote_empty" ]; then
    # shellcheck disable=SC2086 # names without blanks
    (cd "$q/delayed" && exec rmdir -p $promote_empty) 2>/dev/null || :
  fi
}

promote_these() {
  if [ -e "$q/conf" ] && [ -z "$lock_held" ]; then
    lock_queue || return
    mv -f "$@" "$q/wal/" 2>/dev/null
    unlock_queue
  else
    # RACE: what another verb has brought back already, mv does not find
    mv -f "$@" "$q/wal/" 2>/dev/null
  fi
  wake "$q/wait"
}

# queue_reclaim - puts back what is expired and what dead owners held; sweeps where many are settled
queue_reclaim() {
  queue_conf || return
  for found in "$q"/out/*; do
    reclaim_name=${found##*/}
    [ "$reclaim_name" != '*' ] || break
    [ ! -e "$q/done/$reclaim_name" ] || continue
    case $reclaim_name in
    batch.*)
      reclaim_name=${reclaim_name#batch.}
      ! owner_dead "${reclaim_name%%.*}" || batch_putback "$found"
      continue ;;
    esac
    slip_parse "$reclaim_name" || { slip_strange "out/$reclaim_name"; continue; }
    if [ "$slip_owner" != 0 ] && owner_dead "$slip_owner"; then
      # RACE: an owner settles by a marker, and then dies: first dead, then the marker
      [ ! -e "$q/done/$reclaim_name" ] || continue
      message_putback dead
    elif [ "$slip_deadline" != 000000000000 ] && ! [ "$now" \< "$slip_deadline" ]; then
      message_putback expired
    fi
  done
  set -- "$q"/done/*
  [ $# -lt 200 ] || queue_sweep
}

# queue_sweep - what is settled leaves the disk: its slip in out/, if only marked; its key; when that is sure, its body; then what said so
queue_sweep() {
  sweep_locked=
  [ -n "$lock_held" ] || { lock_queue || return; sweep_locked=1; }
  sweep_names=
  sweep_count=0
  for sweep_path in "$q"/done/* end; do
    if [ $sweep_count -ge 200 ] || [ "$sweep_path" = end ]; then
      [ $sweep_count -eq 0 ] || sweep_these || break
      sweep_names='' sweep_count=0
    fi
    [ -e "$sweep_path" ] || continue
    sweep_names="$sweep_names ${sweep_path##*/}" sweep_count=$((sweep_count + 1))
  done
  sweep_code=$?
  [ -z "$sweep_locked" ] || unlock_queue
  return $sweep_code
}

sweep_these() {
  sweep_out='' sweep_bodies='' sweep_keys=
  for sweep_name in $sweep_names; do
    if [ -d "$q/out/$sweep_name" ]; then
      batch_settled "$q/out/$sweep_name"
      sweep_out="$sweep_out out/$sweep_name"
      continue
    fi
    slip_parse "$sweep_name" || continue
    [ ! -e "$q/out/$sweep_name" ] || sweep_out="$sweep_out out/$sweep_name"
    sweep_bodies="$sweep_bodies $slip_id"
    sweep_key
  done
  # shellcheck disable=SC2086 # names without blanks
  {
    [ -z "$sweep_out$sweep_keys" ] || (cd "$q" && exec rm -rf $sweep_out $sweep_keys 9>&9) 2>/dev/null &&
      sync_paths "$q/out" "$q/keys" &&
      { [ -z "$sweep_bodies" ] || (cd "$q/body" && exec rm -f $sweep_bodies 9>&9) 2>/dev/null; } &&
      (cd "$q/done" && exec rm -f $sweep_names 9>&9) 2>/dev/null
  } || disk_failed "$q/done" "queue '$queue'"
}

# sweep_key - the key of a settled message, where it still is that message's
sweep_key() {
  if [ "$slip_key" != - ] && { read -r key_id <"$q/keys/$slip_key"; } 2>/dev/null && [ "$key_id" = "$id" ]; then
    sweep_keys="$sweep_keys keys/$slip_key"
  fi
}

# checkpoint QUEUE - idempotent, beside everybody else: recover, put back, promote, sweep, fold, rotate the log
checkpoint() {
  queue_open "$1" || return
  clock_read
  queue_promote
  queue_reclaim || return
  lock_queue || return
  queue_recover && queue_sweep && queue_fold && tmp_sweep && log_rotate
  checkpoint_code=$?
  unlock_queue
  return $checkpoint_code
}

# checkpoint_turn - what the push that opens a new range of ids does: the checkpoint of its own queue and, in turn, of one other; so each
# queue has its share however few pushes it has, and nobody waits for thousands of them
checkpoint_turn() {
  checkpoint "$queue" || return
  ids_last_range || return
  set -- "$FLATQ_DIR"/*/
  spool_turn=${range##*/} spool_turn=${spool_turn#"${spool_turn%%[!0]*}"}
  shift $((${spool_turn:-0} % $#))
  spool_turn=${1%/}
  name_from_disk "${spool_turn##*/}"
  [ "$name" = "$queue" ] || checkpoint "$name" || return
  wait_sweep
  journal_sweep
}

# checkpoint_spool - the checkpoint of every queue; then ranges of ids, waiters and dropped queues that are no more
checkpoint_spool() {
  for spool_path in "$FLATQ_DIR"/*/wal; do
    [ -d "$spool_path" ] || continue
    spool_path=${spool_path%/wal}
    name_from_disk "${spool_path##*/}"
    # RACE: a queue that is dropped meanwhile needs none
    checkpoint "$name" || [ ! -d "$spool_path" ] || return 74
  done
  wait_sweep
  for spool_path in "$FLATQ_DIR"/.drop.* "$FLATQ_DIR"/.ids.old.*; do
    [ ! -e "$spool_path" ] || [ -e "$FLATQ_PROC/${spool_path##*.}" ] || rm -rf "$spool_path" 2>/dev/null
  done
  journal_sweep
}

# tmp_sweep - what killed holders of the lock have left in tmp/. Those who stage without the lock put their PID-TIME in front
tmp_sweep() {
  for tmp_path in "$q"/tmp/*; do
    tmp_name=${tmp_path##*/}
    case $tmp_name in
    '*' | strange.*) continue ;;
    [0-9]*-[0-9]*.*) owner_dead "${tmp_name%%.*}" || continue ;;
    esac
    rm -rf "$tmp_path" 9>&9 2>/dev/null
  done
}

# log_rotate - a log of over a MiB is set aside under the time; the ten newest are kept
log_rotate() {
  [ -f "$q/log" ] && [ "$(($(wc -c <"$q/log" || printf '%s' -1)))" -gt 1048576 ] || return 0
  clock_epoch "$now"
  mv -f "$q/log" "$q/log.$epoch_time" 2>/dev/null 9>&9
  set -- "$q"/log.*
  while [ $# -gt 10 ]; do
    rm -f "$1" 9>&9 2>/dev/null
    shift
  done
}

# journal_sweep - ranges of ids that are no longer in use: what their killed pushers have left is removed, then the range. A range in
# which somebody is still writing stays
journal_sweep() {
  lock_spool || return
  ids_last_range || { unlock_spool; return 74; }
  journal_live=$range
  for range in "$FLATQ_DIR"/.ids/[0-9]????????; do
    [ "$range" != "$journal_live" ] || break
    journal_free=1
    # CRASH: an empty file is an id that was burnt
    journal_open=$(awk 'FNR == 1 { if (name) print name; name = FILENAME; sub(/.*\//, "", name) }
      $0 == "." { name = "" }
      END { if (name) print name }' "$range"/[0-9]* /dev/null 2>/dev/null)
    for journal in $journal_open; do
      journal=$range/$journal
      { read -r journal_pid journal_time journal_queue <"$journal"; } 2>/dev/null || continue
      owner_dead "$journal_pid-$journal_time" || { journal_free=; continue; }
      journal_orphan "${range##*/}${journal##*/1}"
    done
    [ -n "$journal_free" ] || continue
    # renamed first: a pusher that slept in it must not find it half gone, and take an id a second time
    mv -f "$range" "$FLATQ_DIR/.ids.old.$$" 2>/dev/null 8>&8 && rm -rf "$FLATQ_DIR/.ids.old.$$" 8>&8
  done
  unlock_spool
}

# journal_orphan ID - a killed push: its body goes, unless its slip came about
journal_orphan() {
  q=$FLATQ_DIR/$journal_queue
  [ -e "$q/body/$1" ] || { ids_end; return; }
  name_from_disk "$journal_queue"
  queue=$name
  message_find "$1"
  [ $? -eq 66 ] && [ ! -e "$found" ] || return 0
  for journal_path in "$q"/done/??????????."$1".* "$q"/out/batch.*/??????????."$1".*; do
    [ ! -e "$journal_path" ] || { ids_end; return; }
  done
  rm -f "$q/body/$1" 8>&8 2>/dev/null
  ids_end
}
