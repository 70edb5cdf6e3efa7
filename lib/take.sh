# take.sh - finding the message whose turn it is, and handing it out

# queue_scan - sets scan_place (wal, head, queue, fold, unfold; empty: nothing is ready) and scan_name: what sorts first of all.
# Messages that nobody has taken move one way only, wal, fold, queue, unfold, head (I2), and the places are listed in that order: a
# message that moves meanwhile may be seen twice, but never missed.
queue_scan() {
  scan_place='' scan_name=''
  scan_least wal "$q"/wal/*
  scan_least fold "$q"/fold/*
  # the first block that is not empty has the first flat file
  for scan_path in "$q"/queue/*; do
    case ${scan_path##*/} in
    *[!0-9.]*) continue ;;
    ??????????.???????) ;;
    *) continue ;;
    esac
    scan_least queue "$scan_path"/*
    [ "$scan_count" = 0 ] || break
  done
  scan_least unfold "$q"/unfold/*
  for scan_path in "$q"/head/*; do
    case ${scan_path##*/} in
    *[!0-9a-f.]*) continue ;;
    esac
    # a head that begins later than what was found cannot hold less
    [ -z "$scan_name" ] || [ "${scan_path##*/}" \< "$scan_name" ] || break
    scan_least "head/${scan_path##*/}" "$scan_path"/*
  done
}

# scan_least PLACE PATHS - keeps the first of PATHS where it sorts before what was found so far; sets scan_count
scan_least() {
  scan_least_place=$1
  shift
  scan_count=$#
  case $1 in
  *'/*') [ -e "$1" ] || [ -h "$1" ] || { scan_count=0; return 0; } ;;
  # what fold/ and unfold/ always hold (place_first)
  *'/~') scan_count=0; return 0 ;;
  esac
  set -- "${1##*/}"
  if [ -z "$scan_name" ] || [ "$1" \< "$scan_name" ]; then
    scan_name=$1 scan_place=$scan_least_place
  fi
}

# take_message OWNER LEASE QUEUE ... - hands out the first message of the first queue that has one: its slip goes to out/, the rollback
# journal, with one more try, a new nonce, OWNER (0: none, only the lease ends it) and the deadline. LEASE: seconds; empty: the
# message's own; `none`: no deadline, only the owner's death ends it.
# Out: q, queue, id, the slip_ variables, `taken`, the name in out/. 66 where nothing is ready, 69 where all are closed and empty
take_message() {
  take_owner=$1 take_lease=$2
  shift 2
  take_open=
  for take_queue in "$@"; do
    queue_open "$take_queue" || { take_code=$?; [ $take_code -eq 66 ] && take_open=1 && continue; return $take_code; }
    # read before the scan: a push that was acknowledged before the queue was closed is found by it
    # looked at twice: one look may fail
    [ -e "$q/closed" ] || [ -f "$q/closed" ] || take_open=1
    take_of_queue
    take_code=$?
    [ $take_code -eq 66 ] || return $take_code
  done
  [ -n "$take_open" ] || { why="closed and empty"; return 69; }
  why='nothing there'
  return 66
}

# take_wait SECONDS OWNER LEASE QUEUE ... - take_message that waits so long (`none`: for ever) where nothing is ready, or until a trap
# sets take_stop
take_wait() {
  take_seconds=$1
  shift
  take_message "$@"
  take_code=$?
  [ $take_code -eq 66 ] && [ "$take_seconds" != 0 ] || return $take_code
  need wait
  take_waiting "$@"
}

take_of_queue() {
  clock_read
  queue_tend
  take_looked=
  while :; do
    queue_scan
    case $scan_place in
    wal | head/*)
      take_slip && return 0
      # RACE: somebody else was faster; look again from the start, never at the second
      [ ! -e "$q/$scan_place/$scan_name" ] && [ ! -h "$q/$scan_place/$scan_name" ] || drop_wait || { take_failed; return; } ;;
    '')
      if [ ${#take_looked} -gt 0 ]; then
        need proof
        nothing_ready
        take_code=$?
        [ $take_code -eq 0 ] || return $take_code
        # RACE: something has come meanwhile, and is gone when we look. Or a listing has failed: not for ever
        [ ${#take_looked} -lt 20 ] || { why="queue '$queue': cannot be listed"; return 74; }
        clock_read
        queue_tend
      fi
      # what its owner's death, a lease or a delay gives back counts as well
      need settle reclaim batch rare
      queue_reclaim || return
      take_looked=1$take_looked ;;
    *)
      # in a flat file, or on its way: unfold it, or let the one who is at it finish, and look again
      take_unfold || return ;;
    esac
  done
}

# take_unfold - what was found is in a flat file, or on its way: singles again
take_unfold() {
  need fold
  lock_queue || return
  [ "$scan_place" != queue ] || queue_unfold "$scan_name"
  take_code=$?
  unlock_queue
  return $take_code
}

# queue_tend - what every take does first: brings back what is due and, once a second, what is expired or has lost its owner
queue_tend() {
  for tend_path in "$q"/delayed/*; do break; done
  if [ -e "$tend_path" ]; then
    clock_epoch "$now"
    [ "$epoch_time" \< "${tend_path##*/}00000" ] || { need reclaim; queue_promote; }
  fi
  { read -r tend_last <"$q/tended"; } 2>/dev/null || tend_last=
  case $tend_last in
  *[!0-9]*) tend_last=000000000000 ;;
  ????????????) ;;
  *) tend_last=000000000000 ;;
  esac
  clock_add 1 "$tend_last"
  # a time ahead of ours is of another boot
  [ "$now" \< "$later" ] && ! [ "$now" \< "$tend_last" ] && return 0
  if [ -n "$spool_shared" ]; then
    file_put tended "$now"
  elif [ ! -h "$q/tended" ]; then
    { printf '%s\n' "$now" >|"$q/tended"; } 2>/dev/null
  fi
  # all that was handed out is settled, and little of it
  set -- "$q"/out/*
  [ -e "$1" ] || return 0
  need settle reclaim batch rare
  queue_reclaim
}

# slip_taken OWNER LEASE - sets `taken`, the name in out/ of the message in the slip_ variables, from now on: as in take_message
slip_taken() {
  nonce_read
  slip_tries=$((slip_tries + 1)) slip_nonce=$nonce
  case $2 in
  none) later=000000000000 ;;
  '') clock_add "$slip_lease" "$now" ;;
  *) clock_add "$2" "$now" ;;
  esac
  slip_format
  taken=$slip.$1.$later
}

# take_slip - renames exactly what was found to out/; sets `taken`
take_slip() {
  slip_parse "$scan_name" || { slip_strange "$scan_place/$scan_name"; return 1; }
  slip_taken "$take_owner" "$take_lease"
  moved "$q/$scan_place/$scan_name" "$q/out/$taken"
}

take_failed() {
  disk_failed "$q/out" "queue '$queue'"
}

# body_print - the message of slip_id on standard output; 74 where it cannot be read or written in full
body_print() {
  door_reply "$slip_size" || return
  base64 -d "$q/body/$slip_id" 2>/dev/null 9>&- && return 0
  why="queue '$queue': message $id could not be written out in full"
  return 74
}

# message_head - the first line of a reservation: receipt, id, tries, length
message_head() {
  printf '%s:%s.%s.%s %s %s %s\n' "$queue" "$id" "$slip_tries" "$slip_nonce" "$id" "$slip_tries" "$slip_size" 2>/dev/null && return 0
  why="queue '$queue': message $id could not be written out in full"
  return 74
}

# door_reply SIZE - is said before so many bytes are written out. A door puts another one in this place
[ -n "${FLATQ_DOOR:-}" ] || door_reply() {
  :
}

# door_delivered - 0 where the client can have had the answer. A door puts a better one in this place
[ -n "${FLATQ_DOOR:-}" ] || door_delivered() {
  :
}

# take_back - what was taken and not settled goes back to its old place; keeps `why`
take_back() {
  # a signal may come after the marker: what is settled does not come back
  [ -n "$taken" ] && [ ! -e "$q/done/$taken" ] || return 0
  need settle
  take_why=$why
  found=$q/out/$taken
  clock_read
  queue_conf && message_putback undelivered
  why=$take_why
  taken=
}

# take_stopped SIGNAL - the trap of whoever takes: what he has is back before he goes
take_stopped() {
  # what is settled was handed out: that ends well, as if the signal had come a moment later
  [ -z "$taken" ] || [ ! -e "$q/done/$taken" ] || return 0
  trap - HUP INT TERM
  take_back
  [ -z "${wait_fifo:-}" ] || wait_end
  end_by "$1"
}

# taken_settle - the message handed out as `taken` is done with. For an owner that lives: a marker of the same name in done/, made by
# the shell itself. Whoever puts back first sees the owner dead and then looks for the marker. Where a deadline can take it away from
# a living owner, only the rename tells whether it is still his: a marker that came too late would have the sweeper take another's body.
taken_settle() {
  [ -n "$taken" ] || { why="queue '$queue': nothing is taken"; return 66; }
  taken_marked=
  case $taken in
  *.000000000000)
    set -C
    { true >"$q/done/$taken"; } 2>/dev/null && taken_marked=1
    set +C ;;
  esac
  # where a disk has no room for another name, a rename needs none
  if [ -z "$taken_marked" ] && ! moved "$q/out/$taken" "$q/done/$taken"; then
    [ ! -e "$q/out/$taken" ] || { disk_failed "$q/done" "queue '$queue'"; return; }
    why="queue '$queue': message $id is no longer yours"
    return 66
  fi
  wake "$q/room"
  # a large body is not left to the sweeper
  [ "$slip_size" -lt 262144 ] || { rm -f "$q/out/$taken" 2>/dev/null && rm -f "$q/body/$slip_id" 2>/dev/null || :; }
}
