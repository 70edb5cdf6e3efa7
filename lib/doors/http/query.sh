# doors/http/query.sh - parse a URL: the path, the parameters, and names of any bytes
#
# The time for a client's input must be linear in its length (R8). So split it in one go, by IFS, and decode only short pieces in loops:
# `${x#*y}` in a loop over x takes minutes for some kilobytes.

need doors/http/say

# target_parse - set `request_path`, decoded, and `query`
target_parse() {
  case $target in
  # `*` stands for the server as a whole in OPTIONS: not found here
  /* | '*') ;;
  [Hh][Tt][Tt][Pp]://*)
    target=${target#*://}
    case $target in
    */*) target=/${target#*/} ;;
    *) target=/ ;;
    esac ;;
  *) bad 400 'the target must be a path' ;;
  esac
  request_path=${target%%'?'*} query=
  case $target in
  *'#'*) bad 400 'the target must not have a fragment' ;;
  *'?'*) query=${target#"$request_path"} query=${query#'?'} ;;
  esac
  # Decode nothing long before the client is authenticated
  [ ${#request_path} -le 200 ] || request_path=/long
  case $request_path in
  *%*) plain_of "$request_path" || bad 400 'bad percent-encoding'; request_path=$plain ;;
  esac
}

# query_parse - set p_group p_key p_visibility p_wait p_most p_batch p_queue, each decoded, and p_receipts; `has` tells which came. Return 1 if a
# parameter came twice, or is no valid group or key, and that was answered
query_parse() {
  p_group='' p_key='' p_visibility='' p_wait='' p_most='' p_batch='' p_queue='' p_receipts='' p_names=' '
  IFS='&'
  # cl-sqs's own example for PATCH has a second question mark
  [ "$method" != PATCH ] || IFS='&?'
  set -f
  # shellcheck disable=SC2086 # parted
  set -- $query
  set +f
  IFS=$blanks
  for query_one in "$@"; do
    query_take "$query_one" || return $?
  done
}

# query_take NAME=VALUE - note one parameter; ignore one of a name that is not known
query_take() {
  query_name=${1%%=*}
  # No parameter of ours has so long a name, however it is encoded
  [ ${#query_name} -le 100 ] || return 0
  query_value=${1#"$query_name"}
  query_value=${query_value#=}
  case $query_name in
  *%*) plain_of "$query_name" || bad 400 'bad percent-encoding'; query_name=$plain ;;
  esac
  case $query_name in
  group-id | deduplication-id | visibility-timeout | wait | max | batch | queue) ;;
  receipt-id)
    [ ${#query_value} -le 200 ] || query_value=
    plain_of "$query_value" || bad 400 'bad percent-encoding'
    p_receipts="$p_receipts ${plain:-none}"
    return 0 ;;
  *) return 0 ;;
  esac
  case $p_names in
  *" $query_name "*) say 422 "$query_name comes twice"; return 1 ;;
  esac
  p_names="$p_names$query_name "
  [ ${#query_value} -le 1536 ] || { say 422 "$query_name is too long"; return 1; }
  plain_of "$query_value" plus || bad 400 'bad percent-encoding'
  case $query_name in
  group-id) p_group=$plain ;;
  deduplication-id) p_key=$plain ;;
  visibility-timeout) p_visibility=$plain ;;
  wait) p_wait=$plain ;;
  max) p_most=$plain ;;
  batch) p_batch=$plain ;;
  queue) p_queue=$plain ;;
  esac
  case $query_name in
  group-id | deduplication-id)
    [ "$plain_count" -ge 1 ] && [ "$plain_count" -le 128 ] || { say 422 "$query_name has 1 to 128 characters"; return 1; } ;;
  esac
}

# has NAME - return whether the parameter came
has() {
  case $p_names in
  *" $1 "*) return 0 ;;
  esac
  return 1
}

# plain_of TEXT [plus] - decode percent-encoding (and `+`) into `plain`, a queue's name: it has letters, digits and -._/;(), and all other bytes as $XX.
# Set plain_count to the number of UTF-8 characters, or of bytes at most; stop after the 200th, too long for any use. Return 1 if TEXT is malformed
plain_of() {
  plain='' plain_count=0 plain_plus=${2:-}
  case $1 in
  '') return 0 ;;
  *%) return 1 ;;
  esac
  IFS=%
  set -f
  # shellcheck disable=SC2086 # parted
  set -- $1
  set +f
  IFS=$blanks
  plain_text "$1"
  shift
  for plain_piece in "$@"; do
    [ $plain_count -le 200 ] || return 0
    case $plain_piece in
    [0-9A-Fa-f][0-9A-Fa-f]*) ;;
    *) return 1 ;;
    esac
    plain_rest=${plain_piece#??}
    byte_plain "${plain_piece%"$plain_rest"}"
    plain=$plain$byte
    plain_text "$plain_rest"
  done
}

# plain_text TEXT - add text without percent signs to `plain`
plain_text() {
  plain_rest=$1
  while [ -n "$plain_rest" ] && [ "$plain_count" -le 200 ]; do
    # mksh takes a `(` that is not quoted here for the begin of another kind of pattern
    plain_same=${plain_rest%%[!A-Za-z0-9._/\;\(\)-]*}
    plain=$plain$plain_same plain_count=$((plain_count + ${#plain_same})) plain_rest=${plain_rest#"$plain_same"}
    case $plain_rest in
    '') return 0 ;;
    +*) if [ -n "$plain_plus" ]; then code=20; else code=2B; fi ;;
    *) char_code "$plain_rest" ;;
    esac
    plain=$plain\$$code plain_rest=${plain_rest#?} plain_count=$((plain_count + 1))
  done
}

# char_code TEXT - set `code` to two hexadecimal digits for its first character, which plain_of does not keep
char_code() {
  case $1 in
  '!'*) code=21 ;; '"'*) code=22 ;; '#'*) code=23 ;; \$*) code=24 ;; '&'*) code=26 ;; \'*) code=27 ;; '*'*) code=2A ;; ,*) code=2C ;;
  :*) code=3A ;; '<'*) code=3C ;; =*) code=3D ;; '>'*) code=3E ;; '?'*) code=3F ;; @*) code=40 ;; '['*) code=5B ;; \\*) code=5C ;;
  ']'*) code=5D ;; '^'*) code=5E ;; '`'*) code=60 ;; '{'*) code=7B ;; '|'*) code=7C ;; '}'*) code=7D ;; ' '*) code=20 ;; *) code=7E ;;
  esac
}

# byte_plain XX - set `byte` to what plain_of makes of the byte XX, and count it
byte_plain() {
  byte_code=$((0x$1))
  # Of a UTF-8 character, count only the first byte
  [ $byte_code -ge 128 ] && [ $byte_code -le 191 ] || plain_count=$((plain_count + 1))
  byte_set=
  if [ $byte_code -ge 48 ] && [ $byte_code -le 57 ]; then
    byte=$((byte_code - 48))
    return 0
  elif [ $byte_code -ge 65 ] && [ $byte_code -le 90 ]; then
    byte_set=ABCDEFGHIJKLMNOPQRSTUVWXYZ byte_code=$((byte_code - 65))
  elif [ $byte_code -ge 97 ] && [ $byte_code -le 122 ]; then
    byte_set=abcdefghijklmnopqrstuvwxyz byte_code=$((byte_code - 97))
  else
    case $byte_code in
    40) byte='(' ;; 41) byte=')' ;; 45) byte=- ;; 46) byte=. ;; 47) byte=/ ;; 59) byte=';' ;; 95) byte=_ ;;
    *)
      byte_set=0123456789ABCDEF
      byte_low=$((byte_code % 16))
      letter_of $((byte_code / 16))
      byte=\$$letter
      letter_of $byte_low
      byte=$byte$letter ;;
    esac
    return 0
  fi
  letter_of $byte_code
  byte=$letter
}

# letter_of N - set `letter` to the character of byte_set that has N before it
letter_of() {
  letter=$byte_set letter_n=$1
  while [ "$letter_n" -gt 0 ]; do letter=${letter#?} letter_n=$((letter_n - 1)); done
  letter=${letter%"${letter#?}"}
}

part='doors/http/query'
