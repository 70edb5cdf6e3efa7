# doors/beanstalk/say.sh - write answers of beanstalkd's protocol: a line, or a line and bytes

need doors/door engine/take doors/beanstalk/tally

# reply TEXT - write one line to the client; if that fails, the client is gone: end
reply() {
  tally_write
  printf '%s\r\n' "$1" 2>/dev/null || exit 74
}

# reply_of CODE ANSWER - answer ANSWER if CODE is 0, else the dialect's answer for CODE (65: a conf is damaged; 69: the tube is gone)
reply_of() {
  case $1 in
  0) reply "$2" ;;
  66 | 69) reply NOT_FOUND ;;
  *)
    printf '%s: %s\n' "$FLATQ_VERB" "$why" >&2
    case $1.$stalk_beanstalkd in
    65.1 | 7[45].1) reply OUT_OF_MEMORY ;;
    *) reply INTERNAL_ERROR ;;
    esac ;;
  esac
}

# reply_job WORD - answer WORD, id, length (not in small-stalk) and the bytes of the message in the slip_ variables
reply_job() {
  reply_body "$1" "$id${stalk_beanstalkd:+ $slip_size}"
}

# reply_body WORD TEXT - answer WORD, a blank, TEXT and CRLF, the message's bytes, CRLF. One `base64 -d` writes a small answer at once, from several
# pieces of base64 (DQo= is CRLF): TCP would hold back a second write for 40 ms. With FOUND, return 75 if the body is gone by now: look again
reply_body() {
  body_is_no_link || exit 74
  tally_write
  door_reply "$slip_size" || exit 74
  reply_code=
  if [ "$slip_size" -le 1000 ] && { { read -r reply_code <"$q/body/$slip_id"; } 2>/dev/null || [ "$slip_size" = 0 ]; }; then
    case $1 in
    RESERVED) coded=UkVTRVJWRUQg ;;
    FOUND) coded=Rk9VTkQg ;;
    esac
    code_text "$2"
    # A shell may not say that it could not write the here-document: so the first line proves that it is there
    (IFS= read -r reply_begun && [ "$reply_begun" = begin ] && exec base64 -d 2>/dev/null) <<EOF || exit 74
begin
${coded}DQo=
$reply_code
DQo=
EOF
    return 0
  fi
  # RACE: who only looks does not own the message: it may be folded, or taken and deleted, as may a job whose lease has ended. If the slip is still there
  # once the body is open, that is whole
  reply_slip=$q/out/$taken
  [ "$1" != FOUND ] || reply_slip=$slip_path
  { command exec 7<"$q/body/$slip_id"; } 2>/dev/null && [ -e "$reply_slip" ] || { [ "$1" = FOUND ] && return 75; exit 74; }
  door_nodelay
  printf '%s %s\r\n' "$1" "$2" 2>/dev/null || exit 74
  # After half a body, only the end of the connection can follow
  base64 -d <&7 2>/dev/null || exit 74
  close_descriptor 7
  printf '\r\n' 2>/dev/null || exit 74
}

# code_text TEXT - add TEXT, digits and blanks, in base64 to `coded`: each character as a piece of its own
code_text() {
  code_rest=$1
  while [ -n "$code_rest" ]; do
    case $code_rest in
    ' '*) code_piece=IA== ;;
    0*) code_piece=MA== ;;
    1*) code_piece=MQ== ;;
    2*) code_piece=Mg== ;;
    3*) code_piece=Mw== ;;
    4*) code_piece=NA== ;;
    5*) code_piece=NQ== ;;
    6*) code_piece=Ng== ;;
    7*) code_piece=Nw== ;;
    8*) code_piece=OA== ;;
    9*) code_piece=OQ== ;;
    esac
    coded="$coded$code_piece
" code_rest=${code_rest#?}
  done
}

# reply_text - answer with the content of `text` and its length
reply_text() {
  tally_write
  door_reply ${#text} || exit 74
  [ ${#text} -lt 1000 ] || door_nodelay
  printf 'OK %s\r\n%s\r\n' ${#text} "$text" 2>/dev/null || exit 74
}

part='doors/beanstalk/say'
