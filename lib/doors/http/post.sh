# doors/http/post.sh - POST: store a message, or a batch of them

need engine/push engine/input doors/http/query doors/http/say doors/http/group doors/http/read doors/http/id

# stamp_of - set `stamp` to the time when the message in the slip_ variables was pushed, in microseconds: hundredths of the clock, then digits of the id.
# Two overlapping pushes are handed out by id, whichever has the earlier stamp
stamp_of() {
  unpad "$slip_born"
  stamp=$unpadded${slip_id#????????}
}

# post_message LENGTH [KEY] - store standard input as a message of `group`. KEY `$`, which plain_of never gives, is one that door_body_end will compute
post_message() {
  push_priority=0000065536 push_delay=0 push_lease=60 push_wait=0 push_dot='' push_key=${2:-\$} md5='' push_read='' body_whole='' slip_size=
  push_message "$group" "$1" || return $?
  # A request for any group waits in the queue of each group it knows, and may not know this one yet
  for wake_path in "$q"/wait/*; do break; done
  [ -e "$wake_path" ] || wake "$FLATQ_DIR/.doors/wait"
  [ -n "$push_dup" ] || { stamp_of; message_uuid; }
}

do_post() {
  has group-id || { say 422 'group-id is missing'; return $?; }
  group_name "$p_group" || { say_failed $?; return $?; }
  [ -n "$chunked$length" ] || { say 411 'send Content-Length, or chunks'; return $?; }
  post_most=$FLATQ_MOST_BYTES
  if has batch; then
    [ "$p_batch" = 1 ] || { say 422 'batch must be 1'; return $?; }
  fi
  [ -n "$chunked" ] || is_number "$length" "$post_most" || { say 413 "a message has $post_most bytes at most"; return $?; }
  if has batch; then
    body_store || { post_code=$?; keep=''; say_failed $post_code; return $?; }
    # A shell that cannot redirect does not run the function, and says 1 or 2
    why='the shell could not redirect' post_lines=
    post_batch <&4 || { keep=''; say_failed 74; return $?; }
    close_descriptor 4
    say 200 "${post_lines%?}" text/plain
    return $?
  fi
  if [ -n "$chunked" ]; then
    body_store || { post_code=$?; keep=''; say_failed $post_code; return $?; }
    why='the shell could not redirect'
    post_message "$length" "$p_key" <&4
    post_code=$?
    close_descriptor 4
  else
    body_wanted
    post_message "$length" "$p_key"
    post_code=$?
    # If it failed in the middle, we do not know how much was read
    [ -z "$push_read" ] || request_left=some
    [ -z "$body_whole" ] || request_left=
  fi
  case $post_code in
  0) ;;
  # Unless the body is cut, the queue's conf is damaged
  65) [ -z "$push_read" ] || [ -n "$body_whole" ] || bad 400 "$why"; say_failed 74; return $? ;;
  *) say_failed $post_code; return $? ;;
  esac
  [ -z "$push_dup" ] || { say 204; return $?; }
  header Message-Id "$uuid"
  header Message-Md5 "$md5"
  header Message-Timestamp "$stamp"
  say 200 '' text/plain
}

# post_batch - store the messages of a batch, one by one; set post_lines. Returns 0, whatever became of them
post_batch() {
  post_lines='' post_left=$length
  while [ "$post_left" -gt 0 ]; do
    post_read || return 0
    post_left=$((post_left - ${#request_line} - 1))
    post_key=''
    # A valid LENGTH and deduplication-id are shorter
    [ ${#request_line} -le 1600 ] || request_line=-
    case $request_line in
    *' '*) post_key=${request_line#* } request_line=${request_line%% *} ;;
    esac
    is_number "$request_line" 999999999 && [ $((number + 1)) -le $post_left ] && [ ${#post_key} -le 1536 ] ||
      { post_line 422 'LENGTH[ DEDUPLICATION-ID], a newline, so many bytes and a newline, please'; return 0; }
    post_size=$number
    post_left=$((post_left - post_size - 1))
    case $post_key in
    *[!\ -~]*) plain_count=0 ;;
    *) plain_of "$post_key" && post_key=$plain || plain_count=0 ;;
    esac
    if [ "$plain_count" -gt 128 ] || { [ "$plain_count" -eq 0 ] && [ -n "$post_key" ]; }; then
      post_line 422 'a deduplication-id has 1 to 128 characters'
      return 0
    fi
    post_message "$post_size" "$post_key"
    post_code=$?
    if [ $post_code -eq 0 ]; then
      if [ -n "$push_dup" ]; then post_line 204; else post_line 200 "$uuid $md5 $stamp"; fi
    else
      printf '%s: %s\n' "$FLATQ_VERB" "$why" >&5
      case $post_code in
      69 | 75) post_line 503 "$why" ;;
      *) post_line 500 'see the log' ;;
      esac
      # Skip the message if none of it was read; else we do not know how much was
      [ -z "$push_read" ] && input_exact "$post_size" >/dev/null || return 0
    fi
    post_read || return 0
    [ -z "$request_line" ] || { post_line 422 'a newline behind each message, please'; return 0; }
  done
}

# post_read - read a line of the stored batch, or its end, into request_line, which is `-` if the batch ends without a newline. Return 1, with a line in
# post_lines, if it cannot be read: it is stored whole, so that is not the client's fault
post_read() {
  ! IFS= read -r request_line || return 0
  request_line=-
  ! input_ended || return 0
  printf '%s: %s\n' "$FLATQ_VERB" "$why" >&5
  post_line 500 'see the log'
  return 1
}

part='doors/http/post'
