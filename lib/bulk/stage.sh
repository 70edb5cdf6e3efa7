# bulk/stage.sh - take in flat files that another program has written beside a queue: the sink of
# flatq.spark sources it in a shell whose $0 is `push`
#
# Order: 1 `ids`; 2 the program writes a stage with these ids, and syncs it; 3 `room`; 4 it syncs a
#        note that it is going to enter the stage; 5 `enter` renames flat file after flat file.
# Crash: before 5, no verb sees the stage. After it has begun, `enter` again does the rest.

need engine/lock engine/boot engine/bound bulk/push

# stage STEP ARGUMENT ... - run one of the steps
stage() {
  shell_reset
  spool_open make || die $? "$why"
  clock_read
  stage_step=$1
  shift
  "stage_$stage_step" "$@" || die $? "$why"
}

# stage_ids COUNT QUEUE - reserve COUNT ids; print the first, the spool's time in hundredths of a
# second, and how many messages and bytes a flat file has at most
stage_ids() {
  name_check "$2" && ids_block $((($1 + 999) / 1000)) || return
  clock_epoch "$now"
  printf '%s %s %s %s\n' "$ids_first" "$epoch_time" "$flat_lines" "$flat_bytes"
}

# stage_room QUEUE COUNT - return 75 if the queue has no room for COUNT messages now, or a bound
# below COUNT; 69 if it is closed
stage_room() {
  queue_open "$1" || return 0
  [ ! -e "$q/closed" ] || { why="queue '$queue' is closed"; return 69; }
  queue_conf || return
  bound_allows "$2" || return
  queue_room "$2"
}

# stage_enter QUEUE STAGE NONCE COUNT BYTES FIRST WAIT - move what is in STAGE into the queue, as
# soon as there is room
stage_enter() {
  queue_open "$1" make || return
  bulk_stage=$2 nonce=$3 bulk_count=$4 bulk_bytes=$5 bulk_first=$6 bulk_last='the last one'
  push_wait=$7
  clock_epoch "$now"
  bulk_commit || return
  [ -z "$lock_held" ] || unlock_queue
  wake "$q/wait" "$bulk_count"
}
