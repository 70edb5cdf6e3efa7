# engine/key.sh - unique keys. keys/KEY, written under the lock, has the id of its message and, in a
# second line once its slip exists, `yes`. The sweep removes it before the name in done/.

need engine/lock engine/proof engine/piped bulk/batch

# sum_of PROGRAM COMMAND ... - set `sum` to what PROGRAM (md5sum, sha1sum) prints for COMMAND's
# output; 70 no PROGRAM, 74 not whole
sum_of() {
  sum=$(piped "$@") && sum=${sum%% *} && return 0
  why="$1 failed, or did not get all of its input"
  command -v "$1" >/dev/null && return 74
  why="$1 is missing"
  return 70
}

# key_hash KEY - set slip_key to the field for KEY: `k` and the first 32 digits of its SHA-1
key_hash() {
  sum_of sha1sum printf '%s' "$1" || return
  slip_key=k${sum%????????}
}

# key_find_dup - set push_dup to the id of the message that has slip_key, if any; keeps id, slip_id,
# slip_size and slip_key
key_find_dup() {
  set -- "$id" "$slip_id" "$slip_size" "$slip_key"
  key_find "$slip_key"
  key_code=$?
  id=$1 slip_id=$2 slip_size=$3 slip_key=$4
  [ $key_code -eq 66 ] || return $key_code
}

# key_find KEY - key_find_dup; return 66 if no message has the KEY
key_find() {
  need engine/state engine/reclaim
  key_look "$1" || return
  is_number "$key_id" 999999999999 || return 66
  pad "$number" 000000000000
  set -- "$1" "$padded" "$number"
  # A marker that is seen needs no proof, nor a process for it
  for key_path in "$q"/done/??????????."$2".*; do
    [ ! -e "$key_path" ] || return 66
  done
  # CRASH: a push may have been killed between key and slip: look for the message
  [ "$key_is" = yes ] || message_anywhere "$2" || return
  # It may be settled. The names of batches and claims do not show their ids: finish removing them
  files_below "done" claimed || return
  key_swept=
  for key_path in $names; do
    case $key_path in
    "done/"??????????."$2".*) return 66 ;;
    "done/batch."*) key_swept=1 ;;
    claimed/*/settled.*)
      need bulk/claim
      key_swept=1 key_path=${key_path%/*}
      claim_open "${key_path#*/}" && claim_recover || return 74 ;;
    esac
  done
  if [ -n "$key_swept" ]; then
    queue_sweep || return 74
    key_look "$1" || return
    [ "$key_id" = "$3" ] || return 66
  fi
  push_dup=$3
}

# key_enter - write the id of the message that is about to get its slip to keys/KEY
key_enter() {
  set -C
  printf '%s\n' "$id" >"$q/keys/$slip_key"
  key_code=$?
  set +C
  # Take over the key of a message that has left. One that was not seen may be another's (R1)
  [ $key_code -eq 0 ] || { [ -n "$key_seen" ] && file_put "keys/$slip_key" "$id"; } ||
    disk_failed "$q/keys"
}

# key_read KEY - set key_id to the id in keys/KEY (empty: none), and key_is to `yes` if its slip
# exists; 66: it is proved that there is no such key; 74
key_read() {
  key_look "$1" && return 0
  [ -n "$key_seen" ] || ! absent "$q/keys/$1" || return 66
  return 74
}

# key_look KEY - as key_read, but 66 is no proof. Set key_seen if there is such a key
key_look() {
  key_is='' key_seen=1
  { read -r key_id && { read -r key_is || :; }; } <"$q/keys/$1" || key_id=
  case $key_id in
  '' | *[!0-9]*) ;;
  *) return 0 ;;
  esac
  key_id='' key_is=
  [ -e "$q/keys/$1" ] || { key_seen=; return 66; }
  # CRASH: a killed push leaves an empty file, or an id without its newline; a power cut, one
  # without an id. If there is a whole id, the shell's own read has missed it
  key_said=$(tr -d '\000' <"$q/keys/$1" 9>&- && printf end) && case ${key_said%%'
'*} in
  *[!0-9]*) return 0 ;;
  esac
  why="queue '$queue': cannot read a key"
  return 74
}

# keys_remove LIST - of `KEY ID KEY ID ...`, remove each key that still belongs to that id, some
# hundred at a time (R9)
keys_remove() {
  keys_some='' keys_count=0
  for keys_word in $1 end; do
    case $keys_word in
    k*) keys_key=$keys_word; continue ;;
    end) ;;
    *)
      key_read "$keys_key"
      case $? in
      # The doctor lists an empty key with id 0
      0) [ "${key_id:-0}" = "$keys_word" ] || continue ;;
      66) continue ;;
      *) return 74 ;;
      esac
      keys_some="$keys_some $keys_key" keys_count=$((keys_count + 1))
      [ $keys_count -ge 500 ] || continue ;;
    esac
    # shellcheck disable=SC2086 # names
    [ -z "$keys_some" ] || (cd "$q/keys" && exec rm -f $keys_some) ||
      { disk_failed "$q/keys"; return; }
    keys_some='' keys_count=0
  done
  [ -z "$1" ] || sync_paths "$q/keys"
}
