# bulk/claim.sh - take many messages under a name, and hold them across crashes until they are
# settled or given back; all under the queue's lock
#
# A segment is claimed/NAME/OFFSET.COUNT/, slips or up to 200 flat files as they were taken; or
# OFFSET.COUNT.flat/, with flat files made of its slips (lib/README.md, "Places", has the marks).
# OFFSET, 12 digits, counts what NAME has claimed before, and is never given twice.

need engine/slip engine/sync engine/proof engine/flat engine/reclaim bulk/batch bulk/take

# claim_open NAME - set `claim` to NAME's directory, claim_settled, and claim_names to its segments
# and marks, in order; 66: NAME never claimed anything here
claim_open() {
  why="bad name: 1 to 100 of A-Z a-z 0-9 _ -, no '-' in front"
  case $1 in
  '' | -* | *[!A-Za-z0-9_-]*) return 65 ;;
  esac
  [ ${#1} -le 100 ] || return 65
  claim=$q/claimed/$1 claim_settled='' claim_names=
  names_in "$claim" || { absent "$claim" || return; names=; }
  for segment in $names; do
    case $segment in
    settled.????????????) claim_settled=${segment#settled.} ;;
    *) ! segment_parse "$segment" || claim_names="$claim_names $segment" ;;
    esac
  done
  case $claim_settled in
  *[!0-9]*) why="queue '$queue': claimed/$1 is damaged"; return 74 ;;
  '') why="queue '$queue': nothing was claimed as '$1'"; return 66 ;;
  esac
}

# claim_recover - remove segments that are settled or have become flat files. Set `segments` to the
# others, claim_held to their messages, and claim_next to the next offset
# shellcheck disable=SC2086 # names
claim_recover() {
  claim_next=$claim_settled claim_held=0 claim_over='' claim_marks='' segments=
  for segment in $claim_names; do
    segment_parse "$segment"
    if ! [ "$claim_settled" \< "$segment_end" ]; then
      if [ "$segment_count" = 0 ]; then
        claim_marks="$claim_marks $segment"
      else
        claim_over="$claim_over $segment"
      fi
      continue
    fi
    case "$claim_names " in
    *" $segment.flat "*)
      # CRASH: as in fold_finish, the process that renamed it may have died before it synced
      sync_paths "$claim" || return
      batch_read "$claim/$segment" && batch_remove "$claim/$segment" || return
      continue ;;
    esac
    [ "$segment_end" \< "$claim_next" ] || claim_next=$segment_end
    claim_held=$((claim_held + segment_count))
    [ "$segment_count" = 0 ] || segments="$segments $segment"
  done
  # CRASH: the same, of the rename of settled.OFFSET
  [ -z "$claim_over$claim_marks" ] || sync_paths "$claim" || return
  for segment in $claim_over; do
    batch_read "$claim/$segment" && keys_remove "$batch_keys" || return
    batch_remove "$claim/$segment" $claim_marks || return
    claim_marks=
  done
  [ -z "$claim_marks" ] || (cd "$claim" && exec rm -f $claim_marks) || disk_failed "$claim"
}

# segment_parse NAME - set segment_offset, segment_count and segment_end; 1: no segment's name
segment_parse() {
  segment_count=${1#????????????.} segment_count=${segment_count%.flat} segment_offset=${1%%.*}
  case $segment_offset.$segment_count in
  *[!0-9.]* | *.*.* | *. | *.0?* | *.??????????*) return 1 ;;
  esac
  unpad "$segment_offset"
  pad $((unpadded + segment_count)) 000000000000
  segment_end=$padded
}

# claim_more COUNT - claim until COUNT messages are held, or nothing is ready; durable when it
# returns. 66, 69: nothing is held.
# CRASH: until it is renamed, a segment is a batch, which comes back. It is synced before the
# rename, so a segment has all its messages after a power cut too
claim_more() {
  claim_new=0 claim_code=66 why="nothing is claimed as '${claim##*/}'"
  # Take as many as lie in one place: a segment costs three processes and two syncs
  while [ "$claim_held" -lt "$1" ]; do
    bulk_choose $(($1 - claim_held)) "$queue" || {
      claim_code=$?
      [ $claim_code -eq 66 ] || [ $claim_code -eq 69 ] || return $claim_code
      break
    }
    segment=$claim_next.$bulk_got
    sync_paths "$q/out/$batch" && rename_path "$q/out/$batch" "$claim/$segment" || {
      disk_failed "$claim"
      claim_code=$?
      batch_putback "$q/out/$batch"
      return $claim_code
    }
    segments="$segments $segment"
    claim_held=$((claim_held + bulk_got)) claim_new=$((claim_new + bulk_got))
    segment_parse "$segment"
    claim_next=$segment_end
  done
  [ "$claim_held" -ne 0 ] || return $claim_code
  [ $claim_new -eq 0 ] || { claim_mark && bulk_log claim "$claim_new"; }
}

# claim_mark - mark all offsets before claim_next as used; none beyond the last mark was printed
claim_mark() {
  file_mark "$claim/$claim_next.0" || disk_failed "$claim"
}

# claim_flatten - make flat files of segments that are slips, and set `segments` anew.
# CRASH: until the rename to SEGMENT.flat the slips are the segment; after it, they are only removed
claim_flatten() {
  claim_flat=
  for segment in $segments; do
    names_in "$claim/$segment" || return
    if slip_parse "${names%%'
'*}"; then
      nonce_read
      claim_stage=$q/tmp/claim.$nonce
      mkdir "$claim_stage" || { disk_failed "$q/tmp"; return; }
      claim_write || {
        disk_failed "$q/tmp"
        claim_code=$?
        rm -rf "$claim_stage"
        return $claim_code
      }
      sync_many "$claim_stage" && rename_path "$claim_stage" "$claim/$segment.flat" &&
        sync_paths "$claim" && batch_read "$claim/$segment" && batch_remove "$claim/$segment" ||
        { disk_failed "$claim"; return; }
      segment=$segment.flat
    fi
    claim_flat="$claim_flat $segment"
  done
  segments=$claim_flat
}

# claim_write - write to claim_stage a flat file for each priority in `names`, and large message
claim_write() {
  claim_run='' claim_priority=
  # The last word, no slip, ends the last run
  for claim_slip in $names end.; do
    claim_large=
    ! slip_parse "$claim_slip" || [ "$slip_size" -lt "$large_body" ] || claim_large=1
    if [ "${claim_slip%%.*}$claim_large" != "$claim_priority" ]; then
      # shellcheck disable=SC2086 # names
      [ -z "$claim_run" ] || flat_write "$claim_stage" "$nonce" $claim_run || return
      claim_run='' claim_priority=${claim_slip%%.*}
    fi
    claim_run="$claim_run $claim_slip"
    [ -z "$claim_large" ] || claim_priority=
  done
}

# claim_settle OFFSET - settle all before OFFSET; 65: no segment, present or former, ends there
claim_settle() {
  pad "$1" 000000000000
  # Settling again what is settled is not an error
  [ "$claim_settled" \< "$padded" ] || return 0
  claim_at=$padded claim_found='' claim_new=$claim_held
  for segment in $claim_names; do
    segment_parse "$segment"
    [ "$claim_at" != "$segment_end" ] || claim_found=1
  done
  [ -n "$claim_found" ] || { why="queue '$queue': no segment ends at offset $1"; return 65; }
  claim_ends "$claim_at" || return
  bulk_log settle $((claim_new - claim_held))
  wake "$q/room" $((claim_new - claim_held))
}

# claim_ends OFFSET - rename settled.OFFSET: all before OFFSET is settled; then remove that
claim_ends() {
  rename_path "$claim/settled.$claim_settled" "$claim/settled.$1" ||
    { disk_failed "$claim"; return; }
  claim_open "${claim##*/}" && claim_recover
}

# claim_back - give back all that is held; its offsets stay used. CRASH: a segment becomes a batch
# by one rename, synced before a message leaves it: so it is whole or gone, after a power cut too
claim_back() {
  [ "$claim_settled" != "$claim_next" ] || return 0
  claim_mark || return
  claim_batches=
  for segment in $segments; do
    batch_new
    rename_path "$claim/$segment" "$q/out/$batch" || { disk_failed "$claim"; return; }
    claim_batches="$claim_batches $batch"
  done
  sync_paths "$claim" "$q/out" || return
  for batch in $claim_batches; do
    batch_putback "$q/out/$batch" unclaim || return
  done
  [ "$claim_held" = 0 ] || bulk_log release "$claim_held"
  claim_ends "$claim_next"
}
