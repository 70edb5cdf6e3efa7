# bulk/push.sh - store many messages at once: write flat files beside the queue, then rename them
# into it

need engine/lock engine/push engine/sync engine/boot engine/proof engine/flat engine/bound
need bulk/batch

# bulk_push l|0|import QUEUE - store each line of standard input (0: each piece that ends with a
# NUL; import: what lib/import reads). Reads push_priority push_lease push_wait push_length; sets
# bulk_count, bulk_first, bulk_last. All enter in order; a crash in between leaves the first ones
bulk_push() {
  queue_open "$2" make || return
  clock_read
  nonce_read
  bulk_mode=$1 bulk_stage=$q/tmp/$$-$now.$nonce
  bulk_raw=$bulk_stage/raw
  trap_stop bulk_stopped
  mkdir "$bulk_stage" || { disk_failed "$q/tmp"; return; }
  bulk_write && { [ "$bulk_count" = 0 ] || bulk_commit; }
  bulk_code=$?
  [ -z "$lock_held" ] || unlock_queue
  rm -rf "$bulk_stage"
  trap - HUP INT TERM
  [ $bulk_code -ne 0 ] || wake "$q/wait" "$bulk_count"
  return $bulk_code
}

# bulk_stopped SIGNAL - the trap of bulk_push
bulk_stopped() {
  trap - HUP INT TERM
  rm -rf "$bulk_stage"
  end_by "$1"
}

# bulk_write - write flat files to the stage; import has counted its messages before
bulk_write() {
  [ "$bulk_mode" = import ] || { bulk_receive && bulk_count_messages; } || return
  [ "$bulk_count" != 0 ] || return 0
  ids_block $(((bulk_count + 999) / 1000)) || return
  ids_opened=1
  bulk_flats_make || return
  rm -f "$bulk_raw"
  bulk_whole || { disk_failed "$bulk_stage"; return; }
  sync_many "$bulk_stage"
}

# bulk_receive - copy standard input to the stage; set bulk_size. 65: fewer bytes than announced
bulk_receive() {
  if [ -n "${push_length:-}" ]; then
    head -c "$push_length"
  else
    cat
  fi >"$bulk_raw" || { disk_failed "$bulk_stage"; return; }
  measure -c "$bulk_raw" || return
  bulk_size=$measured
  [ -n "${push_length:-}" ] || { door_whole ''; return; }
  [ "$bulk_size" != "$push_length" ] || return 0
  need engine/input
  input_ended || return
  why="fewer bytes than the $push_length announced"
  return 65
}

# bulk_count_messages - set bulk_count, and bulk_bytes to the size of all messages. If a count is
# cut short, bulk_flats_make finds another sum
bulk_count_messages() {
  why="queue '$queue': messages cannot be counted"
  bulk_count=$(bulk_ends <"$bulk_raw") && bulk_last=$(tail -c 1 "$bulk_raw" | bulk_ends) &&
    is_number "${bulk_count##* }" 999999999999 || return 74
  bulk_count=$number bulk_bytes=$((bulk_size - number))
  [ "$bulk_size" != 0 ] || return 0
  # The last message may have no end
  [ "${bulk_last##* }" != 0 ] || bulk_count=$((bulk_count + 1))
  # Bytes have come, so there is a message
  [ "$bulk_count" != 0 ] || return 74
}

# bulk_ends - a filter that counts the ends of messages
bulk_ends() {
  if [ "$bulk_mode" = l ]; then wc -l; else tr -dc '\000' | wc -c; fi
}

# bulk_flats_make - write the flat files; set bulk_first, bulk_last, and bulk_size to their bytes
bulk_flats_make() {
  queue_conf && push_expires 0 || return
  clock_epoch "$now"
  pad "$push_priority" 0000000000
  bulk_priority=$padded
  bulk_blocks || return
  bulk_said=$(
    set -a
    FLATQ_STAGE=$bulk_stage FLATQ_FIRST=$bulk_first FLATQ_PRIORITY=$bulk_priority FLATQ_NONCE=$nonce
    FLATQ_REST=.0.0.$push_lease.$slip_delay.$epoch_time. FLATQ_LINES=$flat_lines
    FLATQ_BYTES=$flat_bytes FLATQ_LARGE=$large_body FLATQ_MOST=${FLATQ_MOST_BYTES:-}
    FLATQ_END=$bulk_mode
    bulk_flats
  )
  case $? in
  0) ;;
  65) why="a message is over the limit of ${FLATQ_MOST_BYTES:-}: nothing is stored"; return 65 ;;
  *) disk_failed "$bulk_stage"; return ;;
  esac
  bulk_last=$((bulk_first + bulk_count - 1)) bulk_size=${bulk_said##* }
  [ "${bulk_said% *}" = "$bulk_last $bulk_bytes" ] && return 0
  why="queue '$queue': messages were not read to their end, or were counted wrongly"
  return 74
}

# bulk_flats - write the flat files; print what push.awk does
bulk_flats() {
  if [ "$bulk_mode" != import ] && command -v perl >/dev/null; then
    perl "$lib/bulk/push.pl" <"$bulk_raw"
    bulk_code=$?
    # 3: it has no MIME::Base64
    [ $bulk_code -eq 3 ] || return $bulk_code
  fi
  if [ "$bulk_mode" = import ]; then
    import_read messages <"$import_file"
  else
    bulk_lines <"$bulk_raw"
  fi | bulk_awk -f "$lib/bulk/push.awk"
}

# bulk_blocks - create the blocks of the stage, by the messages' ids; set bulk_first
bulk_blocks() {
  unpad "$ids_first"
  bulk_first=$unpadded bulk_block=$((unpadded / 100000))
  set --
  while [ $bulk_block -le $(((bulk_first + bulk_count - 1) / 100000)) ]; do
    pad $bulk_block 0000000
    set -- "$@" "$bulk_stage/$bulk_priority.$padded"
    bulk_block=$((bulk_block + 1))
  done
  mkdir "$@" || disk_failed "$bulk_stage"
}

# bulk_whole - whether the stage has bulk_size bytes: some awks do not notice a full disk
bulk_whole() {
  # shellcheck disable=SC2012 # the names are ours
  bulk_found=$(ls -lnR "$bulk_stage" | awk '/^-/ { sum += $5 } END { printf "%.0f", sum }') &&
    [ "$bulk_found" = "$bulk_size" ]
}

# bulk_lines - print each message as push.awk reads it, but cut one that is too large a little over
# FLATQ_MOST_BYTES, so that it does not fill the memory. Some awks drop a NUL, so od passes numbers
bulk_lines() {
  od -An -v -tu1 | bulk_awk '
    function flush() {
      if (have == 1) put(substr(quad(bits * 65536), 1, 2) "==")
      if (have == 2) put(substr(quad(bits * 256), 1, 3) "=")
      if (out != "") print out
      print ""
      out = ""
      bits = have = open = long = 0
    }
    function quad(bits) { return letters[int(bits / 4096)] letters[bits % 4096] }
    # Add four characters, unless the message is too large
    function put(text) {
      if (most != "" && long > most) return
      out = out text
      long += 4
      if (length(out) > 2000) { print out; out = "" }
    }
    BEGIN {
      abc = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
      for (i = 0; i < 4096; i++)
        letters[i] = substr(abc, int(i / 64) + 1, 1) substr(abc, i % 64 + 1, 1)
      end = ENVIRON["FLATQ_END"] == "l" ? 10 : 0
      most = ENVIRON["FLATQ_MOST"]
      if (most != "") most = most / 3 * 4 + 8
    }
    {
      for (i = 1; i <= NF; i++) {
        if ($i == end) { flush(); continue }
        open = 1
        bits = bits * 256 + $i
        if (++have == 3) { put(quad(bits)); bits = have = 0 }
      }
    }
    END { if (open) flush() }'
}

# bulk_enter - move the flat files of bulk_path, a block of the stage, to bulk_block, one of queue/;
# to `/.`, as mv would rename to a block that is gone
bulk_enter() {
  mkdir -p "$bulk_block" || return
  set --
  for bulk_flat in "$bulk_path"/* end; do
    [ "$bulk_flat" = end ] || { set -- "$@" "$bulk_flat"; [ $# -eq 100 ] || continue; }
    [ $# -eq 0 ] || mv -f "$@" "$bulk_block/."
    set --
  done
  # This proves that nothing is left in the stage (R1)
  rmdir "$bulk_path"
}

# bulk_torn CODE - a rename or a sync has failed: return CODE, and say so if a part of the messages
# may have entered the queue
bulk_torn() {
  set -- "$1" "$bulk_stage"/*/*
  if [ ! -e "$2" ] || [ $# -le "$bulk_flat_count" ]; then
    why="queue '$queue': it is unknown whether messages $bulk_first to $bulk_last were stored"
    why="$why: a retry may store some of them twice"
  fi
  return "$1"
}

# bulk_commit - under the lock, move the flat files of the stage to their place
bulk_commit() {
  queue_conf || return
  push_need=$bulk_count push_key='' push_dup=''
  push_enter || return
  set -- "$bulk_stage"/*/*
  bulk_flat_count=$#
  for bulk_path in "$bulk_stage"/*; do
    # The pattern itself: the stage could not be listed (R1)
    [ "$bulk_path" != "$bulk_stage/*" ] || { not_listed; return; }
    bulk_block=$q/queue/${bulk_path##*/}
    { bulk_enter || disk_failed "$q/queue"; } && sync_paths "$bulk_block" "$q/queue" ||
      { bulk_torn $?; return; }
  done
  log_line push "$bulk_first" 0 "$bulk_bytes" 0 "bulk-$bulk_count"
}
