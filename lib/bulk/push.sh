# bulk/push.sh - store many messages at once: write flat files beside the queue and rename them into it

need engine/lock engine/sync engine/boot engine/proof engine/input engine/fold engine/bound bulk/batch

# bulk_push l|0|import QUEUE - store each line of standard input, or each piece that ends with a NUL, or what lib/import reads, as a message.
# Reads push_priority push_lease push_wait. Sets bulk_count, bulk_first, bulk_last. The messages enter the queue block by block, in order,
# before the answer; a crash in between leaves the first ones. Returns 65, and stores nothing, if one is larger than FLATQ_MOST_BYTES
bulk_push() {
  queue_open "$2" make || return $?
  clock_read
  nonce_read
  owner_read
  bulk_stage=$q/tmp/$owner.$nonce
  trap_stop bulk_stopped
  mkdir "$bulk_stage" 2>/dev/null || { disk_failed "$q/tmp"; return $?; }
  bulk_write "$1" && { [ "$bulk_count" = 0 ] || bulk_commit; }
  bulk_code=$?
  [ -z "$lock_held" ] || unlock_queue
  rm -rf "$bulk_stage" 2>/dev/null
  trap - HUP INT TERM
  [ $bulk_code -eq 0 ] || return $bulk_code
  [ "$bulk_count" = 0 ] || wake "$q/wait" "$bulk_count"
}

# bulk_stopped SIGNAL - the trap of bulk_push
bulk_stopped() {
  trap - HUP INT TERM
  rm -rf "$bulk_stage" 2>/dev/null
  end_by "$1"
}

# bulk_write l|0|import - write standard input to flat files in the stage
bulk_write() {
  bulk_mode=$1 bulk_raw=$bulk_stage/raw bulk_from=$bulk_stage/raw
  [ -z "${push_length:-}" ] || bulk_receive <&"${push_input:-0}" || return $?
  bulk_count_messages <&"${push_input:-0}" || return $?
  # Bytes were announced, and bulk_receive stored them: so there is a message, and a count of 0 means that perl did not read them
  [ "$bulk_count" != 0 ] || [ "${push_length:-0}" = 0 ] || { why="queue '$queue': messages cannot be counted"; return 74; }
  [ -n "${push_length:-}" ] || door_whole '' || return $?
  [ "$bulk_count" != 0 ] || return 0
  # Count in ranges of a thousand ids, since mksh has 32-bit numbers
  ids_block $(((bulk_count + 999) / 1000)) || return $?
  ids_opened=1
  bulk_flats_make || return $?
  rm -f "$bulk_from" 2>/dev/null
  bulk_whole || { disk_failed "$bulk_stage"; return $?; }
  sync_many "$bulk_stage" || return $?
}

# bulk_receive - store the announced bytes in the stage; return 65 if fewer come
bulk_receive() {
  { head -c "$push_length" >"$bulk_raw"; } 2>/dev/null || { disk_failed "$bulk_stage"; return $?; }
  measure -c "$bulk_raw" || return $?
  [ "$measured" = "$push_length" ] || { input_ended || return $?; why="fewer bytes than the $push_length announced"; return 65; }
}

# bulk_count_messages - store standard input in the stage, unless bulk_receive has; set bulk_count, and bulk_from to a file for bulk_flats_make: the messages
# as they came, if perl can write the flat files, else a line of base64 for each
bulk_count_messages() {
  bulk_code=3
  [ "$bulk_mode" = import ] || ! command -v perl >/dev/null 2>&1 || {
    if [ -n "${push_length:-}" ]; then bulk_perl_count '' <"$bulk_raw"; else bulk_perl_count "$bulk_raw"; fi
    bulk_code=$?
  }
  case $bulk_code in
  0)
    capture "$bulk_said" && is_number "$captured" 999999999999 && bulk_count=$number && return 0
    why="queue '$queue': messages cannot be counted"
    return 74 ;;
  3)
    # By the file that it makes first, a perl that ends with 3 proves that it has read nothing
    [ -n "${push_length:-}" ] || [ ! -e "$bulk_raw" ] || { why="queue '$queue': messages cannot be counted"; return 74; } ;;
  *) bulk_failed $bulk_code; return $? ;;
  esac
  bulk_from=$bulk_stage/lines
  if [ -n "${push_length:-}" ]; then
    bulk_encode <"$bulk_raw" && rm -f "$bulk_raw"
  else
    bulk_encode
  fi 2>/dev/null >"$bulk_from" || { disk_failed "$bulk_stage"; return $?; }
  # The last line counts the others. What lib/import has counted before must be the same
  measure -l "$bulk_from" && [ "$measured" -gt 0 ] &&
    { [ "$bulk_mode" != import ] || [ "$(tail -n 1 "$bulk_from" 2>/dev/null)" = "$import_sum" ]; } || { why="queue '$queue': messages cannot be counted"; return 74; }
  bulk_count=$((measured - 1))
}

# bulk_perl_count RAW - set bulk_said to what `push.pl count` prints
bulk_perl_count() {
  bulk_said=$(FLATQ_END=$bulk_mode FLATQ_RAW=$1 FLATQ_MOST=${FLATQ_MOST_BYTES:-} exec perl "$lib/bulk/push.pl" count 2>/dev/null)
}

# bulk_flats_make - make the flat files of what is in bulk_from; set bulk_first, bulk_last, bulk_bytes (of all messages) and bulk_size (of all flat files)
bulk_flats_make() {
  clock_epoch "$now"
  pad "$push_priority" 0000000000
  bulk_priority=$padded
  bulk_blocks || return $?
  bulk_awk_find
  bulk_said=$(
    FLATQ_STAGE=$bulk_stage FLATQ_FIRST=$ids_first FLATQ_PRIORITY=$bulk_priority FLATQ_COUNT=$bulk_count FLATQ_REST=".0.0.$push_lease.0.$epoch_time."
    FLATQ_NONCE=$nonce FLATQ_MOST=${FLATQ_MOST_BYTES:-} FLATQ_TTY=
    [ ! -t 2 ] || FLATQ_TTY=/dev/tty
    export FLATQ_STAGE FLATQ_FIRST FLATQ_PRIORITY FLATQ_COUNT FLATQ_REST FLATQ_NONCE FLATQ_MOST FLATQ_TTY
    case $bulk_from in
    */raw) FLATQ_END=$bulk_mode; export FLATQ_END; exec perl "$lib/bulk/push.pl" write ;;
    *) bulk_awk -f "$lib/bulk/push.awk" ;;
    esac 2>/dev/null <"$bulk_from"
  )
  bulk_code=$?
  [ $bulk_code -eq 0 ] || { bulk_failed $bulk_code; return $?; }
  capture "$bulk_said" || { why="queue '$queue': messages could not be stored"; return 74; }
  bulk_last=${captured%% *} bulk_size=${captured##* } bulk_bytes=${captured#* }
  bulk_bytes=${bulk_bytes% *}
  unpad "$bulk_last"
  bulk_last=$unpadded
  # The ids must be those that are ours: the first of a range, and as many as there are messages
  unpad "${ids_first%???}"
  pad $(((bulk_count - 1) % 1000)) 000
  [ "$bulk_last" = "$((unpadded + (bulk_count - 1) / 1000))$padded" ] || { why="queue '$queue': awk or perl has counted wrongly"; return 74; }
  unpad "$ids_first"
  bulk_first=$unpadded
}

# bulk_failed CODE - set `why` for the exit code of push.pl or push.awk, and return what the verb returns
bulk_failed() {
  [ "$1" -eq 65 ] && [ -n "${FLATQ_MOST_BYTES:-}" ] || { disk_failed "$bulk_stage"; return $?; }
  why="a message is over the limit of $FLATQ_MOST_BYTES: nothing is stored"
  return 65
}

# bulk_blocks - create the blocks of the stage, by the ids that bulk_count messages get. Not by awk: where the caller ignores CHLD, its `system` fails
bulk_blocks() {
  unpad "${ids_first%???}"
  bulk_block=$((unpadded / 100)) bulk_range=$(((unpadded + (bulk_count - 1) / 1000) / 100))
  set --
  while [ $bulk_block -le $bulk_range ]; do
    pad $bulk_block 0000000
    set -- "$@" "$bulk_stage/$bulk_priority.$padded"
    bulk_block=$((bulk_block + 1))
  done
  mkdir "$@" 2>/dev/null || disk_failed "$bulk_stage"
}

# bulk_whole - check that the stage holds as many bytes as were to be written, since some awks do not notice a full disk
bulk_whole() {
  # shellcheck disable=SC2012 # the names are ours
  [ "$(ls -lnR "$bulk_stage" 2>/dev/null | awk '/^-/ { sum += $5 } END { printf "%.0f", sum }' 2>/dev/null)" = "$bulk_size" ]
}

# bulk_encode - a filter that prints one line of base64 for each message, and last `= COUNT LENGTH`: the number of these lines, and the length of all. A
# message that is too large is cut a little over FLATQ_MOST_BYTES, as it comes: it is refused later (push.awk), and must not fill the memory
bulk_encode() {
  if [ "$bulk_mode" = import ]; then
    import_lines
  elif command -v python3 >/dev/null 2>&1; then
    bulk_python
  else
    bulk_od
  fi
}

# bulk_python - bulk_encode by python3
bulk_python() {
  FLATQ_END=$bulk_mode FLATQ_MOST=${FLATQ_MOST_BYTES:-} python3 -c '
import os, sys
from binascii import b2a_base64
end, left, write = {"l": b"\n", "0": b"\0"}[os.environ["FLATQ_END"]], [], sys.stdout.buffer.write
most, size, count, total = float(os.environ["FLATQ_MOST"] or "inf"), 0, 0, 0
def put(bodies):
    global count, total
    lines = b"".join(map(b2a_base64, bodies))
    count, total = count + len(bodies), total + len(lines) - len(bodies)
    write(lines)
for block in iter(lambda: sys.stdin.buffer.read(1 << 16), b""):
    pieces = block.split(end)
    if len(pieces) > 1:
        pieces[0] = b"".join(left) + pieces[0]
        put(pieces[:-1])
        left, size = [], 0
    if size <= most:
        left.append(pieces[-1])
    size += len(pieces[-1])
if any(left):
    put([b"".join(left)])
write(b"= %d %d\n" % (count, total))
sys.stdout.flush()' 2>/dev/null
}

# bulk_od - bulk_encode by od and awk
bulk_od() {
  # Some awks drop NULs, so od passes the bytes as numbers, behind their offset in each line of 16: it shows whether awk has read the lines before
  { od -Ad -v -tu1 && printf 'end\n'; } | FLATQ_END=$bulk_mode FLATQ_MOST=${FLATQ_MOST_BYTES:-} awk '
    function flush(   rest) {
      if (have == 1) out = out substr(abc, int(bits / 4) + 1, 1) substr(abc, bits % 4 * 16 + 1, 1) "=="
      if (have == 2) out = out substr(abc, int(bits / 1024) + 1, 1) substr(abc, int(bits / 16) % 64 + 1, 1) substr(abc, bits % 16 * 4 + 1, 1) "="
      print out
      count++; total += long + length(out)
      out = ""; bits = have = open = long = groups = 0
    }
    BEGIN { abc = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"; end = ENVIRON["FLATQ_END"] == "l" ? 10 : 0
      most = ENVIRON["FLATQ_MOST"]; if (most != "") most = most / 3 * 4 + 8 }
    $1 == "end" { whole = 1; next }
    $1 "" != sprintf("%07.0f", offset) "" { lost = 1; exit }
    { offset += NF - 1
      for (i = 2; i <= NF; i++) {
        if ($i == end) { flush(); continue }
        open = 1; bits = bits * 256 + $i
        if (++have == 3) {
          if (most == "" || long + 4 * groups <= most) {
            out = out substr(abc, int(bits / 262144) + 1, 1) substr(abc, int(bits / 4096) % 64 + 1, 1) \
              substr(abc, int(bits / 64) % 64 + 1, 1) substr(abc, bits % 64 + 1, 1)
            # Piece by piece: some awks copy all of `out` for each addition (R8)
            if (++groups == 500) { printf "%s", out; long += length(out); out = ""; groups = 0 }
          }
          bits = have = 0 } } }
    END { if (open) flush(); if (lost || !whole) exit 74; printf "= %.0f %.0f\n", count, total }' 2>/dev/null
}

# bulk_enter - rename bulk_path, a block of the stage, into queue/, or its flat files into the block that is there. Only mkdir tells which: after
# a failed look, mv would put the new block inside the old one. No mv renames anything to `/.`, and rename(2) replaces only an empty directory
bulk_enter() {
  [ -d "$bulk_path" ] || return 1
  if mkdir "$bulk_block" 2>/dev/null; then
    mv -f "$bulk_path" "$q/queue/." 2>/dev/null 9<&9 || absent "$bulk_path"
    return $?
  fi
  set --
  for bulk_flat in "$bulk_path"/* end; do
    [ "$bulk_flat" = end ] || { set -- "$@" "$bulk_flat"; [ $# -eq 100 ] || continue; }
    [ $# -eq 0 ] || mv -f "$@" "$bulk_block/." 2>/dev/null 9<&9
    set --
  done
  # This proves that nothing is left in the stage (R1)
  rmdir "$bulk_path" 2>/dev/null
}

# bulk_torn CODE - called when a rename or a sync has failed with CODE: return CODE, and say so if a part of the messages may have entered the queue
bulk_torn() {
  set -- "$1" "$bulk_stage"/*/*
  [ -e "$2" ] && [ $# -gt "$bulk_flat_count" ] ||
    why="queue '$queue': it is unknown whether messages $bulk_first to $bulk_last were stored: a retry may store some of them twice"
  return "$1"
}

# bulk_commit - under the lock, rename every block of the stage, or its flat files, to its place
bulk_commit() {
  queue_conf || return $?
  push_need=$bulk_count push_key='' push_dup=''
  push_enter || return $?
  set -- "$bulk_stage"/*/*
  bulk_flat_count=$#
  for bulk_path in "$bulk_stage"/*; do
    bulk_block=$q/queue/${bulk_path##*/}
    bulk_enter || { disk_failed "$q/queue"; bulk_torn $?; return $?; }
    sync_paths "$bulk_block" "$q/queue" || { bulk_torn $?; return $?; }
  done
  # A few messages are cheaper as single ones
  if [ "$bulk_count" -lt 100 ]; then
    for bulk_path in "$bulk_block"/*."$nonce"; do
      queue_unfold "${bulk_path##*/}" || :
    done
  fi
  log_line push "$bulk_first" 0 "$bulk_bytes" 0 "bulk-$bulk_count"
}

part='bulk/push'
