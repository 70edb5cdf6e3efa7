# engine/expire.sh - messages that expire (push -x): DELAY in the slip is 2^32 plus the seconds from
# BORN on. A take that comes to one whose time is over buries it. QUEUE/expires says that there may
# be some: then a bulk take looks at each message, and takes no flat files as they are

need engine/state

slip_expired() {
  [ "$slip_delay" -gt 4294967295 ] || return 1
  clock_epoch "$now"
  clock_move "$slip_born" $(((slip_delay - 4294967296) * 100))
  ! [ "$epoch_time" \< "$moved" ]
}

# take_fresh - for take_found: return 0 if the message may be taken; else bury it, and return 66
take_fresh() {
  slip_expired || return 0
  message_expire "$take_from" || [ $? -eq 66 ] || return
  return 66
}

# message_expire PATH - bury the message of this slip, or move it to the dead-letter queue
message_expire() {
  slip_path=$1
  queue_conf && message_fail '' expired
}
