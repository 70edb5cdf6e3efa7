# doors/remote.sh - a verb through a line door elsewhere: flatq -H HOST:PORT VERB ..., or -H ssh://HOST (doors/ssh.sh)
#
# The request's first word begins with `@NONCE@`, by ssh with `@@NONCE@`, so that the door ends its reply with a newline and a line of its own,
# `NONCE ok` or `NONCE error CODE TEXT`. So data may be anything, even `ok`, and we see whether a reply was cut off. A request states the length of
# its message. A remote pop is a reserve and a delete: the message is deleted after it was written out here. A remote drain acknowledges each
# batch (`drain -a`) after it was written out here: one that could not be written, or did not come whole, is still there.

need engine/proof

# remote ARGUMENTS - run FLATQ_VERB at FLATQ_HOST, and exit with its code there, or as remote_ask returns
remote() {
  case $FLATQ_HOST in
  ssh://*) need doors/ssh; ssh_read; remote_at=@@ ;;
  *) remote_address; remote_at=@ ;;
  esac
  remote_directory='' remote_pid='' remote_answered='' remote_held='' request='' remote_turns=0
  trap '[ -z "$remote_directory" ] || rm -rf "$remote_directory"' EXIT
  trap_stop remote_stopped
  # The shell's own read may fail without any status (R6): with an empty name, our files would be made in /
  remote_directory=$(mktemp -d "${TMPDIR:-/tmp}/flatq.XXXXXX" 2>/dev/null) && [ -n "$remote_directory" ] || die 74 "no temporary directory in ${TMPDIR:-/tmp}"
  stream_open 1
  [ "$FLATQ_QUEUE" = default ] || remote_named "$@" || set -- "$@" "$FLATQ_QUEUE"
  case $FLATQ_VERB in
  push) remote_push "$@" ;;
  pop) remote_pop "$@" ;;
  drain) remote_drain "$@" ;;
  log | top | work | doctor | import | claim | settle | unclaim | pressure | mqueue | shovel | door) die 64 "$FLATQ_VERB works on the machine that has the spool" ;;
  *)
    remote_words "$FLATQ_VERB" "$@"
    remote_empty body || die $? "$why"
    remote_ask || die $? "$why"
    [ "$FLATQ_VERB" != reserve ] || remote_held=1
    remote_show "$@" || { remote_code=$?; remote_back; die $remote_code "$why"; }
    # What was printed is the caller's from here on
    remote_held='' request= ;;
  esac || die $? "$why"
}

# remote_named WORD ... - return 1 if the verb uses $FLATQ_QUEUE, since no queue is named behind the options
remote_named() {
  case $FLATQ_VERB in
  push | pop | reserve | drain | kick | peek | create | close) ;;
  *) return 0 ;;
  esac
  while getopts :hp:d:t:k:w:n:s:b:m:ael0g option; do
    [ "$option" != h ] || { OPTIND=1; return 0; }
  done
  shift $((OPTIND - 1))
  OPTIND=1
  [ $# -gt 0 ]
}

# remote_address - set remote_host and remote_port from HOST:PORT
remote_address() {
  case $FLATQ_HOST in
  *']') remote_port=1234 remote_host=$FLATQ_HOST ;;
  *:*) remote_port=${FLATQ_HOST##*:} remote_host=${FLATQ_HOST%:*} ;;
  *) remote_port=1234 remote_host=$FLATQ_HOST ;;
  esac
  remote_host=${remote_host#'['} remote_host=${remote_host%']'}
  is_number "$remote_port" 65535 && [ -n "$remote_host" ] || die 64 '-H takes HOST:PORT or ssh://[USER@]HOST[:PORT]'
  case $remote_host in
  -*) die 64 '-H takes HOST:PORT or ssh://[USER@]HOST[:PORT]' ;;
  esac
}

# remote_stopped SIGNAL - end the program that is connected to the door, which so learns that we are gone; give back a message that was not written out
remote_stopped() {
  # A second signal ends us at once: nobody knows how long the door takes
  trap - HUP INT TERM
  need engine/process
  # The signal may have come before `remote_pid=$!` was run. Without /proc, $! may be another process by now
  [ -z "${!-}" ] || [ ! -e "$FLATQ_PROC/self/stat" ] || [ -n "$remote_pid" ] || remote_pid=$!
  # If a message is being given back, that may need a moment. RACE: remote_ask may not have unset remote_held yet
  [ "$remote_turns" -eq 0 ] || ! child_lives "$remote_pid" || remote_held=
  while [ "$remote_turns" -gt 0 ] && child_lives "$remote_pid"; do
    sleep 0.1 2>/dev/null || sleep 1
    remote_turns=$((remote_turns - 1))
  done
  remote_end_connection
  # The answer to a reserve may have come, and not been looked at
  case $remote_held$request in
  reserve | 'reserve '*) ! remote_begun <"$remote_directory/raw" || { cat "$remote_directory/answer" >"$remote_directory/reply" && remote_held=1; } ;;
  esac 2>/dev/null
  remote_back
  [ -z "$remote_directory" ] || rm -rf "$remote_directory"
  trap - EXIT
  end_by "$1"
}

# remote_end_connection - end the program of the connection, if there is one. By KILL, since a child that has just been forked may forget a TERM; but ssh
# may have to restore a terminal first
remote_end_connection() {
  [ -n "$remote_pid" ] || return 0
  need engine/process
  {
    case $FLATQ_HOST in
    ssh://*) ! child_lives "$remote_pid" || { kill "$remote_pid"; sleep 0.1 || sleep 1; } ;;
    esac
    ! child_lives "$remote_pid" || kill -KILL "$remote_pid"
    wait "$remote_pid"
  } 2>/dev/null
  remote_pid=
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
# return its code; return 68 if nobody answers, 69 if the reply is not whole, 77 if ssh does not let us in
remote_ask() {
  remote_said=
  nonce_read
  # unsent.NONCE proves that not all of the body was handed to the program that connects. All of this runs in the background, since a shell heeds no
  # signal while it waits for a command
  { remote_deaf; { printf '%s%s@%s\n' "$remote_at" "$nonce" "$request" && cat "$remote_directory/body"; } || true >"$remote_directory/unsent.$nonce"; } 2>/dev/null |
    { { remote_deaf; remote_connect exec; } >"$remote_directory/raw" 2>"$remote_directory/errors"; } 2>/dev/null &
  # From here on, the connection gives back the message that is to be given back: remote_stopped must not do so again
  remote_pid=$! remote_held=
  # For both sides of the pipe
  wait
  remote_pid=
  { remote_begun <"$remote_directory/raw"; } 2>/dev/null || { why='no space for the answer'; remote_doubt; return 74; }
  # An answer that was cut has no newline at its end
  remote_end=$(tail -n 1 "$remote_directory/answer" 2>/dev/null && printf 'end\n') && capture "$remote_end" && remote_end=$captured || remote_end=
  measure -c "$remote_directory/answer" && remote_size=$((measured - ${#remote_end} - 2)) && [ "$remote_size" -ge 0 ] || remote_end=
  remote_ended "$remote_end" || return $?
  head -c "$remote_size" "$remote_directory/answer" >"$remote_directory/reply" 2>/dev/null || { why='no space for the answer'; remote_doubt; return 74; }
}

# remote_deaf - let the connection that gives a message back go on when a signal is sent to our whole group, as timeout does
remote_deaf() {
  [ "$remote_turns" -eq 0 ] || trap '' HUP INT TERM
}

# remote_empty FILE - create this file of ours, empty; return 74 if that fails. Not by `:`, with which a shell ends where a redirection fails
remote_empty() {
  { true >"$remote_directory/$1"; } 2>/dev/null || { why="${TMPDIR:-/tmp} has no room"; return 74; }
}

# remote_begun - write standard input, from the beginning of the answer on, to the file `answer`, which stays empty if there is none
remote_begun() {
  remote_empty answer && { ! remote_skip || cat >>"$remote_directory/answer" 2>/dev/null; }
}

# remote_skip - read what the login of another machine prints before the door's first line, and that line; return 1 if it did not come: a read that
# failed in its middle would leave the rest of it for the answer (R6)
remote_skip() {
  [ "$remote_at" = @@ ] || return 0
  while IFS= read -r remote_line; do
    case $remote_line in
    *"$nonce") return 0 ;;
    esac
  done
  return 1
}

# remote_ended LINE - return the code in the last line of an answer, set `why`, and remote_said to `yes`; empty: it is no such line, and the code
# is 68, 69 or, if ssh does not let us in, 77
remote_ended() {
  remote_said=yes
  case $1 in
  "$nonce ok") remote_answered=1; return 0 ;;
  "$nonce error "[1-9][0-9]' '*)
    remote_answered=1
    remote_end=${1#"$nonce error "}
    # Whoever answers there must not write to a terminal here
    why=$(printf '%s' "${remote_end#??' '}" | tr -cd '[:print:]')
    case $why in
    'only '*' announced bytes came' | 'fewer bytes than the '*' announced') [ ! -e "$remote_directory/unsent.$nonce" ] || { why='the message could not be sent in full; nothing is stored'; return 74; } ;;
    esac
    return "${remote_end%% *}" ;;
  esac
  remote_said=
  case $FLATQ_HOST in
  ssh://*) need doors/ssh; ssh_failed || [ $? -eq 69 ] || return 77 ;;
  *)
    # What ncat and nc say on the way is no error
    why="$FLATQ_HOST: $(sed -n -e '/ succeeded!$/d' -e '/^Ncat: Version /d' -e '/^Ncat: Connect\(ed\|ion\) to /d' -e '/^Ncat: Trying next /d' \
      -e '/^Ncat: [0-9]* bytes sent, /d' -e 's/^Ncat: //; p; q' "$remote_directory/errors" 2>/dev/null | grep . || printf 'no whole answer')" ;;
  esac
  remote_known
}

# remote_known - return 68 if this verb never had a connection, so that nothing was asked. Else return 69, and add to `why` what is known of the
# request: nobody knows whether it was done, unless it was not sent in full
remote_known() {
  case $why in
  *' needed') return 69 ;;
  esac
  # A connection that was made can fail with the same words: ncat, nc and socat say so, and ssh does not call that line its own
  [ -n "$remote_answered" ] || [ -s "$remote_directory/raw" ] ||
    grep -q -e '^Ncat: Connected to ' -e ' succeeded!$' -e ' E read(' -e ' E write(' "$remote_directory/errors" 2>/dev/null || case $why in
  *': ssh: '*) return 68 ;;
  ssh://*) ;;
  *'Connection refused'* | *'No route to host'* | *'etwork is unreachable'* | *'esolve '* | *'Name or service not known'*) return 68 ;;
  esac
  remote_doubt
  return 69
}

# remote_doubt - add to `why` what is known of the request if its answer is not
remote_doubt() {
  case ${request%% *} in
  list | stat | peek | wal) ;;
  push) if [ -e "$remote_directory/unsent.$nonce" ]; then why="$why; nothing is stored"; else why="$why; it may be stored, or not"; fi ;;
  reserve) why="$why; if a message was reserved, it is back when its lease ends" ;;
  drain) why="$why; of what was written out, the last part may come again" ;;
  delete) why="$why; if the message was not deleted, it is back when its lease ends" ;;
  *) why="$why; it may be done, or not" ;;
  esac
}

# remote_print - write the reply to standard output
remote_print() {
  cat "$remote_directory/reply" 2>/dev/null && return 0
  why='the answer could not be written out in full'
  case $FLATQ_VERB in
  list | stat | peek | reserve) ;;
  *) why="it is done, but $why" ;;
  esac
  return 74
}

# remote_show WORD ... - as remote_print, but as a table where list and stat would show one
remote_show() {
  [ -t 1 ] || { remote_print; return $?; }
  need engine/table
  case "$FLATQ_VERB ${1-}" in
  'list -'* | 'stat -'*) remote_print ;;
  'list ') table_print queues remote_print ;;
  'list '*) table_print list remote_print ;;
  'stat '*) table_print stat remote_print ;;
  *) remote_print ;;
  esac
}

# remote_connect [exec] - send standard input to the door and print its answer, with whichever program there is. `exec`: replace the shell by it
remote_connect() {
  case $FLATQ_HOST in
  ssh://*) need doors/ssh; ssh_connect "$@"; return $? ;;
  esac
  if twice works command -v ncat; then
    # With -v it says also that there is a connection
    ${1:-} ncat -v "$remote_host" "$remote_port"
  elif twice works command -v nc; then
    # Without -v it does not say why there is no connection; with it, also that there is one
    ${1:-} nc -v -N "$remote_host" "$remote_port"
  elif twice works command -v socat; then
    ${1:-} socat -t 86400 - "TCP:$remote_host:$remote_port"
  else
    printf 'ncat, nc or socat is needed\n' >&2
    return 69
  fi
}

# remote_push ARGUMENTS - read the message to its end first, since its length is sent ahead
remote_push() {
  while getopts :hp:d:t:k:w:n:el0 option; do
    case $option in
    e | n) die 64 '-e and -n do not go with -H: the message is all of the input' ;;
    [pdtkwl0]) ;;
    *) other_option ;;
    esac
  done
  stream_open 0
  cat >"$remote_directory/body" 2>/dev/null || { why="the message could not be read, or ${TMPDIR:-/tmp} has no room for it"; return 74; }
  # Never by arithmetic with what a failed `wc` may have printed (R7): one byte less would be stored, and acknowledged
  measure -c "$remote_directory/body" || { why='the message cannot be measured'; return 74; }
  remote_words push -n "$measured" "$@"
  remote_ask || return $?
  remote_print || { why='the message is stored, but its id could not be printed'; return 74; }
}

# remote_pop OPTION ... [QUEUE] - pop by a reserve and, once the message is written out, a delete
remote_pop() {
  remote_wait='' remote_left=1 remote_mark=
  while getopts :hw:n:l0 option; do
    case $option in
    w) option_number w "$OPTARG" 4294967295; remote_wait="-w $number" ;;
    n) option_number n "$OPTARG" 4294967295; count_fits; remote_left=$number ;;
    l) remote_mark='\n' ;;
    0) remote_mark='\000' ;;
    *) other_option ;;
    esac
  done
  shift $((OPTIND - 1))
  [ "$remote_left" = 1 ] || [ -n "$remote_mark" ] || die 64 '-n needs -l or -0'
  [ "$remote_left" != 0 ] || die 65 '-n takes a number from 1'
  remote_empty body || return $?
  remote_any=
  while [ "$remote_left" -gt 0 ]; do
    # Ask for ten minutes: the message's own lease may be shorter, and another consumer would get it while we write it out
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
    { read -r remote_receipt remote_id remote_tries remote_length && cat >"$remote_directory/message"; } <"$remote_directory/reply" &&
      measure -c "$remote_directory/message" && [ "$measured" = "$remote_length" ] ||
      { why="$FLATQ_HOST: no whole answer"; remote_back; return 74; }
    # shellcheck disable=SC2059 # a constant of ours
    { cat "$remote_directory/message" && { [ -z "$remote_mark" ] || printf "$remote_mark"; }; } 2>/dev/null ||
      { why='the message could not be written out in full'; remote_back; return 74; }
    remote_held='' request=
    remote_words delete "$remote_receipt"
    remote_ask || return $?
    remote_any=1 remote_wait='' remote_left=$((remote_left - 1))
  done
}

# remote_back - give back the message of the file `reply`, if there is one; keep `why`
remote_back() {
  [ -n "$remote_held" ] || return 0
  remote_why=$why remote_receipt=
  { read -r remote_receipt remote_id <"$remote_directory/reply"; } 2>/dev/null || :
  # remote_ask unsets remote_held once it has started the connection. If a signal comes before that, remote_stopped gives the message back
  request="release $remote_receipt"
  case $remote_receipt in
  '' | *[[:space:][:cntrl:]]*) ;;
  *) remote_turns=20
    remote_empty body && remote_ask || : ;;
  esac
  remote_held='' remote_turns=0 why=$remote_why
}

# remote_drain OPTION ... [QUEUE] - drain by `drain -a`: acknowledge each batch once it is written out
remote_drain() {
  while getopts :hl0 option; do
    case $option in
    l | 0) ;;
    *) other_option ;;
    esac
  done
  need engine/input engine/process
  remote_words drain -a "$@"
  nonce_read
  # Opened for reading and writing, a FIFO does not block. 3 leads to the door, and ends when we do; 6 comes from there
  # shellcheck disable=SC2094 # these are FIFOs
  { mkfifo "$remote_directory/to" "$remote_directory/from" && command exec 3<>"$remote_directory/to" 4<"$remote_directory/to" \
    5<>"$remote_directory/from" 6<"$remote_directory/from"; } 2>/dev/null || { why='no FIFO'; return 74; }
  remote_connect exec <&4 >&5 2>"$remote_directory/errors" 3>&- 4<&- 5>&- 6<&- &
  remote_pid=$!
  close_descriptor 4
  close_descriptor 5
  remote_code=74 why="$FLATQ_HOST: the request could not be sent"
  ! printf '%s%s@%s\n' "$remote_at" "$nonce" "$request" >&3 || { remote_batches; remote_code=$?; }
  close_descriptor 3
  close_descriptor 6
  remote_end_connection
  return $remote_code
}

# remote_batches - write out and acknowledge batches until the door says that it has ended
remote_batches() {
  remote_skip <&6 || { remote_ended ''; return $?; }
  remote_end=
  while IFS= read -r remote_end <&6; do
    # The last line comes after an empty one
    is_number "$remote_end" 999999999999999 || { [ -n "$remote_end" ] && break; continue; }
    # In the background, as in remote_ask
    input_exact "$number" <&6 >"$remote_directory/message" 2>/dev/null &
    process_forked && wait $! || { why='no space for the answer'; remote_refuse; return 74; }
    measure -c "$remote_directory/message" || { why='the answer cannot be measured'; remote_refuse; return 74; }
    # If the door fails in the midst of a batch, the beginning of its last line was read as a part of the batch
    [ "$measured" = "$number" ] && { IFS= read -r remote_end <&6 && [ "$remote_end" = "$nonce sent" ]; } || {
      [ "$measured" != "$number" ] || { printf '%s\n' "$remote_end" && cat <&6; } >>"$remote_directory/message"
      remote_end=$(tail -n 1 "$remote_directory/message")
      break
    }
    cat "$remote_directory/message" 2>/dev/null || { why='messages could not be written out in full'; remote_refuse; return 74; }
    printf 'ok\n' >&3 || { why="$FLATQ_HOST: what was printed could not be acknowledged, and comes again"; remote_refuse; return 74; }
  done
  remote_ended "$remote_end"
}

# remote_refuse - end our side without an `ok`, and wait until the door has put the batch back and ended too
remote_refuse() {
  close_descriptor 3
  cat <&6 >/dev/null
}

part='doors/remote'
