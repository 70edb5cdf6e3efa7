# remote.sh - a verb through a line door elsewhere: flatq -H HOST:PORT VERB ...
#
# The request's first word begins with `@NONCE@`, so that the door ends its reply with a newline and a line of its own, `NONCE ok` or
# `NONCE error CODE TEXT`. So data may be anything, even `ok`, and we see whether a reply was cut off. A request states the length of its
# message. A remote pop is a reserve and a delete: the message is deleted after it was written out here.

# remote ARGUMENTS - run FLATQ_VERB at FLATQ_HOST; exit with the code of the verb there, or 69 if nobody answers
remote() {
  case $FLATQ_HOST in
  *:*) remote_port=${FLATQ_HOST##*:} remote_host=${FLATQ_HOST%:*} ;;
  *) remote_port=1234 remote_host=$FLATQ_HOST ;;
  esac
  remote_host=${remote_host#'['} remote_host=${remote_host%']'}
  number "$remote_port" 65535 && [ -n "$remote_host" ] || die 64 '-H takes HOST:PORT'
  case $remote_host in
  -*) die 64 '-H takes HOST:PORT' ;;
  esac
  remote_directory=$(mktemp -d "${TMPDIR:-/tmp}/flatq.XXXXXX") || die 74 'no temporary directory'
  trap 'rm -rf "$remote_directory"' EXIT
  trap_stop remote_stopped
  case $FLATQ_VERB in
  push) remote_push "$@" ;;
  pop) remote_pop "$@" ;;
  work | doctor | claim | settle | unclaim | pressure | mqueue | shovel) die 64 "$FLATQ_VERB works on the machine that has the spool" ;;
  *)
    remote_words "$FLATQ_VERB" "$@"
    : >"$remote_directory/body"
    remote_ask || die $? "$why"
    cat "$remote_directory/reply" ;;
  esac || die $? "$why"
}

remote_stopped() {
  trap - HUP INT TERM EXIT
  rm -rf "$remote_directory"
  end_by "$1"
}

# remote_words WORD ... - set `request`. The line door splits it at blanks, so no word may contain one
remote_words() {
  request=
  for remote_word in "$@"; do
    case $remote_word in
    '' | *[[:space:][:cntrl:]]*) die 65 'through a door, an argument must not be empty or contain a blank' ;;
    esac
    request=$request${request:+ }$remote_word
  done
}

# remote_ask - send `request` and the file `body`; write the reply without its last line to the file `reply`. On an error there, set `why` and
# return its code; return 69 if nobody answers, or the reply is not whole
remote_ask() {
  nonce_read
  { printf '@%s@%s\n' "$nonce" "$request" && cat "$remote_directory/body"; } |
    remote_connect >"$remote_directory/raw" 2>"$remote_directory/errors"
  remote_end=$(tail -n 1 "$remote_directory/raw")
  remote_size=$(($(wc -c <"$remote_directory/raw" || printf '%s' -1) - ${#remote_end} - 2))
  case $remote_end in
  "$nonce ok" | "$nonce error "[0-9][0-9]' '*) [ "$remote_size" -ge 0 ] ;;
  *) false ;;
  esac || { why="$FLATQ_HOST: $(sed -n 's/^Ncat: //; 1p' "$remote_directory/errors" | grep . || printf 'no whole answer')"; return 69; }
  head -c "$remote_size" "$remote_directory/raw" >"$remote_directory/reply" || { why='no space for the answer'; return 74; }
  [ "$remote_end" != "$nonce ok" ] || return 0
  remote_end=${remote_end#"$nonce error "}
  why=${remote_end#* }
  return "${remote_end%% *}"
}

# remote_connect - send standard input to the door and print its answer until it ends, with whichever client program there is
remote_connect() {
  if command -v ncat >/dev/null 2>&1; then
    ncat "$remote_host" "$remote_port"
  elif command -v nc >/dev/null 2>&1; then
    nc -N "$remote_host" "$remote_port"
  elif command -v socat >/dev/null 2>&1; then
    socat -t 86400 - "TCP:$remote_host:$remote_port"
  else
    printf 'ncat, nc or socat is needed\n' >&2
    return 69
  fi
}

# remote_push ARGUMENTS - read the message to its end first, since its length is sent ahead
remote_push() {
  remote_options=
  while getopts hp:d:t:k:w:n:el0 option; do
    case $option in
    h) need rare; help ;;
    e) remote_options="$remote_options dot" ;;
    l | 0) remote_words "$FLATQ_VERB" "-$option" ;;
    n) remote_options="$remote_options $OPTARG" ;;
    [pdtkw]) ;;
    *) usage ;;
    esac
  done
  case $remote_options in
  *dot* | *' '*) die 64 '-e and -n do not go with -H: the message is all of the input' ;;
  esac
  cat >"$remote_directory/body" || { why='no space for the message'; return 74; }
  remote_words push -n "$(($(wc -c <"$remote_directory/body" || printf '%s' -1)))" "$@"
  remote_ask || return
  cat "$remote_directory/reply"
}

remote_pop() {
  remote_wait='' remote_left=1 remote_end='' remote_mark=
  while getopts hw:n:l0 option; do
    case $option in
    h) need rare; help ;;
    w) option_number w "$OPTARG" 4294967295; remote_wait="-w $number" ;;
    n) option_number n "$OPTARG" 4294967295; remote_left=$number ;;
    l) remote_mark='\n' ;;
    0) remote_mark='\000' ;;
    *) usage ;;
    esac
  done
  shift $((OPTIND - 1))
  [ "$remote_left" = 1 ] || [ -n "${remote_mark:-}" ] || die 64 '-n needs -l or -0'
  : >"$remote_directory/body"
  remote_any=
  while [ "$remote_left" -gt 0 ]; do
    # shellcheck disable=SC2086 # two words or none
    remote_words reserve $remote_wait "$@"
    remote_ask || {
      remote_code=$?
      [ $remote_code -eq 66 ] || [ $remote_code -eq 69 ] && [ -n "$remote_any" ] && return 0
      return $remote_code
    }
    { read -r remote_receipt remote_id remote_tries remote_length && cat >"$remote_directory/message"; } <"$remote_directory/reply" &&
      [ "$(($(wc -c <"$remote_directory/message" || printf '%s' -1)))" = "$remote_length" ] || { why="$FLATQ_HOST: no whole answer"; return 74; }
    # shellcheck disable=SC2059 # a constant of ours
    { cat "$remote_directory/message" && { [ -z "${remote_mark:-}" ] || printf "$remote_mark"; }; } 2>/dev/null || {
      remote_words release "$remote_receipt"
      remote_ask
      why='the message could not be written out in full'
      return 74
    }
    remote_words delete "$remote_receipt"
    remote_ask || return
    remote_any=1 remote_wait='' remote_left=$((remote_left - 1))
  done
}
