# doors/http/query.sh - parse a URL: the path, the parameters, and names of any bytes
#
# In linear time (R8): IFS splits it in one go, and loops decode only short pieces.

# target_parse - set request_path, decoded, and `query`
target_parse() {
  case $target in
  # OPTIONS has `*` for the server as a whole: not found here
  /* | '*') ;;
  [Hh][Tt][Tt][Pp]://*)
    target=${target#*://}
    case $target in
    */*) target=/${target#*/} ;;
    *) target=/ ;;
    esac ;;
  *) bad 400 'the target must be a path' ;;
  esac
  case $target in
  *'#'*) bad 400 'the target must not have a fragment' ;;
  esac
  request_path=${target%%'?'*}
  query=${target#"$request_path"} query=${query#'?'}
  # Decode nothing long before the client is authenticated
  [ ${#request_path} -le 200 ] || request_path=/long
  case $request_path in
  *%*) decode "$request_path"; request_path=$plain ;;
  esac
}

# query_parse - set `parameters` to NAME=VALUE of those that we know, decoded, and `receipts` to the
# receipt-ids; return 1 if it has answered that one is wrong
query_parse() {
  parameters='' receipts=
  IFS='&'
  # cl-sqs's own example for PATCH has a second question mark
  [ "$method" != PATCH ] || IFS='&?'
  set -f
  # shellcheck disable=SC2086 # parted
  set -- $query
  set +f
  IFS=$blanks
  for query_one in "$@"; do
    query_take "$query_one" || { say 422 "$query_name $query_wrong"; return 1; }
  done
}

# query_take NAME=VALUE - add one parameter, or ignore it
query_take() {
  query_name=${1%%=*} query_how=plus
  [ ${#query_name} -le 100 ] || return 0
  query_value=${1#"$query_name"}
  query_value=${query_value#=}
  case $query_name in
  *%*) decode "$query_name"; query_name=$plain ;;
  esac
  case $query_name in
  group-id | deduplication-id | visibility-timeout | wait | max | batch) ;;
  queue | receipt-id) query_how=name ;;
  *) return 0 ;;
  esac
  query_wrong='comes twice'
  [ "$query_name" = receipt-id ] || ! has "$query_name" || return
  query_wrong='is too long'
  [ ${#query_value} -le 1536 ] || return
  decode "$query_value" "$query_how"
  case $query_name in
  receipt-id) receipts="$receipts ${plain:-none}" ;;
  *-id) query_wrong='has 1 to 128 characters'; plain_fits || return ;;
  esac
  parameters="$parameters $query_name=$plain"
}

# has NAME - return whether the parameter came; set `value` to it
has() {
  for value in $parameters; do
    case $value in
    "$1="*) value=${value#*=}; return 0 ;;
    esac
  done
  value=
  return 1
}

# query_number NAME LEAST MOST DEFAULT - set `number` to the parameter; return 1 if it has answered
# that it is wrong
query_number() {
  number=$4
  ! has "$1" || { is_number "$value" "$3" && [ "$number" -ge "$2" ]; } ||
    { say 422 "$1 must be $2 to $3"; return 1; }
}

plain_fits() {
  [ "$plain_count" -ge 1 ] && [ "$plain_count" -le 128 ]
}

# group_name PLAIN - set `group` to the queue of the group; return 70 or 74 if sha1sum fails
group_name() {
  group=$1
  case $group in
  -*) group=\$2D${group#-} ;;
  esac
  if ! name_check "$group"; then
    # It would read as a path upward
    while [ "${group#*.}" != "$group" ]; do group=${group%%.*}\$2E${group#*.}; done
  fi
  if [ ${#group} -gt 200 ]; then
    need engine/key
    sum_of sha1sum printf %s "$group" && group="\$sha1\$$sum"
  fi
}

# decode TEXT [HOW] - plain_of, or answer 400
decode() {
  plain_of "$@" || bad 400 'bad percent-encoding'
}

# plain_of TEXT [HOW] - decode percent-encoding into `plain`, which keeps letters, digits and
# -._/;(), and has $XX for all other bytes. HOW: `plus`, `+` is a blank; `name`, it keeps + : and $
# too. Set plain_count to its UTF-8 characters, and stop behind 240: a receipt has 236 at most.
# Return 1 if TEXT is malformed
plain_of() {
  plain='' plain_count=0 plain_how=${2:-}
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
    [ $plain_count -le 240 ] || return 0
    case $plain_piece in
    [0-9A-Fa-f][0-9A-Fa-f]*) ;;
    *) return 1 ;;
    esac
    plain_rest=${plain_piece#??}
    plain_byte $((0x${plain_piece%"$plain_rest"}))
    plain_text "$plain_rest"
  done
}

# plain_text TEXT - add text without percent signs to `plain`
plain_text() {
  plain_rest=$1
  # Shells cut a long text slowly
  [ ${#plain_rest} -le 256 ] || plain_rest=$(printf %.256s "$plain_rest")
  while [ "$plain_count" -le 240 ]; do
    plain_same=${plain_rest%%[!A-Za-z0-9._/\;\(\)-]*}
    plain=$plain$plain_same plain_count=$((plain_count + ${#plain_same}))
    plain_rest=${plain_rest#"$plain_same"}
    [ -n "$plain_rest" ] || return 0
    plain_char=${plain_rest%"${plain_rest#?}"}
    [ "$plain_how$plain_char" != plus+ ] || plain_char=' '
    plain_before=${ascii%%"$plain_char"*}
    plain_byte $((${#plain_before} + 32))
    plain_rest=${plain_rest#?}
  done
}

# plain_byte CODE - add the byte to `plain`, and count it
plain_byte() {
  # Only the first byte of a UTF-8 character counts
  [ "$1" -ge 128 ] && [ "$1" -le 191 ] || plain_count=$((plain_count + 1))
  if [ "$1" -ge 32 ] && [ "$1" -le 126 ]; then
    char_of "$ascii" $(($1 - 32))
    case $plain_how$char in
    *[A-Za-z0-9._/\;\(\)-] | name[\$+:]) plain=$plain$char; return 0 ;;
    esac
  fi
  plain=$plain\$
  for plain_digit in $(($1 / 16)) $(($1 % 16)); do
    char_of 0123456789ABCDEF "$plain_digit"
    plain=$plain$char
  done
}

# char_of TEXT N - set `char` to the character of TEXT that has N before it
char_of() {
  char=$1 char_n=$2
  while [ "$char_n" -gt 0 ]; do char=${char#?} char_n=$((char_n - 1)); done
  char=${char%"${char#?}"}
}
