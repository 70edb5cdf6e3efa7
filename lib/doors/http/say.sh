# doors/http/say.sh - write answers

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

# header NAME VALUE - add a field to `headers`
header() {
  headers="$headers$1: $2$cr
"
}

# say_head STATUS LENGTH TYPE - skip an unread body, or end the connection after this answer; set
# `headers` to the answer up to its body
say_head() {
  status=$1
  case $request_left.$expect in
  .*) ;;
  # A client that expects `100 Continue` may never send its body
  some.* | ??????*.* | *.1) keep= ;;
  # If dd was killed, the rest would be taken for a request
  *) if input_exact "$request_left" >/dev/null; then request_left=; else keep=; fi ;;
  esac
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

# failed CODE - set `said` to the status and the text for a function that failed with CODE and
# `why`. Only the log may name paths
failed() {
  case $1 in
  69 | 75) said="503 $why" ;;
  *)
    printf '%s: %s\n' "$FLATQ_VERB" "$why" >&5
    said='500 see the log' ;;
  esac
}

say_failed() {
  failed "$1"
  say_said
}

say_said() {
  case $said in 503*) header Retry-After 5 ;; esac
  say "${said%% *}" "${said#* }"
}

add() {
  lines="$lines$1
"
}

# bad STATUS TEXT - answer a request that is not understood, and end the connection
bad() {
  headers='' keep='' request_left=''
  say "$1" "$2"
  say_linger
  request_log
  exit 0
}

# say_linger - read what the client still sends, for a second: to close a socket with unread input
# resets it
say_linger() {
  [ -z "$door_inode" ] || timeout 1 dd bs=65536 count=256 >/dev/null || :
}

say_date() {
  clock_read
  clock_epoch "$now"
  door_date "$epoch_time"
  # 1 January 1970 was a Thursday
  set -- Thu Fri Sat Sun Mon Tue Wed
  shift $((clock_s / 86400 % 7))
  date=$1
  set -- Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec
  shift $((door_month - 101))
  date_day=${door_time%T*} date_time=${door_time#*T}
  date="$date, ${date_day##*-} $1 $door_year ${date_time%.*} GMT"
}

# stamp_of - set `stamp` to when the message was pushed, in microseconds: hundredths, then digits of
# the id
stamp_of() {
  unpad "$slip_born"
  stamp=$unpadded${slip_id#????????}
}

request_log() {
  door_log "${method:--}" "${queue:--}" "$status" "${slip_size:--}" "$request_began"
}

# key_given - return 0 if the request has the key, in api-key or as Basic authentication's password;
# else answer
key_given() {
  [ -n "${API_KEY:-}" ] || return 0
  case $api_key$authorization in
  [Bb][Aa][Ss][Ii][Cc]' '*)
    # Everybody sees the arguments of a program
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
