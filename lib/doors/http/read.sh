# doors/http/read.sh - read a request: its line, its header fields, its body
#
# A request that can be read in two ways is refused, and the connection ended (`bad`): a proxy in
# front and this door must see the same requests.

need doors/door engine/input doors/http/say

# request_line_read STATUS - set request_line to the input up to CRLF; return 1 at its end. Answer
# STATUS to a line that is too long
request_line_read() {
  IFS= read -r request_line || return
  case $request_line in
  *"$cr") request_line=${request_line%"$cr"} ;;
  *) bad 400 'a line without CRLF' ;;
  esac
  [ ${#request_line} -le 8192 ] || bad "$1" 'a line has more than 8192 bytes'
}

# request_read - read the request line and the header fields into method target version length
# chunked expect api_key authorization keep. Set request_left to what of the body is unread: a
# number, `some` or empty. Return 1 at the end of the input
request_read() {
  method='' target='' version='' request_path='' length='' chunked='' expect='' api_key=''
  authorization='' head_close='' host='' keep=1 request_left='' status=- queue='' slip_size=''
  fields=0 head_bytes=0 request_empty=0
  # RFC 9112 says to ignore an empty line in front
  while :; do
    request_line_read 414 || return
    [ -z "$request_line" ] || break
    request_empty=$((request_empty + 1))
    [ $request_empty -le 4 ] || bad 400 'no request line'
  done
  clock_read
  request_began=$now
  request_limit 431
  request_line_parse
  while request_line_read 431 || bad 400 'the request was cut'; do
    [ -n "$request_line" ] || break
    request_count
    request_field
  done
  door_waits 0 || exit 74
  case $version$host in
  HTTP/1.[1-9]) bad 400 'the Host field is missing' ;;
  esac
  [ -z "$chunked" ] || [ -z "$length" ] || bad 400 'both Content-Length and Transfer-Encoding'
  [ -z "$chunked" ] || [ "$version" != HTTP/1.0 ] || bad 400 'Transfer-Encoding in HTTP/1.0'
  [ "${length:-0}" = 0 ] || request_left=$length
  [ -z "$chunked" ] || request_left=some
}

# request_limit STATUS - tell the guard what to answer if the next line never ends
request_limit() {
  [ -z "$FLATQ_GUARD" ] || printf '\nr %s %s\n' "$$" "$1" >&3
}

# request_line_parse - set method, target and version; unset keep for HTTP/1.0
request_line_parse() {
  case $request_line in
  *[!\ -~]*) bad 400 'the request line has strange bytes' ;;
  esac
  set -f
  # shellcheck disable=SC2086 # parted
  set -- $request_line
  set +f
  [ "$# $*" = "3 $request_line" ] || bad 400 'the request line must be METHOD TARGET VERSION'
  method=$1 target=$2 version=$3
  ! not_token "$method" && [ ${#method} -lt 20 ] || { method=-; bad 400 'bad method'; }
  case $version in
  HTTP/1.0) keep= ;;
  HTTP/1.[1-9]) ;;
  HTTP/[0-9].[0-9]) bad 505 'only HTTP/1.1 is supported' ;;
  *) bad 400 'bad version of HTTP' ;;
  esac
}

# not_token TEXT - return 0 unless TEXT is what HTTP calls a token
not_token() {
  case $1 in
  '' | *[!A-Za-z0-9!#$%\&\'*+.^_\`\|~-]*) return 0 ;;
  esac
  return 1
}

# request_count - count the field in request_line
request_count() {
  fields=$((fields + 1)) head_bytes=$((head_bytes + ${#request_line}))
  [ $fields -le 100 ] && [ $head_bytes -le 65536 ] ||
    bad 431 'more than 100 header fields, or 65536 bytes of them'
}

# request_field - take the header field in request_line
request_field() {
  field_split
  blanks_off "$head_value" 64 || bad 431 'too many blanks around a header field'
  head_value=$blanks_left
  case $head_name in
  [Hh][Oo][Ss][Tt])
    [ -z "$host" ] || bad 400 'two Host fields'
    host=x$head_value
    case $head_value in
    *[/\ ,@]*) bad 400 'a bad Host' ;;
    esac ;;
  [Cc][Oo][Nn][Tt][Ee][Nn][Tt]-[Ll][Ee][Nn][Gg][Tt][Hh])
    case $head_value in
    '' | *[!0-9]*) bad 400 'Content-Length must be a number' ;;
    esac
    is_number "$head_value" 999999999999 || bad 413 'the body is too large'
    [ -z "$length" ] || [ "$length" = "$number" ] || bad 400 'two different lengths'
    length=$number ;;
  [Tt][Rr][Aa][Nn][Ss][Ff][Ee][Rr]-[Ee][Nn][Cc][Oo][Dd][Ii][Nn][Gg])
    [ -z "$chunked" ] || bad 400 'two Transfer-Encodings'
    case $head_value in
    [Cc][Hh][Uu][Nn][Kk][Ee][Dd]) chunked=1 ;;
    '' | *[Cc][Hh][Uu][Nn][Kk][Ee][Dd]*) bad 400 "$chunked_alone" ;;
    *) bad 501 "$chunked_alone" ;;
    esac ;;
  [Cc][Oo][Nn][Nn][Ee][Cc][Tt][Ii][Oo][Nn])
    case ",$head_value," in
    *[,\ ][Cc][Ll][Oo][Ss][Ee][,\ ]*) keep='' head_close=1 ;;
    *[,\ ][Kk][Ee][Ee][Pp]-[Aa][Ll][Ii][Vv][Ee][,\ ]*) [ -n "$head_close" ] || keep=1 ;;
    esac ;;
  [Ee][Xx][Pp][Ee][Cc][Tt])
    case $head_value in
    # An HTTP/1.0 client does not wait for it
    100-[Cc][Oo][Nn][Tt][Ii][Nn][Uu][Ee]) [ "$version" = HTTP/1.0 ] || expect=1 ;;
    *) bad 417 'Expect must be 100-continue' ;;
    esac ;;
  [Aa][Pp][Ii]-[Kk][Ee][Yy]) api_key=x$head_value ;;
  [Aa][Uu][Tt][Hh][Oo][Rr][Ii][Zz][Aa][Tt][Ii][Oo][Nn]) authorization=$head_value ;;
  esac
}

chunked_alone='Transfer-Encoding must be chunked and nothing else'

# field_split - set head_name and head_value from request_line, a header or trailer field
field_split() {
  head_name=${request_line%%:*}
  # In bash, the next step takes time by the square of the name's length
  [ ${#head_name} -le 256 ] || bad 431 'a header field with a long name'
  head_value=${request_line#"$head_name"}
  case $head_value in
  :*) head_value=${head_value#:} ;;
  *) bad 400 'a header field without a colon' ;;
  esac
  # White space before the colon, and a folded line, too
  ! not_token "$head_name" || bad 400 'a header field with a bad name'
  case $head_value in
  *[$controls]*) bad 400 'a header field with control characters' ;;
  esac
}

# body_wanted - answer `100 Continue` if the client waits for that before it sends the body
body_wanted() {
  [ -z "$expect" ] || [ -z "$request_left" ] ||
    printf 'HTTP/1.1 100 Continue\r\n\r\n' || exit 74
  expect=
}

# body_store - write the body, chunked or not, to the new file body_file; set `length`. CRASH: the
# checkpoint removes the file (wait_sweep)
body_store() {
  nonce_read
  body_file=$FLATQ_DIR/.wait/$$-$now.$nonce.body
  body_wanted
  request_left=some
  body_more 0 || return
  if [ -n "$chunked" ]; then
    length=0
    while :; do
      chunk_size
      [ $chunk != 0 ] || break
      length=$((length + chunk))
      is_number "$length" "$FLATQ_MOST_BYTES" || bad 413 "$body_too_large"
      body_more $chunk || return
      request_line_read 431 || bad 400 'the body was cut'
      [ -z "$request_line" ] || bad 400 'a chunk is longer than its size'
    done
  else
    body_more "$length" || return
    # dd says nothing if the input ends early (R6)
    need engine/proof
    measure -c "$body_file" || return
    [ "$measured" = "$length" ] || bad 400 'the body was cut'
  fi
  request_left=
}

# body_more LENGTH - add so many bytes of the input to body_file
body_more() {
  input_exact "$1" >>"$body_file" && return
  q=
  disk_failed "$FLATQ_DIR/.wait" "spool $FLATQ_DIR"
}

# body_remove - remove body_file
body_remove() {
  rm -f "$body_file"
  body_file=
}

# chunk_size - read the line in front of a chunk, or the last one and the trailer; set `chunk` to
# its size
chunk_size() {
  request_line_read 431 || bad 400 'the body was cut'
  chunk=${request_line%%;*}
  case $request_line in
  *[!\ -~]*) chunk= ;;
  esac
  case $chunk in
  '' | *[!0-9A-Fa-f]*) bad 400 'a bad size of a chunk' ;;
  esac
  unpad "$chunk"
  [ ${#unpadded} -le 7 ] || bad 413 'a chunk that is too large'
  chunk=$((0x$unpadded))
  [ $chunk = 0 ] || return 0
  while request_line_read 431 || bad 400 'the body was cut'; do
    [ -n "$request_line" ] || return 0
    request_count
    field_split
  done
}
