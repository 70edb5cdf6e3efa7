# engine/count.sh - count the messages of queues by their states

need engine/proof engine/queues

# queue_count - set count_said to the ready messages with a priority below 1024, those that are
# ready, delayed, reserved and buried, and `end`; count_buried; count_total, all others. 74:
# unknown. A message that moves meanwhile is counted once
queue_count() {
  # shellcheck disable=SC2086 # places
  find_names $count_places \( ! -type d -o -path 'claimed/*/*' \) \
    ! -name '~' ! -name '*[!!-~]*' || return
  count_said=$({ printf '%s\n' "$names" && printf 'lock\n'; } | count_awk)
  # shellcheck disable=SC2086 # five numbers
  set -- $count_said
  [ "${6:-}" = end ] || { why="queue '$queue': cannot be counted"; return 74; }
  count_total=$(($2 + $3 + $4)) count_buried=$5
}

count_places='wal fold queue unfold head delayed out claimed buried done'

# queues_count QUEUE ... - set `counts` to a line `count DIRECTORY URGENT READY DELAYED RESERVED
# BURIED end` for each that exists, and counts_gone if one does not; 74: one is unknown. One find
# looks at many; if it does not see all, each is counted by itself
queues_count() {
  counts='' counts_code=0 counts_gone=
  while [ $# -gt 0 ]; do
    count_paths='' count_some=
    while [ $# -gt 0 ] && [ ${#count_paths} -lt 20000 ]; do
      name_to_disk "$1"
      for count_place in $count_places lock; do
        count_paths="$count_paths ./$name_disk/$count_place"
      done
      count_some="$count_some $1"
      shift
    done
    # shellcheck disable=SC2086 # paths without blanks, words
    names=$(cd "$FLATQ_DIR" && exec find $count_paths \( ! -type d -o -path './*/claimed/*/*' \) \
      ! -name '~' ! -name '*[!!-~]*' 9>&-) &&
      count_said=$({ printf '%s\n' "$names" && printf '=\n'; } | count_awk many) &&
      count_whole $count_said && { counts=$counts${count_said%whole*}; continue; }
    for count_queue in $count_some; do
      queue_open "$count_queue" && queue_count
      case $? in
      0) counts="${counts}count ${q##*/} $count_said
" ;;
      66 | 69) counts_gone=$why ;;
      *) counts_code=74 counts_why=$why ;;
      esac
    done
  done
  [ $counts_code -eq 0 ] || why=$counts_why
  return $counts_code
}

# counted_queues FUNCTION QUEUE ... - call `FUNCTION READY DELAYED RESERVED BURIED` for each that
# exists, which is open then; return the code of one that failed, with its `why`
counted_queues() {
  counted_function=$1
  shift
  queues_count "$@"
  counted_code=$? counted_why=$why
  IFS='
'
  for counted_line in $counts; do
    IFS=$blanks
    # shellcheck disable=SC2086 # words
    counted_call $counted_line
    counted_one=$?
    case $counted_one in
    0) ;;
    # RACE: it was dropped meanwhile
    66 | 69) counts_gone=$why ;;
    *) counted_code=$counted_one counted_why=$why ;;
    esac
  done
  IFS=$blanks
  [ $counted_code -eq 0 ] || why=$counted_why
  return $counted_code
}

# counted_call count DIRECTORY URGENT READY ... - call counted_function for this queue
counted_call() {
  name_from_disk "$2"
  queue_open "$name_queue" && "$counted_function" "$4" "$5" "$6" "$7"
}

# count_whole WORD ... - return whether count_said, whose WORDs these are, has as many lines as its
# last line says: busybox's awk hides that it could not write
count_whole() {
  is_number "${count_said##*whole }" 999999 && [ $# -eq $((8 * number + 2)) ]
}

# count_awk [many] - a filter from the paths of each queue, `lock` being the last, to its numbers;
# `many`: from ./DIRECTORY/PATH, up to a line `=`; behind the numbers a line `whole LINES`
count_awk() {
  exec awk -F / -v "many=${1:-}" '
    $0 == "=" { whole = 1; next }
    many { queue = "count " $2 " "; sub(/^\.\/[^\/]*\//, "") }
    $0 == "lock" { show(); next }
    { n = split($NF, field, ".") }
    $1 == "done" { settled[$2] = 1; next }
    # A segment is OFFSET.COUNT, or OFFSET.COUNT.flat; its marks have a COUNT of 0
    $1 == "claimed" {
      if (NF == 3 && length(field[1]) == 12 && field[2] ~ /^[1-9][0-9]*$/) {
        key = $2 "/" field[1]; state[key] = "reserved"; size[key] = field[2]
      }
      next
    }
    # The first id and the nonce of a flat file, or the id of a slip
    n == 6 { key = field[2] "." field[6]; size[key] = field[4]; priority = field[1] }
    n > 6 { at = $1 == "buried"; key = field[2 + at]; size[key] = 1; priority = field[1 + at] }
    n < 6 { next }
    {
      state[key] = $1 == "out" ? "reserved" : $1 == "delayed" || $1 == "buried" ? $1 : "ready"
      # As text: busybox takes 08 for octal
      urgent[key] = (priority "") < "0000001024"
      holder[key] = $1 == "out" ? $2 : ""
    }
    # What is being folded or unfolded may be in a flat file too
    $1 == "fold" || $1 == "head" { split($2, field, "."); run[key] = field[2] "." field[3] }
    $1 == "head" { unfolded[run[key]] = 1 }
    $1 == "unfold" { unfolding[key] = 1 }
    function show(key) {
      for (key in state) {
        if (holder[key] in settled || key in unfolding && key in unfolded) continue
        if (key in run && run[key] in state && !(run[key] in unfolding)) continue
        count[state[key]] += size[key]
        if (state[key] == "ready" && urgent[key]) count["urgent"] += size[key]
      }
      rows++
      printf "%s%d %d %d %d %d end\n", queue, count["urgent"], count["ready"], count["delayed"],
        count["reserved"], count["buried"]
      split("", state); split("", settled); split("", unfolding); split("", unfolded)
      split("", run); split("", count)
    }
    END { if (whole) print "whole", rows + 0 }'
}

# queue_oldest - set `oldest` to the age of the oldest ready message, in seconds; 0: none. Reads the
# clock. In each place, the first message of a priority is the oldest
queue_oldest() {
  clock_read
  clock_epoch "$now"
  oldest_born=$epoch_time oldest_seen=.
  for oldest_turn in 1 2; do
    for oldest_path in "$q"/wal/* "$q"/head/*/* "$q"/queue/*/*; do
      case $oldest_path in
      */'*' | "$oldest_seen"*) continue ;;
      esac
      oldest_name=${oldest_path##*/}
      oldest_seen=${oldest_path%"$oldest_name"}${oldest_name%%.*}.
      case $oldest_name in
      *.*.*.*.*.*.*) ;;
      *) IFS='	' read -r oldest_name oldest_rest <"$oldest_path" ;;
      esac
      slip_parse "$oldest_name" || continue
      ! [ "$slip_born" \< "$oldest_born" ] || oldest_born=$slip_born
    done
    # One look that failed is no absence (R1)
    [ "$oldest_seen" = . ] || break
  done
  # With the 1, 08 is not octal
  oldest=$(((1$epoch_time - 1$oldest_born) / 100))
}
