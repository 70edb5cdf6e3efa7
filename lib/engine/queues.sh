# engine/queues.sh - call a function for each queue of the spool

# each_queue FUNCTION - call `FUNCTION NAME PATH` for each queue of the spool. If it fails for one, go on with the others; then return the code of the
# first failure, with its `why`
each_queue() {
  each_code=0
  for each_path in "$FLATQ_DIR"/*/wal; do
    [ -d "$each_path" ] || continue
    each_path=${each_path%/wal}
    name_from_disk "${each_path##*/}"
    "$1" "$name_queue" "$each_path" || {
      each_last=$?
      # RACE: another process may drop the queue meanwhile: that is no error
      [ ! -d "$each_path" ] || [ $each_code -ne 0 ] || each_code=$each_last each_why=$why
    }
  done
  [ $each_code -eq 0 ] || why=$each_why
  return $each_code
}

# name_from_disk COMPONENT - set `name_queue` to the queue that name_to_disk made COMPONENT of
name_from_disk() {
  name_queue=${1#%}
  while :; do
    case $name_queue in
    *,*) name_queue=${name_queue%%,*}/${name_queue#*,} ;;
    *) return 0 ;;
    esac
  done
}

part='engine/queues'
