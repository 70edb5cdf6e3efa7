# doors/http/query.sh - parse a URL: the path, the parameters, and names of any bytes
#
# In linear time (R8): split it in one go, by IFS, and decode only short pieces in loops.

need doors/http/say

# target_parse - set request_path, decoded, and `query`
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
  *%*) decode "$request_path"; request_path=$plain ;;
  esac
}

# query_parse - set p_group p_key p_visibility p_wait p_most p_batch p_queue, each decoded, and
# p_receipts; `has` tells which came. Return 1 if it has answered that a parameter came twice, or is
# no valid group or key
query_parse() {
  p_group='' p_key='' p_visibility='' p_wait='' p_most='' p_batch='' p_queue='' p_receipts=''
  p_names=' '
  IFS='&'
  # cl-sqs's own example for PATCH has a second question mark
  [ "$method" != PATCH ] || IFS='&?'
  set -f
  # shellcheck disable=SC2086 # parted
  set -- $query
  set +f
  IFS=$blanks
  for query_one in "$@"; do
    query_take "$query_one" || return
  done
}

# query_take NAME=VALUE - note one parameter; ignore one of a name that is not known
query_take() {
  query_name=${1%%=*} query_how=plus
  # No parameter of ours has so long a name
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
  case $query_name$p_names in
  receipt-id*) ;;
  *" $query_name "*) say 422 "$query_name comes twice"; return 1 ;;
  esac
  p_names="$p_names$query_name "
  [ ${#query_value} -le 1536 ] || { say 422 "$query_name is too long"; return 1; }
  decode "$query_value" "$query_how"
  case $query_name in
  group-id) p_group=$plain ;;
  deduplication-id) p_key=$plain ;;
  visibility-timeout) p_visibility=$plain ;;
  wait) p_wait=$plain ;;
  max) p_most=$plain ;;
  batch) p_batch=$plain ;;
  queue) p_queue=$plain ;;
  receipt-id) p_receipts="$p_receipts ${plain:-none}" ;;
  esac
  case $query_name in
  group-id | deduplication-id)
    [ "$plain_count" -ge 1 ] && [ "$plain_count" -le 128 ] ||
      { say 422 "$query_name has 1 to 128 characters"; return 1; } ;;
  esac
}

# has NAME - return whether the parameter came
has() {
  case $p_names in
  *" $1 "*) return 0 ;;
  esac
  return 1
}

# query_number NAME VALUE LEAST MOST - if the parameter came, set `number` to its VALUE, else to 0;
# return 1 if it has answered that it is no such number
query_number() {
  number=0
  ! has "$1" || { is_number "$2" "$4" && [ "$number" -ge "$3" ]; } ||
    { say 422 "$1 must be $3 to $4"; return 1; }
}

# group_name PLAIN - set `group` to the queue of the group PLAIN; return 70 or 74 if sha1sum fails
group_name() {
  group=$1
  case $group in
  -*) group=\$2D${group#-} ;;
  esac
  if ! name_check "$group"; then
    # A part that would read as a path upward
    while [ "${group#*.}" != "$group" ]; do group=${group%%.*}\$2E${group#*.}; done
  fi
  if [ ${#group} -gt 200 ]; then
    need engine/key
    sum_of sha1sum printf %s "$group" && group="\$sha1\$$sum"
  fi
}

# decode TEXT [HOW] - as plain_of, but answer 400 if TEXT is malformed
decode() {
  plain_of "$@" || bad 400 'bad percent-encoding'
}

# plain_of TEXT [HOW] - decode percent-encoding into `plain`, a queue's name: it keeps letters,
# digits and -._/;(), and all other bytes become $XX. HOW: `plus`, `+` is a blank; `name`, it keeps
# + : and $ too, as in a queue's name or a receipt. Set plain_count to its UTF-8 characters; stop
# after the 200th. Return 1 if TEXT is malformed
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
    [ $plain_count -le 200 ] || return 0
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
  while [ -n "$plain_rest" ] && [ "$plain_count" -le 200 ]; do
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
  # Of a UTF-8 character, count only the first byte
  [ "$1" -ge 128 ] && [ "$1" -le 191 ] || plain_count=$((plain_count + 1))
  if [ "$1" -ge 32 ] && [ "$1" -le 126 ]; then
    char_of "$ascii" $(($1 - 32))
    case $plain_how$char in
    *[A-Za-z0-9._/\;\(\)-] | name[\$+:]) plain=$plain$char; return 0 ;;
    esac
  fi
  char_of 0123456789ABCDEF $(($1 / 16))
  plain=$plain\$$char
  char_of 0123456789ABCDEF $(($1 % 16))
  plain=$plain$char
}

# char_of TEXT N - set `char` to the character of TEXT that has N before it
char_of() {
  char=$1 char_n=$2
  while [ "$char_n" -gt 0 ]; do char=${char#?} char_n=$((char_n - 1)); done
  char=${char%"${char#?}"}
}
