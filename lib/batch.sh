# batch.sh - what others need to know of a bulk taker's batch, out/batch.PID-TIME.NONCE.DEADLINE: to put it back, count it, sweep it

# batch_putback DIRECTORY [WHY] - slips with one more try to wal/, flat files with one more try to their place. Sets batch_gone where nothing is left
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
        moved "$batch_path" "$batch_block/$flat_priority.$flat_first.$flat_last.$flat_count.$((flat_tries + 1)).$flat_nonce"
    fi || break
  done
  batch_gone=
  ! rmdir "$1" 2>/dev/null 9>&9 || batch_gone=1
  [ -z "$batch_locked" ] || unlock_queue
  wake "$q/wait"
}

# message_held ID - whether a bulk taker, or one who claims, has the message with the 12-digit ID; 66: surely not
message_held() {
  need fold proof
  names_like "$1" out claimed || return
  for proof_path in $names; do
    case $proof_path in
    out/batch.*/* | claimed/*) ;;
    *) continue ;;
    esac
    is_like "$1" && return 0
    [ $? -ne 74 ] || return 74
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

# batch_read DIRECTORY - of a settled batch or segment: sets batch_bodies, the ids of its slips, and batch_keys, `KEY ID` of each message with a key
batch_read() {
  need fold proof
  names_in "$1" || return
  batch_bodies='' batch_keys='' batch_flats=
  for batch_name in $names; do
    if slip_parse "$batch_name"; then
      batch_bodies="$batch_bodies $slip_id"
      [ "$slip_key" = - ] || batch_keys="$batch_keys $slip_key $id"
    elif flat_parse "$batch_name"; then
      batch_flats="$batch_flats $batch_name"
    fi
  done
  [ -n "$batch_flats" ] || return 0
  # as long as a message with a key is there, so is the key
  for batch_path in "$q"/keys/*; do break; done
  if [ ! -e "$batch_path" ]; then
    names_in "$q/keys" || return
    [ -n "$names" ] || return 0
  fi
  # shellcheck disable=SC2086 # names without blanks
  batch_said=$(cd "$1" 2>/dev/null && exec awk -F . 'NF == 10 && $9 != "-" { sub(/^0+/, "", $2); print $9, $2 } END { print "end" }' $batch_flats 2>/dev/null 9>&-) &&
    captured "$batch_said" || { why="queue '$queue': keys cannot be read"; return 74; }
  batch_keys="$batch_keys $captured"
}

# key_read KEY - sets key_id, the id that keys/KEY holds, and key_is, `yes` where its slip is made; empty where it holds none. 66: there is no such
# key, 74: it cannot be read
key_read() {
  key_id='' key_is=
  [ ! -h "$q/keys/$1" ] || { why="queue '$queue': a key is a link"; return 74; }
  { { read -r key_id && read -r key_is || :; } <"$q/keys/$1"; } 2>/dev/null || { [ -e "$q/keys/$1" ] || return 66; key_id=; }
  case $key_id in
  '' | *[!0-9]*) ;;
  *) return 0 ;;
  esac
  key_id='' key_is=
  # CRASH: an empty one is of a push that was killed before it wrote it; one without an id, of a power cut. Where it can be read, it is as good as empty
  [ -s "$q/keys/$1" ] || return 0
  need proof
  key_said=$({ tr -d '\000' <"$q/keys/$1" && printf '\nend'; } 2>/dev/null 9>&-) && captured "$key_said" || { why="queue '$queue': cannot read a key"; return 74; }
  # the id that the shell could not read is there
  key_said=${captured%%'
'*}
  case $key_said in
  '' | *[!0-9]*) ;;
  *) why="queue '$queue': cannot read a key"; return 74 ;;
  esac
}

# keys_remove LIST - of `KEY ID KEY ID ...`, the keys that still are that message's; some hundred at a time: arguments have a limit (R9)
keys_remove() {
  keys_some='' keys_count=0
  for keys_word in $1 end; do
    case $keys_word in
    k*) keys_key=$keys_word; continue ;;
    end) ;;
    *)
      key_read "$keys_key"
      case $? in
      # CRASH: of an empty key, of a push that was killed before it wrote it, the doctor says 0
      0) [ "${key_id:-0}" = "$keys_word" ] || continue ;;
      66) continue ;;
      *) return 74 ;;
      esac
      keys_some="$keys_some $keys_key" keys_count=$((keys_count + 1))
      [ $keys_count -ge 500 ] || continue ;;
    esac
    # shellcheck disable=SC2086 # names without blanks
    [ -z "$keys_some" ] || (cd "$q/keys" && exec rm -f $keys_some 9>&9) 2>/dev/null || { disk_failed "$q/keys" "queue '$queue'"; return; }
    keys_some='' keys_count=0
  done
  [ -z "$1" ] || sync_paths "$q/keys" || { why="queue '$queue': cannot sync"; return 74; }
}

# batch_sweep NAME - a settled batch leaves out/: keys, bodies, then itself, since it alone knows them
batch_sweep() {
  # CRASH: it is gone, and its marker is not yet
  batch_read "$q/out/$1" || { names_in "$q/out" && ! named "$1" && return 0; why="queue '$queue': cannot list out/$1"; return 74; }
  sync_paths "$q/done" "$q/out" "$q/out/$1" || { why="queue '$queue': cannot sync"; return 74; }
  keys_remove "$batch_keys" || return
  # shellcheck disable=SC2086 # names without blanks
  { { [ -z "$batch_bodies" ] || (cd "$q/body" && exec rm -f $batch_bodies 9>&9); } && rm -rf "$q/out/$1" 9>&9; } 2>/dev/null &&
    sync_paths "$q/out" || disk_failed "$q/out" "queue '$queue'"
}

# claims_recover - segments that are settled leave the disk
claims_recover() {
  for claims_path in "$q"/claimed/*; do
    [ -d "$claims_path" ] || continue
    need claim
    claim_open "${claims_path##*/}"
    case $? in
    0) claim_recover || return ;;
    74) return 74 ;;
    esac
  done
}

# bulk_awk ARGUMENTS - the quickest awk there is: mawk does in a second what gawk does in five
bulk_awk() {
  if command -v mawk >/dev/null 2>&1; then mawk "$@"; else awk "$@"; fi
}
