# doors/http/settle.sh - DELETE and PATCH a message that was handed out

need engine/lock engine/reclaim engine/state

do_delete() {
  lines=
  for settle_receipt in $receipts; do
    settle message_delete
    # The next message of the group is free now
    [ $settle_code -ne 0 ] || wake "$q/wait"
    [ "$receipts" != " $settle_receipt" ] || { settle_say; return; }
    add "$said"
  done
  [ -n "$lines" ] || { say 422 'receipt-id is missing'; return; }
  say 200 "${lines%?}" text/plain
}

do_patch() {
  settle_receipt=${receipts# }
  case $settle_receipt in
  '' | *' '*) say 422 'exactly one receipt-id is needed'; return ;;
  esac
  has visibility-timeout || { say 422 'visibility-timeout is missing'; return; }
  query_number visibility-timeout 0 86400 0 || return
  patch_seconds=$number
  settle patch_message
  settle_say
}

# settle FUNCTION - call FUNCTION for the message of settle_receipt; set settle_code and `said`
settle() {
  settle_code=65
  case $settle_receipt in
  # Anybody could make up a receipt without a nonce
  *:*.*.????????????) receipt_find "$settle_receipt" && "$1"; settle_code=$? ;;
  esac
  case $settle_code in
  0) said="200 $id" ;;
  65) said='422 receipt-id must be one that GET has given' ;;
  66) said=204 ;;
  *) failed "$settle_code" ;;
  esac
}

settle_say() {
  [ "$settle_code" -eq 0 ] || { say_said; return; }
  header Message-Id "$id"
  say 200 '' text/plain
}

# patch_message - show the message to others in patch_seconds: if it is ready again, put it in
# flight anew. Return 66 if it is buried or delayed
patch_message() {
  case $slip_path in
  "$q"/buried/* | "$q"/delayed/*) return 66 ;;
  "$q"/out/*)
    if [ "$patch_seconds" = 0 ] || ! lease_over "$slip_deadline"; then
      message_touch "$patch_seconds"
    else
      under_lock patch_ready
    fi ;;
  *) [ "$patch_seconds" = 0 ] || under_lock patch_ready ;;
  esac || return
  [ "$patch_seconds" != 0 ] || wake "$q/wait"
}

# patch_ready - under the lock, put it in flight anew; 66: the group has another one there
patch_ready() {
  need doors/http/group
  group_free && receipt_find "$settle_receipt" || return
  case $slip_path in
  "$q"/wal/* | "$q"/head/*) message_touch "$patch_seconds" ;;
  *) return 66 ;;
  esac
}
