# stalk.sh - what beanstalkd's protocol and small-stalk's have in common: one connection, its lines, its answers, its jobs

# stalk_open - the connection, the spool, and what is to happen at the end
stalk_open() {
  shell_reset
  need slip spool push input take settle reclaim batch fold bound wait rare boot look tube tally yaml
  # a line of megabytes ends its own connection, and no other
  # shellcheck disable=SC3045 # where there is none, nothing is lost
  ulimit -d 131072 2>/dev/null || :
  jobs=' ' used=default watched=' default ' client_reader='' client_gone='' client_half='' client_line='' line_ahead='' line_most=222
  door_producer=0 door_worker=0 door_waiting=0 taken='' wait_fifo=''
  cr=$(printf '\r')
  door_open
  door_verb=$FLATQ_VERB
  : "${FLATQ_MOST_BYTES:=65535}"
  trap 'exit 75' HUP INT TERM
  spool_open || die $? "$why"
  exec 4<&0
  owner_read
  tally_begin || die $? "$why"
  trap stalk_close EXIT
  # a connection that says nothing is not idle: it may for ever
  [ -z "${FLATQ_GUARD:-}" ] || printf '\nl %s 999999999 %s\n' "$$" "$FLATQ_VERB" >&3
}

# door_die CODE TEXT - instead of common.sh's die
door_die() {
  printf '%s: %s\n' "$FLATQ_VERB" "$2" >&2
  printf 'INTERNAL_ERROR\r\n' 2>/dev/null
  exit "$1"
}

# stalk_close - the trap at the end: what is held goes back, and the counters stay
stalk_close() {
  door_code=$?
  trap - EXIT
  # a child that is signalled before the shell has made it a child's has the trap of its parent
  { read -r close_pid close_rest <"$FLATQ_PROC/self/stat"; } 2>/dev/null && [ "$close_pid" != "${owner%-*}" ] && exit 75
  trap '' HUP INT TERM
  [ -z "${wait_fifo:-}" ] || wait_end
  [ -z "$client_reader" ] || { kill -KILL "$client_reader"; rm -f "$client_line"; } 2>/dev/null
  jobs_back
  tally_end
  (exit $door_code)
  door_end
}

# reply TEXT - one line to the client; whoever takes none is gone
reply() {
  tally_write
  printf '%s\r\n' "$1" 2>/dev/null || exit 74
}

# reply_of CODE ANSWER - ANSWER where CODE is 0, else what beanstalkd says to that
reply_of() {
  case $1 in
  0) reply "$2" ;;
  66 | 65) reply NOT_FOUND ;;
  *) printf '%s: %s\n' "$FLATQ_VERB" "$why" >&2; reply INTERNAL_ERROR ;;
  esac
}

# reply_job WORD - WORD, id, length and the bytes of the message in the slip_ variables
reply_job() {
  reply_body "$1" "$id $slip_size"
}

# reply_body WORD TEXT - WORD, a blank, TEXT and CRLF, the message's bytes, CRLF. What is small goes out in one write: of several TCP keeps
# the second until the client has acknowledged the first, and that takes its time (40 ms). So the lines become base64 as well, and one
# base64 writes all: what is put together from several codings it takes for one
reply_body() {
  tally_write
  door_reply "$slip_size"
  reply_code=
  if [ "$slip_size" -le 1000 ] && { { read -r reply_code <"$q/body/$slip_id"; } 2>/dev/null || [ "$slip_size" = 0 ]; }; then
    case $1 in
    RESERVED) coded=UkVTRVJWRUQg ;;
    FOUND) coded=Rk9VTkQg ;;
    esac
    code_text "$2
"
    base64 -d 2>/dev/null <<EOF || exit 74
$coded
$reply_code
DQo=
EOF
    return 0
  fi
  door_pieces
  printf '%s %s\r\n' "$1" "$2" 2>/dev/null || exit 74
  # half a body is the end of a connection
  base64 -d "$q/body/$slip_id" 2>/dev/null || exit 74
  printf '\r\n' 2>/dev/null || exit 74
}

# code_text TEXT - adds TEXT in base64 to `coded`: digits and blanks, and a newline at the end, which becomes CRLF
code_text() {
  code_rest=$1 code_bits=0 code_have=0 code_cr=13
  while [ -n "$code_rest" ]; do
    case $code_rest in
    [0-9]*) code_byte=$((48 + ${code_rest%"${code_rest#?}"})) code_rest=${code_rest#?} ;;
    ' '*) code_byte=32 code_rest=${code_rest#?} ;;
    *) code_byte=$code_cr; if [ "$code_cr" = 10 ]; then code_rest=; fi; code_cr=10 ;;
    esac
    code_bits=$((code_bits * 256 + code_byte)) code_have=$((code_have + 1))
    [ $code_have -lt 3 ] || code_three 4
  done
  case $code_have in
  1) code_bits=$((code_bits * 65536)); code_three 2; coded=$coded== ;;
  2) code_bits=$((code_bits * 256)); code_three 3; coded=$coded= ;;
  esac
}

# code_three COUNT - the first COUNT of the four letters that three bytes make
code_three() {
  for code_shift in 262144 4096 64 1; do
    code_letter $((code_bits / code_shift % 64)) A B C D E F G H I J K L M N O P Q R S T U V W X Y Z a b c d e f g h i j k l m n o p q r s \
      t u v w x y z 0 1 2 3 4 5 6 7 8 9 + /
    case $1.$code_shift in
    2.4096 | 3.64) break ;;
    esac
  done
  code_bits=0 code_have=0
}

code_letter() {
  shift $(($1 + 1))
  coded=$coded$1
}

# reply_text - what is in `text`, with its length
reply_text() {
  tally_write
  door_reply ${#text}
  [ ${#text} -lt 1000 ] || door_pieces
  printf 'OK %s\r\n%s\r\n' ${#text} "$text" 2>/dev/null || exit 74
}

# line_next - sets `line`, a command without its CRLF; line_long where it was too long. 1 at the client's end.
# As beanstalkd: only CRLF ends a line, looked for at the first CR
line_next() {
  line='' line_long=
  while :; do
    line_read || return
    line=$line$line_part
    case $line in
    *"$cr"*)
      if [ "${line%%"$cr"*}$cr" = "$line" ]; then
        line=${line%"$cr"}
        [ ${#line} -le "$line_most" ] || line_long=1
        return 0
      fi ;;
    esac
    line="$line
"
    # what has no end in 224 bytes is left out up to the next CRLF
    [ ${#line} -le $((line_most + 2)) ] || line_long=1
    [ -z "$line_long" ] || {
      case $line_part in
      *"$cr") return 0 ;;
      esac
      line=${line%"${line#?}"}
    }
  done
}

# line_read - sets line_part, what the client has sent up to a newline: from what was read ahead, or from it
line_read() {
  if [ -n "$line_ahead" ]; then
    line_part=${line_ahead#x} line_ahead=
  elif [ -n "$client_reader" ]; then
    wait "$client_reader"
    line_code=$?
    IFS= read -r line_part <"$client_line" || line_part=
    rm -f "$client_line" 2>/dev/null
    client_reader=''
    [ $line_code -eq 0 ] || client_gone=1
    return $line_code
  else
    [ -z "$client_gone" ] && IFS= read -r line_part
  fi
}

# door_body_end - the CRLF behind a body: two bytes, whatever they are. The shell reads on to a newline; what it has too much is kept
door_body_end() {
  body_end='' why='the body was cut'
  IFS= read -r line_part || { client_gone=1; return 65; }
  [ "$line_part" != "$cr" ] || return 0
  body_end=EXPECTED_CRLF why='no CRLF behind the body'
  case $line_part in
  # the newline was the first byte of two: the next byte of the client is lost too
  '') IFS= read -r line_part || client_gone=1; line_ahead=x${line_part#?} ;;
  ?) ;;
  *) line_ahead=x${line_part#??} ;;
  esac
  return 65
}

# swallow LENGTH - a body that is refused
swallow() {
  input_exact "$1" >/dev/null
  door_body_end || :
}

# words_number TEXT MAX - sets `number` from the front of TEXT, and `rest`, what follows; 1 where there is none
words_number() {
  rest=${1#"${1%%[! ]*}"}
  case $rest in
  [0-9]*) ;;
  *) return 1 ;;
  esac
  set -- "${rest%%[!0-9]*}" "$2"
  rest=${rest#"$1"}
  number "$1" "$2"
}

# words_id TEXT - words_number of an id, with nothing behind it; sets job_id
words_id() {
  words_number "$1" 18446744073709551615 && job_id=$number && [ -z "$rest" ]
}

# door_find ID - message_find over all queues; sets q and queue too. What nobody lives to hold, or for too long, is put back first
door_find() {
  [ ${#1} -le 12 ] || return 66
  pad "$1" 000000000000
  find_id=$padded
  # the push journal knows where it went, as long as it is there
  { read -r find_pid find_time find_disk <"$FLATQ_DIR/.ids/${find_id%???}/1${find_id#?????????}"; } 2>/dev/null || find_disk=.
  for find_path in "$FLATQ_DIR/$find_disk" "$FLATQ_DIR"/*; do
    [ -d "$find_path/wal" ] || continue
    q=$find_path
    name_from_disk "${q##*/}"
    queue=$name
    # what is due is not delayed. This is done first: it looks at other jobs with the same variables
    clock_read
    queue_tend
    message_find "$find_id" || continue
    case $found in
    "$q"/out/*)
      if { [ "$slip_owner" != 0 ] && owner_dead "$slip_owner"; } || lease_over "$slip_deadline"; then
        queue_reclaim
        message_find "$find_id" || return 66
      fi ;;
    esac
    return 0
  done
  return 66
}

# door_find_free ID - door_find of a job that nobody holds
door_find_free() {
  door_find "$1" || return
  case $found in
  "$q"/out/*) return 66 ;;
  esac
}

# id_command COUNTER FUNCTION TEXT - a command whose one word is an id
id_command() {
  words_id "$3" || { reply BAD_FORMAT; return; }
  [ -z "$1" ] || tally "$1"
  "$2"
}

# bare_command COUNTER REST FUNCTION [ARGUMENT] - a command without words
bare_command() {
  [ -z "$2" ] || { reply BAD_FORMAT; return; }
  tally "$1"
  shift 2
  "$@"
}

# do_reserve SECONDS - `none`: for ever
do_reserve() {
  door_worker=1
  jobs_soon
  clock_read
  if [ -n "$soon_due" ] && ! [ "$now" \< "$soon_due" ]; then
    tubes_take "$owner" || { reply DEADLINE_SOON; return; }
    reply_job RESERVED
    return
  fi
  tubes_take "$owner"
  reserve_code=$?
  if [ $reserve_code -eq 66 ] && [ "$1" != 0 ] && [ -z "$client_gone$client_half" ]; then
    reserve_deadline=none
    [ "$1" = none ] || { clock_add "$1" "$now"; reserve_deadline=$later; }
    door_waiting=1
    tally_write
    tubes_wait "$owner" "$reserve_deadline"
    reserve_code=$?
    door_waiting=0
  fi
  case $reserve_code in
  0) reply_job RESERVED ;;
  66) reply TIMED_OUT ;;
  75) reply DEADLINE_SOON ;;
  *) reply_of $reserve_code ;;
  esac
  [ -z "$wait_fifo" ] || tubes_leave
}

do_delete() {
  clock_read
  job_mine "$job_id" || door_find_free "$job_id" || { reply NOT_FOUND; return; }
  message_delete
  delete_code=$?
  if [ $delete_code -eq 0 ]; then tally "tube-cmd-delete/$queue"; elif [ -e "$found" ]; then jobs_add; fi
  reply_of $delete_code DELETED
}

# do_peek STATE - of the tube that is used
do_peek() {
  clock_read
  queue_open "$used" && queue_tend && message_first "$1" && reply_job FOUND || reply NOT_FOUND
}
