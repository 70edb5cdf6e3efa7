# doors/remote.sh - a verb through a line door elsewhere: flatq -H HOST:PORT, unix:PATH, ssh://HOST
#
# A request begins with `@NONCE@`, by ssh with `@@NONCE@`, so that the door ends its answer with a
# line `NONCE ok` or `NONCE error CODE TEXT`, and we see whether it was cut off. A pop is a reserve
# and, once the message was written out here, a delete; a drain acknowledges each batch (-a).
#
# Files in remote_directory: `body`, which follows the request; `raw`, what came, and `answer`, that
# without what a login prints; `errors`, of the program that connects; `unsent.NONCE`: that program
# did not get all of the body.

need engine/proof

# remote WORD ... - run FLATQ_VERB at FLATQ_HOST, and exit with its code there, or as remote_ask
remote() {
  remote_directory='' remote_pid='' remote_noted='' remote_asked='' remote_held='' request=''
  remote_host_read
  remote_look "$@"
  trap '[ -z "$remote_directory" ] || rm -rf "$remote_directory"' EXIT
  trap_stop remote_stopped
  remote_directory=$(mktemp -d "${TMPDIR:-/tmp}/flatq.XXXXXX") && [ -n "$remote_directory" ] ||
    die 74 "no temporary directory in ${TMPDIR:-/tmp}"
  [ -n "$remote_named" ] || set -- "$@" "$FLATQ_QUEUE"
  case $FLATQ_VERB in
  push) remote_push "$@" ;;
  pop) remote_pop "$@" ;;
  drain) remote_drain "$@" ;;
  log | top | work | doctor | import | claim | settle | unclaim | pressure | mqueue | shovel | door)
    die 64 "$FLATQ_VERB works on the machine that has the spool" ;;
  *)
    remote_words "$FLATQ_VERB" "$@"
    remote_ask || die $? "$why"
    [ "$FLATQ_VERB" != reserve ] || remote_held=1
    remote_show "$@" || { remote_code=$?; remote_back; die $remote_code "$why"; }
    # What was printed is the caller's from here on
    remote_held='' request= ;;
  esac || die $? "$why"
}

# remote_host_read - set remote_at, and remote_unix, or remote_host and remote_port
remote_host_read() {
  remote_at=@ remote_port=1234 remote_unix='' remote_host=$FLATQ_HOST
  case $FLATQ_HOST in
  ssh://*) need doors/ssh; ssh_read; remote_at=@@; return ;;
  unix:?*) remote_unix=${FLATQ_HOST#unix:} remote_port=; return ;;
  *']') ;;
  *:*) remote_port=${FLATQ_HOST##*:} remote_host=${FLATQ_HOST%:*} ;;
  esac
  remote_host=${remote_host#'['} remote_host=${remote_host%']'}
  case $remote_host in
  '' | -*) remote_port=- ;;
  esac
  is_number "$remote_port" 65535 ||
    die 64 '-H takes HOST:PORT, unix:PATH or ssh://[USER@]HOST[:PORT]'
}

# remote_look WORD ... - set remote_named, unless the verb is to use $FLATQ_QUEUE, which the door
# does not know; and remote_with: after the lease that a pop asks for, and -w, there is nothing to
# wait for. A body may take longer
remote_look() {
  remote_named=1 remote_most=600 remote_with=
  while getopts :hp:d:t:k:w:n:r:s:b:m:aelf0 option; do
    case $FLATQ_VERB$option in
    push[en]) die 64 '-e and -n do not go with -H: the message is all of the input' ;;
    pushh | poph | drainh) other_option ;;
    *h) OPTIND=1; return ;;
    *w) is_number "$OPTARG" 999999999 && remote_most=$((remote_most + number)) ;;
    esac
  done
  shift $((OPTIND - 1))
  OPTIND=1
  # ssh may ask for a password, and has limits of its own
  case $remote_at$FLATQ_VERB in
  @@* | @push | @drain | @peek) ;;
  *) remote_with="timeout $remote_most" ;;
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
  [ "$remote_at" = @ ] || ssh_connect
  # With -v, ncat and nc say why there is no connection, and whether there is one
  set -- ${remote_unix:+-U} "${remote_unix:-$remote_host}" ${remote_port:+"$remote_port"}
  if command -v ncat >/dev/null; then
    exec $remote_with ncat -v "$@"
  elif command -v nc >/dev/null; then
    exec $remote_with nc -v -N "$@"
  elif command -v socat >/dev/null; then
    set -- "TCP:$remote_host:$remote_port"
    [ -z "$remote_unix" ] || set -- "UNIX-CONNECT:$remote_unix"
    exec $remote_with socat -t 86400 - "$1"
  fi
  printf 'ncat, nc or socat is needed\n' >&2
  exit 69
}

# remote_ask - send `request`, and `body` if there is one; set remote_size to the bytes of `answer`
# without its last line. On an error there, set `why` and return its code; return 68 if nobody
# answers, 69 if the answer is not whole, 77 if ssh does not let us in. All of this runs in the
# background, since a shell heeds no signal while it waits for a command
remote_ask() {
  remote_said=
  nonce_read
  {
    printf '%s%s@%s\n' "$remote_at" "$nonce" "$request" &&
      { [ ! -e "$remote_directory/body" ] || cat "$remote_directory/body"; } ||
      true >"$remote_directory/unsent.$nonce"
  } | remote_connect >"$remote_directory/raw" 2>"$remote_directory/errors" &
  remote_pid=$! remote_noted=$!
  # For both sides of the pipe
  wait
  remote_pid=
  remote_read && measure -c "$remote_answer" ||
    { why='the answer cannot be kept'; remote_doubt; return 74; }
  # An answer that was cut has no newline at its end
  remote_end=$(tail -n 1 "$remote_answer"; printf .)
  case $remote_end in
  *'
.') remote_end=${remote_end%??} ;;
  *) remote_end= ;;
  esac
  remote_size=$((measured - ${#remote_end} - 2))
  [ $remote_size -ge 0 ] || remote_end=
  remote_ended "$remote_end"
}

# remote_read - set remote_answer to the file that has the answer, without what the login of another
# machine prints before the door's first line, and that line
remote_read() {
  remote_answer=$remote_directory/raw
  [ "$remote_at" = @@ ] || return 0
  remote_answer=$remote_directory/answer
  sed "0,/$nonce\$/d" "$remote_directory/raw" >"$remote_answer"
}

# remote_ended LINE - return the code in the last line of an answer, set `why`, and remote_said to
# `yes`; empty: it is no such line, and the code is 68, 69 or, if ssh does not let us in, 77
remote_ended() {
  case $1 in
  "$nonce ok") remote_said=yes remote_asked=1; return 0 ;;
  "$nonce error "[1-9][0-9]' '*)
    remote_said=yes remote_asked=1 remote_end=${1#"$nonce error "}
    # Whoever answers there must not write to a terminal here
    why=$(printf '%s' "${remote_end#??' '}" | tr -cd '[:print:]')
    case $why in
    'only '*' announced bytes came')
      [ ! -e "$remote_directory/unsent.$nonce" ] ||
        { why='the message could not be sent in full; nothing is stored'; return 74; } ;;
    esac
    return "${remote_end%% *}" ;;
  esac
  if [ "$remote_at" = @@ ]; then
    ssh_failed || [ $? -eq 69 ] || return 77
  else
    # What ncat and nc say on the way is no error
    why=$(sed -n -e '/ succeeded!$/d' -e '/^Ncat: \(Version\|Connect[a-z]* to\|Trying next\) /d' \
      -e '/^Ncat: [0-9]* bytes sent, /d' -e 's/^Ncat: //; p; q' "$remote_directory/errors")
    why="$FLATQ_HOST: ${why:-no whole answer}"
  fi
  # Without a connection, nothing was asked. One that was made can fail with the same words: ncat,
  # nc and socat say so, and ssh does not call that line its own
  [ -n "$remote_asked" ] || [ -s "$remote_directory/raw" ] || grep -q -e '^Ncat: Connected to ' \
    -e ' succeeded!$' -e ' E read(' -e ' E write(' "$remote_directory/errors" || case $why in
  *': ssh: '*) return 68 ;;
  *' needed') return 69 ;;
  ssh://*) ;;
  *'onnection refused'* | *'No route to host'* | *'etwork is unreachable'* | *'esolve '* | \
    *'Name or service not known'* | *'No such file or directory'*) return 68 ;;
  esac
  remote_doubt
  return 69
}

# remote_doubt - add to `why` what is known of the request if its answer is not
remote_doubt() {
  case ${request%% *} in
  list | stat | peek | wal) return ;;
  push)
    remote_known='it may be stored, or not'
    [ ! -e "$remote_directory/unsent.$nonce" ] || remote_known='nothing is stored' ;;
  reserve) remote_known='if a message was reserved, it is back when its lease ends' ;;
  drain) remote_known='of what was written out, the last part may come again' ;;
  delete) remote_known='if the message was not deleted, it is back when its lease ends' ;;
  *) remote_known='it may be done, or not' ;;
  esac
  why="$why; $remote_known"
}

# remote_print - write the answer out
remote_print() {
  head -c "$remote_size" "$remote_answer" && return 0
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
  set -- "$FLATQ_VERB ${1-}" remote_print
  [ ! -t 1 ] || case $1 in
  'list -'* | 'stat -'*) ;;
  'list ') set -- '' table_print queues remote_print ;;
  'list '*) set -- '' table_print messages remote_print ;;
  'stat '*) set -- '' table_print stat remote_print ;;
  esac
  need engine/table
  shift
  "$@"
}

# remote_push WORD ... - read the message to its end first, since its length is sent ahead
remote_push() {
  cat >"$remote_directory/body" && measure -c "$remote_directory/body" ||
    { why="the message could not be read, or ${TMPDIR:-/tmp} has no room for it"; return 74; }
  remote_words push -n "$measured" "$@"
  remote_ask && remote_print
}

# remote_pop OPTION ... [QUEUE] - pop by a reserve and, once the message is written out, a delete
remote_pop() {
  remote_wait='' remote_left=1 remote_mark='' remote_any=
  while getopts :hw:n:l0 option; do
    case $option in
    w) option_number w "$OPTARG" 4294967295; remote_wait="-w $number" ;;
    n) option_number n "$OPTARG" 4294967295; remote_left=$number ;;
    l) remote_mark='\n' ;;
    0) remote_mark='\000' ;;
    *) other_option ;;
    esac
  done
  shift $((OPTIND - 1))
  [ "$remote_left" = 1 ] || [ -n "$remote_mark" ] || die 64 '-n needs -l or -0'
  [ "$remote_left" != 0 ] || die 65 '-n takes a number from 1'
  while [ "$remote_left" -gt 0 ]; do
    # Ask for ten minutes: the message's own lease may be shorter, and another consumer would get it
    # while we write it out
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
    remote_held=1
    remote_message || { remote_code=$?; remote_back; return $remote_code; }
    remote_held='' request=
    remote_words delete "$remote_receipt"
    remote_ask || return
    remote_any=1 remote_wait='' remote_left=$((remote_left - 1))
  done
}

# remote_message - write out the message that was reserved, and set remote_receipt
remote_message() {
  why="$FLATQ_HOST: no whole answer"
  {
    read -r remote_line || return 74
    # shellcheck disable=SC2086 # words
    set -- $remote_line
    remote_receipt=${1-}
    [ $# -eq 4 ] && is_number "$4" 999999999999999 &&
      [ "$remote_size" = $((${#remote_line} + 1 + number)) ] || return 74
    why='the message could not be written out in full'
    # shellcheck disable=SC2059 # a constant of ours
    head -c "$number" && { [ -z "$remote_mark" ] || printf "$remote_mark"; } || return 74
  } <"$remote_answer"
}

# remote_back - give back the message whose receipt begins the answer, if there is one; keep `why`.
# Signals wait for that, but not for long
remote_back() {
  [ -n "$remote_held" ] || return 0
  trap '' HUP INT TERM
  remote_why=$why remote_receipt='' remote_held=
  read -r remote_receipt remote_line <"$remote_answer"
  case $remote_receipt in
  '' | *[[:cntrl:]]*) ;;
  *)
    request="release $remote_receipt" remote_with='timeout -s KILL 5'
    remote_ask ;;
  esac
  why=$remote_why
}

# remote_stopped SIGNAL - end the program that is connected to the door, which so learns that we are
# gone; give back a message that was not written out
remote_stopped() {
  trap '' HUP INT TERM
  # RACE: the signal may have come before it was noted
  [ "${!-}" = "$remote_noted" ] || remote_pid=${!-}
  remote_disconnect
  # The answer to a reserve may have come, and not been looked at
  case $request in
  reserve*) ! remote_read || remote_held=1 ;;
  esac
  remote_back
  rm -rf "$remote_directory"
  trap - EXIT
  end_by "$1"
}

# remote_disconnect - end the program of the connection, if there is one. A child that has just been
# forked may forget a TERM; but ssh may have to restore a terminal
remote_disconnect() {
  [ -n "$remote_pid" ] || return 0
  kill -TERM "$remote_pid"
  sleep 0.1
  kill -KILL "$remote_pid"
  wait "$remote_pid"
  remote_pid=
}

# remote_drain OPTION ... [QUEUE] - drain by `drain -a`
remote_drain() {
  need engine/input
  remote_words drain -a "$@"
  nonce_read
  # Opened for reading and writing, a FIFO does not block. 3 leads to the door, and ends when we do;
  # 6 comes from there
  set -- "$remote_directory/to" "$remote_directory/from"
  # shellcheck disable=SC2094 # these are FIFOs
  mkfifo "$1" "$2" && command exec 3<>"$1" 4<"$1" 3>"$1" 7<>"$2" 6<"$2" ||
    { why='no FIFO'; return 74; }
  remote_connect <&4 >&7 2>"$remote_directory/errors" 3>&- 4<&- 7>&- 6<&- &
  remote_pid=$! remote_noted=$!
  exec 4<&- 7>&-
  remote_code=74 why="$FLATQ_HOST: the request could not be sent"
  ! printf '%s%s@%s\n' "$remote_at" "$nonce" "$request" >&3 ||
    { remote_batches <&6; remote_code=$?; }
  exec 3>&- 6<&-
  remote_disconnect
  return $remote_code
}

# remote_batches - write out and acknowledge batches until the door says that it has ended
remote_batches() {
  # What a login prints
  remote_end=
  [ "$remote_at" = @ ] || while [ "${remote_end%"$nonce"}" = "$remote_end" ]; do
    IFS= read -r remote_end || break
  done
  while IFS= read -r remote_end; do
    # The last line comes after an empty one
    is_number "$remote_end" 999999999999999 || { [ -n "$remote_end" ] && break; continue; }
    # In the background, as in remote_ask
    input_exact "$number" <&6 >"$remote_directory/raw" &
    remote_size=$number
    wait $! && measure -c "$remote_directory/raw" ||
      { why='no space for the answer'; remote_refuse; return 74; }
    # A door that fails in a batch ends it with its last line, of which a part may be in the batch
    [ "$measured" = "$remote_size" ] && IFS= read -r remote_end &&
      [ "$remote_end" = "$nonce sent" ] || {
      [ "$measured" != "$remote_size" ] ||
        { printf '%s\n' "$remote_end" && cat; } >>"$remote_directory/raw"
      remote_end=$(tail -n 1 "$remote_directory/raw")
      break
    }
    if ! cat "$remote_directory/raw"; then
      why='messages could not be written out in full'
      remote_refuse
      return 74
    elif ! printf 'ok\n' >&3; then
      why="$FLATQ_HOST: what was printed could not be acknowledged, and comes again"
      remote_refuse
      return 74
    fi
  done
  remote_ended "$remote_end"
}

# remote_refuse - end our side without an `ok`, and wait until the door has put the batch back
remote_refuse() {
  exec 3>&-
  cat >/dev/null
}
