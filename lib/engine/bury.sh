# engine/bury.sh - when a message has had all its tries; bury it, and kick what is buried or delayed

# tries_over [MOST] - return whether the message has had all its tries: MOST, else as many as the
# queue allows; 0: no limit
tries_over() {
  [ "${1:-$queue_most_tries}" != 0 ] && [ "$slip_tries" -ge "${1:-$queue_most_tries}" ]
}

# reason_good REASON - return whether a message can be buried with this REASON
reason_good() {
  case $1 in
  '' | *[!A-Za-z0-9_-]*) return 1 ;;
  esac
  [ ${#1} -le 40 ]
}

# reason_check REASON - exit unless it is good
reason_check() {
  reason_good "$1" || die 65 '-r takes at most 40 letters, digits, - and _'
}

# message_bury PRIORITY REASON - set `slip_path` aside, with PRIORITY; empty: its own. Durable when
# it returns
message_bury() {
  [ -z "$1" ] || { pad "$1" 0000000000; slip_priority=$padded; }
  slip_count buries
  slip_format
  clock_epoch "$now"
  # Two may be buried in the same hundredth of a second: keep their order
  bury_last=$q/buried
  while [ -d "$bury_last" ]; do
    for bury_last in "$bury_last"/*; do :; done
  done
  bury_last=${bury_last##*/} bury_last=${bury_last%%.*}
  case $bury_last in
  *[!0-9]*) ;;
  ????????????)
    [ "$bury_last" \< "$epoch_time" ] || { clock_move "$bury_last" 1; epoch_time=$moved; } ;;
  esac
  need engine/window
  slip_move_window buried "window_make buried/${epoch_time%?????}/${epoch_time%???}" \
    "$epoch_time.$slip.$2" || return
  queue_log bury "$2"
  wake "$q/room"
}

# message_fail PRIORITY REASON - bury a message that has had its tries, or move it to the
# dead-letter queue; set fail_said to what became of it
message_fail() {
  fail_said=buried
  if [ -n "$queue_dead" ]; then
    need engine/dead
    dead_move "$@"
    fail_code=$?
    [ $fail_code -eq 1 ] || { fail_said="moved to queue '$queue_dead'"; return $fail_code; }
  fi
  message_bury "$@"
}

# message_kick - make `slip_path` ready; return 66 if it is damaged, or neither buried nor delayed
message_kick() {
  case $slip_path in
  "$q"/buried/*.damaged)
    need engine/body
    body_look || {
      [ $? -eq 1 ] || return 74
      why="queue '$queue': message $id is damaged, and cannot be kicked"
      why="$why: peek prints what is left of it, delete removes it"
      return 66
    } ;;
  "$q"/buried/* | "$q"/delayed/*) ;;
  *) why="queue '$queue': message $id is ready"; return 66 ;;
  esac
  slip_count kicks
  [ "$slip_delay" -le 4294967295 ] || slip_delay=0
  # beanstalkd's `reserves` is TRIES, and goes on
  [ -n "${stalk_beanstalkd:-}" ] || slip_tries=0
  slip_format
  slip_move "$q/wal/$slip" || return
  queue_log kick
  wake "$q/wait"
}

# queue_kick COUNT [REASON [FUNCTION]] - kick up to COUNT messages, those buried longest or, if none
# is buried, delayed ones; set `kicked`. With REASON, only those buried with it (empty: with any);
# FUNCTION instead of message_kick. Return 75 no room for one, 66 those that are buried are damaged
queue_kick() {
  kicked=0 kick_most=$1 kick_place='' kick_damaged='' kick_reason=${2:-}
  kick_do=${3:-message_kick} kick_not=${3:-*.damaged}
  [ $# -eq 1 ] || kick_place=buried
  clock_read
  # What is due becomes ready without a kick
  need engine/take engine/window
  queue_put_back_due
  for kick_try in $looks; do
    for kick_from in ${kick_place:-buried delayed}; do
      windows "$kick_from" kick_these
      kick_code=$?
      [ $kick_code -eq 66 ] || return $kick_code
      [ -z "$kick_place" ] || break
    done
    [ "$kicked" -lt "$1" ] || return 0
    # Before kicking fewer than asked for, prove that there are no more
    need engine/proof
    # shellcheck disable=SC2086 # one place or two
    slips_left ${kick_place:-buried delayed} -name "*.${kick_reason:-*}" ! -name "$kick_not"
    case $? in
    0) ;;
    66)
      [ $kicked -eq 0 ] && [ -n "$kick_damaged" ] || return 0
      why=$kick_damaged
      return 66 ;;
    69) return 69 ;;
    *) break ;;
    esac
  done
  [ "$kicked" -ne 0 ] || not_listed
}

# kick_these PATH ... - kick these, and set kick_place to where they are; return 66 to go on with
# the next directory, 0 if that is enough, or there is no room for more
kick_these() {
  for slip_path in "$@"; do
    [ "$kicked" -lt "$kick_most" ] || return 0
    case $slip_path in
    *."${kick_reason:-${slip_path##*.}}") [ -e "$slip_path" ] || continue ;;
    *) continue ;;
    esac
    slip_of "$slip_path"
    slip_parse "$slip" || continue
    "$kick_do"
    kick_code=$?
    case $kick_code in
    0) kicked=$((kicked + 1)) kick_place=$kick_from ;;
    # RACE: another process was faster
    66) [ ! -e "$slip_path" ] || kick_damaged=$why ;;
    75) [ "$kicked" -eq 0 ] || return 0; return 75 ;;
    *) return $kick_code ;;
    esac
  done
  return 66
}
