# doors/beanstalk/say.sh - write answers of beanstalkd's protocol: a line, or a line and bytes

need doors/door doors/beanstalk/tally

# reply TEXT - write one line to the client; if that fails, the client is gone: end
reply() {
  tally_write
  printf '%s\r\n' "$1" 2>/dev/null || exit 74
}

# reply_of CODE ANSWER - answer ANSWER if CODE is 0, else beanstalkd's answer for CODE (69: the tube is gone). small-stalk has one answer for all
reply_of() {
  case $1 in
  0) reply "$2" ;;
  65 | 66 | 69) reply NOT_FOUND ;;
  *)
    printf '%s: %s\n' "$FLATQ_VERB" "$why" >&2
    case $1.$stalk_length in
    7[45].1) reply OUT_OF_MEMORY ;;
    *) reply INTERNAL_ERROR ;;
    esac ;;
  esac
}

# reply_job WORD - answer WORD, id, length (not in small-stalk) and the bytes of the message in the slip_ variables
reply_job() {
  reply_body "$1" "$id${stalk_length:+ $slip_size}"
}

# reply_body WORD TEXT - answer WORD, a blank, TEXT and CRLF, the message's bytes, CRLF. A small answer goes out in one write, since TCP would
# hold back a second one until the client has acknowledged the first, which takes 40 ms. So code the lines in base64 too, and let one
# `base64 -d` write everything: it accepts several codings put together
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
  # After half a body, only the end of the connection can follow
  base64 -d "$q/body/$slip_id" 2>/dev/null || exit 74
  printf '\r\n' 2>/dev/null || exit 74
}

# code_text TEXT - add TEXT in base64 to `coded`. TEXT has digits and blanks, and a newline at the end, which becomes CRLF
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

# code_three COUNT - add the first COUNT of the four letters that three bytes make
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

# reply_text - answer with the content of `text` and its length
reply_text() {
  tally_write
  door_reply ${#text}
  [ ${#text} -lt 1000 ] || door_pieces
  printf 'OK %s\r\n%s\r\n' ${#text} "$text" 2>/dev/null || exit 74
}
