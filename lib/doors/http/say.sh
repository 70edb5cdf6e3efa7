# doors/http/say.sh - write answers
#
# `say` answers a request with a text; `say_head` begins an answer whose body follows. Each first deals with an unread body: it skips a small
# one, and ends the connection after a large one.

need doors/door engine/input engine/clock

# status_reason STATUS - set `reason` to the text for STATUS
status_reason() {
  case $1 in
  200) reason=OK ;; 204) reason='No Content' ;; 400) reason='Bad Request' ;; 401) reason=Unauthorized ;; 404) reason='Not Found' ;;
  405) reason='Method Not Allowed' ;; 411) reason='Length Required' ;; 413) reason='Content Too Large' ;; 414) reason='URI Too Long' ;;
  417) reason='Expectation Failed' ;; 422) reason='Unprocessable Content' ;; 431) reason='Request Header Fields Too Large' ;;
  501) reason='Not Implemented' ;; 503) reason='Service Unavailable' ;; 505) reason='HTTP Version Not Supported' ;;
  *) reason='Internal Server Error' ;;
  esac
}

# header NAME VALUE - add a header field to the answer
header() {
  headers="$headers$1: $2$cr
"
}

# say_head STATUS LENGTH TYPE - write the answer up to its body
say_head() {
  status=$1
  request_skip
  status_reason "$1"
  say_date
  headers="HTTP/1.1 $1 $reason$cr
Date: $date$cr
$headers"
  if [ "$1" != 204 ]; then
    header Content-Type "$3"
    header Content-Length "$2"
  fi
  header Cache-Control no-store
  if [ -n "$keep" ]; then header Connection keep-alive; else header Connection close; fi
}

# request_skip - skip the unread part of the request, or end the connection after this answer
request_skip() {
  case $request_left in
  '') return 0 ;;
  [0-9] | [0-9][0-9] | [0-9][0-9][0-9] | [0-9][0-9][0-9][0-9] | [0-6][0-9][0-9][0-9][0-9])
    # A client that expects `100 Continue` may never send the body: do not wait for it
    # If dd was killed, or failed, the rest of the body would be taken for a request
    [ -z "$expect" ] && input_exact "$request_left" >/dev/null && { request_left=''; return 0; } ;;
  esac
  keep=''
}

# say STATUS [TEXT [TYPE]] - write a whole answer, with the header fields that were added before; TEXT gets a newline
say() {
  say_text=${2:-}
  [ -z "$say_text" ] || say_text="$say_text
"
  say_head "$1" ${#say_text} "${3:-text/plain; charset=utf-8}"
  [ "$1" != 204 ] && [ "$method" != HEAD ] || say_text=
  [ ${#say_text} -lt 1000 ] || [ -z "$again" ] || door_nodelay
  door_blocking ${#say_text} || exit 74
  printf '%s\r\n%s' "$headers" "$say_text" 2>/dev/null || exit 74
  headers=
}

# post_line STATUS [TEXT] - add a line to post_lines, the answer to a request about several messages
post_line() {
  post_lines="$post_lines$1${2:+ $2}
"
}

# bad STATUS TEXT - answer a request that cannot or must not be understood, and end the connection
bad() {
  headers='' keep='' request_left=''
  say "$1" "$2"
  say_linger
  request_log
  exit 0
}

# say_failed CODE - answer with the HTTP status for a failed function. Failures of the system are explained on standard error, not to the client
say_failed() {
  case $1 in
  65) say 422 "$why" ;;
  69 | 75) header Retry-After 5; say 503 "$why" ;;
  *) printf '%s: %s\n' "$FLATQ_VERB" "$why" >&5; say 500 'see the log' ;;
  esac
}

# say_linger - read for a second what the client still sends: closing a socket with unread input resets it, and the answer might be lost
say_linger() {
  [ -n "$door_inode" ] || return 0
  timeout 1 dd bs=65536 count=256 >/dev/null 2>&1 || :
}

# say_date - set `date` in the form of HTTP
say_date() {
  clock_read
  clock_epoch "$now"
  [ "${epoch_time%??}" != "${date_of:-}" ] || return 0
  date_of=${epoch_time%??}
  door_date "${date_of}00"
  # 1 January 1970 was a Thursday
  unpad "$date_of"
  case $((unpadded / 86400 % 7)) in
  0) date=Thu ;; 1) date=Fri ;; 2) date=Sat ;; 3) date=Sun ;; 4) date=Mon ;; 5) date=Tue ;; *) date=Wed ;;
  esac
  date_rest=${door_time#*-}
  case ${date_rest%%-*} in
  01) date_month=Jan ;; 02) date_month=Feb ;; 03) date_month=Mar ;; 04) date_month=Apr ;; 05) date_month=May ;; 06) date_month=Jun ;;
  07) date_month=Jul ;; 08) date_month=Aug ;; 09) date_month=Sep ;; 10) date_month=Oct ;; 11) date_month=Nov ;; *) date_month=Dec ;;
  esac
  date_rest=${date_rest#*-}
  date="$date, ${date_rest%%T*} $date_month ${door_time%%-*} ${date_rest#*T}"
  date="${date%.*} GMT"
}

# request_log - write one line to standard error for each request, as the line door does
request_log() {
  clock_read
  clock_between "$request_began" "$now"
  door_log "${method:--}" "${queue:--}" "$status" "${slip_size:--}" $((between_s * 1000 + between_c * 10))
}

# key_given - return 0 if the request has the key of API_KEY, as api-key or as the password of Basic authentication; 1 if not; 70 if sha1sum failed;
# 74 if the password was not decoded. Compare hashes, salted anew in each connection: so the time it takes tells nothing about the key
key_given() {
  [ -n "${API_KEY:-}" ] || return 0
  if [ -z "$api_key" ]; then
    case $authorization in
    [Bb][Aa][Ss][Ii][Cc]' '*)
      # Both sides of the pipe have to finish (R6): else a client with the right password would hear that it is wrong. The left side writes its status
      # last, and in front it decodes three letters of ours, `xxx`, which prove that the here-document was written. 1: the client sent no base64
      api_key=$({ base64 -d 2>/dev/null; echo ".$?.end"; } <<EOF | tr -d '\000'
eHh4${authorization#* }
EOF
      ) || api_key=
      case $api_key in
      xxx*.[01].end) ;;
      *) api_key='' why='base64 or tr is missing, or failed'; return 74 ;;
      esac
      api_key=${api_key%.?.end}
      # What `echo me:KEY | base64` prints has a newline behind the key
      api_key=${api_key%"
"}
      api_key=${api_key#xxx}
      api_key=x${api_key#*:} ;;
    *) return 1 ;;
    esac
  fi
  [ -n "${key_hashed:-}" ] || { nonce_read; key_salt=$nonce; key_digest "$API_KEY" || return $?; key_hashed=$digest; }
  key_digest "${api_key#x}" || return $?
  [ "$digest" = "$key_hashed" ]
}

# key_digest KEY - set `digest`. Use a here-document: under mksh `printf` is a program, and everybody can see a program's arguments. If the here-document
# could not be written, sha1sum reads nothing: all keys would have the digest of nothing
key_digest() {
  digest=$(sha1sum <<EOF
$key_salt $1
EOF
  ) && [ -n "$digest" ] && [ "${digest%% *}" != da39a3ee5e6b4b0d3255bfef95601890afd80709 ] || { why='sha1sum failed, is missing, or was not given the key'; return 70; }
}

part='doors/http/say'
