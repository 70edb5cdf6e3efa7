# doors/http/post.sh - POST: store a message

need engine/push engine/key

do_post() {
  has group-id || { say 422 'group-id is missing'; return; }
  group_name "$value" || { say_failed $?; return; }
  [ -n "$chunked$length" ] || { say 411 'send Content-Length, or chunks'; return; }
  ! has batch || [ "$value" = 1 ] || { say 422 'batch must be 1'; return; }
  [ -n "$chunked" ] || is_number "$length" "$FLATQ_MOST_BYTES" ||
    { say 413 "$body_too_large"; return; }
  if has batch || [ -n "$chunked" ]; then
    need doors/http/stored
    post_stored
    return
  fi
  body_wanted
  post_one
  [ -z "$push_read" ] || request_left=$post_left
  post_say
}

post_one() {
  has deduplication-id || :
  post_message "$length" "$value"
}

post_say() {
  case $post_code.$post_left in
  0.*) ;;
  65.some) bad 400 "$why" ;;
  *) say_failed "$post_code"; return ;;
  esac
  [ -z "$push_dup" ] || { say 204; return; }
  header Message-Id "$id"
  header Message-Md5 "$md5"
  header Message-Timestamp "$stamp"
  say 200 '' text/plain
}

# post_message LENGTH KEY - store standard input as a message of `group`; an empty KEY becomes `$`,
# for door_body_end. Set post_code, and post_left to `some` if it was read in part
post_message() {
  push_priority=0000065536 push_delay=0 push_lease=60 push_wait=0 push_dot='' push_key=${2:-\$}
  md5='' push_read='' body_whole='' slip_size='' post_left=
  push_message "$group" "$1"
  post_code=$?
  [ "$push_read.$body_whole" != 1. ] || post_left=some
  [ $post_code -eq 0 ] || return 0
  # A request for any group may not know this one yet
  for wake_path in "$q"/wait/*; do break; done
  [ -e "$wake_path" ] || wake "$FLATQ_DIR/.doors/wait"
  [ -n "$push_dup" ] || stamp_of
}

# door_body_end - the message is read: set body_whole, md5, and push_key if none was given. The sums
# are made side by side; each left side of a pipe writes a word when it has finished (R6)
door_body_end() {
  body_whole=1 sums_whole=0
  set -- md5sum
  [ "$push_key" != \$ ] || { set -- md5sum sha256sum; push_key=; }
  sums=$({
    for sum in "$@"; do
      { base64 -d "$q/body/$slip_id" && printf 'whole\n' >&7; } | "$sum" >&7 &
    done
    wait
  } 7>&1)
  for sum in $sums; do
    case ${#sum} in
    5) sums_whole=$((sums_whole + 1)) ;;
    32) md5=$sum ;;
    64) push_key=$sum ;;
    esac
  done
  [ $sums_whole -eq $# ] && [ -n "$md5" ] && [ -n "$push_key" ] ||
    { why="$* is missing, or did not get all of its input"; return 74; }
}
