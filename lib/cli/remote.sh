# cli/remote.sh - a verb through a line door elsewhere: flatq -H HOST:PORT, unix:PATH, ssh://HOST
#
# A request begins with `@NONCE@`, by ssh with `@@NONCE@` (lib/handler), so that the last line of
# the answer shows whether it was cut off. A pop is a reserve and, once the message is written out
# here, a delete; a drain acknowledges each batch (-a).
#
# Files in remote_directory: `asked`, the request, with a message behind its line; `raw`, what came;
# `errors`, of the program that connects. That reads `asked` on 4 and writes `raw` on 3, whose
# offsets tell how much has moved. 6 reads what came.

need doors/rights

# remote WORD ... - run FLATQ_VERB at FLATQ_HOST, and exit with its code there, or as remote_ask
remote() {
  remote_directory='' remote_pid='' remote_watcher='' remote_noted='' remote_asked='' \
    remote_held='' remote_total=0 request=''
  case " $*" in
  *' --'[!\ ]*) need cli/long; long_read "$FLATQ_VERB" "$@"; eval "set -- $long_words" ;;
  esac
  remote_host_read
  remote_look "$@"
  trap '[ -z "$remote_directory" ] || rm -rf "$remote_directory"' EXIT
  trap_stop remote_stopped
  # As in lib/reserve: this shell itself writes the end of a message
  trap '' PIPE
  remote_directory=$(mktemp -d "${TMPDIR:-/tmp}/flatq.XXXXXX") ||
    die 74 "no temporary directory in ${TMPDIR:-/tmp}"
  [ -n "$remote_named" ] || set -- "$@" "$FLATQ_QUEUE"
  [ -z "$remote_text" ] || for remote_word in "$@"; do
    # What stands behind the queue is standard input now
    shift
    [ "$remote_options" -lt 0 ] || set -- "$@" "$remote_word"
    remote_options=$((remote_options - 1))
  done
  case $FLATQ_VERB in
  push) remote_push "$@" ;;
  pop) shift "$remote_options"; remote_pop "$@" ;;
  drain) remote_drain "$@" ;;
  *) remote_words "$FLATQ_VERB" "$@"; remote_ask && remote_show "$@" ;;
  esac || { remote_code=$?; remote_back; die $remote_code "$why"; }
  # What was printed is the caller's
  request=
}

# remote_host_read - set remote_at, and remote_unix, or remote_host, remote_port and remote_user, of
# plain characters: none is an option, or words for a shell
remote_host_read() {
  remote_at=@ remote_port=1234 remote_unix='' remote_user='' remote_host=$FLATQ_HOST
  why='-H takes HOST:PORT, unix:PATH or ssh://[USER@]HOST[:PORT]'
  case $FLATQ_HOST in
  unix:?*) remote_unix=${FLATQ_HOST#unix:} remote_port=; return ;;
  ssh://*) remote_at=@@ remote_port='' remote_host=${FLATQ_HOST#ssh://} ;;
  esac
  case $remote_at$remote_host in
  @@*@*)
    remote_user=${remote_host%@*} remote_host=${remote_host##*@}
    case $remote_user in '' | -* | *[!A-Za-z0-9@._+-]*) die 64 "$why" ;; esac ;;
  esac
  case $remote_host in
  *']') ;;
  *:*)
    remote_port=${remote_host##*:} remote_host=${remote_host%:*}
    is_number "$remote_port" 65535 && [ "$number" != 0 ] || die 64 "$why"
    remote_port=$number ;;
  esac
  case $remote_host in
  '['*']')
    remote_host=${remote_host#'['} remote_host=${remote_host%']'}
    case $remote_host in '' | *[!0-9A-Fa-f:.]*) die 64 "$why" ;; esac ;;
  '' | -* | *[!A-Za-z0-9._-]*) die 64 "$why" ;;
  esac
}

# remote_look WORD ... - set remote_most, the seconds in which something has to move; what a pop
# asks for; and remote_named, unless the verb is to use $FLATQ_QUEUE
remote_look() {
  remote_named=1 remote_most=20 remote_wait='' remote_left=1 remote_mark='' remote_text=
  [ "$FLATQ_VERB" != wait ] || remote_most=3620
  while getopts :hp:d:A:t:k:w:n:r:s:b:m:aelf06PvjD:x: option; do
    case $FLATQ_VERB$option in
    push[en]) die 64 '-e and -n do not go with -H: the message is all of the input' ;;
    pushA) die 64 '-A does not go with -H, whose clock is another: give -d' ;;
    *h | pop[!wnl06]) other_option ;;
    waitt) option_seconds t "$OPTARG"; remote_most=$((20 + number)) ;;
    *w)
      option_seconds w "$OPTARG"
      remote_wait="-w $number" remote_most=$((20 + number)) ;;
    popn) option_number n "$OPTARG" 4294967295; remote_left=$number ;;
    popl) remote_mark='\n' ;;
    pop0) remote_mark='\000' ;;
    pop6) remote_mark=coded ;;
    esac
  done
  remote_options=$((OPTIND - 1))
  shift "$remote_options"
  OPTIND=1
  [ "$remote_left" = 1 ] || [ -n "$remote_mark" ] || die 64 '-n needs -l, -0 or -6'
  [ "$remote_left" != 0 ] || die 65 '-n takes a number from 1'
  case $FLATQ_VERB.${2-} in
  push.--) need engine/input; shift 2; input_text "$@"; remote_text=1 ;;
  push.*) [ ! -t 0 ] || { need cli/usage; usage_terminal; } ;;
  esac
  case " $handler_verbs " in
  *" $FLATQ_VERB "*) ;;
  *) die 64 "$FLATQ_VERB works on the machine that has the spool" ;;
  esac
  case $FLATQ_VERB in
  push | pop | reserve | drain | kick | peek | create | close)
    [ $# -gt 0 ] || [ "$FLATQ_QUEUE" = default ] || remote_named= ;;
  esac
}

# remote_words WORD ... - set `request`. The line door splits it at blanks
remote_words() {
  request=
  for remote_word in "$@"; do
    case $remote_word in
    '' | *[[:space:][:cntrl:]]*)
      die 65 'through a door, an argument must not be empty or contain a blank' ;;
    esac
    request=$request${request:+ }$remote_word
  done
}

# remote_connect - become the program that sends standard input to the door and prints its answer
remote_connect() {
  if [ "$remote_at" = @@ ]; then
    set -f
    # What runs there is a constant, or what the key's `command=` says (lib/door)
    # shellcheck disable=SC2086,SC2016 # FLATQ_SSH is words; the shell there expands the variables
    set -- ${FLATQ_SSH:-ssh -o BatchMode=yes} -T ${remote_port:+-p $remote_port} \
      ${remote_user:+-l $remote_user} "$remote_host" \
      'sh -c '\''exec flatq door --spool "${FLATQ_DIR:-${XDG_STATE_HOME:+$XDG_STATE_HOME/flatq}}"'\'
    set +f
    command -v "$1" >/dev/null || { printf '%s is needed\n' "$1" >&2; exit 69; }
    exec "$@"
  fi
  # With -v, ncat and nc say why there is no connection, and whether there is one
  set -- ${remote_unix:+-U} "${remote_unix:-$remote_host}" ${remote_port:+"$remote_port"}
  if command -v ncat >/dev/null; then
    exec ncat -v "$@"
  elif command -v nc >/dev/null; then
    exec nc -v -N "$@"
  elif command -v socat >/dev/null; then
    set -- "TCP:$remote_host:$remote_port"
    [ -z "$remote_unix" ] || set -- "UNIX-CONNECT:$remote_unix"
    exec socat -t 86400 - "$1"
  fi
  printf 'ncat, nc or socat is needed\n' >&2
  exit 69
}

# remote_watch - from now on, end the connection once nothing has moved for remote_most seconds
remote_watch() {
  (
    watch_left=$remote_most watch_seen='' watch_sent='' watch_came=
    while [ "$watch_left" -gt 0 ]; do
      sleep 1 || exit
      read -r watch_key watch_sent </proc/self/fdinfo/4
      read -r watch_key watch_came </proc/self/fdinfo/3
      watch_left=$((watch_left - 1))
      [ "$watch_sent $watch_came" = "$watch_seen" ] ||
        watch_left=$remote_most watch_seen="$watch_sent $watch_came"
    done
    kill -KILL "$remote_pid"
  ) </dev/null >/dev/null 5>&- 6<&- 7>&- &
  remote_watcher=$! remote_noted=$!
}

# remote_watched - end remote_watch. In remote_back, a TERM would be ignored
remote_watched() {
  kill -KILL "$remote_watcher"
  wait "$remote_watcher"
  remote_watcher=
}

# remote_ask - send `request`; the answer is then on 6, remote_size bytes and the last line. Returns
# as remote_ended. In the background: a shell that waits for a command heeds no signal
remote_ask() {
  remote_said=
  nonce_read
  set -- "$remote_directory/asked" "$remote_directory/raw"
  # Of a push, the message stays behind the line
  { [ "$remote_total" != 0 ] || true >"$1"; } &&
    printf '%s%s@%s\n' "$remote_at" "$nonce" "$request" 1<>"$1" &&
    command exec 3>"$2" 4<"$1" || { why="${TMPDIR:-/tmp} has no room for the request"; return 74; }
  remote_connect <&4 >&3 2>"$remote_directory/errors" 3>&- 4<&- &
  remote_pid=$! remote_noted=$!
  remote_watch
  wait "$remote_pid"
  remote_pid=
  remote_watched
  read -r remote_word remote_sent </proc/self/fdinfo/4
  read -r remote_word remote_size </proc/self/fdinfo/3
  # An answer that was cut has no newline at its end
  remote_end=$(tail -n 1 "$2"; printf .)
  case $remote_end in
  *'
.') remote_end=${remote_end%??} ;;
  *) remote_end= ;;
  esac
  remote_begin=0
  remote_open && read -r remote_word remote_begin </proc/self/fdinfo/6 || remote_end=
  remote_size=$((remote_size - remote_begin - ${#remote_end} - 2))
  [ $remote_size -ge 0 ] || remote_end=
  remote_ended "$remote_end" || return
  case $request in
  reserve*) remote_held=1 ;;
  esac
}

remote_open() {
  command exec 6<"$remote_directory/raw" && remote_skip
}

# remote_skip - by ssh, read what the login prints before the door's first line, and that line
remote_skip() {
  [ "$remote_at" = @@ ] || return 0
  while IFS= read -r remote_line <&6; do
    case $remote_line in
    *"$nonce") return 0 ;;
    esac
  done
  return 1
}

# remote_ended LINE - return the code in the last line of an answer, set `why`, and remote_said to
# `yes`; if it is no such line, return 68, 69 or, if ssh does not let us in, 77
remote_ended() {
  case $1 in
  "$nonce ok") remote_said=yes remote_asked=1; return 0 ;;
  "$nonce error "[1-9][0-9]' '*)
    remote_said=yes remote_asked=1 remote_end=${1#"$nonce error "}
    # Whoever answers there must not write to a terminal here
    why=$(printf '%s' "${remote_end#??' '}" | tr -cd '[:print:]')
    return "${remote_end%% *}" ;;
  esac
  set -- "$remote_directory/errors"
  # What ncat and nc say on the way
  why=$(sed -e '/ succeeded!/d' -e '/^Ncat: \(Version\|Connect[a-z]* to\|Trying next\) /d' \
    -e '/^Ncat: [0-9]* bytes sent/d' -e 's/^Ncat: //' "$1" |
    tr -cd '[:print:]\n' | grep . | tail -n 1)
  why="$FLATQ_HOST: ${why:-no whole answer}"
  # Nothing was asked without a connection. ncat, nc and socat say that there was one; ssh then
  # begins no line with its name
  [ -n "$remote_asked" ] || [ -s "$remote_directory/raw" ] || case $remote_at$why in
  *' is needed') return 69 ;;
  @@*': ssh: '*) return 68 ;;
  @@*)
    # The host's key or the login was refused
    remote_line=$(grep -e '^Host key verification failed\.' -e ': Permission denied (' \
      -e ': Too many authentication failures' "$1" | tr -cd '[:print:]\n' | tail -n 1)
    [ -z "$remote_line" ] || { why="$FLATQ_HOST: $remote_line"; return 77; } ;;
  *': no whole answer') ;;
  *) grep -q 'Ncat: Connected to \| succeeded!\| E read(\| E write(' "$1" || return 68 ;;
  esac
  remote_doubt
  return 69
}

# remote_doubt - add to `why` what is known of the request if its answer is not
remote_doubt() {
  case ${request%% *} in
  list | stat | peek | wait | wal) return ;;
  push)
    remote_known='it may be stored, or not'
    [ "$remote_sent" -ge "$remote_total" ] || remote_known='nothing is stored' ;;
  reserve) remote_known='if a message was reserved, it is back when its lease ends' ;;
  drain) remote_known='of what was written out, the last part may come again' ;;
  delete) remote_known='if the message was not deleted, it is back when its lease ends' ;;
  *) remote_known='it may be done, or not' ;;
  esac
  why="$why; $remote_known"
}

remote_print() {
  head -c "$remote_size" <&6 && return 0
  why='the answer could not be written out in full'
  case $FLATQ_VERB in
  list | stat | peek | reserve) ;;
  push) why='the message is stored, but its id could not be printed' ;;
  *) why="it is done, but $why" ;;
  esac
  return 74
}

# remote_show WORD ... - as remote_print, but as a table where list and stat would show one
remote_show() {
  case $FLATQ_VERB.${1-} in
  list.) set -- queues ;;
  list.[!-]*) set -- messages ;;
  stat. | stat.[!-]*) set -- stat ;;
  *) set -- '' ;;
  esac
  [ -n "$1" ] && [ -t 1 ] || { remote_print; return; }
  need cli/table
  table_print "$1" remote_print
}

# remote_push WORD ... - read the message to its end first, since its length is sent ahead
remote_push() {
  nonce=000000000000 padded=000000000000000
  remote_words push -n "$padded" "$@"
  remote_line=$remote_at$nonce@$request
  {
    printf '%s\n' "$remote_line" &&
      if [ -n "$remote_text" ]; then input_exact "$text_length"; else cat; fi &&
      read -r remote_word remote_total </proc/self/fdinfo/1 &&
      [ $((remote_total - ${#remote_line} - 1)) -ge "${text_length:-0}" ]
  } >"$remote_directory/asked" || {
    why="the message could not be read, or ${TMPDIR:-/tmp} has no room for it"
    return 74
  }
  pad $((remote_total - ${#remote_line} - 1)) "$padded"
  remote_words push -n "$padded" "$@"
  remote_ask && remote_print
}

# remote_pop [QUEUE ...] - pop by a reserve and, once the message is written out, a delete
remote_pop() {
  remote_any=
  while [ "$remote_left" -gt 0 ]; do
    # Ten minutes: the message's own lease may end while we write it out
    # shellcheck disable=SC2086 # two words or none
    remote_words reserve -t 600 $remote_wait "$@"
    remote_ask || {
      remote_code=$?
      # Nothing is left, or it is closed, if the door has said so
      case $remote_any$remote_said$remote_code.$why in
      *'no longer yours') ;;
      1yes66.* | 1yes69.*) return 0 ;;
      esac
      return $remote_code
    }
    remote_message || return
    remote_held=
    remote_words delete "$remote_receipt"
    remote_ask || return
    remote_any=1 remote_wait='' remote_left=$((remote_left - 1))
  done
}

# remote_message - write out the message that was reserved, and set remote_receipt
remote_message() {
  why="$FLATQ_HOST: no whole answer"
  read -r remote_line <&6 || return 74
  # shellcheck disable=SC2086 # words
  set -- $remote_line
  remote_receipt=${1-}
  [ $# -eq 4 ] && is_number "$4" 999999999999999 &&
    [ "$remote_size" = $((${#remote_line} + 1 + number)) ] || return 74
  why='the message could not be written out in full'
  if [ "$remote_mark" = coded ]; then
    set -- "$remote_directory/body" "$remote_directory/coded"
    head -c "$number" <&6 >"$1" && base64 <"$1" >"$2" && tr -d '\n' <"$2" && printf '\n'
  else
    # shellcheck disable=SC2059 # a constant of ours
    head -c "$number" <&6 && { [ -z "$remote_mark" ] || printf "$remote_mark"; }
  fi || return 74
}

# remote_back - give back what a reserve got, if it was not written out; keep `why`. Signals wait
# for that, but not for long
remote_back() {
  [ -n "$remote_held" ] || return 0
  trap '' HUP INT TERM
  remote_why=$why remote_receipt='' remote_held='' remote_most=5
  ! remote_open || read -r remote_receipt remote_line <&6
  case $remote_receipt in
  '' | *[[:cntrl:]]*) ;;
  *) request="release $remote_receipt"; remote_ask ;;
  esac
  why=$remote_why
}

# remote_stopped SIGNAL - end the connection, and give back a message that was not written out
remote_stopped() {
  trap '' HUP INT TERM
  # RACE: the signal may have come before the last one was noted
  [ "${!-}" = "$remote_noted" ] || remote_pid="$remote_pid ${!-}"
  # Wait for all: in the trap of a `wait` for one, bash may never see that this one has ended
  # shellcheck disable=SC2086 # PIDs
  kill -KILL $remote_pid $remote_watcher && wait
  # The answer to a reserve may be there
  case $request in
  reserve*) remote_held=1 ;;
  esac
  remote_back
  rm -rf "$remote_directory"
  trap - EXIT
  end_by "$1"
}

# remote_drain OPTION ... [QUEUE] - write out and acknowledge batches of `drain -a` until its end
remote_drain() {
  need engine/input
  remote_words drain -a "$@"
  nonce_read
  # Opened for reading and writing, a FIFO does not block. 7 leads to the door, 6 comes from there
  set -- "$remote_directory/to" "$remote_directory/from"
  # shellcheck disable=SC2094 # these are FIFOs
  mkfifo "$1" "$2" && command exec 7<>"$1" 8<>"$2" 6<"$2" || { why='no FIFO'; return 74; }
  remote_connect <"$1" >&8 2>"$remote_directory/errors" 6<&- 7>&- 8>&- &
  remote_pid=$! remote_noted=$!
  exec 8>&-
  printf '%s%s@%s\n' "$remote_at" "$nonce" "$request" >&7
  remote_first=1 remote_end=''
  why='messages could not be written out in full, or not acknowledged, and come again'
  while command exec 3>"$remote_directory/raw" || { remote_code=74; false; }; do
    remote_watch
    remote_batch
    remote_code=$?
    remote_watched
    [ $remote_code -eq 0 ] || break
    cat "$remote_directory/raw" && printf 'ok\n' >&7 || { remote_code=74; break; }
  done
  # The door puts back what was not acknowledged, and ends
  exec 7>&-
  remote_watch
  cat <&6 >/dev/null
  wait "$remote_pid"
  remote_pid=
  remote_watched
  [ "$remote_code" -eq 1 ] || return "$remote_code"
  remote_ended "$remote_end"
}

# remote_batch - read a batch into `raw`; return 1 if remote_end is the last line instead, 74
remote_batch() {
  [ -z "$remote_first" ] || { remote_first=; remote_skip || return 1; }
  IFS= read -r remote_end <&6
  # The last line comes after an empty one
  [ -n "$remote_end" ] || IFS= read -r remote_end <&6
  is_number "$remote_end" 999999999999999 || return 1
  input_exact "$number" <&6 >&3 &
  wait $! || return 74
  ! IFS= read -r remote_end <&6 || {
    [ "$remote_end" != "$nonce sent" ] || return 0
    # A door that fails in a batch may have written a part of it before its last line
    { printf '%s\n' "$remote_end" && cat <&6; } >&3
  }
  remote_end=$(tail -n 1 "$remote_directory/raw")
  return 1
}
