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
  tally_write
  door_reply "$slip_size" || exit 74
  # RACE: it may be folded or deleted: but not if the slip is there once the body is open
  if ! command exec 7<"$q/body/$slip_id" || [ ! -e "$slip_path" ]; then
    [ "$1" = FOUND ] || exit 74
    return 75
  fi
  door_nodelay
  if printf '%s %s\r\n' "$1" "$id${stalk_beanstalkd:+ $slip_size}" && base64 -d <&7 &&
    body_whole && printf '\r\n'; then
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
