# doors/http/read.sh - read a request: its line and its header fields
#
# A proxy in front must see the same requests: `bad` refuses what can be read in two ways.

# request_line_read STATUS - set request_line to the input up to CRLF; return 1 at its end. STATUS:
# what to answer to a line that is too long
request_line_read() {
  IFS= read -r request_line || return
  case $request_line in
  *"$cr") request_line=${request_line%"$cr"} ;;
  *) bad 400 'a line without CRLF' ;;
  esac
  [ ${#request_line} -le 8192 ] || bad "$1" 'a line has more than 8192 bytes'
}

# request_read - read the request line and the header fields. Set request_left to what of the body
# is unread: a number, `some` or empty. Return 1 at the end of the input
request_read() {
  method='' length='' chunked='' expect='' api_key='' authorization='' head_close='' host='' keep=1
  request_left='' status=- queue='' slip_size='' fields=0 head_bytes=0
  # RFC 9112 says to ignore an empty line in front
  for request_try in 1 2 3 4 5; do
    request_line_read 414 || return
    [ -z "$request_line" ] || break
  done
  [ -n "$request_line" ] || bad 400 'no request line'
  clock_read
  request_began=$now
  door_waits 0 431
  request_line_parse
  while request_line_read 431 || bad 400 'the request was cut'; do
    [ -n "$request_line" ] || break
    request_field
  done
  door_waits 0 || exit 74
  case $version$host in
  HTTP/1.[1-9]) bad 400 'the Host field is missing' ;;
  esac
  [ "${length:-0}" = 0 ] || request_left=$length
  if [ -n "$chunked" ]; then
    request_left=some
    [ -z "$length" ] || bad 400 'both Content-Length and Transfer-Encoding'
    [ "$version" != HTTP/1.0 ] || bad 400 'Transfer-Encoding in HTTP/1.0'
  fi
}

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
  is_token "$method" && [ ${#method} -lt 20 ] || { method=-; bad 400 'bad method'; }
  case $version in
  HTTP/1.0) keep= ;;
  HTTP/1.[1-9]) ;;
  HTTP/[0-9].[0-9]) bad 505 'only HTTP/1.1 is supported' ;;
  *) bad 400 'bad version of HTTP' ;;
  esac
}

is_token() {
  case $1 in
  '' | *[!A-Za-z0-9!#$%\&\'*+.^_\`\|~-]*) return 1 ;;
  esac
}

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
  fields=$((fields + 1)) head_bytes=$((head_bytes + ${#request_line}))
  [ $fields -le 100 ] && [ $head_bytes -le 65536 ] ||
    bad 431 'more than 100 header fields, or 65536 bytes of them'
  head_name=${request_line%%:*}
  # In bash, the next step takes quadratic time
  [ ${#head_name} -le 256 ] || bad 431 'a header field with a long name'
  head_value=${request_line#"$head_name"}
  case $head_value in
  :*) head_value=${head_value#:} ;;
  *) bad 400 'a header field without a colon' ;;
  esac
  # This also refuses white space before the colon, and a folded line
  is_token "$head_name" || bad 400 'a header field with a bad name'
  case $head_value in
  *[$controls]*) bad 400 'a header field with control characters' ;;
  esac
}

# body_wanted - answer `100 Continue` if the client waits for that
body_wanted() {
  [ -z "$expect" ] || [ -z "$request_left" ] ||
    printf 'HTTP/1.1 100 Continue\r\n\r\n' || exit 74
  expect=
}
