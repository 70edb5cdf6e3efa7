# doors/http/id.sh - make the UUIDs that clients see instead of ids and receipts: the shell itself computes them, and nobody can guess them
#
# XTEA, a block cipher of 64 bits, under a key that the spool keeps in .doors/secret. Two blocks are a UUID:
#
#   Message-Id           E(id), E(E(id) + 1): always the same for a message
#   Message-Receipt-Id   E(nonce), E(id ^ E(nonce)): the engine's receipt. It tells where to look; a UUID that is not ours gives no valid id
#
# To guess a receipt, one has to hit all 128 bits. Words have 32 bits; in mksh they may be negative.

need engine/sync

# secret_read - set secret_keys to the 64 round keys; create a secret if there is none
secret_read() {
  # In a group's spool, another member may have made a link
  [ -z "$spool_shared" ] || no_links "$FLATQ_DIR/.doors" "$FLATQ_DIR/.doors/secret" || return $?
  { read -r secret secret_rest <"$FLATQ_DIR/.doors/secret"; } 2>/dev/null || secret=
  [ ${#secret} -eq 32 ] || { secret_make && { read -r secret secret_rest <"$FLATQ_DIR/.doors/secret"; } 2>/dev/null; } ||
    { disk_failed "$FLATQ_DIR" "spool $FLATQ_DIR"; return $?; }
  case $secret in
  *[!0-9a-f]*) why="spool $FLATQ_DIR: .doors/secret is damaged"; return 70 ;;
  esac
  secret_rest=${secret#????????????????}
  words_hex "${secret%"$secret_rest"}"
  secret_0=$word_0 secret_1=$word_1
  words_hex "$secret_rest"
  secret_2=$word_0 secret_3=$word_1 secret_sum=0 secret_round=0 secret_keys='' secret_back=
  while [ $secret_round -lt 32 ]; do
    secret_pick $((secret_sum & 3))
    secret_keys="$secret_keys $secret_word" secret_back="$secret_word $secret_back"
    secret_sum=$(((secret_sum + 2654435769) & 4294967295))
    secret_pick $((secret_sum >> 11 & 3))
    secret_keys="$secret_keys $secret_word" secret_back="$secret_word $secret_back"
    secret_round=$((secret_round + 1))
  done
}

# secret_pick N - set secret_word to the round key that word N of the secret gives at secret_sum
secret_pick() {
  case $1 in
  0) secret_word=$secret_0 ;;
  1) secret_word=$secret_1 ;;
  2) secret_word=$secret_2 ;;
  *) secret_word=$secret_3 ;;
  esac
  secret_word=$(((secret_sum + secret_word) & 4294967295))
}

# secret_make - create a secret, whole or not at all; if two processes create one, one of them stays. CRASH: the checkpoint removes the file (spool_sweep)
secret_make() {
  [ -d "$FLATQ_DIR/.doors" ] || mkdir -p "$FLATQ_DIR/.doors" 2>/dev/null || return $?
  secret_file=$FLATQ_DIR/.doors/secret.$owner
  secret=$({ od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; } 2>/dev/null </dev/null)
  # Check it: a short or empty secret would stay for ever
  case ${#secret}.$secret in
  *.*[!0-9a-f]*) return 74 ;;
  32.*) ;;
  *) return 74 ;;
  esac
  set -C
  { printf '%s\n' "$secret" >"$secret_file"; } 2>/dev/null || { set +C; return 74; }
  set +C
  sync_paths "$secret_file" || { secret_code=$?; rm -f "$secret_file" 2>/dev/null; return $secret_code; }
  # If another process was faster, this fails, and we read that process's secret. With a link to a directory, ln would go there
  [ -h "$FLATQ_DIR/.doors/secret" ] || ln "$secret_file" "$FLATQ_DIR/.doors/secret" 2>/dev/null
  rm -f "$secret_file" 2>/dev/null
  [ -s "$FLATQ_DIR/.doors/secret" ] && sync_paths "$FLATQ_DIR/.doors" "$FLATQ_DIR"
}

# words_hex DIGITS - set word_0 and word_1 from 16 hexadecimal digits
words_hex() {
  word_1=${1#????????}
  word_0=$((0x${1%"$word_1"} & 4294967295)) word_1=$((0x$word_1 & 4294967295))
}

# cipher - encrypt word_0 and word_1. Half a round turns (a, b) into (b, a + f(b))
cipher() {
  for secret_word in $secret_keys; do
    word=$(((word_0 + (((word_1 << 4 ^ word_1 >> 5 & 134217727) + word_1) ^ secret_word)) & 4294967295))
    word_0=$word_1 word_1=$word
  done
}

decipher() {
  for secret_word in $secret_back; do
    word=$(((word_1 - (((word_0 << 4 ^ word_0 >> 5 & 134217727) + word_0) ^ secret_word)) & 4294967295))
    word_1=$word_0 word_0=$word
  done
}

# uuid_add - append word_0 and word_1 to `uuid`, digit by digit: `$(printf)` would cost a process
uuid_add() {
  for word in $word_0 $word_1; do
    for uuid_shift in 28 24 20 16 12 8 4 0; do
      uuid_digit=$((word >> uuid_shift & 15))
      case $uuid_digit in
      10) uuid_digit=a ;; 11) uuid_digit=b ;; 12) uuid_digit=c ;; 13) uuid_digit=d ;; 14) uuid_digit=e ;; 15) uuid_digit=f ;;
      esac
      uuid=$uuid$uuid_digit
    done
  done
}

uuid_done() {
  uuid_rest=${uuid#????????}
  uuid_text=${uuid%"$uuid_rest"} uuid=$uuid_rest
  for uuid_part in 1 2 3; do
    uuid_rest=${uuid#????}
    uuid_text=$uuid_text-${uuid%"$uuid_rest"} uuid=$uuid_rest
  done
  uuid=$uuid_text-$uuid
}

# id_words - set word_0 and word_1 from slip_id, whose twelve decimal digits are more than some shells can calculate with
id_words() {
  unpad "${slip_id%??????}"
  word_0=$unpadded
  unpad "${slip_id#??????}"
  word_1=$unpadded
}

# message_uuid - set `uuid` to the Message-Id of slip_id
message_uuid() {
  id_words
  uuid='' word_0=$((word_0 | 16777216))
  cipher
  uuid_add
  word_1=$(((word_1 + 1) & 4294967295))
  cipher
  uuid_add
  uuid_done
}

# receipt_uuid - set `uuid` to the receipt of slip_id and slip_nonce
receipt_uuid() {
  uuid=
  words_hex "00${slip_nonce%??????}00${slip_nonce#??????}"
  cipher
  uuid_add
  uuid_0=$word_0 uuid_1=$word_1
  id_words
  word_0=$((word_0 ^ uuid_0)) word_1=$((word_1 ^ uuid_1))
  cipher
  uuid_add
  uuid_done
}

# receipt_read TEXT - set receipt_id, 12 digits, and receipt_nonce. Return 65 if TEXT is not a UUID, 66 if it is not one of ours
receipt_read() {
  receipt=$1
  case $receipt in
  ????????-????-????-????-????????????) ;;
  *) return 65 ;;
  esac
  receipt_rest=$receipt receipt=
  while :; do
    receipt=$receipt${receipt_rest%%-*}
    [ "$receipt_rest" != "${receipt_rest#*-}" ] || break
    receipt_rest=${receipt_rest#*-}
  done
  case $receipt in
  *[!0-9a-fA-F]*) return 65 ;;
  esac
  [ ${#receipt} -eq 32 ] || return 65
  receipt_rest=${receipt#????????????????}
  words_hex "${receipt%"$receipt_rest"}"
  uuid_0=$word_0 uuid_1=$word_1
  decipher
  uuid=
  uuid_add
  receipt_nonce=$uuid
  words_hex "$receipt_rest"
  decipher
  word_0=$(((word_0 ^ uuid_0) & 4294967295)) word_1=$(((word_1 ^ uuid_1) & 4294967295))
  case $receipt_nonce in
  00??????00??????) ;;
  *) return 66 ;;
  esac
  receipt_nonce=${receipt_nonce#00} receipt_nonce=${receipt_nonce%????????}${receipt_nonce#????????}
  [ "$word_0" -ge 0 ] && [ "$word_0" -le 999999 ] && [ "$word_1" -ge 0 ] && [ "$word_1" -le 999999 ] || return 66
  pad "$word_0" 000000
  receipt_id=$padded
  pad "$word_1" 000000
  receipt_id=$receipt_id$padded
}

part='doors/http/id'
