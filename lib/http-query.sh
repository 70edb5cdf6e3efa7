# http-query.sh - what a URL says: the path, the parameters, and names made of any bytes
#
# What comes from a client costs as much as it is long: it is parted in one go, by IFS, and what is decoded piece by piece is short, since
# `${x#*y}` in a loop over x takes minutes for some kilobytes.

# target_parse - sets `path`, decoded, and `query`
target_parse() {
  case $target in
  # a server in general, which OPTIONS may ask about, is not here
  /* | '*') ;;
  [Hh][Tt][Tt][Pp]://*)
    target=${target#*://}
    case $target in
    */*) target=/${target#*/} ;;
    *) target=/ ;;
    esac ;;
  *) bad 400 'the target is a path' ;;
  esac
  path=${target%%'?'*} query=
  case $target in
  *'#'*) bad 400 'a fragment is not for servers' ;;
  *'?'*) query=${target#"$path"} query=${query#'?'} ;;
  esac
  # whoever is not known yet has nothing long decoded
  [ ${#path} -le 200 ] || path=/long
  case $path in
  *%*) plain "$path" || bad 400 'bad percent-encoding'; path=$plain ;;
  esac
}

# query_parse - sets p_group p_key p_visibility p_wait p_most p_batch, each decoded (plain), and p_receipts, all that came; `has` says
# whether one did. 1 where it has answered: one comes twice, or is no group's or key's
query_parse() {
  p_group='' p_key='' p_visibility='' p_wait='' p_most='' p_batch='' p_receipts='' p_names=' '
  IFS='&'
  # the document's own example has a second question mark
  [ "$method" != PATCH ] || IFS='&?'
  set -f
  # shellcheck disable=SC2086 # parted
  set -- $query
  set +f
  IFS=' 	
'
  for query_one in "$@"; do
    name=${query_one%%=*}
    # none of ours is so long, however it is written
    [ ${#name} -le 100 ] || continue
    value=${query_one#"$name"}
    value=${value#=}
    case $name in
    *%*) plain "$name" || bad 400 'bad percent-encoding'; name=$plain ;;
    esac
    case $name in
    group-id | deduplication-id | visibility-timeout | wait | max | batch) ;;
    receipt-id)
      [ ${#value} -le 200 ] || value=
      plain "$value" || bad 400 'bad percent-encoding'
      p_receipts="$p_receipts ${plain:-none}"
      continue ;;
    *) continue ;;
    esac
    case $p_names in
    *" $name "*) say 422 "$name comes twice"; return 1 ;;
    esac
    p_names="$p_names$name "
    [ ${#value} -le 1536 ] || { say 422 "$name is too long"; return 1; }
    plain "$value" plus || bad 400 'bad percent-encoding'
    case $name in
    group-id) p_group=$plain ;;
    deduplication-id) p_key=$plain ;;
    visibility-timeout) p_visibility=$plain ;;
    wait) p_wait=$plain ;;
    max) p_most=$plain ;;
    batch) p_batch=$plain ;;
    esac
    case $name in
    group-id | deduplication-id)
      [ "$plain_count" -ge 1 ] && [ "$plain_count" -le 128 ] || { say 422 "$name has 1 to 128 characters"; return 1; } ;;
    esac
  done
}

# has NAME - whether the parameter came
has() {
  case $p_names in
  *" $1 "*) return 0 ;;
  esac
  return 1
}

# plain TEXT [plus] - undoes percent-encoding (and, in a value, `+` for a blank) into `plain`, which has letters, digits and -._/;() as they
# are and every other byte as $XX; so it can be a queue's name, whatever bytes it has. plain_count: its characters, where it is UTF-8; else
# its bytes, or fewer. Behind the 200th, where nobody takes it any longer, it ends. 1 where it is malformed
plain() {
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
  IFS=' 	
'
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

# plain_text TEXT - adds what has no percent sign
plain_text() {
  plain_rest=$1
  while [ -n "$plain_rest" ] && [ "$plain_count" -le 200 ]; do
    plain_same=${plain_rest%%[!A-Za-z0-9._/\;()-]*}
    plain=$plain$plain_same plain_count=$((plain_count + ${#plain_same})) plain_rest=${plain_rest#"$plain_same"}
    case $plain_rest in
    '') return 0 ;;
    +*) if [ -n "$plain_plus" ]; then code=20; else code=2B; fi ;;
    *) char_code "$plain_rest" ;;
    esac
    plain=$plain\$$code plain_rest=${plain_rest#?} plain_count=$((plain_count + 1))
  done
}

# char_code TEXT - sets `code`, two hexadecimal digits of its first character: of what may stand in a request line, and a blank, and is not plain
char_code() {
  case $1 in
  '!'*) code=21 ;; '"'*) code=22 ;; '#'*) code=23 ;; \$*) code=24 ;; '&'*) code=26 ;; \'*) code=27 ;; '*'*) code=2A ;; ,*) code=2C ;;
  :*) code=3A ;; '<'*) code=3C ;; =*) code=3D ;; '>'*) code=3E ;; '?'*) code=3F ;; @*) code=40 ;; '['*) code=5B ;; \\*) code=5C ;;
  ']'*) code=5D ;; '^'*) code=5E ;; '`'*) code=60 ;; '{'*) code=7B ;; '|'*) code=7C ;; '}'*) code=7D ;; ' '*) code=20 ;; *) code=7E ;;
  esac
}

# byte_plain XX - sets `byte`: what plain makes of the byte XX, and counts it
byte_plain() {
  byte_code=$((0x$1))
  # of a character of UTF-8 only the first byte counts
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
      letter $((byte_code / 16))
      byte=\$$letter
      letter $byte_low
      byte=$byte$letter ;;
    esac
    return 0
  fi
  letter $byte_code
  byte=$letter
}

# letter N - sets `letter` to the one of byte_set that has N before it
letter() {
  letter=$byte_set letter_n=$1
  while [ "$letter_n" -gt 0 ]; do letter=${letter#?} letter_n=$((letter_n - 1)); done
  letter=${letter%"${letter#?}"}
}
