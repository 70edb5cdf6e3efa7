# bulk/batch.sh - put back, count and sweep the batches of bulk takes:
# out/batch.OWNER.NONCE.000000000000

need engine/slip engine/lock engine/sync engine/state engine/key

# batch_putback DIRECTORY [WHY] - put slips back to wal/ and flat files to their place, with one
# more try, unless the batch is settled
batch_putback() {
  batch_why=${2:-dead}
  under_lock batch_putback_locked "$1"
  batch_code=$?
  wake "$q/wait"
  return $batch_code
}

# batch_putback_locked DIRECTORY - batch_putback under the lock
batch_putback_locked() {
  need engine/flat
  # After a boot, messages come back although conf may be damaged (queue_after_boot)
  [ "$batch_why" = boot ] || queue_conf || return
  # A marker is created under the lock, so it does not come meanwhile
  there "$q/done/${1##*/}"
  batch_code=$?
  [ $batch_code -eq 1 ] || return $batch_code
  for batch_path in "$1"/*; do
    batch_name=${batch_path##*/}
    [ -e "$batch_path" ] || break
    if slip_parse "$batch_name"; then
      slip_path=$batch_path slip_tries=$((slip_tries + 1))
      message_putback "$batch_why" || return
    elif flat_parse "$batch_name"; then
      batch_to=$flat_priority.$flat_first.$flat_last.$flat_count.$((flat_tries + 1)).$flat_nonce
      flat_enter "$batch_path" "$batch_to" || { disk_failed "$q/queue"; return; }
    else
      set_aside "out/${1##*/}/$batch_name" || return
    fi
  done
  # Only rmdir proves that nothing is left. RACE: another process may have put the batch back
  rmdir "$1" || absent "$1" || disk_failed "$q/out"
}

# batch_read DIRECTORY - set batch_bodies to the ids of the slips in a batch or segment, and
# batch_keys to `KEY ID` of each key in it
batch_read() {
  need engine/flat
  names_in "$1" || return
  batch_bodies='' batch_keys='' batch_flats='' batch_lines=0
  for batch_name in $names; do
    if slip_parse "$batch_name"; then
      batch_bodies="$batch_bodies $slip_id"
      [ "$slip_key" = - ] || batch_keys="$batch_keys $slip_key $id"
    elif flat_parse "$batch_name"; then
      batch_flats="$batch_flats $batch_name" batch_lines=$((batch_lines + flat_count))
    fi
  done
  [ -n "$batch_flats" ] || return 0
  # If keys/ is empty, no message has a key
  for batch_path in "$q"/keys/*; do break; done
  if [ ! -e "$batch_path" ]; then
    names_in "$q/keys" || return
    [ -n "$names" ] || return 0
  fi
  # shellcheck disable=SC2086 # names
  batch_keys="$batch_keys $(cd "$1" && cut -f 1 $batch_flats 9>&- |
    awk -F . -v "count=$batch_lines" '
      NF == 10 && $9 != "-" { sub(/^0+/, "", $2); print $9, $2 }
      END { if (NR != count) exit 1 }' 9>&-)" ||
    { why="queue '$queue': keys cannot be read"; return 74; }
}

# batch_remove DIRECTORY [NAME ...] - after batch_read, remove the bodies, then the batch or segment
# and the NAMEs beside it
batch_remove() {
  batch_path=$1
  shift
  # shellcheck disable=SC2086 # names
  bodies_remove $batch_bodies && (cd "${batch_path%/*}" && exec rm -rf "${batch_path##*/}" "$@") ||
    disk_failed "${batch_path%/*}"
}

# batch_sweep NAME - remove a settled batch
batch_sweep() {
  # CRASH: the batch may be removed already, and its marker not yet
  batch_read "$q/out/$1" || { absent "$q/out/$1"; return; }
  sync_paths "$q/done" "$q/out" "$q/out/$1" && keys_remove "$batch_keys" &&
    batch_remove "$q/out/$1"
}

# claims_recover - remove the segments that are settled
claims_recover() {
  for claims_path in "$q"/claimed/*; do
    [ -d "$claims_path" ] || continue
    need bulk/claim
    claim_open "${claims_path##*/}"
    case $? in
    0) claim_recover || return ;;
    74) return 74 ;;
    esac
  done
}

# lines_short - break lines into pieces, since mawk's time is the square of a line's length. The
# last piece ends with `~`; a NUL, which some awks drop, becomes `*`
lines_short() {
  tr '\000~' '**' | sed 's/$/~/' | fold -b -w 4000
}

# bulk_awk ARGUMENT ... - run mawk, which does in a second what gawk does in five; else awk
bulk_awk() {
  if command -v mawk >/dev/null; then mawk "$@"; else awk "$@"; fi
}
