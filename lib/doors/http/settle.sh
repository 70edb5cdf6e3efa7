# doors/http/settle.sh - DELETE and PATCH: delete a message that was handed out, or change its timeout

need engine/settle doors/http/query doors/http/say doors/http/group doors/http/id

# receipt_message RECEIPT - find its message; return 65 or 66 as receipt_read and group_find do
receipt_message() {
  receipt_read "$1" && group_find
}

do_delete() {
  # shellcheck disable=SC2086 # words
  set -- $p_receipts
  [ $# -gt 0 ] || { say 422 'receipt-id is missing'; return $?; }
  for receipt in "$@"; do
    receipt_read "$receipt"
    [ $? -ne 65 ] || { say 422 'receipt-id must be a UUID'; return $?; }
  done
  post_lines=
  for receipt in "$@"; do
    receipt_message "$receipt" && message_delete
    delete_code=$?
    case $delete_code in
    0)
      message_uuid
      # The next message of the group is free now
      wake "$q/wait"
      post_line 200 "$uuid" ;;
    66) post_line 204 ;;
    *)
      [ $# -gt 1 ] || { say_failed $delete_code; return $?; }
      printf '%s: %s\n' "$FLATQ_VERB" "$why" >&5
      post_line 500 'see the log' ;;
    esac
  done
  if [ $# -gt 1 ]; then
    say 200 "${post_lines%?}" text/plain
  elif [ "$delete_code" -eq 0 ]; then
    header Message-Id "$uuid"
    say 200 '' text/plain
  else
    say 204
  fi
}

do_patch() {
  # shellcheck disable=SC2086 # words
  set -- $p_receipts
  [ $# -eq 1 ] || { say 422 'exactly one receipt-id is needed'; return $?; }
  has visibility-timeout && is_number "$p_visibility" 86400 || { say 422 'visibility-timeout must be 0 to 86400'; return $?; }
  patch_seconds=$number
  receipt_message "$1" && group_touch "$patch_seconds"
  patch_code=$?
  case $patch_code in
  0)
    message_uuid
    header Message-Id "$uuid"
    say 200 '' text/plain ;;
  65) say 422 'receipt-id must be a UUID' ;;
  66) say 204 ;;
  *) say_failed $patch_code ;;
  esac
}

part='doors/http/settle'
