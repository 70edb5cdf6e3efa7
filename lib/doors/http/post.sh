# doors/http/post.sh - POST: store a message, or a batch of them

need engine/push engine/input engine/key doors/http/query doors/http/say doors/http/read

do_post() {
  has group-id || { say 422 'group-id is missing'; return; }
  group_name "$p_group" || { say_failed $?; return; }
  [ -n "$chunked$length" ] || { say 411 'send Content-Length, or chunks'; return; }
  ! has batch || [ "$p_batch" = 1 ] || { say 422 'batch must be 1'; return; }
  [ -n "$chunked" ] || is_number "$length" "$FLATQ_MOST_BYTES" ||
    { say 413 "$body_too_large"; return; }
  if has batch || [ -n "$chunked" ]; then
    # Nobody knows how much of the body is left to read
    body_store || { post_code=$? keep=''; say_failed $post_code; return; }
  else
    body_wanted
  fi
  if has batch; then
    post_batch <"$body_file" || { say_failed 74; return; }
    body_remove
    say 200 "${lines%?}" text/plain
    return
  elif [ -n "$chunked" ]; then
    post_message "$length" "$p_key" <"$body_file"
    post_code=$?
    body_remove
  else
    post_message "$length" "$p_key"
    post_code=$?
    [ -z "$push_read" ] || request_left=$post_left
  fi
  case $post_code.$post_left in
  0.*) ;;
  65.some) bad 400 "$why" ;;
  # The queue's conf is damaged
  65.*) say_failed 74; return ;;
  *) say_failed $post_code; return ;;
  esac
  [ -z "$push_dup" ] || { say 204; return; }
  header Message-Id "$id"
  header Message-Md5 "$md5"
  header Message-Timestamp "$stamp"
  say 200 '' text/plain
}

# post_message LENGTH [KEY] - store standard input as a message of `group`. KEY `$`: door_body_end
# computes it. Set post_left to `some` if it was read in part
post_message() {
  push_priority=0000065536 push_delay=0 push_lease=60 push_wait=0 push_dot='' push_key=${2:-\$}
  md5='' push_read='' body_whole='' slip_size='' post_left=
  push_message "$group" "$1" || {
    push_code=$?
    case $push_read.$body_whole in
    .* | all.* | *.1) ;;
    *) post_left=some ;;
    esac
    return $push_code
  }
  # A request for any group may not know this one yet
  for wake_path in "$q"/wait/*; do break; done
  [ -e "$wake_path" ] || wake "$FLATQ_DIR/.doors/wait"
  [ -n "$push_dup" ] || stamp_of
}

# door_body_end - the whole message is read: set body_whole, md5, and push_key if none was given
door_body_end() {
  body_whole=1
  if [ "$push_key" = \$ ]; then
    body_sums "$q/body/$slip_id"
  else
    sum_of md5sum base64 -d "$q/body/$slip_id" && md5=$sum
  fi
}

# body_sums FILE - set md5 to the MD5 of the body in FILE, and push_key to its SHA-256, side by
# side. Each left side of a pipe writes a word when it has finished (R6)
body_sums() {
  sums=$({
    { base64 -d "$1" && printf 'whole\n' >&7; } | md5sum >&7 &
    { base64 -d "$1" && printf 'whole\n' >&7; } | sha256sum >&7
    wait
  } 7>&1)
  sums_whole='' md5='' push_key=
  for sums_word in $sums; do
    case ${#sums_word} in
    5) sums_whole=${sums_whole}1 ;;
    32) md5=$sums_word ;;
    64) push_key=$sums_word ;;
    esac
  done
  [ -n "$md5" ] && [ -n "$push_key" ] ||
    { why='md5sum or sha256sum is missing, or failed'; return 70; }
  [ "$sums_whole" = 11 ] || { why='md5sum or sha256sum did not get all of its input'; return 74; }
}

# post_batch - store the messages of a batch, on standard input, one by one; set `lines`
post_batch() {
  lines='' batch_left=$length
  while [ "$batch_left" -gt 0 ]; do
    post_read || return 0
    batch_left=$((batch_left - ${#request_line} - 1)) post_key=
    # A valid line is shorter
    [ ${#request_line} -le 1600 ] || request_line=-
    case $request_line in
    *' '*) post_key=${request_line#* } request_line=${request_line%% *} ;;
    esac
    if ! is_number "$request_line" 999999999 || [ $((number + 1)) -gt $batch_left ] ||
      [ ${#post_key} -gt 1536 ]; then
      add '422 LENGTH[ DEDUPLICATION-ID], a newline, so many bytes and a newline, please'
      return 0
    fi
    post_size=$number batch_left=$((batch_left - number - 1))
    [ -z "$post_key" ] || post_key_parse ||
      { add '422 a deduplication-id has 1 to 128 characters'; return 0; }
    post_message "$post_size" "$post_key"
    post_code=$?
    case $post_code.$push_dup in
    0.) add "200 $id $md5 $stamp" ;;
    0.*) add 204 ;;
    *)
      failed $post_code
      add "$said"
      # Skip the message if none of it was read
      [ -n "$push_read$body_whole" ] || input_exact "$post_size" >/dev/null || return 0
      [ -z "$post_left" ] || return 0 ;;
    esac
    post_read || return 0
    [ -z "$request_line" ] || { add '422 a newline behind each message, please'; return 0; }
  done
}

# post_read - read a line of the batch, or its end, into request_line, which is `-` if the batch
# ends without a newline. Return 1, with an answer in `lines`, if it cannot be read: it is stored,
# so that is not the client's fault
post_read() {
  ! IFS= read -r request_line || return 0
  request_line=-
  ! input_ended || return 0
  failed 74
  add "$said"
  return 1
}

# post_key_parse - decode post_key; return 1 if it is no deduplication-id
post_key_parse() {
  case $post_key in
  *[!\ -~]*) return 1 ;;
  esac
  plain_of "$post_key" && [ "$plain_count" -ge 1 ] && [ "$plain_count" -le 128 ] && post_key=$plain
}
