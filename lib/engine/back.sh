# engine/back.sh - give back what pop, reserve or a bulk take has taken and not settled

# take_back - give back what was taken and not settled; keep `why`
take_back() {
  # A signal may come after the marker was created
  [ -n "$taken" ] && ! is_settled "$taken" || return 0
  need engine/state
  take_why=$why body_said=
  slip_path=$q/out/$taken
  clock_read
  queue_conf && message_putback undelivered
  why=${body_said:-$take_why}
  taken=
}

# take_stopped SIGNAL - the trap of pop and reserve, and the end of bulk_stop: put the message back
take_stopped() {
  trap - HUP INT TERM
  # It is settled: finish as if the signal had come a moment later
  [ -z "$taken" ] || ! is_settled "$taken" || return 0
  # As in bulk_stop (R3)
  [ -z "$lock_held" ] || { need engine/lock; unlock_queue; }
  take_back
  [ -z "${wait_fifo:-}" ] || { need engine/wait; wait_end; }
  end_by "$1"
}
