# doors/guard.sh - the process beside launch that knows every connection: it ends idle ones, runs the checkpoint, and ends everything when launch
# is gone
#
# It reads lines from a pipe whose writing end launch, its ncat (as standard error) and every handler hold:
#   n PID STARTED        a new ncat, the first of a process group of its own
#   s PID STARTED        the process that tells the guard each second
#   c PID NCAT STARTED   a connection: its handler, and the ncat that serves it
#   l PID SECONDS VERB   the handler has read its line; the verb may wait this long
#   r PID STATUS         http: the handler begins to read a request line (STATUS 414) or header fields (431); if these get too long, answer STATUS
#   e PID                the handler has ended, and has written its line of log
#   k                    run a checkpoint
#   w SECOND             the checkpoint that began then has ended
#   t                    a second has passed
#   q                    end everything, then the guard itself
# and the messages of ncat. STARTED is when the PID started, as the system says (`-`: unknown): when the guard reads the line, the PID may already be
# another process's. ncat writes a line in two pieces, so each of ours begins with a newline.
#
# guard_list has an entry for each connection, and in it these fields, with commas between them; guard_take reads one into the variables
# guard_pid, guard_server and so on, and guard_put writes it back. Times are in seconds since the start.
#   pid      the handler
#   server   the ncat that serves it
#   began    when it began
#   state    line (not read yet; for http 414, then 431), verb, gone (seen dead once; its `e` may still be in the pipe), or the reason why it
#            was ended
#   verb     that of its line
#   quiet    when `mark` last changed, or until when the verb may wait
#   mark     how many bytes its processes have read and written
#   slow     when `coarse` last changed
#   coarse   as `mark`, without the last four digits
#   unsent   the bytes that waited for the client at the last look: a slow client reads from these for long before the handler can write more.
#            `long`: at the last look, the line that the handler reads was too long
#   from     the bytes that the handler had read before its line
#   started  when the handler started, as the system says: a process that has its PID and another time is not ours, and must not be signalled
#
# guard_groups has PID-STARTED of the first process of each group.

need engine/process doors/door doors/guard-look

# guard - read lines until `q`, or until launch is gone
guard() {
  # A terminal sends its signals to us too: ignore them, launch tells us when to end
  trap '' HUP INT TERM PIPE USR1
  set -f
  # CRASH: if launch is killed before anybody tells the seconds, our input has to end, so nobody else may hold its writing end: not we either
  [ ! -e "$FLATQ_PROC/self/fd/0" ] || close_descriptor 6
  guard_list=' ' guard_now=0 guard_groups='' guard_due='' guard_wal='' guard_wal_began='' guard_code=69 guard_told='' guard_group='' guard_text='' guard_denied='' guard_clock='' guard_last=000000000000
  while IFS= read -r guard_line; do
    # bash writes our newline by itself, so the beginning of a line from ncat may precede one of ours
    case $guard_line in
    *'Ncat: '[celnrsw]' '[0-9]* | *'Ncat: '[kqt]) guard_line=${guard_line##*Ncat: } ;;
    esac
    # shellcheck disable=SC2086 # words
    case $guard_line in
    '') ;;
    t) guard_second || break ;;
    'n '*)
      set -- ${guard_line#n }
      guard_group=$1
      guard_start_time "$@"
      guard_group_started=$guard_started guard_groups="$guard_groups $guard_group-$guard_started"
      [ -z "$guard_denied" ] || guard_ncat_waits ;;
    's '*)
      set -- ${guard_line#s }
      guard_clock=$1
      guard_start_time "$@"
      guard_clock_started=$guard_started
      guard_open ;;
    'c '*)
      guard_begins ${guard_line#c }
      # If nobody tells the time, no idle connection is ended, and each keeps its place: end launch
      [ -z "$guard_clock" ] || ! guard_gone "$guard_clock" "$guard_clock_started" || ! guard_parent "$$" || kill -TERM "$$" ;;
    'l '*)
      set -- ${guard_line#l }
      ! guard_take "$1" || {
        guard_state=verb guard_verb=$3 guard_unsent=00000000 guard_quiet=$((guard_now + $2)) guard_slow=$((guard_now + $2))
        guard_put
      } ;;
    'r '*)
      set -- ${guard_line#r }
      ! guard_take "$1" || {
        guard_state=$2 guard_unsent=00000000 guard_quiet=$guard_now guard_slow=$guard_now
        { read -r guard_line guard_from <"$FLATQ_PROC/$1/io"; } 2>/dev/null || guard_from=0
        guard_put
      } ;;
    'e '*) guard_take "${guard_line#e }"; guard_due=1 ;;
    k) guard_due=1 ;;
    'w '*) [ "${guard_line#w }" != "$guard_wal_began" ] || guard_checkpoint_ended ;;
    q) break ;;
    *) guard_ncat_says "${guard_line##*Ncat: }" ;;
    esac
  done
  guard_end
  exit $guard_code
}

# guard_open - open our writing end again, on 6. If that fails, go on: the checkpoint's `w` is not needed, and guard_end does without its `z`
guard_open() {
  { true >&6; } 2>/dev/null || { command exec 6>"$FLATQ_PROC/self/fd/0"; } 2>/dev/null || :
}

# guard_begins PID NCAT [STARTED] - add a connection, or refuse it if there are more than launch -m: ncat does not count clients that send no more
guard_begins() {
  # The PID may be that of an earlier handler which was killed
  ! guard_take "$1" || guard_log killed
  guard_pid=$1 guard_server=$2 guard_began=$guard_now guard_state=line guard_verb=- guard_quiet=$guard_now guard_slow=$guard_now \
    guard_mark='' guard_coarse='' guard_unsent=00000000 guard_from=0
  guard_start_time "$1" "${3:--}"
  [ "$launch_door" != http ] || guard_state=414
  # shellcheck disable=SC2086
  set -- $guard_list
  # USR1 makes the handler tell its client; the next look kills it if it is still there
  [ $# -lt "$launch_most" ] || { guard_state=too-many; ! guard_lives "$guard_pid" "$guard_started" || process_signal USR1 "$guard_pid"; }
  guard_put
}

# guard_start_time PID [STARTED] - set guard_started to STARTED, else to what the system says; `-` if PID is gone already
guard_start_time() {
  started=${2:--}
  [ "$started" != - ] || twice process_started "$1"
  guard_started=$started
}

# guard_put - add the connection in the variables to the list
guard_put() {
  guard_list="$guard_list$guard_pid,$guard_server,$guard_began,$guard_state,$guard_verb,$guard_quiet,$guard_mark,$guard_slow"
  guard_list="$guard_list,$guard_coarse,$guard_unsent,$guard_from,$guard_started "
}

# guard_fields ENTRY - set the variables to the fields of an entry
guard_fields() {
  IFS=,
  # shellcheck disable=SC2086
  set -- $1
  IFS=$blanks
  guard_pid=$1 guard_server=$2 guard_began=$3 guard_state=$4 guard_verb=$5 guard_quiet=$6 guard_mark=$7 guard_slow=$8 guard_coarse=$9
  guard_unsent=${10} guard_from=${11} guard_started=${12}
}

# guard_take PID - take the connection out of the list, into the variables; return 1 if it is not there
guard_take() {
  case $guard_list in
  " $1,"*)
    guard_rest=${guard_list#" $1,"}
    guard_fields "$1,${guard_rest%% *}"
    guard_list=" ${guard_rest#* }" ;;
  *" $1,"*)
    # The time of `${list#*" $1,"}` grows by the square of the list's length: a second for 400 connections
    guard_rest=${guard_list%%" $1,"*} guard_wanted=$1
    # shellcheck disable=SC2086 # entries
    set -- $guard_list
    while [ "${1%%,*}" != "$guard_wanted" ]; do shift; done
    guard_fields "$1"
    shift
    guard_list="$guard_rest $*${1:+ }" ;;
  *) return 1 ;;
  esac
}

# guard_family - set guard_children to the handler's children, and guard_ncat to its parent if that is still an ncat
guard_family() {
  guard_children='' guard_ncat=
  { read -r guard_children <"$FLATQ_PROC/$guard_pid/task/$guard_pid/children"; } 2>/dev/null
  { read -r guard_stat <"$FLATQ_PROC/$guard_pid/stat"; } 2>/dev/null || return 0
  guard_stat=${guard_stat##*') '}
  guard_stat=${guard_stat#* }
  guard_ncat=${guard_stat%% *}
  guard_is_ncat || guard_ncat=
}

# guard_is_ncat - return whether the process guard_ncat is an ncat
guard_is_ncat() {
  { read -r guard_stat <"$FLATQ_PROC/$guard_ncat/comm"; } 2>/dev/null && [ "$guard_stat" = ncat ]
}

# guard_kill WHY - end the connection; a second later, kill what is left of it
guard_kill() {
  guard_state=$1
  guard_send TERM
}

# guard_send SIGNAL - signal the handler before ncat: if its input ended first, a push would take that for the end of the message
guard_send() {
  guard_lives "$guard_pid" "$guard_started" || return 0
  guard_family
  # shellcheck disable=SC2086
  kill "-$1" "$guard_pid" $guard_children $guard_ncat 2>/dev/null
}

# guard_log OUTCOME - write the line of log for a connection whose handler could not
guard_log() {
  door_log "$guard_verb" - "$1" - $(((guard_now - guard_began) * 1000))
}

# guard_ncat_says TEXT - handle a line from ncat
guard_ncat_says() {
  case $1 in
  '' | 'Version '* | 'Connection from '* | 'Connection reset '*) ;;
  'Listening on '*)
    [ -n "$guard_told" ] || printf 'launch: %s door on %s\n' "$launch_door" "${launch_unix:-$launch_address port $launch_port}" >&2
    guard_told=1 ;;
  'Generating '* | 'SHA-1 '*) [ -n "$guard_told" ] || printf 'launch: %s\n' "$1" >&2 ;;
  *'already in use'*)
    guard_code=75
    printf 'launch: port %s of %s is in use\n' "$launch_port" "$launch_address" >&2 ;;
  *'ermission denied'*)
    guard_code=77
    printf 'launch: port %s of %s is not allowed\n' "$launch_port" "$launch_address" >&2 ;;
  *)
    printf 'launch: %s\n' "${1%% QUITTING.}" >&2
    case ${launch_keep:-}$1 in
    'New connection denied'*) guard_ncat_waits ;;
    esac ;;
  esac
}

# guard_ncat_waits - end an ncat that has denied its client: it has closed its listener, and would wait for ever. Its word may come before its PID
guard_ncat_waits() {
  guard_denied=1
  [ -z "$guard_group" ] || ! guard_lives "$guard_group" "$guard_group_started" || ! process_signal TERM "$guard_group" || guard_denied=
}

# guard_end - end what is left; launch has ended its own ncat before
guard_end() {
  for guard_entry in $guard_list; do
    guard_fields "$guard_entry"
    guard_send TERM
  done
  if [ -n "$guard_wal" ]; then
    guard_pid=$guard_wal guard_started=$guard_wal_started
    guard_send TERM
  fi
  guard_looks=0 guard_signal=TERM
  while twice guard_any_left && [ $guard_looks -lt 60 ]; do
    guard_looks=$((guard_looks + 1))
    [ $guard_looks -lt 40 ] || guard_signal=KILL
    sleep 0.05 2>/dev/null || sleep 1
  done
  # All lines of handlers that could write one are in the pipe by now. If the `z` cannot be written, skip this loop, which would never end
  ! { printf '\nz\n' >&6; } 2>/dev/null || while IFS= read -r guard_line && [ "$guard_line" != z ]; do
    case $guard_line in
    'e '*) guard_take "${guard_line#e }" ;;
    esac
  done
  for guard_entry in $guard_list; do
    guard_fields "$guard_entry"
    guard_log ended
  done
}

# guard_any_left - return whether any process is left; from the second second on, kill it. Ignore zombies, which may never be reaped. An ncat that has
# just been started is not the leader of its group yet: so look for its PID too
guard_any_left() {
  guard_any=1 guard_ours=' '
  for guard_entry in $guard_groups; do
    # As `-GROUP PID`; without PID if it is not known when the process started, since another one may have its number
    guard_stranger "$guard_entry" || case $guard_entry in
    *--) guard_ours="$guard_ours-${guard_entry%%-*} " ;;
    *) guard_ours="$guard_ours-${guard_entry%%-*} ${guard_entry%%-*} " ;;
    esac
  done
  if [ -e "$FLATQ_PROC/self/stat" ]; then
    set +f
    for guard_process in "$FLATQ_PROC"/[0-9]*; do
      { read -r guard_stat <"$guard_process/stat"; } 2>/dev/null || continue
      # shellcheck disable=SC2086
      set -f -- ${guard_stat##*') '}
      case "$1$guard_ours" in
      [ZX]*) ;;
      *" -$3 "* | *" ${guard_process##*/} "*)
        guard_any=0
        process_signal "$guard_signal" "${guard_process##*/}" ;;
      esac
    done
  else
    for guard_process in $guard_ours; do
      kill "-$guard_signal" "$guard_process" 2>/dev/null && guard_any=0
    done
  fi
  return $guard_any
}

# guard_stranger PID-STARTED - return whether another process has the PID of that group's first process by now. The system reuses it only once the
# whole group is gone: so a group of this number is not ours
guard_stranger() {
  [ "${1#*-}" != - ] && process_started "${1%%-*}" && [ "$started" != "${1#*-}" ]
}

part='doors/guard'
