# bulk/claim.sh - take many messages under a name, and hold them across crashes until they are settled or given back
#
# A segment is claimed/NAME/OFFSET.COUNT/: messages as they were taken, slips or up to 200 flat files. Once OFFSET.COUNT.flat/ exists, with the flat
# files made of its slips, that is the segment (lib/README.md, "Places", has the other names).
# OFFSET, 12 digits, is the number of messages that NAME has claimed before: it grows, and is never given twice. The idea of offsets that a
# consumer commits is Kafka's. All of it happens under the queue's lock.

need engine/slip engine/sync engine/proof engine/fold engine/reclaim bulk/batch bulk/take

# claim_open NAME - set `claim` to NAME's directory, and claim_settled; return 66 if NAME never claimed anything here
claim_open() {
  case $1 in
  '' | -* | *[!A-Za-z0-9_-]*) why="bad name: 1 to 100 of A-Z a-z 0-9 _ -, no '-' in front"; return 65 ;;
  esac
  [ ${#1} -le 100 ] || { why='bad name: longer than 100 bytes'; return 65; }
  claim=$q/claimed/$1 claim_settled=
  if ! names_in "$claim"; then
    names_in "$q/claimed" && ! named "$1" || { why="queue '$queue': cannot list claimed/$1"; return 74; }
    names=
  fi
  for claim_name_in in $names; do
    case $claim_name_in in
    settled.????????????) claim_settled=${claim_name_in#settled.} ;;
    esac
  done
  case $claim_settled in
  *[!0-9]*) why="queue '$queue': claimed/$1 is damaged"; return 74 ;;
  '') why="queue '$queue': nothing was claimed as '$1'"; return 66 ;;
  esac
}

# claim_segments - set `segments` to all segments and marks, in order
claim_segments() {
  names_in "$claim" || return $?
  segments=
  for segment in $names; do
    ! segment_parse "$segment" || segments="$segments $segment"
  done
}

# claim_make - create the directory of a new name
claim_make() {
  mkdir -p "$claim" 2>/dev/null && file_mark "$claim/settled.000000000000" || { disk_failed "$q"; return $?; }
  claim_settled=000000000000
  sync_paths "$claim" "$q/claimed" "$q" || return $?
}

# claim_recover - finish what a killed process has begun: remove segments that are settled or have become flat files.
# Set claim_next to the next offset, and claim_held to the number of messages held. `synced`: settled.OFFSET is synced already
claim_recover() {
  claim_next=$claim_settled claim_held=0 claim_over='' claim_marks=''
  claim_segments || return $?
  for segment in $segments; do
    segment_parse "$segment"
    if ! [ "$claim_settled" \< "$segment_end" ]; then
      if [ "$segment_count" = 0 ]; then claim_marks="$claim_marks $segment"; else claim_over="$claim_over $segment"; fi
      continue
    fi
    case "$segments " in
    *" $segment.flat "*)
      # CRASH: as in fold_finish, the process that renamed it may have died before it synced
      sync_paths "$claim" || return $?
      segment_sweep "$claim/$segment" || return $?
      continue
      ;;
    esac
    [ "$segment_end" \< "$claim_next" ] || claim_next=$segment_end
    claim_held=$((claim_held + segment_count))
  done
  # CRASH: the same here: a power cut could undo the rename of settled.OFFSET, but not the removal of some messages
  [ $# -eq 1 ] || [ -z "$claim_over$claim_marks" ] || sync_paths "$claim" || return $?
  for segment in $claim_over; do segment_sweep "$claim/$segment" keys || return $?; done
  [ -z "$claim_marks" ] || claim_remove || disk_failed "$claim"
}

# segment_parse NAME - set segment_offset, segment_count and segment_end; return 1 if NAME is not a segment's
segment_parse() {
  segment_count=${1#????????????.} segment_count=${segment_count%.flat} segment_offset=${1%%.*}
  case $segment_offset.$segment_count in
  *[!0-9.]* | *.*.* | *. | *.0?* | *.??????????*) return 1 ;;
  esac
  unpad "$segment_offset"
  pad $((unpadded + segment_count)) 000000000000
  segment_end=$padded
}

# segment_sweep SEGMENT [keys] - remove bodies and segment; with `keys`, first the keys of its messages
segment_sweep() {
  batch_read "$1" || return $?
  [ $# -eq 1 ] || { need engine/key; keys_remove "$batch_keys"; } || return $?
  # shellcheck disable=SC2086 # names without blanks
  { [ -z "$batch_bodies" ] || (cd "$q/body" && exec rm -f $batch_bodies 9<&9) 2>/dev/null; } &&
    claim_remove "${1##*/}" || disk_failed "$claim"
}

# claim_remove [SEGMENT] - remove the segment, and old marks with the same process
# shellcheck disable=SC2086 # names without blanks
claim_remove() {
  (cd "$claim" && exec rm -rf "$@" $claim_marks 9<&9) 2>/dev/null && claim_marks=
}

# claim_more COUNT - claim until COUNT messages are held, or nothing is ready; durable when it returns.
# CRASH: until one rename makes it a segment, it is a batch, which is put back once its owner is dead. The batch is synced before that rename,
# so after a power cut too a segment has all its messages
claim_more() {
  # Take as many as lie in one place: a segment costs three processes and two syncs
  claim_new=0
  [ "$claim_held" -ge "$1" ] || { queue_promote && queue_reclaim; } || return $?
  while [ "$claim_held" -lt "$1" ]; do
    bulk_choose $(($1 - claim_held)) || { claim_code=$?; [ $claim_code -ne 66 ] || break; return $claim_code; }
    sync_paths "$q/out/$batch" && rename_path "$q/out/$batch" "$claim/$claim_next.$bulk_got" ||
      { disk_failed "$claim"; claim_code=$?; batch_putback "$q/out/$batch"; return $claim_code; }
    claim_held=$((claim_held + bulk_got)) claim_new=$((claim_new + bulk_got))
    segment_parse "$claim_next.$bulk_got"
    claim_next=$segment_end
  done
  [ $claim_new -eq 0 ] || { claim_mark && bulk_log claim "$claim_new"; }
}

# claim_mark - mark all offsets before claim_next as used. No offset beyond the last mark was printed
claim_mark() {
  file_mark "$claim/$claim_next.0" || disk_failed "$claim"
}

# claim_flatten - make flat files of segments that are slips.
# CRASH: until the rename to SEGMENT.flat, the slips are the segment; after it, they only have to be removed
claim_flatten() {
  claim_segments || return $?
  for segment in $segments; do
    segment_parse "$segment"
    case $segment_count.$segment in
    0.* | *.flat) continue ;;
    esac
    segment=$claim/$segment
    names_in "$segment" || return $?
    # shellcheck disable=SC2086 # names without blanks
    set -- $names
    slip_parse "${1:-}" || continue
    nonce_read
    claim_stage=$q/tmp/claim.$nonce
    mkdir "$claim_stage" 2>/dev/null 9<&9 || { disk_failed "$q/tmp"; return $?; }
    while [ $# -gt 0 ]; do segment_run "$@" || return $?; shift "$segment_took"; done
    sync_many "$claim_stage" && rename_path "$claim_stage" "$segment.flat" && sync_paths "$claim" && segment_sweep "$segment" ||
      { disk_failed "$claim"; return $?; }
  done
}

# segment_run SLIP ... - make a flat file of those that have the first one's priority; set segment_took
segment_run() {
  segment_first=${1##*/} segment_took=0 segment_slips=
  for segment_slip in "$@"; do
    segment_slip=${segment_slip##*/}
    [ "${segment_slip%%.*}" = "${segment_first%%.*}" ] || break
    # In a group's spool: the file that a link names would become the message, which every member can read
    [ -z "$spool_shared" ] || ! slip_parse "$segment_slip" || no_links "$q/body/$slip_id" || return $?
    segment_slips="$segment_slips $segment_slip" segment_took=$((segment_took + 1))
  done
  # shellcheck disable=SC2086 # names without blanks
  flat_write "$claim_stage" "$nonce" $segment_slips && return 0
  disk_failed "$q/tmp"
  segment_took=$?
  rm -rf "$claim_stage" 2>/dev/null 9<&9
  return $segment_took
}

# claim_list - print `OFFSET COUNT PATH` of each segment
claim_list() {
  claim_segments || return $?
  for segment in $segments; do
    segment_parse "$segment" && [ "$segment_count" != 0 ] || continue
    unpad "$segment_offset"
    printf '%s %s %s\n' "$unpadded" "$segment_count" "$claim/$segment" 2>/dev/null 1>&"$out" || return 74
  done
}

# claim_settle OFFSET - settle all before OFFSET. Return 65 if OFFSET is not the end of a segment, present or former
claim_settle() {
  pad "$1" 000000000000
  # Settling again what is settled is not an error
  [ "$claim_settled" \< "$padded" ] || return 0
  claim_at=$padded claim_found='' claim_new=0
  claim_segments || return $?
  for segment in $segments; do
    segment_parse "$segment" && ! [ "$claim_at" \< "$segment_end" ] || continue
    claim_new=$((claim_new + segment_count))
    [ "$claim_at" != "$segment_end" ] || claim_found=1
  done
  [ -n "$claim_found" ] || { why="queue '$queue': no segment ends at offset $1"; return 65; }
  rename_path "$claim/settled.$claim_settled" "$claim/settled.$claim_at" || { disk_failed "$claim"; return $?; }
  sync_paths "$claim" || return $?
  claim_settled=$claim_at
  bulk_log settle "$claim_new"
  wake "$q/room" "$claim_new"
  claim_recover synced
}

# claim_back - give back all that is held, to its old place in the order. Its offsets stay used.
# CRASH: one rename makes a segment a batch, which is put back once its owner is dead; so a segment is whole or does not exist. The rename is synced
# before a message leaves the batch, so this holds after a power cut too
claim_back() {
  [ "$claim_settled" != "$claim_next" ] || return 0
  claim_mark || return $?
  claim_new=$claim_held claim_batches=
  claim_segments || return $?
  for segment in $segments; do
    segment_parse "$segment" && [ "$segment_count" != 0 ] || continue
    batch_new
    rename_path "$claim/$segment" "$q/out/$batch" || { disk_failed "$claim"; return $?; }
    claim_batches="$claim_batches $batch"
  done
  sync_paths "$claim" "$q/out" || return $?
  for batch in $claim_batches; do
    batch_putback "$q/out/$batch" unclaim || return $?
  done
  rename_path "$claim/settled.$claim_settled" "$claim/settled.$claim_next" || { disk_failed "$claim"; return $?; }
  [ "$claim_new" = 0 ] || bulk_log release "$claim_new"
  claim_settled=$claim_next
  # Remove the mark only when settled.OFFSET, which says the same, is synced
  sync_paths "$claim" || return $?
  claim_recover synced
}

part='bulk/claim'
