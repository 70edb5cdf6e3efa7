# batch.sh - what others need to know of a bulk taker's batch, out/batch.PID-TIME.NONCE.DEADLINE: to put it back, count it, sweep it

# batch_putback DIRECTORY [WHY] - slips with one more try to wal/, flat files with one more try to their place
batch_putback() {
  batch_why=${2:-dead}
  batch_locked=
  [ -n "$lock_held" ] || { lock_queue || return; batch_locked=1; }
  queue_conf
  for batch_path in "$1"/*; do
    batch_name=${batch_path##*/}
    [ -e "$batch_path" ] && [ ! -e "$q/done/${1##*/}" ] || break
    if slip_parse "$batch_name"; then
      found=$batch_path slip_tries=$((slip_tries + 1))
      message_putback "$batch_why"
    elif need fold && flat_parse "$batch_name"; then
      batch_block=$q/queue/$flat_block
      { [ -d "$batch_block" ] || mkdir -p "$batch_block"; } 2>/dev/null &&
        mv -f "$batch_path" "$batch_block/$flat_priority.$flat_first.$flat_last.$flat_count.$((flat_tries + 1)).$flat_nonce" 2>/dev/null 9>&9
    fi || break
  done
  rmdir "$1" 2>/dev/null 9>&9
  [ -z "$batch_locked" ] || unlock_queue
  wake "$q/wait"
}

# message_held ID - whether a bulk taker, or one who claims, has the message with the 12-digit ID
message_held() {
  for held_path in "$q"/out/batch.*/* "$q"/claimed/*/*/*; do
    case ${held_path##*/} in
    '*') continue ;;
    ??????????."$1".*.*.*.*.*.*) return 0 ;;
    esac
    flat_parse "${held_path##*/}" && ! [ "$1" \< "$flat_first" ] && ! [ "$flat_last" \< "$1" ] && message_in_flat "$held_path" "$1" && return 0
  done
  return 66
}

# batch_count DIRECTORY - adds its messages to `count`
batch_count() {
  for batch_path in "$1"/*; do
    if flat_parse "${batch_path##*/}"; then
      count=$((count + flat_count))
    elif [ -e "$batch_path" ]; then
      count=$((count + 1))
    fi
  done
}

# batch_settled DIRECTORY - adds the bodies and keys of a settled batch to sweep_bodies and sweep_keys
batch_settled() {
  batch_flats=
  for batch_path in "$1"/*; do
    if slip_parse "${batch_path##*/}"; then
      sweep_bodies="$sweep_bodies $slip_id"
      sweep_key
    elif need fold && flat_parse "${batch_path##*/}"; then
      batch_flats="$batch_flats ${batch_path##*/}"
    fi
  done
  # as long as a message with a key is there, so is the key
  for batch_path in "$q"/keys/*; do break; done
  [ -n "$batch_flats" ] && [ -e "$batch_path" ] || return 0
  # shellcheck disable=SC2086 # names without blanks
  batch_keyed=$(cd "$1" 2>/dev/null && awk -F. 'NF == 10 && $9 != "-" { sub(/\t.*/, ""); print }' $batch_flats 2>/dev/null 9>&-) ||
    { why="queue '$queue': keys cannot be read"; return 74; }
  for batch_line in $batch_keyed; do
    ! slip_parse "$batch_line" || sweep_key
  done
}

# claims_recover - segments that are settled leave the disk
claims_recover() {
  for claims_path in "$q"/claimed/*; do
    [ -d "$claims_path" ] || continue
    need claim
    ! claim_open "${claims_path##*/}" || claim_recover || return
  done
}

# bulk_awk ARGUMENTS - the quickest awk there is: mawk does in a second what gawk does in five
bulk_awk() {
  if command -v mawk >/dev/null 2>&1; then mawk "$@"; else awk "$@"; fi
}
