# doors/beanstalk/say.sh - write answers: a line, or a line and bytes

need engine/take

stalk_log() {
  printf '%s: %s\n' "$FLATQ_VERB" "$why" >&5
}

# reply TEXT - write one line to the client, or end
reply() {
  tally_write
  printf '%s\r\n' "$1" || exit 74
}

reply_failed() {
  case $1 in
  64) reply BAD_FORMAT ;;
  66 | 69) reply NOT_FOUND ;;
  65 | 7[45]) stalk_log; reply "$stalk_busy" ;;
  *) stalk_log; reply INTERNAL_ERROR ;;
  esac
}

# reply_job RESERVED|FOUND - answer with the message at slip_path; 75, only with FOUND: it is gone
reply_job() {
  reply_text="$id${stalk_beanstalkd:+ $slip_size}" reply_code=
  tally_write
  door_reply "$slip_size" || exit 74
  # At once: TCP would hold back a second write for 40 ms
  [ "$slip_size" -gt 1000 ] || read -r reply_code <"$q/body/$slip_id"
  letters_of "$slip_size"
  if [ ${#reply_code} -eq "$letters" ]; then
    # The words, and CRLF, in base64
    coded=UkVTRVJWRUQg
    [ "$1" = RESERVED ] || coded=Rk9VTkQg
    code_text "$reply_text"
    base64 -d <<END || exit 74
${coded}DQo=
$reply_code
DQo=
END
    return 0
  fi
  # RACE: it may be folded or deleted: but not if the slip is there once the body is open
  if ! command exec 7<"$q/body/$slip_id" || [ ! -e "$slip_path" ]; then
    [ "$1" = FOUND ] || exit 74
    return 75
  fi
  door_nodelay
  if printf '%s %s\r\n' "$1" "$reply_text" && base64 -d <&7 && body_whole && printf '\r\n'; then
    exec 7<&-
    return 0
  fi
  # After half a body, only the end of the connection can follow
  if [ "$1" = RESERVED ]; then
    need engine/body
    clock_read
    body_bury
  fi
  exit 74
}

# code_text TEXT - add the digits and blanks of TEXT to `coded`, each as base64 of its own
code_text() {
  code_rest=$1
  while [ -n "$code_rest" ]; do
    code_after=' IA0MA1MQ2Mg3Mw4NA5NQ6Ng7Nw8OA9OQ'
    code_after=${code_after#*"${code_rest%"${code_rest#?}"}"}
    coded="$coded${code_after%"${code_after#??}"}==
" code_rest=${code_rest#?}
  done
}

# reply_yaml TEXT - answer with the lines TEXT as a document
reply_yaml() {
  set -- "---
$1
"
  tally_write
  door_reply ${#1} || exit 74
  [ ${#1} -lt 1000 ] || door_nodelay
  printf 'OK %s\r\n%s\r\n' ${#1} "$1" || exit 74
}
