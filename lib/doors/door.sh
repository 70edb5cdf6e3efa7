# doors/door.sh - the client's connection, whether it received its answer, the line of log
#
# Each door has its own door_die, door_stopped and door_last: how it answers an error, a signal, and
# the end.
#
# Descriptors of a handler, after door_open: 0 from the client, 1 to it, 2 /dev/null, 5 the log;
# under serve also 3, the pipe to the guard (doors/guard.sh), and 4, the pipe to ncat.
#
# An ncat before 7.96 drops what the handler writes after the client has sent its last byte. But it
# leaves the connection itself, non-blocking, on 4: door_open makes that 1, except under TLS.

# shellcheck disable=SC2016 # perl's variables
need engine/clock

# door_help WORD ... - with -h, print the help. A door ignores other words
door_help() {
  case ${1:-} in
  -h | --help) need cli/usage; help ;;
  esac
}

# door_open [serve FLAGS EPOCH INSTANCE] - find the client, and set the traps; or exit with 74.
# FLAGS: o one connection at a time, d 4 may be written to, u it is a socket in the file system
door_open() {
  FLATQ_GUARD='' FLATQ_ONE='' door_unix='' door_pipe='' \
    epoch=${3:-} door_of=${4:-0} door_inode='' door_blocks=1 door_data='' \
    door_gone='' door_relayed='' door_prompt='' door_verb=-
  trap door_stopped HUP INT TERM
  # We live to give the message back
  trap '' PIPE
  clock_read
  door_began=$now
  if [ "${1:-}" = serve ]; then
    FLATQ_GUARD=1 door_past=
    case $2 in *o*) FLATQ_ONE=1 ;; esac
    case $2 in *u*) door_unix=1 ;; esac
    exec 2>/dev/null
    [ ! -S /proc/self/fd/4 ] || { door_socket "$$" 4; door_past=$2; }
    case $door_past in
    *d*) exec 6>&1 1>&4 4>&6 6>&- ;;
    *) exec 4>&1; door_blocks=1 door_relayed=1 ;;
    esac
    # The guard can only end connections that it knows
    printf '\nc %s %s %s\n' "$$" "$PPID" "$now" >&3 || exit 74
  else
    # inetd connects descriptor 2 to the client too
    # shellcheck disable=SC3013 # -ef is in every shell that is named in the README
    if [ /proc/self/fd/2 -ef /proc/self/fd/0 ]; then exec 5>/dev/null; else exec 5>&2; fi
    exec 2>/dev/null 3>/dev/null
    if [ -S /proc/self/fd/1 ]; then
      door_socket "$$" 1
      door_row || door_inode=
    elif [ -p /proc/self/fd/1 ]; then
      door_pipe=1
    fi
  fi
  trap door_end EXIT
}

# door_limit - a connection may use 128 MiB: so a line without an end cannot fill the memory
door_limit() {
  # shellcheck disable=SC3045 # dash, busybox ash and bash have it
  ulimit -d 131072 || :
}

# door_socket PID DESCRIPTOR - set door_inode, if it is a TCP socket, and door_blocks
door_socket() {
  door_inode='' door_blocks=1
  while read -r door_key door_value; do
    case $door_key$door_value in
    # O_NONBLOCK is 04000 in the octal flags
    flags:*[4567]???) door_blocks= ;;
    ino:*) door_inode=$door_value ;;
    esac
  done <"/proc/$1/fdinfo/$2"
  # Before Linux 5.14
  [ -n "$door_inode" ] || {
    door_inode=$(readlink "/proc/$1/fd/$2")
    door_inode=${door_inode#*'['} door_inode=${door_inode%']'}
  }
  [ -z "$door_unix" ] || door_inode=
}

# door_row - set door_state, door_unsent, and door_left to 1 if no process here holds its other end,
# for the client's TCP socket; return 1 if it is closed
door_row() {
  set -- "$FLATQ_PROC/net/tcp"
  # An IPv4 address may be in either table
  [ ! -e "${1}6" ] || set -- "$1" "${1}6"
  # RACE: a table is not read in one piece: a row may be missed. Or awk is killed (R1)
  for door_try in 1 2; do
    door_found=$(exec awk -v "inode=$door_inode" '
      function short(address) { sub(/^0000000000000000FFFF0000/, "", address); return address }
      $10 == 0 { left[short($2), short($3)] }
      $10 == inode { ours = short($2); theirs = short($3); state = $4; unsent = $5 }
      END { if (state) print state, unsent, ((theirs, ours) in left) }' "$@")
    [ -z "$door_found" ] || break
  done
  # shellcheck disable=SC2086 # words
  set -- $door_found
  [ $# -eq 3 ] || return 1
  door_state=$1 door_unsent=${2%:*} door_left=$3
}

# door_ask PERL - ask the script about the connection, its standard input; return 0 for yes, 1 for
# no, else unknown
door_ask() {
  perl -e "$1" 0>&1 >/dev/null
}

# door_turn - called while a verb waits: stop that if the client is gone
door_turn() {
  ! door_client_gone || door_gone=gone take_stop=1
}

# door_client_gone - return 0 if we know that the client is gone: its connection was reset, or ended
# without a process here that holds its other end; or sshd has closed its pipe
door_client_gone() {
  if [ -n "$door_pipe$door_unix" ]; then
    # Sending nothing fails on a socket whose client is gone, and on a pipe. Then select reports
    # the socket as readable, and the writing end of a pipe if nobody reads it
    door_ask 'open OUT, ">&=0"; exit 1 if defined send(OUT, "", 0x4000);
      vec($ends, 0, 1) = 1; exit !(select($ends, undef, undef, 0) > 0)'
    return
  fi
  [ -n "$door_inode" ] || return 1
  door_row || return 0
  [ "$door_state$door_left" = 081 ]
}

door_ncat_lives() {
  read -r door_key <"/proc/$PPID/comm" && [ "$door_key" = ncat ]
}

# door_reply SIZE - called before the bytes of a message are written; an unknown SIZE is `large`
door_reply() {
  door_blocking "$1" || return
  door_data=1
}

# door_blocking SIZE - called before an answer of SIZE bytes: from 10000 on, and for `large`, make
# writes block; return 75 if it might be cut
door_blocking() {
  [ -z "$door_blocks" ] && [ ${#1} -gt 4 ] || return 0
  if ! door_ask 'use Fcntl; exit !fcntl(STDIN, F_SETFL, fcntl(STDIN, F_GETFL, 0) & ~O_NONBLOCK)'
  then
    why='a large answer to a client that sends no more needs perl here'
    # Write through ncat, which must still live
    door_ncat_lives && exec >&4 || return 75
    door_inode=
  fi
  door_blocks=1
}

# door_nodelay - called before an answer in pieces: TCP would hold back the second for 40 ms
door_nodelay() {
  [ -n "$door_inode" ] && [ -z "$door_relayed$door_prompt" ] || return 0
  door_prompt=1
  door_ask 'exit !setsockopt(STDIN, 6, 1, 1)' || :
}

# door_delivered - return 0 once the client's system has acknowledged the whole answer, or ncat has
# it; 74 if the client cannot have received it. TCP_INFO stays when the connection is closed
door_delivered() {
  [ -n "$door_inode" ] && [ -z "$door_relayed" ] || return 0
  # Half a minute, or until the guard ends us
  door_ask 'for (1..'"${FLATQ_GUARD:+999999}"'600) {
      $info = getsockopt(STDIN, 6, 11); exit 2 if length $info < 216;
      ($state, $acked, $unsent, $sent, $again) = unpack "C x119 Q x16 L x52 Q Q", $info;
      exit 0 if $unsent == 0 && $acked >= $sent - $again;
      exit 1 if $state == 7;
      select undef, undef, undef, 0.05;
    } exit 1'
  door_code=$?
  [ $door_code -ne 0 ] || return 0
  # Without perl, or before Linux 4.19, the table says it as long as it has the row
  while [ $door_code -gt 1 ] && door_row; do
    [ "$door_unsent" != 00000000 ] || return 0
    sleep 0.05
  done
  door_gone=gone why='the client is gone'
  return 74
}

# door_waits SECONDS [VERB] - tell the guard that the request is read, and how long the client may
# be silent (doors/guard.sh). If that fails, a caller that has not done anything yet ends with 74
door_waits() {
  # It keeps out all others
  [ -z "$FLATQ_ONE" ] || set -- 0
  printf '\nl %s %s %s\n' "$$" "$1" "${2:-$door_verb}" >&3
}

# door_whole - the input has ended: return 65 if we see that the client did not end it
door_whole() {
  [ -n "$door_inode" ] || return 0
  if door_row && { [ -n "$door_relayed" ] || [ "$door_state" = 08 ]; }; then return 0; fi
  door_gone=gone why='the client was cut off'
  return 65
}

# door_end - the trap at the end: write the last line and the line of log, and tell the guard
door_end() {
  door_code=$?
  trap - EXIT
  trap '' HUP INT TERM
  door_last
  case $door_code.$door_verb in
  0.-) door_outcome=nothing ;;
  0.*) door_outcome=ok ;;
  66.pop | 66.reserve) door_outcome=empty ;;
  *) door_outcome=error-$door_code ;;
  esac
  # Other verbs look at slips too
  case $door_verb in
  push | pop | reserve | peek | GET | POST) ;;
  *) slip_size= ;;
  esac
  [ -z "$door_verb" ] || door_log "$door_verb" "${queue:--}" "${door_gone:-$door_outcome}" \
    "${slip_size:--}" "$door_began"
  printf '\ne %s\n' "$$" >&3
}

# door_log VERB QUEUE OUTCOME BYTES BEGAN - write a line of log
door_log() {
  clock_read
  door_time=-
  [ -z "$epoch" ] || { clock_epoch "$now"; door_date "$epoch_time"; }
  clock_between "$5" "$now"
  printf '%s %s %s %s %s %s\n' "$door_time" "$1" "$2" "$3" "$4" \
    $((between_s * 1000 + between_c * 10)) >&5 || :
}

# door_date TIME - set door_time to the date of a time since 1970, up to 2100, from the days since
# 1 March 1968. With 100 added, a field has two digits behind the 1
door_date() {
  clock_split "$1"
  door_days=$((clock_s / 86400 + 671))
  door_year=$(((4 * door_days + 3) / 1461))
  door_days=$((door_days - 1461 * door_year / 4))
  door_month=$(((5 * door_days + 2) / 153))
  set -- $((door_days - (153 * door_month + 2) / 5 + 101)) $((clock_s / 3600 % 24 + 100)) \
    $((clock_s / 60 % 60 + 100)) $((clock_s % 60 + 100))
  door_year=$((1968 + door_year + door_month / 10))
  door_month=$((door_month + 103 - 12 * (door_month / 10)))
  door_time=$door_year-${door_month#1}-${1#1}T${2#1}:${3#1}:${4#1}.${clock_c}Z
}
