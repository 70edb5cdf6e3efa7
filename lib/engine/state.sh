# engine/state.sh - find a message, and change its state, which is the directory that it lies in:
# delete, release, touch, put back (engine/bury.sh: bury, kick)

need engine/slip engine/clock engine/sync engine/bury

# How often a verb looks again for a message that moves
looks='1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20'

# receipt_find RECEIPT - find the message of a receipt QUEUE:ID.TRIES.NONCE, wherever it is: a
# receipt is good until the message is reserved again. QUEUE:ID stands for a message that nobody
# holds. Sets q, queue, slip_path and the slip_ variables. Returns 65 malformed, 66 no longer yours
receipt_find() {
  why='malformed receipt: give the one that reserve printed, or QUEUE:ID'
  receipt=${1##*:}
  case $receipt in
  "$1" | *.*.*.* | *[!0-9a-f.]* | .* | *. | *..*) return 65 ;;
  *.*.*) receipt_try=${receipt#*.} ;;
  *.*) return 65 ;;
  *) receipt_try= ;;
  esac
  is_number "${receipt%%.*}" 999999999999 || return 65
  pad "$number" 000000000000
  set -- "${1%:*}" "$padded"
  queue_open "$1" || return
  clock_read
  message_find "$2" || {
    find_code=$?
    [ $find_code -ne 66 ] || why="queue '$queue': message $number is not there, or no longer yours"
    return $find_code
  }
  if [ -n "$receipt_try" ]; then
    # A kick has set TRIES to 0
    [ "$slip_nonce" = "${receipt_try#*.}" ] ||
      { why="queue '$queue': message $id was reserved again since"; return 66; }
  else
    case $slip_path in
    "$q"/out/*) why="queue '$queue': message $id is reserved"; return 66 ;;
    esac
  fi
}

# message_find ID - set `slip_path` and the slip_ variables of the message with the 12-digit ID, in
# any place; unfold it if it is in a flat file. Return 66 if there is none
message_find() {
  for find_try in 0 $looks; do
    find_slip "$1" && return 0
    need engine/flat
    if find_flat "$1"; then
      need engine/lock
      under_lock queue_unfold "${slip_path##*/}" || return
      continue
    fi
    # RACE: one look misses a message that moves between two of these listings
    [ "$find_try" != 0 ] || continue
    need engine/proof
    not_below "$1" out wal fold queue unfold head delayed buried ! -path 'out/batch.*'
    find_code=$?
    [ $find_code -eq 0 ] || return $find_code
    # RACE: it has moved again
  done
  not_listed
}

# message_anywhere ID - return 0 if the message with the 12-digit ID is in any place, 66 if it is
# proved that it is in none; else as message_find. RACE: a listing misses a message that moves
# against its order (R4), so look twice
message_anywhere() {
  need engine/proof
  for anywhere_turn in 1 2; do
    message_find "$1"
    anywhere_code=$?
    [ $anywhere_code -ne 66 ] || { not_below "$1" out claimed; anywhere_code=$?; }
    [ $anywhere_code -eq 66 ] || break
  done
  return "$anywhere_code"
}

# find_slip ID - message_find where messages have slips; return 1 if it is not seen there
find_slip() {
  for slip_path in "$q"/out/??????????."$1".* "$q"/wal/??????????."$1".* \
    "$q"/head/*/??????????."$1".* "$q"/delayed/*/*/??????????."$1".* \
    "$q"/buried/*/*/????????????.??????????."$1".* "$q"/buried/????????????.??????????."$1".*; do
    [ -e "$slip_path" ] && ! is_settled "$slip_path" || continue
    slip_of "$slip_path"
    case $slip_path in
    "$q"/out/*) slip_parse "${slip_path##*/}" ;;
    *) slip_parse "$slip" ;;
    esac && return 0
  done
  return 1
}

# find_flat ID - set slip_path to a slip on its way into a flat file, or to the flat file that has
# the message; return 1 if it is not seen there
find_flat() {
  for slip_path in "$q"/queue/*/* "$q"/fold/*/??????????."$1".* "$q"/unfold/*; do
    [ -e "$slip_path" ] || continue
    case $slip_path in
    "$q"/fold/*) return 0 ;;
    esac
    flat_parse "${slip_path##*/}" && message_in_flat "$slip_path" "$1" && return 0
  done
  return 1
}

# slip_move TARGET - rename `slip_path` to TARGET: the one step of every change of state. Returns 66
# if another process was faster. In a queue with a conf, which may set a bound, under the lock: so a
# count does not miss the message on its way
slip_move() {
  case $1 in
  "$q"/wal/* | "$q"/delayed/* | "$q"/out/*) bound_lock && slip_room ;;
  esac && slip_rename "$1"
  slip_code=$?
  bound_unlock
  return $slip_code
}

# slip_rename TARGET - rename `slip_path` to TARGET; if it has moved, follow it and try again
slip_rename() {
  for move_try in 1 2 3 4 5 6; do
    rename_path "$slip_path" "$1"
    slip_code=$?
    case $slip_code in
    0 | 74) return $slip_code ;;
    esac
    if [ -e "$slip_path" ]; then
      # A signal to the group of a worker kills its mv, which then says nothing: once more
      [ -z "$moved_said" ] || break
      continue
    fi
    slip_follow "$1" || { slip_code=$?; [ $slip_code -eq 66 ] && break; return $slip_code; }
  done
  need engine/proof
  slip_gone="queue '$queue': message $id is no longer yours"
  expect_path "$slip_path" "$slip_gone" || return
  disk_failed "${1%/*}"
  slip_code=$?
  # RACE: another verb took it meanwhile
  expect_path "$slip_path" "$slip_gone" || slip_code=$?
  return $slip_code
}

# slip_follow TARGET - set `slip_path` to where the message is now: a fold, or the end of its delay,
# may have moved one that nobody holds. Return 66 if it is gone or has another name, or if TARGET is
# in wal/ or delayed/, to which nothing moves back from head/ (I2); else as message_find
slip_follow() {
  case $slip_path.$1 in
  "$q"/out/* | *."$q"/wal/* | *."$q"/delayed/*) return 66 ;;
  esac
  # In a process of its own, since it parses other slips into the slip_ variables
  follow_said=$(
    message_find "$slip_id" || { follow_code=$?; printf '%s' "$why"; exit $follow_code; }
    printf '%s' "$slip_path"
  ) || {
    follow_code=$?
    why=${follow_said:-"queue '$queue': cannot be searched"}
    return $follow_code
  }
  [ "${follow_said##*/}" = "${slip_path##*/}" ] || return 66
  slip_path=$follow_said
}

# slip_room - if `slip_path` is buried, which the bound does not count, return 75 if the queue is
# full
slip_room() {
  case $slip_path in
  "$q"/buried/*) queue_conf || return ;;
  *) return 0 ;;
  esac
  [ "$queue_bound" != 0 ] || return 0
  need engine/bound
  # RACE: the queue may have got its bound just now
  bound_lock || return
  queue_room 1
}

# bound_lock - take the lock if the queue has a conf; before the clock is read for a name (R5)
bound_lock() {
  if [ -z "$lock_held" ] && seen "$q/conf"; then
    need engine/lock
    lock_queue || return
    slip_locked=1
  fi
}

# bound_unlock - give the lock back, if bound_lock has taken it
bound_unlock() {
  [ -z "$slip_locked" ] || unlock_queue
  slip_locked=
}

# message_delete - delete `slip_path`; durable when it returns
message_delete() {
  case $slip_path in
  "$q"/out/*) slip=${slip_path##*/} delete_syncs=sync_paths delete_said=- ;;
  *) slip_format; slip=$slip.0.000000000000 delete_syncs=sync_moving delete_said=unheld ;;
  esac
  slip_move "$q/done/$slip" || return
  "$delete_syncs" "${slip_path%/*}" "$q/done" || return
  queue_log delete "$delete_said"
  wake "$q/room"
  [ "$slip_size" -lt "$large_body" ] || rm -f "$q/body/$slip_id" || :
}

# message_release PRIORITY DELAY [WHY] - give `slip_path` back after DELAY seconds, with PRIORITY;
# empty: with its old place in the order. After too many tries, bury it. WHY is for the log;
# `uncounted`: nobody asked for this release, so do not count it
message_release() {
  # Nothing moves back from head/ to wal/ (I2)
  case $slip_path in
  "$q"/head/*) why="queue '$queue': message $id is ready, not reserved"; return 66 ;;
  esac
  queue_conf || return
  ! tries_over || { message_fail "$1" released; return; }
  [ -z "$1" ] || { pad "$1" 0000000000; slip_priority=$padded; }
  [ "${3:-}" = uncounted ] || slip_count releases
  slip_format
  if [ "$2" = 0 ]; then
    release_said=${3:--}
    slip_move "$q/wal/$slip"
  else
    need engine/window
    release_said=${3:+$3-}delay-$2
    slip_move_window delayed "delay_place $2" "$slip"
  fi || return
  queue_log release "$release_said"
  wake "$q/wait"
}

# slip_move_window PLACE MAKE NAME - make a directory of delayed/ or buried/ by MAKE, rename
# `slip_path` to NAME there, and sync that
slip_move_window() {
  for move_again in '' 1; do
    # (R5)
    bound_lock && $2 && slip_move "$place/$3"
    slip_code=$?
    bound_unlock
    # RACE: another verb has removed the empty directory. A third may have made it again: try twice
    [ $slip_code -eq 74 ] && [ -e "$slip_path" ] || break
  done
  [ "$slip_code" -eq 0 ] || return "$slip_code"
  sync_moving "$place" "${place%/*}" "$q/$1"
}

# message_touch LEASE - set the deadline to LEASE seconds from now; empty: the message's own lease.
# It is in the name, so a touch and the end of the lease cannot both win
message_touch() {
  bound_lock || return
  # message_find may have taken long (R5)
  clock_read
  clock_add "${1:-$slip_lease}" "$now"
  slip_format
  touch_to=$q/out/$slip.$slip_owner.$later
  # The same deadline gives the same name
  [ "$slip_path" = "$touch_to" ] || slip_move "$touch_to" || return
  bound_unlock
  queue_log touch "lease-${1:-$slip_lease}"
}

# message_reserve OWNER - hand out `slip_path`, which nobody holds, out of turn; set `taken`
message_reserve() {
  need engine/take engine/lock
  for reserve_try in 1 2; do
    bound_lock || return
    taken_format "$1" ''
    slip_move "$q/out/$taken" && return 0
    reserve_code=$?
    [ $reserve_code -eq 74 ] && [ -e "$slip_path" ] || return $reserve_code
    # RACE: a drop has removed out/
    drop_wait
    drop_code=$?
    [ $drop_code -le 1 ] || return $drop_code
    slip_tries=$((slip_tries - 1))
  done
  return 74
}

# message_putback WHY - a lease is over or an owner dead: move `slip_path` to wal/, where its name
# gives it its old turn. Bury it after too many tries, or if nobody can read its body: it would keep
# out the messages behind it
message_putback() {
  if [ -n "$body_cut" ] || [ ! -e "$q/body/$slip_id" ]; then
    need engine/body
    body_bury
    putback_code=$?
    [ $putback_code -eq 1 ] || return $putback_code
  fi
  ! tries_over || { message_fail '' "$1"; return; }
  slip_count timeouts
  slip_format
  slip_move "$q/wal/$slip" || return
  # For the statistics of a door
  [ "$1" != expired ] || putbacks=$((${putbacks:-0} + 1))
  queue_log "$1"
  wake "$q/wait"
}

# slip_count WHICH - add one to timeouts, releases, buries or kicks in slip_counts
slip_count() {
  IFS=-
  # shellcheck disable=SC2086 # split at the dashes
  set -- "$1" $slip_counts
  IFS=$blanks
  case $1 in
  timeouts) slip_counts=$(($2 + 1))-$3-$4-$5 ;;
  releases) slip_counts=$2-$(($3 + 1))-$4-$5 ;;
  buries) slip_counts=$2-$3-$(($4 + 1))-$5 ;;
  kicks) slip_counts=$2-$3-$4-$(($5 + 1)) ;;
  esac
}

# slip_of PATH - set `slip` to the name that the slip at PATH, in any place, has in wal/
slip_of() {
  slip=${1##*/}
  case $1 in
  "$q"/buried/*) slip=${slip#*.} slip=${slip%.*} ;;
  "$q"/out/batch.* | "$q"/claimed/*) ;;
  "$q"/out/* | "$q"/done/*) slip=${slip%.*} slip=${slip%.*} ;;
  esac
}
