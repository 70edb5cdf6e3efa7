# guard.sh - the process beside launch that knows every connection: it ends those that are idle, runs the checkpoint, and sees to it
# that nothing is left when launch is gone
#
# It reads lines from a pipe whose writing end launch, ncat (as its standard error) and every handler hold:
#   n PID          a new ncat
#   c PID PID      a connection: its handler, and the handler's parent, which is ncat
#   l PID SECONDS VERB  its line is read; the verb may wait so long
#   e PID          it has ended, and logged that
#   k              a checkpoint, please
#   q              end everything, and yourself
#   t              a second has passed
# and what ncat has to say, which writes a line in two pieces: so all of ours begin with a newline.
#
# guard_list holds PID,NCAT,BEGAN,STATE,QUIET,MARK,SLOW,COARSE,VERB of each connection. STATE: line, verb, gone (seen dead once: its `e`
# may still be in the pipe) or killed. QUIET and SLOW: since when MARK and COARSE are what they are. MARK: the bytes that its processes have
# read and written; COARSE: the same without the last four digits. Times are in seconds since the start.

# guard - reads until `q`, or until launch is gone
guard() {
  # what ends launch, and comes from a terminal, comes to us too; launch will tell us
  trap '' HUP INT TERM PIPE
  set -f
  guard_list=' ' guard_now=0 guard_ncats='' guard_due='' guard_wal='' guard_code=69 guard_said='' guard_last=
  guard_every=$((launch_idle / 4))
  [ $guard_every -gt 0 ] || guard_every=1
  while IFS= read -r guard_line; do
    case $guard_line in
    t) guard_second || break ;;
    'n '*) guard_last=${guard_line#n } guard_ncats="$guard_ncats $guard_last" ;;
    'c '*) guard_connection "${guard_line#c }" ;;
    'l '*)
      # shellcheck disable=SC2086 # four words
      set -- $guard_line
      ! guard_find "$2" || guard_list="$guard_list$2,$guard_ncat,$guard_began,verb,$((guard_now + $3)),,$((guard_now + $3)),,$4 " ;;
    'e '*) guard_find "${guard_line#e }"; guard_due=1 ;;
    k) guard_due=1 ;;
    q) break ;;
    *) guard_ncat_says "${guard_line##*Ncat: }" ;;
    esac
  done
  guard_end
  exit $guard_code
}

# guard_connection "HANDLER NCAT"
guard_connection() {
  guard_list="$guard_list${1% *},${1#* },$guard_now,line,$guard_now,,$guard_now,,- "
  # half-closed clients do not count for ncat; they do here
  # shellcheck disable=SC2086
  set -- $guard_list "$@"
  [ $# -le $((launch_most + 1)) ] || guard_kill "${2% *}" too-many
}

# guard_find PID - takes the connection out of the list, into guard_pid, guard_ncat and so on; 1 where it is not there
guard_find() {
  case $guard_list in
  *" $1,"*) ;;
  *) return 1 ;;
  esac
  guard_fields=${guard_list#*" $1,"}
  guard_list="${guard_list%%" $1,"*} ${guard_fields#* }"
  guard_fields "$1,${guard_fields%% *}"
}

guard_fields() {
  IFS=,
  # shellcheck disable=SC2086 # split at the commas
  set -- $1
  IFS=' 	
'
  guard_pid=$1 guard_ncat=$2 guard_began=$3 guard_state=$4 guard_quiet=$5 guard_mark=$6 guard_slow=$7 guard_coarse=$8 guard_verb=$9
}

# guard_second - what is looked at every second; 1 where launch is gone
guard_second() {
  guard_now=$((guard_now + 1))
  if { read -r guard_stat <"$FLATQ_PROC/self/stat"; } 2>/dev/null; then
    # a launch that was killed may stay as a zombie for long; but its children have got another parent
    guard_stat=${guard_stat##*') '}
    guard_stat=${guard_stat#* }
    [ "${guard_stat%% *}" = "$$" ] || return 1
  else
    kill -s 0 "$$" 2>/dev/null || return 1
  fi
  guard_checkpoint
  # shellcheck disable=SC2086
  set -- $guard_list
  for guard_entry in "$@"; do
    guard_fields "$guard_entry"
    guard_look
  done
  guard_alive=
  for guard_ncat in $guard_ncats; do
    ! kill -s 0 -- "-$guard_ncat" 2>/dev/null && [ "$guard_ncat" != "$guard_last" ] || guard_alive="$guard_alive $guard_ncat"
  done
  guard_ncats=$guard_alive
}

# guard_checkpoint - one at a time, beside everything else: every ten seconds, and within a second after a connection
guard_checkpoint() {
  [ -n "$guard_due" ] || [ $((guard_now % 10)) -eq 0 ] || return 0
  [ -z "$guard_wal" ] || [ -e "$launch_directory/wal" ] || { wait "$guard_wal"; guard_wal=; }
  [ -z "$guard_wal" ] || return 0
  guard_due=
  true >"$launch_directory/wal" || return 0
  { sh "$lib/wal"; rm -f "$launch_directory/wal"; } </dev/null >&2 &
  guard_wal=$!
}

# guard_look - at one connection: is it alive, reading a line of megabytes, idle?
guard_look() {
  if ! kill -s 0 "$guard_pid" 2>/dev/null; then
    case $guard_state in
    gone) guard_find "$guard_pid"; door_log "$guard_verb" - killed - "$(guard_since)" ;;
    killed) guard_find "$guard_pid" ;;
    *) guard_state=gone; guard_put ;;
    esac
    return 0
  fi
  [ "$guard_state" != killed ] || { guard_signal KILL; return 0; }
  if [ "$guard_state" = line ]; then
    guard_bytes=0
    guard_io "$guard_pid"
    [ ${#guard_bytes} -lt 7 ] || {
      # it hears nothing until its line is read; but its way to the client is open to us
      printf 'error 65 line too long\n' 2>/dev/null >>"$FLATQ_PROC/$guard_pid/fd/5"
      guard_kill "$guard_pid" line-too-long KILL
      return 0
    }
  fi
  [ "$launch_idle" -gt 0 ] && [ $((guard_now % guard_every)) -eq 0 ] && [ "$guard_quiet" -le "$guard_now" ] || return 0
  guard_bytes='' guard_hold=$guard_coarse guard_coarse=''
  for guard_process in "$guard_ncat" "$guard_pid" $(guard_children "$guard_pid"); do
    guard_io "$guard_process"
    guard_coarse=$guard_coarse.${guard_bytes%????}
  done
}
