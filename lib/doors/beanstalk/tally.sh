# doors/beanstalk/tally.sh - what a door's connections count, and tell each other, in
# .doors/INSTANCE/:
#
#   PID-TIME   an empty file: this connection is open
#   counts     a line for each answer: PID-TIME, and words
#   old        `counts` before its last fold: lines may still be added
#   sums       all before: a line for each counter and connection
#   lock       held by a fold, and while all three are read
#   draining   puts are refused
#
# A word is a counter, NAME or NAME=N, or what the connection does: use=TUBE, watch=TUBE,
# ignore=TUBE, producer, worker, waits=1, waits=0. A crash may lose some.

need engine/process

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

# tally_write - add the words since the last answer to `counts`, and sometimes look at its size: by
# the PID, since connections may be short
tally_write() {
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

# tally_fold - add `old` to `sums`, and make `counts` the new `old`; fail if `sums` is larger (R8).
# CRASH: between the renames, `old` counts twice
tally_fold() {
  need engine/proof
  ! measure -c "$door_instance/sums" || [ "$measured" -le "$tally_size" ] || return
  (
    exec 7>>"$door_instance/lock" && flock 7 && tally_said=$(tally_sums fold) &&
      [ -e "$door_instance/counts" ] &&
      printf '%s\n' "$tally_said" >"$door_instance/sums.new" &&
      mv -f "$door_instance/sums.new" "$door_instance/sums" &&
      mv -f "$door_instance/counts" "$door_instance/old"
  )
}

# tally_sums WHAT [ASKED] - under the lock, print what stats.awk makes of all counts and tally_tubes
tally_sums() {
  {
    for tally_path in "$door_instance"/[0-9]*-*; do
      if owner_dead "${tally_path##*/}"; then
        rm -f "$tally_path"
      else
        printf 'open %s\n' "${tally_path##*/}"
      fi
    done
    printf '%s\n' "${tally_tubes:-}" whole
  } | awk -f "$lib/doors/beanstalk/stats.awk" "$1" "${2:-}" "$door_instance"
}

tally_end() {
  tally_write
  rm -f "$door_instance/$tally_name"
}
