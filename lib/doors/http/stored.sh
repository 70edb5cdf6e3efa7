# doors/http/stored.sh - POST of a body that is stored first: in chunks, or a batch of messages

need engine/proof

post_stored() {
  # Nobody knows how much of the body is left to read
  body_store || { post_code=$? keep=''; say_failed $post_code; return; }
  post_code=74 post_left='' why='the stored body cannot be read'
  if has batch; then post_batch && post_code=0; else post_one; fi <"$body_file"
  rm -f "$body_file"
  body_file=
  if has batch && [ $post_code -eq 0 ]; then say 200 "${lines%?}" text/plain; else post_say; fi
}

# body_store - write the body to the new file body_file; set `length`. CRASH: the checkpoint removes
# the file (wait_sweep)
body_store() {
  nonce_read
  body_file=$FLATQ_DIR/.wait/$$-$now.$nonce.body
  body_wanted
  request_left=some
  body_more 0 || return
  if [ -n "$chunked" ]; then
    length=0
    while chunk_size && [ $chunk != 0 ]; do
      length=$((length + chunk))
      is_number "$length" "$FLATQ_MOST_BYTES" || bad 413 "$body_too_large"
      body_more $chunk || return
      chunk_line
      [ -z "$request_line" ] || bad 400 'a chunk is longer than its size'
    done
  else
    body_more "$length" || return
    # dd says nothing if the input ends early (R6)
    measure -c "$body_file" || return
    [ "$measured" = "$length" ] || bad 400 'the body was cut'
  fi
  request_left=
}

body_more() {
  input_exact "$1" >>"$body_file" && return
  q=
  disk_failed "$FLATQ_DIR/.wait" "spool $FLATQ_DIR"
}

# chunk_size - set `chunk` to the size of the next one; behind the last, read the trailer
chunk_size() {
  chunk_line
  chunk=${request_line%%;*}
  case $request_line in
  *[!\ -~]*) chunk= ;;
  esac
  case $chunk in
  '' | *[!0-9A-Fa-f]*) bad 400 'a bad size of a chunk' ;;
  esac
  unpad "$chunk"
  [ ${#unpadded} -le 7 ] || bad 413 'a chunk that is too large'
  chunk=$((0x$unpadded))
  [ $chunk = 0 ] || return 0
  while chunk_line && [ -n "$request_line" ]; do
    field_split
  done
}

chunk_line() {
  request_line_read 431 || bad 400 'the body was cut'
}

post_batch() {
  lines='' batch_left=$length
  while [ "$batch_left" -gt 0 ]; do
    batch_next || { add "$said"; return 0; }
  done
}

# batch_next - store the next message. Return 1, with the last line in `said`, if none can follow
batch_next() {
  batch_read || return
  said='422 LENGTH[ DEDUPLICATION-ID], a newline, so many bytes and a newline, please'
  # A valid line is shorter
  [ ${#request_line} -le 1546 ] || return
  batch_left=$((batch_left - ${#request_line} - 1)) post_key=
  case $request_line in
  *' '*) post_key=${request_line#* } request_line=${request_line%% *} ;;
  esac
  is_number "$request_line" 999999999 && [ $((number + 1)) -le $batch_left ] || return
  post_size=$number batch_left=$((batch_left - number - 1))
  said='422 a deduplication-id has 1 to 128 characters'
  case $post_key in
  '') ;;
  *[!\ -~]*) return 1 ;;
  *) plain_of "$post_key" && plain_fits && post_key=$plain || return ;;
  esac
  post_message "$post_size" "$post_key"
  case $post_code.$push_dup in
  0.) said="200 $id $md5 $stamp" ;;
  0.*) said=204 ;;
  *)
    failed "$post_code"
    # Skip the message if none of it was read
    [ -n "$push_read$body_whole" ] || input_exact "$post_size" >/dev/null || return
    [ -z "$post_left" ] || return ;;
  esac
  add "$said"
  batch_read || return
  said='422 a newline behind each message, please'
  [ -z "$request_line" ]
}

# batch_read - set request_line to the next line; `-`: the batch ends without a newline. Return 1 if
# it cannot be read: that is not the client's fault
batch_read() {
  ! IFS= read -r request_line || return 0
  request_line=-
  input_ended || { failed 74; return 1; }
}
