# doors/beanstalk/tally.sh - what the connections of a door count, and tell each other
#
#   .doors/INSTANCE/PID-TIME   an empty file: this connection is open
#   .doors/INSTANCE/counts     a line for each answer: PID-TIME, and words
#   .doors/INSTANCE/old        `counts` before its last fold: a line may still be added to it
#   .doors/INSTANCE/sums       all before that: a line for each counter and connection
#   .doors/INSTANCE/lock       held by a fold, and while all three are read
#   .doors/INSTANCE/draining   puts are refused
#
# A word is a counter, NAME or NAME=N, or says what the connection does: use=TUBE, watch=TUBE,
# ignore=TUBE, producer, worker, waits=1, waits=0. stats.awk adds them up. These are only
# statistics: losing them in a crash harms no message.

need engine/process

# tally_begin - say that this connection is open. launch passes the door's instance in door_of
tally_begin() {
  door_instance=$FLATQ_DIR/.doors/$door_of tally_name=$owner tally_new='' tally_lines=$$ \
    tally_most=65536
  { [ -d "$door_instance" ] || mkdir -p "$door_instance"; } && true >"$door_instance/$tally_name" ||
    { disk_failed "$FLATQ_DIR" 'door'; return; }
  tally 'connections use=default watch=default'
  tally_write
}

# tally WORD - note it for the line of the next answer
tally() {
  tally_new="$tally_new $1"
}

# tally_write - add the words that were noted since the last answer to `counts`. Look at its size
# once in a hundred lines, of one connection or many: so their number begins with the PID
tally_write() {
  # What was put back since (engine/settle.sh)
  [ "${putbacks:-0}" = 0 ] || { tally "job-timeouts=$putbacks"; putbacks=0; }
  [ -n "$tally_new" ] || return 0
  tally_lines=$((tally_lines + 1)) tally_size=0
  {
    printf '%s%s\n' "$tally_name" "$tally_new"
    case $tally_lines in
    *00) read -r tally_pos tally_size </proc/self/fdinfo/1 ;;
    esac
  } >>"$door_instance/counts"
  tally_new=
  [ "$tally_size" -lt "$tally_most" ] || tally_fold || tally_most=$((tally_size * 2))
}

# tally_fold - add `old` to `sums`, and make `counts`, of tally_size bytes, the new `old`; return
# another code than 0 if that fails, or if `sums` is larger (R8). CRASH: between the two renames,
# what is in `old` counts twice
tally_fold() {
  need engine/proof
  ! measure -c "$door_instance/sums" || [ "$measured" -le "$tally_size" ] || return
  (
    tally_lock -x && tally_said=$(tally_sums fold) && [ -e "$door_instance/counts" ] &&
      printf '%s\n' "$tally_said" >"$door_instance/sums.new" &&
      mv -f "$door_instance/sums.new" "$door_instance/sums" &&
      mv -f "$door_instance/counts" "$door_instance/old"
  )
}

# tally_lock -s|-x - lock the counters until this subshell ends
tally_lock() {
  exec 7>>"$door_instance/lock" && flock "$1" 7
}

# tally_sums WHAT [ASKED] - print what stats.awk makes of all counts and of tally_tubes. The caller
# holds the lock
tally_sums() {
  { tally_open && printf '%swhole\n' "${tally_tubes:-}"; } |
    awk -f "$lib/doors/beanstalk/stats.awk" "$1" "${2:-}" "$door_instance"
}

# tally_open - print a line for each connection that is open, and forget those that were killed
tally_open() {
  for tally_path in "$door_instance"/[0-9]*-*; do
    if owner_dead "${tally_path##*/}"; then
      rm -f "$tally_path"
    else
      printf 'open %s\n' "${tally_path##*/}"
    fi
  done
}

# tally_end - say that this connection has ended; its counts stay
tally_end() {
  tally_write
  rm -f "$door_instance/$tally_name"
}
