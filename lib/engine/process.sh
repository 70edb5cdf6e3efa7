# engine/process.sh - when a process started, whether the owner of a message is dead, whether a child lives, whether `&` has started one

# process_started PID - set `started` to the time when PID started, 12 digits; return 1 if there is no such process, or it has ended and
# was not reaped: in a container whose first process does not reap, it may stay for ever.
# This is field 22 of /proc/PID/stat, counted after the command's name, which may contain anything; a tick is 1/100 s.
process_started() {
  started_over=
  { read -r started_line <"$FLATQ_PROC/$1/stat"; } 2>/dev/null || return 1
  # A command's name may contain a newline: append lines until the name is closed
  case $started_line in
  *') '*) ;;
  *) started_line=$(cat "$FLATQ_PROC/$1/stat" 2>/dev/null) || return 1 ;;
  esac
  started_line=${started_line##*') '}
  # shellcheck disable=SC2086 # the words are what is wanted
  set -- $started_line
  [ $# -ge 20 ] || return 1
  case $1 in
  Z | X) started_over=1; return 1 ;;
  esac
  shift 19
  pad "$1" 000000000000
  started=$padded
}

# process_gone PID - return 0 only if it is proved that there is no such process, or that it has ended and was not reaped
process_gone() {
  ! process_started "$1" || return 1
  [ -z "$started_over" ] || return 0
  # We may not be allowed to signal it
  ! kill -0 "$1" 2>/dev/null && need engine/proof && absent "$FLATQ_PROC/$1"
}

# process_forked - called right behind `&`, whose status it returns: not 0 if yash could start no process. yash then goes on, and $! is that of another
# process, or 0, which means our group. (Other shells end, bash and mksh after some tries.)
process_forked() {
  return $?
}

# child_lives PID - return whether PID is a child of this process that has not ended: only then it may be signalled. A shell such as bash may have
# reaped an ended child by itself, and then another process may have its PID. Without /proc, return whether there is a process with that PID. In yash,
# $! is 0 if no process could be started, and 0 means our group
child_lives() {
  case $1 in
  '' | 0) return 1 ;;
  esac
  { read -r child_parent child_rest <"$FLATQ_PROC/self/stat" && read -r child_stat <"$FLATQ_PROC/$1/stat"; } 2>/dev/null ||
    { kill -0 "$1" 2>/dev/null; return $?; }
  case ${child_stat##*') '} in
  [!ZX]" $child_parent "*) return 0 ;;
  esac
  return 1
}

# process_signal SIGNAL [-]PID - send SIGNAL, or with 0 none, to the process or the group; return 1 if there is none, and say nothing. Twice, since the
# redirection may fail: then nothing was sent (R1)
process_signal() {
  twice process_signal_once "$1" "$2"
}

# process_signal_once SIGNAL [-]PID - in a function of its own: mksh leaves the one whose redirection fails (R12)
process_signal_once() {
  kill "-$1" "$2" 2>/dev/null
}

# owner_dead PID-TIME - return 0 only if it is proved that the process PID that lived at TIME is gone.
# If the PID is in use again, that process started later. If the processes of other users are hidden (hidepid), or there is no /proc,
# nothing is proved.
owner_dead() {
  [ -e "$FLATQ_PROC/1/stat" ] || return 1
  if process_started "${1%-*}"; then
    [ "$started" \> "${1#*-}" ]
  else
    # A file that exists and could not be read proves nothing, nor does a look that failed (R1)
    [ -n "$started_over" ] || { [ ! -e "$FLATQ_PROC/${1%-*}" ] && need engine/proof && absent "$FLATQ_PROC/${1%-*}"; }
  fi
}

part='engine/process'
