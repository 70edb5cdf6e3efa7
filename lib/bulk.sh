# bulk.sh - many messages at once: flat files are written and taken whole
#
# A bulk take is a directory out/batch.PID-TIME.NONCE with slips and flat files under the names they had; its owner's death gives all of
# them back. Its marker is done/ with the same name.

# bulk_push l|0 QUEUE - each line, or piece that ends with a NUL, of standard input is a message.
# In: push_priority push_lease push_wait. Out: bulk_count, bulk_first, bulk_last. All are there or none, as far as one crash goes: they
# come block by block, in order, before anybody is told
bulk_push() {
  queue_open "$2" make || return
  clock_read
  nonce_read
  bulk_stage=$q/tmp/$$-$now.$nonce
  mkdir "$bulk_stage" 2>/dev/null || { disk_failed "$q/tmp" "queue '$queue'"; return; }
  trap 'bulk_stopped HUP' HUP
  trap 'bulk_stopped INT' INT
  trap 'bulk_stopped TERM' TERM
  bulk_write "$1" && { [ "$bulk_count" = 0 ] || bulk_commit; }
  bulk_code=$?
  [ -z "$lock_held" ] || unlock_queue
  rm -rf "$bulk_stage" 2>/dev/null
  trap - HUP INT TERM
  [ $bulk_code -eq 0 ] || return $bulk_code
  [ "$bulk_count" = 0 ] || wake "$q/wait" "$bulk_count"
}

bulk_stopped() {
  trap - HUP INT TERM
  rm -rf "$bulk_stage" 2>/dev/null
  kill -s "$1" $$
}

# bulk_write l|0 - standard input to flat files in the stage
bulk_write() {
  {
    if [ -n "${push_length:-}" ]; then
      head -c "$push_length" >"$bulk_stage/raw" && [ "$(($(wc -c <"$bulk_stage/raw" || printf '%s' -1)))" = "$push_length" ] ||
        { why="fewer bytes than the $push_length announced"; return 65; }
      bulk_encode "$1" <"$bulk_stage/raw" && rm -f "$bulk_stage/raw" 2>/dev/null
    else
      bulk_encode "$1"
    fi
  } 2>/dev/null >"$bulk_stage/lines" || { disk_failed "$bulk_stage" "queue '$queue'"; return; }
  bulk_count=$(($(wc -l <"$bulk_stage/lines" || printf '%s' -1)))
  [ "$bulk_count" != 0 ] || return 0
  [ "$bulk_count" -gt 0 ] || { why="queue '$queue': messages cannot be counted"; return 74; }
  # in words of ranges: mksh counts in 32 bits
  ids_block $(((bulk_count + 999) / 1000)) || return
  ids_turned=1
  clock_epoch "$now"
  pad "$push_priority" 0000000000
  bulk_said=$(FLATQ_STAGE=$bulk_stage FLATQ_FIRST=$ids_first FLATQ_PRIORITY=$padded FLATQ_COUNT=$bulk_count \
    FLATQ_REST=".0.0.$push_lease.0.$epoch_time." FLATQ_NONCE=$nonce FLATQ_TTY=$([ -t 2 ] && printf /dev/tty) bulk_awk '
      function flush(   name, i, block, path) {
        if (!n) return
        block = ENVIRON["FLATQ_STAGE"] "/" pri "." substr(ids[1], 1, 7)
        if (!(block in made)) { if (system("mkdir \"$FLATQ_STAGE/" pri "." substr(ids[1], 1, 7) "\"")) exit bad = 74; made[block] = 1 }
        path = block "/" pri "." ids[1] "." ids[n] "." n ".0." ENVIRON["FLATQ_NONCE"]
        for (i = 1; i <= n; i++) { print pri "." ids[i] lines[i] >path; written += length(lines[i]) + 24 }
        if (close(path)) exit bad = 74
        n = bytes = 0
        if (ENVIRON["FLATQ_TTY"] && NR % 50000 == 0) printf "\rpush: %d of %d", NR, ENVIRON["FLATQ_COUNT"] >ENVIRON["FLATQ_TTY"]
      }
      BEGIN { pri = ENVIRON["FLATQ_PRIORITY"]; rest = ENVIRON["FLATQ_REST"]; id = ENVIRON["FLATQ_FIRST"] + 0 }
      {
        size = length($0) / 4 * 3
        if ($0 ~ /==$/) size -= 2; else if ($0 ~ /=$/) size--
        number = sprintf("%012.0f", id++)
        if (n == 500 || bytes > 4194304 || (n && substr(number, 1, 7) != substr(ids[1], 1, 7))) flush()
        ids[++n] = number
        lines[n] = rest size ".-.0-0-0-0\t" $0
        bytes += length($0); total += size
      }
      END { if (!bad) flush(); if (bad) exit bad
        if (ENVIRON["FLATQ_TTY"] && NR >= 50000) printf "\r\033[K" >ENVIRON["FLATQ_TTY"]
        printf "%s %.0f %.0f\n", number, total, written }' <"$bulk_stage/lines" 2>/dev/null) ||
    { disk_failed "$bulk_stage" "queue '$queue'"; return; }
  rm -f "$bulk_stage/lines" 2>/dev/null
  bulk_last=${bulk_said%% *} bulk_size=${bulk_said##* } bulk_bytes=${bulk_said#* }
  bulk_bytes=${bulk_bytes% *}
  bulk_last=${bulk_last#"${bulk_last%%[!0]*}"} bulk_first=${ids_first#"${ids_first%%[!0]*}"}
  bulk_whole || { disk_failed "$bulk_stage" "queue '$queue'"; return; }
  sync_many "$bulk_stage" || { why="queue '$queue': cannot sync"; return 74; }
}

# bulk_whole - whether the stage holds as many bytes as were to be written: an awk that does not notice a full disk is noticed here
bulk_whole() {
  # shellcheck disable=SC2012 # the names are ours
  [ "$(ls -lR "$bulk_stage" | awk '/^-/ { sum += $5 } END { printf "%.0f", sum }')" = "$bulk_size" ]
}

# bulk_awk ARGUMENTS - the quickest awk there is: mawk does in a second what gawk does in five
bulk_awk() {
  if command -v mawk >/dev/null 2>&1; then mawk "$@"; else awk "$@"; fi
}

# bulk_encode l|0 - a filter: one line of base64 for each message
bulk_encode() {
  if command -v perl >/dev/null 2>&1; then
    FLATQ_END=$1 perl -MMIME::Base64 -ne '
      BEGIN { binmode STDIN; $/ = $ENV{FLATQ_END} eq "l" ? "\n" : "\0" }
      chomp; print encode_base64($_, ""), "\n" or exit 74;
      END { close STDOUT or $? = 74 }' 2>/dev/null
  elif command -v python3 >/dev/null 2>&1; then
    FLATQ_END=$1 python3 -c '
import os, sys
from binascii import b2a_base64
end, left, write = {"l": b"\n", "0": b"\0"}[os.environ["FLATQ_END"]], [], sys.stdout.buffer.write
for block in iter(lambda: sys.stdin.buffer.read(1 << 16), b""):
    pieces = block.split(end)
    if len(pieces) > 1:
        pieces[0] = b"".join(left) + pieces[0]
        write(b"".join(map(b2a_base64, pieces[:-1])))
        left = []
    left.append(pieces[-1])
if any(left):
    write(b2a_base64(b"".join(left)))
sys.stdout.flush()' 2>/dev/null
  else
    # no NUL survives every awk: bytes come as numbers
    od -An -v -tu1 | FLATQ_END=$1 awk '
      function flush(   rest) {
        if (have == 1) out = out substr(abc, int(bits / 4) + 1, 1) substr(abc, bits % 4 * 16 + 1, 1) "=="
        if (have == 2) out = out substr(abc, int(bits / 1024) + 1, 1) substr(abc, int(bits / 16) % 64 + 1, 1) substr(abc, bits % 16 * 4 + 1, 1) "="
        print out
        out = ""; bits = have = open = 0
      }
      BEGIN { abc = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"; end = ENVIRON["FLATQ_END"] == "l" ? 10 : 0 }
      { for (i = 1; i <= NF; i++) {
          if ($i == end) { flush(); continue }
          open = 1; bits = bits * 256 + $i
          if (++have == 3) {
            out = out substr(abc, int(bits / 262144) + 1, 1) substr(abc, int(bits / 4096) % 64 + 1, 1) \
              substr(abc, int(bits / 64) % 64 + 1, 1) substr(abc, bits % 64 + 1, 1)
            bits = have = 0 } } }
      END { if (open) flush() }' 2>/dev/null
  fi
}

# bulk_commit - under the lock: every block goes to its place
bulk_commit() {
  queue_conf || return
  push_need=$bulk_count push_key='' push_dup=''
  push_enter || return
  for bulk_path in "$bulk_stage"/*; do
    bulk_block=$q/queue/${bulk_path##*/}
    if [ -d "$bulk_block" ]; then
      mv -f "$bulk_path"/* "$bulk_block/" 2>/dev/null 9>&9
    else
      mv -f "$bulk_path" "$bulk_block" 2>/dev/null 9>&9
    fi || { disk_failed "$q/queue" "queue '$queue'"; return; }
    sync_paths "$bulk_block" "$q/queue" || { why="queue '$queue': cannot sync"; return 74; }
  done
  # a few are better off as singles
  if [ "$bulk_count" -lt 100 ]; then
    for bulk_path in "$bulk_block"/*."$nonce"; do
      queue_unfold "${bulk_path##*/}" || :
    done
  fi
  { printf '%s.%s push %s 0 %s 0 bulk-%s\n' "${epoch_time%??}" "${epoch_time#"${epoch_time%??}"}" "$bulk_first" "$bulk_bytes" "$bulk_count" >>"$q/log"; } 2>/dev/null || :
}

# bulk_take MOST - takes up to MOST messages of $q, whole flat files or a run of singles, into a batch; sets `batch` and bulk_got; 66: none
bulk_take() {
  lock_queue || return
  bulk_choose "$1"
  bulk_code=$?
  unlock_queue
  return $bulk_code
}

bulk_choose() {
  while :; do
    queue_recover || return
    # where the first of all is, and the first of what is elsewhere
    queue_scan
    bulk_place=$scan_place bulk_name=$scan_name
    case $bulk_place in
    '') return 66 ;;
    queue) bulk_flats "$1" && break ;;
    *) bulk_singles "$1" && break ;;
    esac
    [ $? -eq 75 ] || return 74
  done
}

# bulk_elsewhere PLACE - sets `least`: the first name in all places but this one; empty: there is none
bulk_elsewhere() {
  scan_name='' scan_place=''
  [ "$1" = wal ] || scan_least wal "$q"/wal/*
  if [ "$1" != queue ]; then
    for scan_path in "$q"/queue/*; do
      [ "${scan_path##*/}" != '*' ] || break
      scan_least queue "$scan_path"/*
      [ "$scan_count" = 0 ] || break
    done
  fi
  for scan_path in "$q"/head/*; do
    [ "${scan_path##*/}" != '*' ] && [ "head/${scan_path##*/}" != "$1" ] || continue
    scan_least "head/${scan_path##*/}" "$scan_path"/*
  done
  least=$scan_name
}

bulk_batch() {
  nonce_read
  clock_read
  batch=batch.$$-$now.$nonce
  mkdir "$q/out/$batch" 2>/dev/null || disk_failed "$q/out" "queue '$queue'"
}

# bulk_singles MOST - singles of bulk_place that come before all that is elsewhere. 75: look again
bulk_singles() {
  bulk_elsewhere "$bulk_place"
  bulk_names='' bulk_got=0
  for bulk_path in "$q/$bulk_place"/*; do
    bulk_name=${bulk_path##*/}
    [ "$bulk_name" != '*' ] && [ $bulk_got -lt "$1" ] && [ $bulk_got -lt 500 ] || break
    [ -z "$least" ] || [ "$bulk_name" \< "$least" ] || break
    slip_parse "$bulk_name" || { slip_strange "$bulk_place/$bulk_name"; continue; }
    bulk_names="$bulk_names $bulk_name" bulk_got=$((bulk_got + 1))
  done
  [ $bulk_got -gt 0 ] || return 75
  bulk_batch || return
  # RACE: those that somebody else was faster with stay away
  # shellcheck disable=SC2086 # names without blanks
  (cd "$q/$bulk_place" && exec mv -f $bulk_names "$q/out/$batch/" 2>/dev/null 9>&9)
  set -- "$q/out/$batch"/*
  bulk_got=$#
  [ -e "$1" ] || { rmdir "$q/out/$batch" 2>/dev/null; return 75; }
}

# bulk_flats MOST - flat files from the first on, as long as nothing lies between their lines and they are not too many. 75: look again
bulk_flats() {
  bulk_elsewhere queue
  flat_parse "$bulk_name" || { slip_strange "queue/*/$bulk_name"; return 75; }
  bulk_block=$flat_block bulk_names='' bulk_got=0 bulk_taken=0
  set -- "$1" "$q/queue/$flat_block"/* end
  bulk_most=$1
  shift
  while [ $# -gt 1 ] && [ $bulk_taken -lt 64 ]; do
    flat_parse "${1##*/}" || break
    [ $((bulk_got + flat_count)) -le "$bulk_most" ] || break
    [ -z "$least" ] || [ "$flat_priority.$flat_last" \< "$least" ] || break
    [ "$2" = end ] || [ "$flat_priority.$flat_last" \< "${2##*/}" ] || break
    bulk_names="$bulk_names ${1##*/}" bulk_got=$((bulk_got + flat_count)) bulk_taken=$((bulk_taken + 1))
    shift
  done
  if [ $bulk_taken -eq 0 ]; then
    queue_unfold "$bulk_name" || return
    return 75
  fi
  bulk_batch || return
  # shellcheck disable=SC2086 # names without blanks
  (cd "$q/queue/$bulk_block" && exec mv -f $bulk_names "$q/out/$batch/" 2>/dev/null 9>&9) || { disk_failed "$q/out" "queue '$queue'"; return; }
  for bulk_path in "$q/queue/$bulk_block"/*; do
    [ -e "$bulk_path" ] || rmdir "$q/queue/$bulk_block" 2>/dev/null
    break
  done
}

# bulk_print l|0 - the batch's messages in order, each with its end, on standard output. base64 -d takes pieces that were padded one by
# one; so the ends are put in between before decoding
bulk_print() {
  if [ "$1" = l ]; then bulk_end=Cg==; else bulk_end=AA==; fi
  set -- "$q/out/$batch"/*
  slip_parse "${1##*/}" && {
    # singles: the bodies are elsewhere
    for bulk_path in "$@"; do
      shift
      slip_parse "${bulk_path##*/}" && set -- "$@" "$q/body/$slip_id"
    done
  }
  {
    bulk_bad=$({ { bulk_awk -F '\t' -v "end=$bulk_end" -v "count=$bulk_got" '{ print $NF; print end } END { exit NR != count }' "$@" ||
      printf bad >&3; } | base64 -d >&4; } 2>/dev/null 3>&1)
  } 4>&1 && [ -z "$bulk_bad" ] && return 0
  why="queue '$queue': messages could not be written out in full"
  return 74
}

# bulk_pop l|0 COUNT SECONDS QUEUE ...
bulk_pop() {
  bulk_mode=$1 bulk_left=$2 bulk_wait=$3
  shift 3
  bulk_any='' bulk_open=
  for bulk_queue in "$@"; do
    bulk_queue "$bulk_queue" || return
  done
  [ -z "$bulk_any" ] || return 0
  if [ "$bulk_wait" = 0 ]; then
    [ -n "$bulk_open" ] || { why='closed and empty'; return 69; }
    why='nothing there'
    return 66
  fi
  # wait for one, then take what else there is
  clock_read
  take_wait "$bulk_wait" "$$-$now" none "$@" || return
  set -- "$queue" "$@"
  { body_print && { [ "$bulk_mode" = l ] && printf '\n' || printf '\000'; }; } || { bulk_code=$?; take_back; return $bulk_code; }
  taken_settle || return
  taken=
  clock_read
  queue_log pop
  bulk_left=$((bulk_left - 1))
  for bulk_queue in "$@"; do
    bulk_queue "$bulk_queue" || return
  done
}

# bulk_queue QUEUE - writes out and settles batches until the queue is empty or bulk_left is 0
bulk_queue() {
  queue_open "$1" || { [ $? -eq 66 ] && bulk_open=1; return; }
  [ -e "$q/closed" ] || bulk_open=1
  clock_read
  queue_tend
  bulk_looked=
  while [ "$bulk_left" -gt 0 ]; do
    bulk_take "$bulk_left"
    case $? in
    0) ;;
    66)
      [ -z "$bulk_looked" ] || return 0
      clock_read
      queue_reclaim || return
      bulk_looked=1
      continue ;;
    *) return 74 ;;
    esac
    bulk_print "$bulk_mode" && door_delivered || { batch_putback "$q/out/$batch"; return 74; }
    { true >"$q/done/$batch"; } 2>/dev/null || { disk_failed "$q/done" "queue '$queue'"; return; }
    bulk_any=1 bulk_left=$((bulk_left - bulk_got)) bulk_looked=
    clock_read
    clock_epoch "$now"
    { printf '%s.%s pop - 1 0 0 bulk-%s\n' "${epoch_time%??}" "${epoch_time#"${epoch_time%??}"}" "$bulk_got" >>"$q/log"; } 2>/dev/null || :
    lock_queue || return
    sweep_names=$batch
    sweep_these
    bulk_code=$?
    unlock_queue
    [ $bulk_code -eq 0 ] || return $bulk_code
    wake "$q/room" "$bulk_got"
  done
}

# bulk_stop SIGNAL - the trap of a bulk taker
bulk_stop() {
  trap - HUP INT TERM
  [ -z "${batch:-}" ] || [ -e "$q/done/$batch" ] || [ ! -d "$q/out/$batch" ] || batch_putback "$q/out/$batch"
  take_stopped "$1"
}
