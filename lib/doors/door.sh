# doors/door.sh - functions of all doors: the client's connection, whether it received its answer, the line of log
#
# Descriptors of a handler: 0 from the client, 1 to it, 2 the log. Under ./launch also 3, the pipe to the guard (doors/guard.sh), and 5, the pipe
# to ncat. An ncat before 7.96 leaves the connection itself on 4, which door_open makes 1. lib/README.md lists what uses the others.
#
# An ncat before 7.96 ends as soon as the client has sent its last byte, and drops what the handler writes after that. A write to the
# connection itself arrives. The connection is non-blocking, so make it blocking before a large answer. Under TLS, never write past ncat.

need engine/clock

# shellcheck disable=SC2016 # perl's variables

# door_busy - the trap for the guard's USR1 (too many connections), until the first request
door_busy() {
  die 75 'busy: too many connections, try again later'
}

# door_turn - called while a verb waits (engine/wait.sh): stop waiting if the client is gone
door_turn() {
  ! door_client_gone || door_gone=gone take_stop=1
}

# door_client_gone - return 0 if we know that the client is gone: its connection was reset; or it was ended, and no process of this system holds its
# other end (for a client elsewhere that is unknown); or sshd has closed its pipe
door_client_gone() {
  [ -z "$door_pipe" ] || { door_unheard; return $?; }
  [ -z "$door_unix" ] || { door_unix_gone; return $?; }
  [ -n "$door_inode" ] || return 1
  door_local=
  # RACE: the table is not read in one piece, so a row may be missed: believe it only when it is missing twice
  door_row || { door_missed=$((door_missed + 1)); [ $door_missed -gt 1 ]; return $?; }
  door_missed=0
  [ "$door_state" = 08 ] && [ -n "$door_local" ] || return 1
  set --
  for door_table in "$FLATQ_PROC/net/tcp" "$FLATQ_PROC/net/tcp6"; do
    [ ! -e "$door_table" ] || set -- "$@" "$door_table"
  done
  # An IPv4 address may be in either table
  [ -n "$(exec awk -v "ours=$door_local" -v "theirs=$door_remote" '
    function short(address) { sub(/^0000000000000000FFFF0000/, "", address); return address }
    BEGIN { ours = short(ours); theirs = short(theirs) }
    $10 == 0 && short($2) == theirs && short($3) == ours { print "left"; exit }' "$@" </dev/null)" ]
}

# door_shell - end if yash runs this door. yash that cannot save its output for a redirection never redirects it back, and goes on (R12): it would settle
# a message that it has written into a file of the spool, the pipe to the guard or /dev/null
door_shell() {
  [ -z "$shell_yash" ] || die 70 'yash serves no door, since it may write answers elsewhere: use dash, busybox ash, mksh or bash'
}

# door_help WORD ... - with -h, print the help. A door ignores other words that it does not know: launch's are read by door_open
door_help() {
  case ${1:-} in
  -h | --help) need engine/usage; help ;;
  esac
}

# door_open [launch FLAGS EPOCH INSTANCE] - find the client; set door_inode to its socket if that is known to be TCP. launch passes FLAGS (o one
# connection at a time, d the connection itself may be written to, u it is a socket in the file system), EPOCH for the log and INSTANCE for
# beanstalk/tally.sh. They are arguments, since anybody may set a variable in the environment
door_open() {
  FLATQ_GUARD='' FLATQ_ONE='' FLATQ_DIRECT='' door_unix='' door_pipe='' take_stop='' door_missed=0 door_epoch=${3:-} door_of=${4:-0}
  if [ "${1:-}" = launch ]; then
    FLATQ_GUARD=1
    case ${2:-} in *o*) FLATQ_ONE=1 ;; esac
    case ${2:-} in *d*) FLATQ_DIRECT=1 ;; esac
    case ${2:-} in *u*) door_unix=1 ;; esac
  fi
  # Under -m, tell a client that there are too many, and end
  trap door_busy USR1
  # Ignore SIGPIPE: when the client is gone, a write fails, and the handler lives to give the message back
  trap '' PIPE
  door_inode='' door_blocks=1 door_data='' door_said='' door_gone='' door_relayed='' door_prompt='' door_done='' door_mark='' door_nonce='' door_verb=- \
    door_lead=''
  door_shell
  # Register with the guard or refuse the connection: the guard can only time out connections it knows
  clock_read
  door_began=$now
  [ -z "$FLATQ_GUARD" ] || { owner_read; printf '\nc %s %s %s\n' "$$" "$PPID" "${owner#*-}" >&3; } 2>/dev/null || exit 75
  trap door_end EXIT
  trap 'reading=" "; die 75 "the door ended the connection: it was idle or slow, there were too many, or the door is closing"' HUP INT TERM
  if [ -n "$FLATQ_GUARD" ] && twice test -S "$FLATQ_PROC/self/fd/4"; then
    door_socket 4
    # Under TLS, write through ncat
    if [ -z "$FLATQ_DIRECT" ]; then door_blocks=1 door_relayed=1; else door_direct || exit 75; fi
  elif twice test -S "$FLATQ_PROC/self/fd/1"; then
    door_socket 1
  elif [ -z "$FLATQ_GUARD" ] && [ -p "$FLATQ_PROC/self/fd/1" ]; then
    door_pipe=1
  fi
  close_descriptor 4
  # inetd connects descriptor 2 to the client too
  [ -n "$FLATQ_GUARD" ] || ! twice test "$FLATQ_PROC/self/fd/2" -ef "$FLATQ_PROC/self/fd/0" || exec 2>/dev/null
}

# door_direct - write to the client's socket. In a function of its own, since mksh leaves the function whose redirection fails (R12): a pop would be
# settled whose message still waits in ncat's pipe
door_direct() {
  exec >&4
}

# door_socket DESCRIPTOR - set door_inode and door_blocks for a socket
door_socket() {
  twice door_flags "$1" || :
  # Before Linux 5.14, the inode is not listed there
  [ -n "$door_inode" ] || { door_inode=$(readlink "$FLATQ_PROC/$$/fd/$1") && door_inode=${door_inode#*'['} door_inode=${door_inode%']'}; }
  # Only a TCP socket has a row in the tables that door_row reads. Under launch it is one, unless it is in the file system
  [ -z "$door_unix" ] || door_inode=
  [ -n "$FLATQ_GUARD" ] || twice door_row || door_inode=
}

# door_flags DESCRIPTOR - read door_inode and door_blocks. In a function of its own: mksh leaves the one whose redirection fails (R12)
door_flags() {
  while read -r door_key door_value; do
    # O_NONBLOCK is 04000 in the octal flags
    case $door_key$door_value in
    flags:*[4567]???) door_blocks= ;;
    ino:*) door_inode=$door_value ;;
    esac
  done 2>/dev/null <"$FLATQ_PROC/self/fdinfo/$1"
}

# door_reply SIZE - called before the bytes of a message are written; an unknown SIZE is `large`
door_reply() {
  door_blocking "$1" || return $?
  door_data=1
}

# door_ask PERL PYTHON [ARGUMENT] - ask the script PERL, or if it fails PYTHON, about the connection, its standard input; return 0 for yes, 1 for no,
# else unknown. It cannot write to the client. Callers whose connection is on 1 use `0>&1`
door_ask() {
  perl -e "$1" ${3+"$3"} >/dev/null 2>&1
  ask_code=$?
  [ $ask_code -gt 1 ] || return $ask_code
  python3 -c "$2" ${3+"$3"} >/dev/null 2>&1
}

# door_blocking SIZE - called before an answer of SIZE bytes is written. It acts where SIZE has five characters or more: from
# 10000 bytes on, and on `large`. Return 75 if the answer might be cut
door_blocking() {
  [ -z "$door_blocks" ] && [ ${#1} -gt 4 ] || return 0
  door_ask 'use Fcntl; exit !fcntl(STDIN, F_SETFL, fcntl(STDIN, F_GETFL, 0) & ~O_NONBLOCK)' 'import os; os.set_blocking(0, True)' 0>&1 &&
    { door_blocks=1; return 0; }
  # Write through ncat, which must still live
  why='a large answer to a client that sends no more needs perl or python3 here'
  door_ncat_lives || return 75
  door_relay || { why='the shell could not redirect'; return 75; }
  door_blocks=1 door_inode=
}

# door_relay - write through ncat. In a function of its own, as door_direct
door_relay() {
  exec >&5
}

# door_nodelay - set TCP_NODELAY, once, before an answer in pieces that follows another: TCP would hold back the second piece for 40 ms
door_nodelay() {
  [ -n "$door_inode" ] && [ -z "$door_relayed$door_prompt" ] || return 0
  door_prompt=1
  door_ask 'exit !setsockopt(STDIN, 6, 1, 1)' 'import socket; socket.socket(fileno=0).setsockopt(6, 1, 1)' 0>&1 || :
}

# door_ncat_lives - return whether the ncat that serves this client lives. A killed ncat ends our input a little before it is dead: its flags then say
# that it is exiting (PF_EXITING, 4). Another ncat may get its PID, but then the handler has another parent
door_ncat_lives() {
  twice door_ncat_look
}

# door_ncat_look - as door_ncat_lives, but 1 is no proof: an open can fail (EMFILE) and look like a dead process
door_ncat_look() {
  { read -r door_stat <"$FLATQ_PROC/$PPID/stat"; } 2>/dev/null || return 1
  case $door_stat in
  *'(ncat) '[!ZX]*) [ -n "$FLATQ_GUARD" ] || return 1 ;;
  *) return 1 ;;
  esac
  # shellcheck disable=SC2086 # the words are what is wanted
  set -- ${door_stat##*') '}
  [ $(($7 & 4)) -eq 0 ] || return 1
  # RACE: look at the parent last, since ncat may end between the two looks
  { read -r door_stat <"$FLATQ_PROC/$$/stat"; } 2>/dev/null || return 1
  case ${door_stat##*') '} in
  ?" $PPID "*) return 0 ;;
  esac
  return 1
}

# door_delivered - return 0 once the client's system has acknowledged the whole answer, 74 if it cannot have received it. A write to a client that is
# gone succeeds, so look at the socket's unsent bytes and, once it is closed, at door_acknowledged. What ncat passes on (TLS, ncat from 7.96 on) is
# not seen
door_delivered() {
  [ -n "$door_inode" ] && [ -z "$door_relayed" ] || return 0
  door_looks=0
  # RACE: see door_client_gone
  while twice door_row; do
    [ "$door_unsent" != 00000000 ] || return 0
    # The client is slow or far away. The guard ends us if it reads nothing more; without a guard, wait half a minute
    [ -n "$FLATQ_GUARD" ] || [ $door_looks -lt 80 ] || break
    door_looks=$((door_looks + 1)) door_pause=0.05
    [ $door_looks -lt 20 ] || door_pause=0.5
    sleep $door_pause 2>/dev/null || sleep 1
  done
  ! door_acknowledged || return 0
  door_gone=gone why='the client is gone'
  return 74
}

# door_acknowledged - as door_delivered, for a connection that is closed: TCP_INFO still has its counters (bytes acknowledged, not sent, sent, sent
# again). Without perl and python3, or before Linux 4.19, that is unknown
door_acknowledged() {
  door_ask '$info = getsockopt(STDIN, 6, 11); exit 2 if length $info < 216;
    ($acked, $unsent, $sent, $again) = unpack "x120 Q x16 L x52 Q Q", $info; exit !($unsent == 0 && $acked >= $sent - $again)' 'import socket, struct
acked, unsent, sent, again = struct.unpack_from("=120xQ16xL52xQQ", socket.socket(fileno=0).getsockopt(6, 11, 256))
raise SystemExit(unsent > 0 or acked < sent - again)' 0>&1
}

# door_half_closed - return whether the client of a socket that is not TCP has sent its last byte, read or not (SO_PEEK_OFF, MSG_PEEK | MSG_DONTWAIT)
door_half_closed() {
  [ -S "$FLATQ_PROC/self/fd/0" ] || return 1
  door_ask 'setsockopt(STDIN, 1, 42, 0) or exit 2; do { $from = recv(STDIN, $bytes, 65536, 0x42) } while defined $from && length $bytes;
    setsockopt(STDIN, 1, 42, -1); exit !defined $from' 'import select
look = select.poll()
look.register(0, select.POLLRDHUP)
raise SystemExit(not look.poll(0))'
}

# door_waits SECONDS - tell the guard that the client may be silent for so long. One that keeps all others out may not
door_waits() {
  [ -z "$FLATQ_ONE" ] || set -- 0
  door_tell "$1" "$door_verb"
}

# door_tell SECONDS VERB - tell the guard that we have read our line, and how long the client may be silent. If it did not get this, it would take a message
# of a megabyte for a line that is too long, and write that into our answer, or end a client that waits as idle: so a caller that has not done anything yet
# ends with 74
door_tell() {
  [ -z "$FLATQ_GUARD" ] || printf '\nl %s %s %s\n' "$$" "$1" "$2" >&3
}

# door_unix_gone - return whether the client of a socket in the file system is gone: then even to send nothing fails
door_unix_gone() {
  door_ask 'open OUT, ">&=0"; exit !(!defined send(OUT, "", 0x4000) && $!{EPIPE})' 'import socket
try: socket.socket(fileno=0).send(b"")
except BrokenPipeError: raise SystemExit(0)
raise SystemExit(1)' 0>&1
}

# door_unheard - return whether nobody reads the pipe that is our output: select and poll report its writing end as readable only then
door_unheard() {
  door_ask 'vec($ends, 0, 1) = 1; exit !(select($ends, undef, undef, 0) > 0)' 'import select
look = select.poll()
look.register(0, 0)
raise SystemExit(not look.poll(0))' 0>&1
}

# door_unix_ended - return whether a socket that is not TCP has ended, and all that the client sent was read
door_unix_ended() {
  door_ask 'exit !(defined recv(STDIN, $byte, 1, 0x42) && !length $byte)' \
    'import socket; raise SystemExit(socket.socket(fileno=0).recv(1, 0x42) != b"")'
}

# door_whole SIZE - called once the input has ended: return 65 if the client did not end it, whose body has SIZE bytes (empty: unknown): the
# connection was reset or is still open (01), or ncat was killed before it had passed all on. If the client was cut off and its system closed the
# connection in good order, return 0
door_whole() {
  why='the client was cut off'
  # ncat closes our input a little before it ends itself
  if [ -n "$door_unix" ]; then
    door_ncat_lives || door_unix_ended 0>&1
  elif [ -n "$door_inode" ]; then
    # The end of the connection counts as one unread byte
    door_row && { door_ncat_lives || case $door_state.$door_unread in 01.*) false ;; *.0000000[01]) door_ncat_passed "$1" ;; *) false ;; esac; }
  fi && return 0
  door_gone=gone
  return 65
}

# door_ncat_passed SIZE - return whether ncat, which is gone, had passed on all that it read: a killed one may have had bytes in its memory. TCP_INFO
# counts what the client sent, and its end as one byte. The first 4096 bytes fit into the pipe, so they are not worth a process
door_ncat_passed() {
  [ -n "$FLATQ_GUARD" ] && [ -n "$door_lead" ] && [ -n "$1" ] && [ -z "$door_relayed" ] || return 0
  # Of a message over the limit, not all is read
  [ -z "${FLATQ_MOST_BYTES:-}" ] || [ "$1" -le "$FLATQ_MOST_BYTES" ] || return 0
  set -- $((door_lead + $1))
  [ "$1" -gt 4096 ] || return 0
  why='perhaps not all of the message came: state its length (push -n), or see that perl or python3 is here'
  door_ask '$info = getsockopt(STDIN, 6, 11); exit 2 if length $info < 136; exit !(unpack("x128 Q", $info) == $ARGV[0] + 1)' 'import socket, struct, sys
received, = struct.unpack_from("=128xQ", socket.socket(fileno=0).getsockopt(6, 11, 256))
raise SystemExit(received != int(sys.argv[1]) + 1)' "$1" 0>&1
}

# door_body_end - in the line door, nothing follows a body
door_body_end() {
  :
}

# door_row - set door_state, door_unsent, door_unread, door_local and door_remote for the client's socket; return 1 if it is closed
door_row() {
  door_rows=0
  set --
  for door_table in "$FLATQ_PROC/net/tcp" "$FLATQ_PROC/net/tcp6"; do
    twice test -e "$door_table" || continue
    set -- "$@" "$door_table"
    while read -r door_key door_local door_remote door_state door_unsent door_value door_value door_value door_value door_ino door_value; do
      [ "$door_ino" != "$door_inode" ] || { door_unread=${door_unsent#*:} door_unsent=${door_unsent%:*}; return 0; }
      door_rows=$((door_rows + 1))
      # The shell reads byte by byte: from here on a process is faster
      [ $door_rows -lt 50 ] || break
    done <"$door_table"
  done
  # Without a table nothing is known
  [ $# -gt 0 ] || { door_local='' door_state=08 door_unsent=00000000 door_unread=00000000; return 0; }
  # RACE: nobody reads the table in one piece, so the shell may have missed a row, and awk too: look again, twice. An awk that was killed has seen
  # nothing (R1)
  for door_try in 1 2; do
    door_state=$(exec awk -v "inode=$door_inode" '$10 == inode { print $4 "." $5 "." $2 "." $3; exit }' "$@")
    [ -z "$door_state" ] || break
  done
  door_remote=${door_state##*.} door_state=${door_state%.*}
  door_local=${door_state##*.} door_state=${door_state%.*}
  door_unsent=${door_state#*.} door_state=${door_state%.*}
  door_unread=${door_unsent#*:} door_unsent=${door_unsent%:*}
  [ -n "$door_state" ]
}

# door_die CODE TEXT - die, in a door. No error line may follow bytes of a message, unless the client asked for a last line (`@`)
door_die() {
  door_said=1
  door_quietly door_error "$1" "$2"
  exit "$1"
}

door_error() {
  door_ran=1
  if [ -n "${door_mark:-}" ]; then
    printf '\n%serror %s %s\n' "$door_nonce" "$1" "$2"
  elif [ -z "${door_data:-}" ] && [ "${door_verb:-}.$1" != pop.66 ]; then
    printf 'error %s %s\n' "$1" "$2"
  fi
}

# door_quietly FUNCTION WORD ... - run it without the errors of the shell; or with them, if standard error cannot be redirected (R12). It sets door_ran
door_quietly() {
  door_ran=
  door_without_errors "$@"
  [ -n "$door_ran" ] || "$@"
}

door_without_errors() {
  "$@" 2>/dev/null
}

# door_last - write the last line. If a shell cannot start a process, or gets a signal once its work is done, it may end without door_die: so tell the
# client that nothing is known. Other doors have a door_last of their own
door_last() {
  door_ran=1
  door_unknown='error 74 ended without an answer: it may be done, or not'
  case $door_mark.$door_said.$door_code in
  1..0) printf '\n%sok\n' "$door_nonce" ;;
  1..*) printf '\n%s%s\n' "$door_nonce" "$door_unknown" ;;
  ..0) ;;
  ..*) [ -n "$door_data" ] || printf '%s\n' "$door_unknown" ;;
  esac
}

# door_end [CODE] - the trap at the end: write the last line and the line of log, and tell the guard
door_end() {
  door_code=${1:-$?}
  trap - EXIT
  trap '' HUP INT TERM
  # If a signal ends bash, it runs this trap too, with the status of its last command. So 0 without door_done means that the verb has not finished, and
  # there is no `ok`. Before there is a verb (-), 0 is right
  [ $# -gt 0 ] || [ "$door_code.$door_done" != 0. ] || [ "$door_verb" = - ] || door_code=143
  door_quietly door_last
  case $door_code.$door_verb in
  0.-) door_outcome=nothing ;;
  0.*) door_outcome=ok ;;
  66.pop | 66.reserve) door_outcome=empty ;;
  *) door_outcome=error-$door_code ;;
  esac
  clock_read
  clock_between "$door_began" "$now"
  door_log "$door_verb" "${queue:--}" "${door_gone:-$door_outcome}" "${slip_size:--}" $((between_s * 1000 + between_c * 10))
  [ -z "$FLATQ_GUARD" ] || { printf '\ne %s\n' "$$" >&3; } 2>/dev/null
}

# door_log VERB QUEUE OUTCOME BYTES MILLISECONDS - write one line to stderr, with the time in front. If it cannot be written, go on
door_log() {
  clock_read
  : "${epoch:=${door_epoch:-}}"
  door_time=-
  [ -z "$epoch" ] || { clock_epoch "$now"; door_date "$epoch_time"; }
  printf '%s %s %s %s %s %s\n' "$door_time" "$@" >&2 2>/dev/null || :
}

# door_date TIME - set door_time to the date of a time since 1970, computed by the shell; years begin in March here
door_date() {
  clock_split "$1"
  door_days=$((clock_s / 86400 + 719468)) door_clock=$((clock_s % 86400))
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
  set -- $door_year "$clock_c"
  IFS=$blanks
  door_time=$1-$2-$3T$4:$5:$6.$7Z
}

part='doors/door'
