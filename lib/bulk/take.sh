# bulk/take.sh - take many messages at once: whole flat files, or runs of single messages
#
# A bulk take makes a batch, a directory out/batch.PID-TIME.NONCE.0 with slips and flat files under
# their old names. They come back when the owner is dead. The marker in done/ has the same name.

need engine/slip engine/lock engine/take engine/back engine/proof engine/flat engine/reclaim
need engine/piped bulk/batch

# bulk_choose MOST - under the lock, move up to MOST messages of $q, whole flat files or a run of
# single ones, into a batch; set `batch` and bulk_got; 66: none
bulk_choose() {
  bulk_looked=
  # RACE: other processes take or move what was found: look again, but not for ever
  while [ ${#bulk_looked} -lt 1000 ]; do
    bulk_looked=1$bulk_looked
    queue_scan
    if [ -z "$scan_place" ]; then
      nothing_ready || return
      # Messages in out/ may have to come back: look at them too
      clock_read
      queue_promote && queue_reclaim || return
      continue
    fi
    bulk_place=$scan_place bulk_name=$scan_name
    if [ "$bulk_place" = queue ]; then bulk_flats "$1"; else bulk_singles "$1"; fi
    bulk_code=$?
    # 75: look again
    [ $bulk_code -eq 75 ] || return $bulk_code
  done
  why="queue '$queue': nothing could be taken in 1000 tries"
  return 74
}

# bulk_elsewhere - set scan_name to the first name that is not in bulk_place; empty: there is none.
# Of queue/, bulk_place is one block: a file of messages that were put back and folded again may
# reach beyond the first of the next
bulk_elsewhere() {
  scan_name=
  [ "$bulk_place" = wal ] || scan_least wal "$q"/wal/*
  for scan_path in "$q"/queue/*; do
    case ${scan_path##*/} in
    *[!0-9.]*) continue ;;
    esac
    [ "queue/${scan_path##*/}" \> "$bulk_place" ] || [ "${bulk_place%%/*}" != queue ] || continue
    scan_least queue "$scan_path"/*
    [ "$scan_count" = 0 ] || break
  done
  for scan_path in "$q"/head/*; do
    [ "head/${scan_path##*/}" = "$bulk_place" ] || scan_least head "$scan_path"/*
  done
}

# batch_new - set `batch` to the name in out/ of a batch that this process owns
batch_new() {
  nonce_read
  clock_read
  batch=batch.$$-$now.$nonce.000000000000
}

# batch_make - create a new batch of ours in out/
batch_make() {
  batch_new
  mkdir "$q/out/$batch" || disk_failed "$q/out"
}

# bulk_move - move bulk_names from bulk_place to the batch
# shellcheck disable=SC2086 # names without blanks
bulk_move() {
  (cd "$q/$bulk_place" && exec mv -f $bulk_names "$q/out/$batch/")
}

# bulk_singles MOST - take single messages of bulk_place that come before all messages elsewhere.
# 75: look again
bulk_singles() {
  bulk_names='' bulk_got=0
  bulk_elsewhere
  for bulk_path in "$q/$bulk_place"/*; do
    bulk_name=${bulk_path##*/}
    [ "$bulk_name" != '*' ] && [ $bulk_got -lt "$1" ] && [ $bulk_got -lt "$flat_lines" ] || break
    [ -z "$scan_name" ] || [ "$bulk_name" \< "$scan_name" ] || break
    slip_parse "$bulk_name" || { set_aside "$bulk_place/$bulk_name" || return; continue; }
    bulk_names="$bulk_names $bulk_name" bulk_got=$((bulk_got + 1))
  done
  [ $bulk_got -gt 0 ] || return 75
  batch_make || return
  # RACE: mv does not find those that another process took first
  bulk_move
  names_in "$q/out/$batch" || return
  # shellcheck disable=SC2086 # names without blanks
  set -- $names
  bulk_got=$#
  [ $# -eq 0 ] || { bulk_sift "$@"; return; }
  rmdir "$q/out/$batch"
  # One that is still there was not taken by another process: so mv has failed
  for bulk_name in $bulk_names; do
    [ ! -e "$q/$bulk_place/$bulk_name" ] || { disk_failed "$q/out"; return; }
  done
  return 75
}

# bulk_sift SLIP ... - bury the messages of the batch that have no whole body. Set bulk_slips and
# bulk_ids to the others, and bulk_got to their number. 75: none is left, so look again
bulk_sift() {
  bulk_slips='' bulk_ids='' bulk_got=0
  for bulk_name in "$@"; do
    bulk_name=${bulk_name#*.}
    bulk_ids="$bulk_ids ${bulk_name%%.*}"
  done
  # SIZE ID of each body that can be opened
  # shellcheck disable=SC2046,SC2086 # words without blanks
  set -- $(cd "$q/body" && exec wc -c $bulk_ids 9>&-)
  bulk_ids=
  for bulk_name in $names; do
    slip_parse "$bulk_name" || continue
    # shellcheck disable=SC2017 # whole threes
    bulk_size=$(((slip_size + 2) / 3 * 4 + 1)).$slip_id bulk_found=${1-}.${2-}
    [ "${2-}" != "$slip_id" ] || shift 2
    if [ "$bulk_found" != "$bulk_size" ]; then
      need engine/body
      slip_path=$q/out/$batch/$bulk_name
      body_bury
      bulk_code=$?
      case $bulk_code in
      1) ;;
      0 | 66) continue ;;
      *) return $bulk_code ;;
      esac
    fi
    bulk_slips="$bulk_slips $bulk_name" bulk_ids="$bulk_ids $slip_id" bulk_got=$((bulk_got + 1))
  done
  [ $bulk_got -gt 0 ] || { rmdir "$q/out/$batch"; return 75; }
}

# bulk_flats MOST - take flat files, from the first on, as long as no message elsewhere belongs
# between them; at most 200, since what a killed drain held is delivered again. 75: look again
bulk_flats() {
  # queue_unfold sets aside what is not a flat file
  flat_parse "$bulk_name" || { queue_unfold "$bulk_name" || return; return 75; }
  bulk_most=$1 bulk_place=queue/$flat_block bulk_names='' bulk_got=0 bulk_slips=
  bulk_elsewhere
  set -- "$q/$bulk_place"/* "$scan_name"
  bulk_all=$#
  while [ $# -gt 1 ] && [ $((bulk_all - $#)) -lt 200 ]; do
    flat_parse "${1##*/}" && [ $((bulk_got + flat_count)) -le "$bulk_most" ] || break
    bulk_last=$flat_priority.$flat_last bulk_path=${2##*/}
    [ -z "$scan_name" ] || [ "$bulk_last" \< "$scan_name" ] || break
    [ -z "$bulk_path" ] || [ "$bulk_last" \< "$bulk_path" ] || break
    bulk_names="$bulk_names ${1##*/}" bulk_got=$((bulk_got + flat_count))
    shift
  done
  if [ -z "$bulk_names" ]; then
    queue_unfold "$bulk_name" || return
    return 75
  fi
  batch_make || return
  bulk_move || { disk_failed "$q/out"; return; }
  for bulk_path in "$q/$bulk_place"/*; do
    [ -e "$bulk_path" ] || rmdir "$q/$bulk_place"
    break
  done
}

# bulk_print l|0 - write out the batch's messages in order, each with its end
bulk_print() {
  door_reply large || return
  if [ "$1" = l ]; then bulk_end=Cg==; else bulk_end=AA==; fi
  piped 'base64 -d' bulk_coded && return 0
  bulk_not_printed
}

# bulk_not_printed - set `why`, and return 74
bulk_not_printed() {
  why="queue '$queue': messages could not be written out in full"
  return 74
}

# bulk_coded - print each message of the batch, and its end, as a line of base64: base64 -d accepts
# pieces that were padded one by one. No awk reads a large body: mawk's time is the square of a
# line's length
bulk_coded() {
  [ -n "$bulk_slips" ] || { bulk_rows "$bulk_got" "$q/out/$batch"/*; return; }
  set --
  for bulk_name in $bulk_slips; do
    slip_parse "$bulk_name"
    if [ "$slip_size" -ge "$large_body" ]; then
      bulk_rows $(($# / 2)) "$@" && cat "$q/body/$slip_id" && printf '%s\n' "$bulk_end" || return
      set --
    else
      set -- "$@" "size=$slip_size" "$q/body/$slip_id"
    fi
  done
  bulk_rows $(($# / 2)) "$@"
}

# bulk_rows COUNT FILE ... - bulk_coded for COUNT lines in these files. If awk does not notice a
# read error, the line that was cut is shorter than its slip says. gawk does not report its last
# write if `exit` was said
bulk_rows() {
  [ "$1" -ne 0 ] || return 0
  bulk_rows=$1
  shift
  bulk_awk -F '\t' -v "end=$bulk_end" -v "count=$bulk_rows" '
    { if (NF > 1) { split($1, field, "."); size = field[8] }
      if (length($NF) != int((size + 2) / 3) * 4) { cut = 1; exit }
      print $NF; print end }
    END { if (cut || NR != count) exit 1 }' "$@"
}

# bulk_measure - print a line with the number of bytes that bulk_print will write. Each line that
# awk reads begins with a slip's name, which has the size
bulk_measure() {
  names_in "$q/out/$batch" || return
  bulk_sum=$(
    # shellcheck disable=SC2086 # names without blanks
    set -- $names
    if slip_parse "$1"; then printf '%s\n' "$@"; else (cd "$q/out/$batch" && exec cat "$@"); fi |
      bulk_awk -F . -v "count=$bulk_got" \
        '{ sum += $8 + 1 } END { if (NR != count) exit 1; printf "%.0f", sum }'
  ) && printf '%s\n' "$bulk_sum" || bulk_not_printed
}

# bulk_received - return 0 if the client has received the batch: without -a, as far as a door can
# see; with -a, once it has sent a line `ok`. The line `sent` tells the client that the batch is
# whole: a door's error line could stand in place of the rest
bulk_received() {
  [ -n "${bulk_asks:-}" ] || { door_delivered; return; }
  door_waits 3600
  printf '%ssent\n' "${door_nonce:-}" && IFS= read -r bulk_said && [ "$bulk_said" = ok ] ||
    { why="queue '$queue': messages were not acknowledged"; return 74; }
  # The messages are the client's, even if the guard is gone
  door_waits 0 || :
}

# bulk_pop l|0 COUNT SECONDS QUEUE ... - write out and settle up to COUNT messages; wait up to
# SECONDS for the first
bulk_pop() {
  bulk_mode=$1 bulk_left=$2 take_seconds=$3
  shift 3
  for bulk_queue in "$@"; do
    name_check "$bulk_queue" || return
  done
  wait_queues=$*
  bulk_pop_queues
  bulk_code=$?
  [ $bulk_code -eq 66 ] && [ "$take_seconds" != 0 ] || return $bulk_code
  need engine/wait
  clock_read
  take_waiting bulk_pop_queues "$@"
}

# bulk_pop_queues - write out and settle what is in wait_queues; return 66 if nothing is there, 69
# if they are closed and empty
bulk_pop_queues() {
  bulk_any='' bulk_open=
  for bulk_queue in $wait_queues; do
    bulk_from_queue "$bulk_queue" || return
  done
  [ -z "$bulk_any" ] || return 0
  [ -n "$bulk_open" ] || { why='closed and empty'; return 69; }
  why='nothing there'
  return 66
}

# bulk_from_queue QUEUE - write out and settle batches until the queue is empty or bulk_left is 0
bulk_from_queue() {
  queue_open "$1" || {
    bulk_code=$?
    [ $bulk_code -eq 66 ] || return $bulk_code
    bulk_open=1
    return 0
  }
  [ -e "$q/closed" ] || bulk_open=1
  clock_read
  queue_put_back_due
  while [ "$bulk_left" -gt 0 ]; do
    reclaim_saw=
    under_lock bulk_choose "$bulk_left"
    bulk_code=$?
    case $bulk_code in
    0) ;;
    66) [ -z "$proof_delayed" ] || bulk_open=1; return 0 ;;
    # RACE: another process dropped the queue meanwhile
    69) bulk_open=1; return 0 ;;
    *) return $bulk_code ;;
    esac
    { [ -z "${bulk_asks:-}" ] || bulk_measure; } && bulk_print "$bulk_mode" && bulk_received || {
      bulk_held || return
      # A body that cannot be read is set aside at the second try
      # shellcheck disable=SC2086 # names without blanks
      [ -z "$bulk_slips" ] || (cd "$q/body" && exec cat $bulk_ids >/dev/null) || body_cut=1
      batch_putback "$q/out/$batch"
      return 74
    }
    under_lock bulk_settle || return
    bulk_any=1 bulk_left=$((bulk_left - bulk_got))
    bulk_log pop "$bulk_got"
    wake "$q/room" "$bulk_got"
  done
}

# bulk_log VERB COUNT - write one line about COUNT messages to the queue's log
bulk_log() {
  clock_read
  clock_epoch "$now"
  log_line "$1" - 1 0 0 "bulk-$2"
}

# bulk_held - return 0 if the batch is still ours, 66 if others have it, which is no fault of the
# disk; 74 if unknown
bulk_held() {
  expect_path "$q/out/$batch" "queue '$queue': what was taken is no longer yours"
}

# bulk_settle - settle the batch under the lock. A process that puts batches back holds the lock
# too, so it sees the marker. From the marker on, what was printed is deleted, and an error says so
# (R2): if the sync failed, a power cut may bring it back; the checkpoint removes what the sweep
# leaves
bulk_settle() {
  bulk_held || return
  file_mark "$q/done/$batch" || { disk_failed "$q/done"; return; }
  sweep_names=$batch
  sweep_these || { bulk_code=$?; why="$why: what was printed is deleted"; return $bulk_code; }
}

# bulk_stop SIGNAL - the trap of a bulk take
bulk_stop() {
  trap - HUP INT TERM
  # Take the lock anew: the signal may have come before its holder had recovered (R3)
  [ -z "$lock_held" ] || unlock_queue
  [ -z "${batch:-}" ] || [ ! -d "$q/out/$batch" ] || batch_putback "$q/out/$batch"
  take_stopped "$1"
}

# door_waits SECONDS - called before a read that may take that long, and with 0 after it. A door has
# its own version
[ -n "${FLATQ_DOOR:-}" ] || door_waits() {
  :
}
