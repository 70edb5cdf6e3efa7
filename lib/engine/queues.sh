# engine/queues.sh - call a function for each queue of the spool

# each_queue FUNCTION - call `FUNCTION NAME PATH` for each queue that one look sees; then return the
# code of the first that failed, with its `why`
each_queue() {
  each_code=0
  for each_path in "$FLATQ_DIR"/*/wal; do
    each_one "$1" "${each_path%/wal}"
  done
  [ $each_code -eq 0 ] || why=$each_why
  return $each_code
}

# all_queues FUNCTION - as each_queue, but return 74 unless it is proved that these are all (R1)
all_queues() {
  need engine/proof
  names_in "$FLATQ_DIR" || { why="spool $FLATQ_DIR: cannot be listed"; return 74; }
  each_code=0
  for each_name in $names; do
    there "$FLATQ_DIR/$each_name/wal"
    [ $? -ne 74 ] || [ "$each_code" -ne 0 ] || each_code=74 each_why=$why
    each_one "$1" "$FLATQ_DIR/$each_name"
  done
  [ $each_code -eq 0 ] || why=$each_why
  return $each_code
}

# each_one FUNCTION PATH - each_queue for PATH, if it is a queue
each_one() {
  [ -d "$2/wal" ] || return 0
  name_from_disk "${2##*/}"
  # No verb makes another name, which may hold what a terminal would obey
  name_check "$name_queue" && name_to_disk "$name_queue" && [ "$name_disk" = "${2##*/}" ] ||
    return 0
  "$1" "$name_queue" "$2" || {
    each_last=$?
    # RACE: another verb may have dropped the queue
    [ ! -d "$2" ] || [ "$each_code" -ne 0 ] || each_code=$each_last each_why=$why
  }
}

# name_from_disk PART - set `name_queue` to what name_to_disk made PART of
name_from_disk() {
  name_queue=${1#%}
  while :; do
    case $name_queue in
    *,*) name_queue=${name_queue%%,*}/${name_queue#*,} ;;
    *) return 0 ;;
    esac
  done
}
