# doors/http/settle.sh - DELETE and PATCH: delete a message that was handed out, or change its
# timeout

need engine/lock engine/reclaim engine/settle doors/http/query doors/http/say

do_delete() {
  # shellcheck disable=SC2086 # words
  set -- $p_receipts
  [ $# -gt 0 ] || { say 422 'receipt-id is missing'; return; }
  lines=
  for receipt in "$@"; do
    settle_code=0
    receipt_message "$receipt" && message_delete || settle_code=$?
    # The next message of the group is free now
    [ $settle_code -ne 0 ] || wake "$q/wait"
    [ $# -gt 1 ] || { settle_say; return; }
    case $settle_code in
    0) add "200 $id" ;;
    65) add "422 $receipt_wrong" ;;
    66) add 204 ;;
    *) failed "$settle_code"; add "$said" ;;
    esac
  done
  say 200 "${lines%?}" text/plain
}

do_patch() {
  # shellcheck disable=SC2086 # words
  set -- $p_receipts
  [ $# -eq 1 ] || { say 422 'exactly one receipt-id is needed'; return; }
  has visibility-timeout || { say 422 'visibility-timeout is missing'; return; }
  query_number visibility-timeout "$p_visibility" 0 86400 || return
  patch_seconds=$number patch_receipt=$1 settle_code=0
  receipt_message "$1" && patch_message || settle_code=$?
  settle_say
}

receipt_wrong='receipt-id must be one that GET has given'

# receipt_message RECEIPT - as receipt_find, of a message that was handed out: anybody could make up
# a receipt without a nonce
receipt_message() {
  case $1 in
  *:*.*.????????????) receipt_find "$1" ;;
  *) return 65 ;;
  esac
}

# settle_say - answer a request about one message
settle_say() {
  case $settle_code in
  0) header Message-Id "$id"; say 200 '' text/plain ;;
  65) say 422 "$receipt_wrong" ;;
  66) say 204 ;;
  *) say_failed "$settle_code" ;;
  esac
}

# patch_message - show the message of receipt_find to others in patch_seconds; if it is ready again,
# put it in flight anew. Return 66 if it is buried or delayed
patch_message() {
  case $slip_path in
  "$q"/buried/* | "$q"/delayed/*) why='not in flight'; return 66 ;;
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

# patch_ready - under the lock, put a ready message in flight anew; return 66 if the group has
# another one there
patch_ready() {
  need doors/http/group
  group_free && receipt_find "$patch_receipt" || return
  case $slip_path in
  "$q"/wal/* | "$q"/head/*) message_touch "$patch_seconds" ;;
  *) why='not in flight'; return 66 ;;
  esac
}
