# engine/take.sh - find the message whose turn it is, and hand it out

need engine/slip

# queue_scan [EXCEPT] - set scan_name to the name that sorts first of all in $q, but for the
# directory EXCEPT, and scan_place to its place: wal, fold, queue, unfold or head/RUN; empty:
# nothing is ready. Listed in the order of I2: one that moves meanwhile may be seen twice, but is
# never missed
queue_scan() {
  scan_place='' scan_name='' scan_except=${1:-none}
  scan_least wal "$q"/wal/*
  scan_least fold "$q"/fold/*
  # The first block that is not empty has the first flat file
  for scan_path in "$q"/queue/*; do
    [ "$scan_path" != "$q/queue/*" ] || break
    scan_least queue "$scan_path"/*
    [ "$scan_count" = 0 ] || break
  done
  scan_least unfold "$q"/unfold/*
  for scan_path in "$q"/head/*; do
    [ "$scan_path" != "$q/head/*" ] || break
    # A run whose name sorts after what was found has no earlier message
    [ -z "$scan_name" ] || [ "${scan_path##*/}" \< "$scan_name" ] || break
    scan_least "head/${scan_path##*/}" "$scan_path"/*
  done
}

# scan_least PLACE PATHS - keep the first of PATHS if it sorts before what was found so far; set
# scan_count to 0 if there are none
scan_least() {
  scan_least_place=$1
  shift
  scan_count=$#
  case $1 in
  "$scan_except"/*) scan_count=0; return 0 ;;
  *'/*') [ -e "$1" ] || { scan_count=0; return 0; } ;;
  # fold/ and unfold/ always hold an empty file `~` (place_first)
  *'/~') scan_count=0; return 0 ;;
  esac
  # Of a long path, a shell takes ${1##*/} very slowly
  set -- "${1#"${1%/*}/"}"
  if [ -z "$scan_name" ] || [ "$1" \< "$scan_name" ]; then
    scan_name=$1 scan_place=$scan_least_place
  fi
}

# take_message OWNER LEASE QUEUE ... - hand out the first message of the first queue that has one:
# rename its slip to out/, with one more try, a new nonce, OWNER (0: none, only the lease ends it)
# and the deadline. LEASE in seconds; empty: the message's own; `none`: no deadline, only the
# owner's death ends it. Reads `now`. Sets q, queue, id, the slip_ variables and `taken`, the name
# in out/. Returns 66 if it is proved that nothing is ready, 69 if all are closed and nothing is
# ready or delayed
take_message() {
  take_owner=$1 take_lease=$2 take_looked=0
  shift 2
  while :; do
    take_pick "$@" || return
    if [ -n "$take_queue" ]; then
      take_found
      take_code=$?
      [ $take_code -eq 66 ] || [ $take_code -eq 69 ] || return $take_code
      # RACE: another process was faster: start again
      continue
    fi
    need engine/proof
    take_nothing || return
  done
}

# take_pick QUEUE ... - open the first queue that hands out a message now: set take_queue,
# scan_place, scan_name; take_there: those that have none; take_paused: one that is paused;
# take_open: one is not closed
take_pick() {
  take_queue='' take_open='' take_there='' take_paused=
  for take_queue in "$@"; do
    queue_open "$take_queue" || {
      take_code=$?
      [ $take_code -eq 66 ] || return $take_code
      take_open=1
      continue
    }
    queue_put_back_due || return
    [ -z "$tend_paused" ] || { take_paused=$take_queue take_open=1; continue; }
    take_there="$take_there $take_queue"
    queue_scan
    [ -z "$scan_place" ] || return 0
    # Before the proof: that finds every push that was acknowledged before the close
    seen "$q/closed" || take_open=1
  done
  take_queue=
}

# take_wait SECONDS OWNER LEASE QUEUE ... - read the clock, and take_message; if nothing is ready
# wait for SECONDS (`none`: for ever), or until a trap sets take_stop. OWNER `self`: this process
take_wait() {
  take_seconds=$1 take_for=$2 take_for_lease=$3
  shift 3
  clock_read
  [ "$take_for" != self ] || take_for=$$-$now
  take_message "$take_for" "$take_for_lease" "$@"
  take_code=$?
  [ $take_code -eq 66 ] && [ "$take_seconds" != 0 ] || return $take_code
  need engine/wait
  take_waiting take_again "$@"
}

# take_found - hand out the message that queue_scan has found in $q. 66: another process was
# faster, or it was in a flat file, and is unfolded now
take_found() {
  take_from=$q/$scan_place/$scan_name
  case $scan_place in
  wal | head/*)
    if slip_parse "$scan_name"; then
      [ ${#slip_delay} -lt 10 ] || { need engine/expire; take_fresh || return; }
      ! take_slip || return 0
    fi ;;
  esac
  need engine/missed
  take_missed
}

# queue_put_back_due - before each take: put back what is due and, once a second, what has a dead
# owner or a lease that is over; sweep. Reads `now`. Set tend_paused if the queue is paused
queue_put_back_due() {
  tend_clock=none tend_paused=
  for tend_path in "$q"/delayed/*; do
    [ "$tend_path" != "$q/delayed/*" ] || break
    tend_top=${tend_path#"$q/delayed/"}
    # Of each clock, the first is the earliest
    [ "${tend_top%???????}" != "$tend_clock" ] || continue
    tend_clock=${tend_top%???????}
    need engine/clock
    ! window_clock "$tend_top" || { need engine/reclaim; queue_promote; break; }
  done
  unpad "${now%??}"
  read -r tend_last <"$q/tended" && [ "$tend_last" = "$unpadded" ] && return 0
  printf '%s\n' "$unpadded" >"$q/tended" || { need engine/pause; pause_look || return; }
  set -- "$q"/done/*
  [ $# -lt 200 ] || { need engine/reclaim; queue_reclaim || return; }
  # What was popped lies in out/ until the sweep, and cannot come back
  for tend_path in "$q"/out/*; do
    ! is_settled "$tend_path" || continue
    [ "$tend_path" != "$q/out/*" ] || return 0
    need engine/reclaim
    queue_reclaim
    return
  done
}

# taken_format OWNER LEASE - count a try of the message in the slip_ variables, give it a new nonce
# (`-` without a deadline); set `taken` to its name in out/, and taken_at to when its lease begins
taken_format() {
  slip_tries=$((slip_tries + 1))
  case $2 in
  none) slip_nonce=- later=000000000000 ;;
  *)
    nonce_read
    need engine/clock
    # What was unfolded before may have taken longer than the lease (R5)
    clock_read
    slip_nonce=$nonce taken_at=$now
    clock_add "${2:-$slip_lease}" "$now" ;;
  esac
  slip_format
  taken=$slip.$1.$later
}

# take_slip - rename the name that was found to out/; set `taken`. Return 0 if that is there now: it
# has our process or a random nonce in it, so it can only be ours
take_slip() {
  taken_format "$take_owner" "$take_lease"
  mv -f "$q/$scan_place/$scan_name" "$q/out/$taken" || [ -e "$q/out/$taken" ]
}

# body_open - open the body of what was taken, on 7; 66: it is no longer ours
body_open() {
  # RACE: after a lease, an unfold may be writing it anew; not if the slip is still there
  command exec 7<"$q/body/$slip_id" && { [ "$slip_nonce" = - ] || [ -e "$q/out/$taken" ]; } &&
    return 0
  need engine/missed
  taken_ours || return
  body_cut=1
  why="queue '$queue': message $id cannot be read"
  return 74
}

# body_print - write out what was taken; 66: it is no longer ours
body_print() {
  body_open && door_reply "$slip_size" && body_send
}

# body_send - the rest of body_print
body_send() {
  base64 -d <&7 && body_whole && return 0
  need engine/missed
  taken_ours || return
  body_cut=1
  why="queue '$queue': message $id could not be written out in full"
  return 74
}

# body_whole - return whether the body on 7 was read to its end, as long as the slip says
body_whole() {
  letters_of "$slip_size"
  read -r body_word body_read <"/proc/self/fdinfo/7" &&
    [ "$body_read" = $((letters + 1)) ]
}

# taken_settle - settle what a pop has taken, by a marker of the same name in done/, without a
# process; on a full disk by renaming the slip
taken_settle() {
  file_mark "$q/done/$taken" || rename_path "$q/out/$taken" "$q/done/$taken" ||
    { settle_code=$?; need engine/missed; settle_missed; return; }
  # Only a bound makes a push wait for room
  [ ! -e "$q/conf" ] || wake "$q/room"
  [ "$slip_size" -lt "$large_body" ] || { rm -f "$q/out/$taken" && rm -f "$q/body/$slip_id" || :; }
}

# A door has its own: door_reply SIZE is called before SIZE bytes are written; door_delivered
# returns 0 if the client can have received them
if [ -z "${FLATQ_DOOR:-}" ]; then
  door_reply() { :; }
  door_delivered() { :; }
fi
