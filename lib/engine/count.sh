# engine/count.sh - count the messages of a queue by their states

need engine/proof

# queue_count - set count_urgent (priorities below 1024), count_ready, count_delayed, count_reserved
# and count_buried; and count_total to all that a bound counts, which is all but buried ones. Return
# 74 if not all could be listed. A message that moves meanwhile is counted once
queue_count() {
  find_names wal fold queue unfold head delayed out claimed buried "done" \
    \( ! -type d -o -path 'claimed/*/*' \) ! -name '~' ! -name '*[!!-~]*' || return
  count_said=$(printf '%s\n' "$names" . | awk -F / '
    $0 == "." { whole = 1; next }
    { n = split($NF, field, ".") }
    $1 == "done" { settled[$2] = 1; next }
    # A segment is a directory OFFSET.COUNT, or OFFSET.COUNT.flat; its marks have a COUNT of 0
    $1 == "claimed" {
      if (NF == 3 && length(field[1]) == 12 && field[2] ~ /^[1-9][0-9]*$/) {
        key = $2 "/" field[1]; state[key] = "reserved"; size[key] = field[2]
      }
      next
    }
    # The key is the first id and the nonce of a flat file, or the id of a slip. All flat files of
    # one bulk push have the same nonce
    n == 6 { key = field[2] "." field[6]; size[key] = field[4]; priority = field[1] }
    n > 6 { at = $1 == "buried"; key = field[2 + at]; size[key] = 1; priority = field[1 + at] }
    n < 6 { next }
    {
      state[key] = $1 == "out" ? "reserved" : $1 == "delayed" || $1 == "buried" ? $1 : "ready"
      # As text: busybox takes a number that begins with 0 for octal
      urgent[key] = (priority "") < "0000001024"
      holder[key] = $1 == "out" ? $2 : ""
    }
    # The messages of a run that was being folded or unfolded may be in its flat file too
    $1 == "fold" || $1 == "head" { split($2, field, "."); run[key] = field[2] "." field[3] }
    $1 == "head" { unfolded[run[key]] = 1 }
    $1 == "unfold" { unfolding[key] = 1 }
    END {
      if (!whole) exit 1
      for (key in state) {
        if (holder[key] in settled || key in unfolding && key in unfolded) continue
        if (key in run && run[key] in state && !(run[key] in unfolding)) continue
        count[state[key]] += size[key]
        if (state[key] == "ready" && urgent[key]) count["urgent"] += size[key]
      }
      printf "%d %d %d %d %d end", count["urgent"], count["ready"], count["delayed"],
        count["reserved"], count["buried"]
    }')
  # shellcheck disable=SC2086 # five numbers
  set -- $count_said
  [ "${6:-}" = end ] || { why="queue '$queue': cannot be counted"; return 74; }
  count_urgent=$1 count_ready=$2 count_delayed=$3 count_reserved=$4 count_buried=$5
  count_total=$((count_ready + count_delayed + count_reserved))
}

# queue_oldest - set `oldest` to the seconds since the oldest ready message was pushed, by
# epoch_time; 0: none is ready. Ids grow, so in each place the first message of a priority is the
# oldest
queue_oldest() {
  oldest_born=$epoch_time oldest_seen=.
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
  # Without the 1 in front, a shell would take them for octal
  oldest=$(((1$epoch_time - 1$oldest_born) / 100))
}
