# doors/http/say.sh - write answers: `say` a whole one, `say_head` the beginning of one whose body
# follows. Each first deals with an unread body

need doors/door engine/input engine/clock

# status_reason STATUS - set `reason` to the text for STATUS
status_reason() {
  case $1 in
  200) reason=OK ;; 204) reason='No Content' ;; 400) reason='Bad Request' ;;
  401) reason=Unauthorized ;; 404) reason='Not Found' ;; 405) reason='Method Not Allowed' ;;
  411) reason='Length Required' ;; 413) reason='Content Too Large' ;; 414) reason='URI Too Long' ;;
  417) reason='Expectation Failed' ;; 422) reason='Unprocessable Content' ;;
  431) reason='Request Header Fields Too Large' ;; 501) reason='Not Implemented' ;;
  503) reason='Service Unavailable' ;; 505) reason='HTTP Version Not Supported' ;;
  *) reason='Internal Server Error' ;;
  esac
}

# header NAME VALUE - add a header field to the answer
header() {
  headers="$headers$1: $2$cr
"
}

# say_head STATUS LENGTH TYPE - set `headers` to the answer up to its body
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

# request_skip - skip the unread part of the request if it is small, or end the connection after
# this answer
request_skip() {
  case $request_left in
  '') return 0 ;;
  some | ??????*) ;;
  *)
    # A client that expects `100 Continue` may never send it. If dd was killed, the rest would be
    # taken for a request
    if [ -z "$expect" ] && input_exact "$request_left" >/dev/null; then
      request_left=
      return
    fi ;;
  esac
  keep=
}

# say STATUS [TEXT [TYPE]] - write a whole answer; TEXT gets a newline
say() {
  say_text=${2:-}
  [ -z "$say_text" ] || say_text="$say_text
"
  say_head "$1" ${#say_text} "${3:-text/plain; charset=utf-8}"
  [ "$1" != 204 ] && [ "$method" != HEAD ] || say_text=
  [ ${#say_text} -lt 1000 ] || [ -z "$again" ] || door_nodelay
  door_blocking ${#say_text} && printf '%s\r\n%s' "$headers" "$say_text" || exit 74
  headers=
}

# failed CODE - set `said` to the status and the text for a function that failed. Only the log has a
# reason that may name paths
failed() {
  case $1 in
  69 | 75) said="503 $why" ;;
  *)
    printf '%s: %s\n' "$FLATQ_VERB" "$why" >&5
    said='500 see the log' ;;
  esac
}

# say_failed CODE - answer for a function that failed
say_failed() {
  failed "$1"
  case $said in 503*) header Retry-After 5 ;; esac
  say "${said%% *}" "${said#* }"
}

# add LINE - add a line to the answer to a request about several messages
add() {
  lines="$lines$1
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

# say_linger - read for a second what the client still sends: closing a socket with unread input
# would reset it
say_linger() {
  [ -z "$door_inode" ] || timeout 1 dd bs=65536 count=256 >/dev/null || :
}

# say_date - set `date` in the form of HTTP
say_date() {
  clock_read
  clock_epoch "$now"
  [ "${epoch_time%??}" != "$date_of" ] || return 0
  date_of=${epoch_time%??}
  door_date "${date_of}00"
  unpad "$date_of"
  # 1 January 1970 was a Thursday
  set -- Thu Fri Sat Sun Mon Tue Wed
  shift $((unpadded / 86400 % 7))
  # YEAR-MONTH-DAYTTIME.00Z
  date=${door_time%%T*} date_rest=${door_time#*T} date_day=$1
  unpad "${date#*-}"
  set -- Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec
  shift $((${unpadded%-*} - 1))
  date="$date_day, ${date##*-} $1 ${date%%-*} ${date_rest%.*} GMT"
}

# stamp_of - set `stamp` to when the message in the slip_ variables was pushed, in microseconds:
# hundredths, then digits of the id
stamp_of() {
  unpad "$slip_born"
  stamp=$unpadded${slip_id#????????}
}

# request_log - write a line to the log
request_log() {
  door_log "${method:--}" "${queue:--}" "$status" "${slip_size:--}" "$request_began"
}

# key_given - return 0 if the request has the key of API_KEY, as api-key or as the password of Basic
# authentication; else answer
key_given() {
  [ -n "${API_KEY:-}" ] || return 0
  case $api_key$authorization in
  [Bb][Aa][Ss][Ii][Cc]' '*)
    # No argument of a program: everybody sees those
    api_key=$(base64 -d <<EOF
${authorization#* }
EOF
    )
    [ $? -le 1 ] || { why='base64 is missing, or was killed'; say_failed 74; return 1; }
    api_key=x${api_key#*:} ;;
  esac
  [ "$api_key" != "x$API_KEY" ] || return 0
  header WWW-Authenticate 'Basic realm="flatq", charset="UTF-8"'
  say 401 'send the api-key header'
  return 1
}
