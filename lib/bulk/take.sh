# bulk/take.sh - take many messages at once: whole flat files, or runs of single messages
#
# They lie in a batch (bulk/batch.sh), under their old names. A marker in done/ with its name
# settles it; without one, they come back when the owner is dead.

need engine/slip engine/lock engine/take engine/back engine/proof engine/flat engine/reclaim
need engine/piped bulk/batch

# bulk_choose MOST QUEUE ... - move up to MOST messages of the first queue that has any into a
# batch; set `batch`, bulk_got, bulk_names and, for single messages, bulk_ids. As take_message
bulk_choose() {
  bulk_most=$1 take_looked=0
  shift
  while :; do
    take_pick "$@" || return
    [ -n "$take_queue" ] || { take_nothing || return; continue; }
    under_lock bulk_batch
    bulk_code=$?
    # RACE: another process was faster, or dropped the queue
    [ $bulk_code -eq 66 ] || [ $bulk_code -eq 69 ] || return $bulk_code
  done
}

# bulk_batch - bulk_choose in $q, under the lock; 66: look again
bulk_batch() {
  queue_scan
  bulk_place=$scan_place bulk_names='' bulk_ids='' bulk_got=0
  case $scan_place in
  '') return 66 ;;
  queue) bulk_flats ;;
  *) bulk_singles ;;
  esac
}

# batch_new - set `batch` to the name in out/ of a batch of this process
batch_new() {
  nonce_read
  clock_read
  batch=batch.$$-$now.$nonce.000000000000
}

# batch_make - create a batch of this process
batch_make() {
  batch_new
  mkdir "$q/out/$batch" || disk_failed "$q/out"
}

# bulk_move - move bulk_names from bulk_place to the batch
# shellcheck disable=SC2086 # names
bulk_move() {
  (cd "$q/$bulk_place" && exec mv -f $bulk_names "$q/out/$batch/")
}

# bulk_singles - take the messages of bulk_place that come before all others; 66: look again
bulk_singles() {
  queue_scan "$q/$bulk_place"
  for bulk_path in "$q/$bulk_place"/*; do
    bulk_name=${bulk_path##*/}
    [ "$bulk_name" != '*' ] && [ "$bulk_got" -lt "$bulk_most" ] &&
      [ "$bulk_got" -lt "$flat_lines" ] || break
    [ -z "$scan_name" ] || [ "$bulk_name" \< "$scan_name" ] || break
    slip_parse "$bulk_name" || { set_aside "$bulk_place/$bulk_name" || return; continue; }
    bulk_names="$bulk_names $bulk_name" bulk_got=$((bulk_got + 1))
  done
  [ "$bulk_got" -gt 0 ] || return 66
  batch_make || return
  # RACE: mv does not find those that another process took first
  bulk_move
  names_in "$q/out/$batch" || return
  [ -z "$names" ] || { bulk_sift; return; }
  rmdir "$q/out/$batch"
  # If one is still there, no other process took it: mv has failed
  for bulk_name in $bulk_names; do
    [ ! -e "$q/$bulk_place/$bulk_name" ] || { disk_failed "$q/out"; return; }
  done
  return 66
}

# bulk_sift - bury those of `names` in the batch that have no whole body; set bulk_names, bulk_ids
# and bulk_got to the others. 66: none is left
# shellcheck disable=SC2046,SC2086 # names
bulk_sift() {
  bulk_names='' bulk_got=0
  ids_of $names
  # SIZE ID of each body that can be opened
  set -- $(cd "$q/body" && exec wc -c $ids 9>&-)
  for bulk_name in $names; do
    slip_parse "$bulk_name" || continue
    letters_of "$slip_size"
    bulk_found=${1-}.${2-}
    [ "${2-}" != "$slip_id" ] || shift 2
    if [ ${#slip_delay} -eq 10 ] && need engine/expire && slip_expired; then
      message_expire "$q/out/$batch/$bulk_name" || [ $? -eq 66 ] || return
      continue
    fi
    if [ "$bulk_found" != "$((letters + 1)).$slip_id" ]; then
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
    bulk_names="$bulk_names $bulk_name" bulk_ids="$bulk_ids $slip_id" bulk_got=$((bulk_got + 1))
  done
  [ "$bulk_got" -gt 0 ] || { rmdir "$q/out/$batch"; return 66; }
}

# bulk_flats - take flat files as long as no other message belongs between them; at most 200, since
# what a killed drain held is delivered again. 66: look again
bulk_flats() {
  # queue_unfold sets aside what is not a flat file
  bulk_name=$scan_name
  flat_parse "$bulk_name" && ! seen "$q/expires" ||
    { queue_unfold "$bulk_name" || return; return 66; }
  # Beside one block, whose last file may reach beyond the first of the next
  bulk_place=queue/$flat_block
  queue_scan "$q/$bulk_place"
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
  [ -n "$bulk_names" ] || { queue_unfold "$bulk_name" || return; return 66; }
  batch_make || return
  bulk_move || { disk_failed "$q/out"; return; }
  block_leave "${bulk_place#queue/}"
}

# bulk_print - write out the batch in the form that bulk_mode says
bulk_print() {
  door_reply large || return
  if [ "$bulk_mode" = 6 ]; then bulk_coded; else piped 'base64 -d' bulk_coded; fi ||
    bulk_not_printed
}

bulk_not_printed() {
  why="queue '$queue': messages could not be written out in full"
  return 74
}

# bulk_coded - print each message as a line of base64, and its end as another: base64 -d accepts
# pieces that were padded one by one. Not by awk (lines_short)
# shellcheck disable=SC2086 # names
bulk_coded() {
  set -- -e 's/^[0-9a-z.-]*[[:blank:]]//'
  case $bulk_mode in
  l) set -- "$@" -e 's/$/\
Cg==/' ;;
  0) set -- "$@" -e 's/$/\
AA==/' ;;
  esac
  if [ -n "$bulk_ids" ]; then
    (cd "$q/body" && exec sed "$@" $bulk_ids)
  else
    (cd "$q/out/$batch" && exec sed "$@" $bulk_names)
  fi
}

# bulk_measure - print the number of bytes that bulk_print will write
# shellcheck disable=SC2086 # names
bulk_measure() {
  bulk_sum=$(
    if [ -n "$bulk_ids" ]; then
      printf '%s\n' $bulk_names
    else
      cd "$q/out/$batch" && exec cut -f 1 $bulk_names
    fi | bulk_awk -F . -v "count=$bulk_got" -v "mode=$bulk_mode" "$letters_awk"'
      { sum += (mode == "6" ? letters($8) : $8) + 1 }
      END { if (NR != count) exit 1; printf "%.0f", sum }'
  ) && printf '%s\n' "$bulk_sum" || bulk_not_printed
}

# bulk_received - return 0 if the client has received the batch: without -a, as far as a door can
# see; with -a, once it has answered our line `sent` by `ok`
bulk_received() {
  [ -n "${bulk_asks:-}" ] || { door_delivered; return; }
  door_waits 3600
  printf '%ssent\n' "${door_nonce:-}" && IFS= read -r bulk_said && [ "$bulk_said" = ok ] ||
    { why="queue '$queue': messages were not acknowledged"; return 74; }
  # The messages are the client's, even if the guard is gone
  door_waits 0 || :
}

# bulk_pop l|0|6 COUNT SECONDS QUEUE ... - write out and settle up to COUNT messages; wait for
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

# bulk_pop_queues - write out and settle batches of wait_queues until nothing is ready, or bulk_left
# is 0; 66, 69: nothing was there
# shellcheck disable=SC2086 # names
bulk_pop_queues() {
  bulk_any=
  while [ "$bulk_left" -gt 0 ]; do
    clock_read
    bulk_choose "$bulk_left" $wait_queues
    bulk_code=$?
    case $bulk_code.$bulk_any in
    0.*) ;;
    66.1 | 69.1) return 0 ;;
    *) return $bulk_code ;;
    esac
    { [ -z "${bulk_asks:-}" ] || bulk_measure; } && bulk_print && bulk_received || {
      bulk_held || return
      # A body that cannot be read is set aside at the second try
      [ -z "$bulk_ids" ] || (cd "$q/body" && exec cat $bulk_ids >/dev/null) || body_cut=1
      batch_putback "$q/out/$batch"
      return 74
    }
    under_lock bulk_settle || return
    bulk_any=1 bulk_left=$((bulk_left - bulk_got))
    bulk_log pop "$bulk_got"
    wake "$q/room" "$bulk_got"
  done
}

# bulk_log VERB COUNT - log_line about COUNT messages
bulk_log() {
  clock_read
  clock_epoch "$now"
  log_line "$1" - 1 0 0 "bulk-$2"
}

# bulk_held - return 66 if others have the batch, 74 if that is unknown
bulk_held() {
  expect_path "$q/out/$batch" "queue '$queue': what was taken is no longer yours"
}

# bulk_settle - under the lock, settle the batch, and sweep it. From the marker on, what was printed
# is deleted, and an error says so (R2); the checkpoint removes what the sweep leaves
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
