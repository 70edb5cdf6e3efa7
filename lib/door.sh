# door.sh - what doors share: the client's connection, whether it had its answer, the line of log
#
# Descriptors of a handler: 0 from the client, 1 to it, 2 the log. Under ./launch also 3, the pipe to the guard (guard.sh), and
# 5, the pipe to ncat; 4 is where ncat before 7.96 leaves the connection itself, and door_open makes that 1. 6 to 9 are the engine's.
#
# ncat before 7.96 ends as soon as the client has sent its last byte, and drops what the handler says then. A write to the connection
# itself arrives. It is in non-blocking mode, so a large answer needs that taken away first; and TLS must never be written past.

# door_busy - the guard's USR1, up to the first request
door_busy() {
  die 75 'busy: too many connections, try again later'
}

# door_turn - while a verb waits: a client that is gone keeps its place no longer (wait.sh)
door_turn() {
  ! door_left || door_gone=gone take_stop=1
}

# door_left - whether the client is known to be gone: its connection was reset; or it has ended it, and its end, which is on this system, is
# nobody's any longer. One that only sends no more looks the same from elsewhere
door_left() {
  [ -n "$door_inode" ] || return 1
  door_local=
  # RACE: the table is not read in one piece, and a row may be missed: who is gone is not there the next time either
  door_row || { door_missed=$((door_missed + 1)); [ $door_missed -gt 1 ]; return; }
  door_missed=0
  [ "$door_state" = 08 ] && [ -n "$door_local" ] || return 1
  set --
  for door_table in "$FLATQ_PROC/net/tcp" "$FLATQ_PROC/net/tcp6"; do
    [ ! -e "$door_table" ] || set -- "$@" "$door_table"
  done
  # an address of IPv4 may stand in either table
  [ -n "$(exec awk -v "ours=$door_local" -v "theirs=$door_remote" '
    function short(address) { sub(/^0000000000000000FFFF0000/, "", address); return address }
    BEGIN { ours = short(ours); theirs = short(theirs) }
    $10 == 0 && short($2) == theirs && short($3) == ours { print "left"; exit }' "$@")" ]
}

# door_help WORD ... - a door takes no words, but says all about itself
door_help() {
  case ${1:-} in
  -h | --help) need rare; help ;;
  esac
}

# door_open [launch FLAGS EPOCH INSTANCE] - finds the client; sets door_inode: its socket, where that is known to be one of TCP. FLAGS are letters that
# launch gives: o one connection at a time, d the connection itself may be written to; EPOCH is for the log, INSTANCE for tally.sh. launch says all
# of that in words: what is in the environment may be anybody's
door_open() {
  FLATQ_GUARD='' FLATQ_ONE='' FLATQ_DIRECT='' take_stop='' door_missed=0 door_epoch=${3:-} door_of=${4:-0}
  if [ "${1:-}" = launch ]; then
    FLATQ_GUARD=1
    case ${2:-} in *o*) FLATQ_ONE=1 ;; esac
    case ${2:-} in *d*) FLATQ_DIRECT=1 ;; esac
  fi
  # one of too many is told so, and ended
  trap door_busy USR1
  # every kind of end of a client is a failed write, and none the end of the handler before the message is back
  trap '' PIPE
  door_inode='' door_blocks=1 door_data='' door_said='' door_gone='' door_relayed='' door_prompt='' door_mark='' door_nonce='' door_verb=- door_wait=0 door_line=
  # whom the guard does not know it could not end
  [ -z "${FLATQ_GUARD:-}" ] || { printf '\nc %s %s\n' "$$" "$PPID" >&3; } 2>/dev/null || exit 75
  clock_read
  door_began=$now
  trap door_end EXIT
  trap 'die 75 "the door has ended the connection: idle, slow, one of too many, or closing"' HUP INT TERM
  if [ -n "${FLATQ_GUARD:-}" ] && [ -S "$FLATQ_PROC/self/fd/4" ]; then
    door_socket 4
    # ... but TLS is not for us to write
    if [ -n "${FLATQ_DIRECT:-}" ]; then exec >&4; else door_blocks=1 door_relayed=1; fi
  elif [ -S "$FLATQ_PROC/self/fd/1" ]; then
    door_socket 1
  fi
  exec 4>&-
  # inetd gives the client's socket as 2 as well
  # shellcheck disable=SC3013 # -ef is in every shell that is named in the README
  [ -n "${FLATQ_GUARD:-}" ] || ! [ "$FLATQ_PROC/self/fd/2" -ef "$FLATQ_PROC/self/fd/0" ] || exec 2>/dev/null
}

# door_socket DESCRIPTOR - sets door_inode and door_blocks of a socket
door_socket() {
  {
    while read -r door_key door_value; do
      case $door_key$door_value in
      flags:*[4567]???) door_blocks= ;;
      ino:*) door_inode=$door_value ;;
      esac
    done <"$FLATQ_PROC/self/fdinfo/$1"
  } 2>/dev/null
  # Linux before 5.14 does not say it there
  [ -n "$door_inode" ] || { door_inode=$(readlink "$FLATQ_PROC/$$/fd/$1") && door_inode=${door_inode#*'['} door_inode=${door_inode%']'}; }
  # a socket that is not of TCP has no row to miss. What ncat says is known without a look
  [ "${FLATQ_GUARD:+${NCAT_PROTO:-}}" = TCP ] || door_row || door_inode=
}

# door_reply SIZE - is said before a message's own bytes are written; a SIZE that is not known is `large`
door_reply() {
  door_data=1
  door_room "$1"
}

# door_room SIZE - is said before an answer is written that may be large
door_room() {
  [ -z "$door_blocks" ] && [ ${#1} -gt 4 ] || return 0
  door_blocks=1
  perl -MFcntl -e 'exit !fcntl(STDOUT, F_SETFL, fcntl(STDOUT, F_GETFL, 0) & ~O_NONBLOCK)' 2>/dev/null ||
    python3 -c 'import os; os.set_blocking(1, True)' 2>/dev/null && return 0
  # by way of ncat, which has to live for that
  why='a large answer to a client that sends no more needs perl or python3 here'
  door_ncat_lives || return 75
  exec >&5
  door_inode=
}

# door_pieces - is said before an answer that goes out in several writes, where another went before: TCP keeps the second piece until the
# client has acknowledged the first, which takes its time (40 ms), unless it is told not to (TCP_NODELAY). Once is enough
door_pieces() {
  [ -n "$door_inode" ] && [ -z "$door_relayed$door_prompt" ] || return 0
  door_prompt=1
  perl -e 'exit !setsockopt(STDOUT, 6, 1, 1)' 2>/dev/null ||
    python3 -c 'import socket; socket.socket(fileno=1).setsockopt(6, 1, 1)' 2>/dev/null || :
}

# door_ncat_lives - whether the ncat that serves this client still does; where it does not, the client sends no more, or is gone. One that
# is killed closes its files, so that our input ends, a little before it is dead: then it is exiting, which its flags say (PF_EXITING, 4)
door_ncat_lives() {
  { read -r door_stat <"$FLATQ_PROC/$PPID/stat"; } 2>/dev/null || return 1
  case $door_stat in
  *'(ncat) '[!ZX]*) [ -n "${FLATQ_GUARD:-}" ] || return ;;
  *) return 1 ;;
  esac
  # shellcheck disable=SC2086 # the words are what is wanted
  set -- ${door_stat##*') '}
  [ $(($7 & 4)) -eq 0 ]
}

# door_delivered - 74 where the client cannot have had the answer. A write to a client that is wholly gone succeeds, and its socket is
# closed by what comes back; one that only sends no more is still there, and what it has received is not unsent any longer. A client may
# also have reset its connection behind the whole answer (door_taken)
door_delivered() {
  [ -n "$door_inode" ] && [ -z "$door_relayed" ] && ! door_ncat_lives || return 0
  door_looks=0
  while door_row; do
    [ "$door_unsent" != 00000000 ] || return 0
    # far away, or slow: the guard ends us when it takes nothing any more; without one, half a minute does
    [ -n "${FLATQ_GUARD:-}" ] || [ $door_looks -lt 80 ] || break
    door_looks=$((door_looks + 1)) door_pause=0.05
    [ $door_looks -lt 20 ] || door_pause=0.5
    sleep $door_pause 2>/dev/null || sleep 1
  done
  ! door_taken || return 0
  door_gone=gone why='the client is gone'
  return 74
}

# door_taken - whether the client's system acknowledged all that was written to a connection that is closed by now: TCP_INFO still has its
# counters (bytes acknowledged, not sent, sent, sent again). Without perl and python3, or before Linux 4.19, nobody knows
door_taken() {
  perl -e '$info = getsockopt(STDOUT, 6, 11); exit 1 if length $info < 216;
    ($acked, $unsent, $sent, $again) = unpack "x120 Q x16 L x52 Q Q", $info; exit !($unsent == 0 && $acked >= $sent - $again)' 2>/dev/null ||
    python3 -c 'import socket, struct
acked, unsent, sent, again = struct.unpack_from("=120xQ16xL52xQQ", socket.socket(fileno=1).getsockopt(6, 11, 256))
raise SystemExit(unsent > 0 or acked < sent - again)' 2>/dev/null
}

# door_hung - whether the client of a socket that is none of TCP's has sent its last byte, though not all of it is read: a look at what lies
# behind that (SO_PEEK_OFF, MSG_PEEK | MSG_DONTWAIT)
door_hung() {
  [ -S "$FLATQ_PROC/self/fd/0" ] || return 1
  perl -e 'setsockopt(STDIN, 1, 42, 0) or exit 1; do { $from = recv(STDIN, $bytes, 65536, 0x42) } while defined $from && length $bytes;
    setsockopt(STDIN, 1, 42, -1); exit !defined $from' 2>/dev/null ||
    python3 -c 'import select
look = select.poll()
look.register(0, select.POLLRDHUP)
raise SystemExit(not look.poll(0))' 2>/dev/null
}

# door_whole - 65 where the end of the input is none of the client's: it was reset, or ncat was killed, for which the connection is still
# open (01). Where the client's system has ended it in good order nobody can tell
door_whole() {
  [ -n "$door_inode" ] || return 0
  # ncat closes our input a little before it ends
  door_row && { [ "$door_state" != 01 ] || door_ncat_lives; } && return 0
  door_gone=gone why='the client was cut off'
  return 65
}

# door_body_end - nothing stands behind a body in the line door
door_body_end() {
  :
}

# door_row - sets door_state, door_unsent, door_local and door_remote of the client's socket; 1 where it is closed
door_row() {
  door_rows=0
  set --
  for door_table in "$FLATQ_PROC/net/tcp" "$FLATQ_PROC/net/tcp6"; do
    [ -e "$door_table" ] || continue
    set -- "$@" "$door_table"
    while read -r door_key door_local door_remote door_state door_unsent door_value door_value door_value door_value door_ino door_value; do
      [ "$door_ino" != "$door_inode" ] || { door_unsent=${door_unsent%:*}; return 0; }
      door_rows=$((door_rows + 1))
      # the shell reads byte by byte: from here on a process is quicker
      [ $door_rows -lt 50 ] || break
    done <"$door_table"
  done
  # where there is no table nothing is known
  [ $# -gt 0 ] || { door_local='' door_state=08 door_unsent=00000000; return 0; }
  # RACE: the shell does not read the table in one piece; what it has missed is looked for once more
  door_state=$(exec awk -v "inode=$door_inode" '$10 == inode { print $4 "." substr($5, 1, 8) "." $2 "." $3; exit }' "$@")
  door_remote=${door_state##*.} door_state=${door_state%.*}
  door_local=${door_state##*.} door_state=${door_state%.*}
  door_unsent=${door_state#*.} door_state=${door_state%.*}
  [ -n "$door_state" ]
}

# door_die CODE TEXT - what die does in a door. Once a message's own bytes are on their way nothing may follow them; only a client
# that asked for a last line (`@`) gets it
door_die() {
  door_said=1
  if [ -n "${door_mark:-}" ]; then
    printf '\n%serror %s %s\n' "$door_nonce" "$1" "$2"
  elif [ -z "${door_data:-}" ] && [ "${door_verb:-}.$1" != pop.66 ]; then
    printf 'error %s %s\n' "$1" "$2"
  fi 2>/dev/null
  exit "$1"
}

# door_end [CODE] - the trap at the end: the last line, the line of log, and the guard is told
door_end() {
  door_code=${1:-$?}
  trap - EXIT
  trap '' HUP INT TERM
  if [ -n "$door_mark" ] && [ -z "$door_said" ]; then
    if [ "$door_code" -eq 0 ]; then printf '\n%sok\n' "$door_nonce"; else printf '\n%serror 70 ended by itself\n' "$door_nonce"; fi 2>/dev/null
  fi
  case $door_code.$door_verb in
  0.-) door_outcome=nothing ;;
  0.*) door_outcome=ok ;;
  66.pop | 66.reserve) door_outcome=empty ;;
  *) door_outcome=error-$door_code ;;
  esac
  clock_read
  door_from=${door_began#"${door_began%%[!0]*}"} door_to=${now#"${now%%[!0]*}"}
  door_log "$door_verb" "${queue:--}" "${door_gone:-$door_outcome}" "${slip_size:--}" $(((${door_to:-0} - ${door_from:-0}) * 10))
  [ -z "${FLATQ_GUARD:-}" ] || { printf '\ne %s\n' "$$" >&3; } 2>/dev/null
}

# door_log VERB QUEUE OUTCOME BYTES MILLISECONDS - one line on stderr, with the time in front. Where it cannot be written nothing
# else changes
door_log() {
  clock_read
  : "${epoch:=${door_epoch:-}}"
  door_time=-
  [ -z "$epoch" ] || { clock_epoch "$now"; door_date "${epoch_time%??}" "${epoch_time#"${epoch_time%??}"}"; }
  printf '%s %s %s %s %s %s\n' "$door_time" "$@" >&2 2>/dev/null || :
}

# door_date SECONDS HUNDREDTHS - sets door_time: the date of a time since 1970, by the shell itself; years begin in March here
door_date() {
  set -- "${1#"${1%%[!0]*}"}" "$2"
  door_days=$(($1 / 86400 + 719468)) door_clock=$(($1 % 86400))
  door_era=$((door_days / 146097)) door_days=$((door_days % 146097))
  door_year=$(((door_days - door_days / 1460 + door_days / 36524 - door_days / 146096) / 365))
  door_days=$((door_days - 365 * door_year - door_year / 4 + door_year / 100))
  door_month=$(((5 * door_days + 2) / 153))
  door_days=$((door_days - (153 * door_month + 2) / 5 + 1)) door_year=$((door_era * 400 + door_year + door_month / 10))
  door_month=$(((door_month + 2) % 12 + 1))
  for door_value in $door_month $door_days $((door_clock / 3600)) $((door_clock / 60 % 60)) $((door_clock % 60)); do
    pad "$door_value" 00
    door_year=$door_year.$padded
  done
  IFS=.
  # shellcheck disable=SC2086 # the fields are what is wanted
  set -- $door_year "$2"
  IFS=' 	
'
  door_time=$1-$2-$3T$4:$5:$6.$7Z
}
