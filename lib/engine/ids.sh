# engine/ids.sh - ids, and the push journal that gives them

# ids_next - take the next id: set `id`, slip_id, and `journal`, a file that names this process and the queue until the push has ended.
# A range is filled from below, so halving finds the last id. It is renamed away before it is removed, so that a push which still uses it fails (I1).
ids_next() {
  owner_read
  while :; do
    ids_last_range || return $?
    ids_find_free
    # RACE: other pushes take ids too; if one was faster, try the next id
    while [ "$ids_high" -lt "$ids_most" ]; do
      ids_path=$range/$ids_high
      set -C
      # Open once, to create the file and to write it
      if { command exec 8>"$ids_path"; } 2>/dev/null; then
        set +C
        # Not before: a trap ends the entry of the journal (ids_end), which must be ours
        journal=$ids_path
        slip_id=${range##*/}${ids_high#1}
        unpad "$slip_id"
        id=$unpadded
        # CRASH: an empty file is an id that nobody uses
        { printf '%s %s %s\n%s\n' "${owner%-*}" "${owner#*-}" "${q##*/}" "$boot" >&8; } 2>/dev/null
        ids_code=$?
        close_descriptor 8
        [ $ids_code -eq 0 ] || { [ -d "$range" ] || break; disk_failed "$range"; return $?; }
        # RACE: a checkpoint that removes this range has removed `open` before it listed the entries (journal_sweep): if `open` is there, it sees ours
        [ -e "$range/open" ] || [ -e "$range/open" ] || { ids_end; continue 2; }
        [ "$id" = 0 ] || return 0
        # Skip 0: no message has that id
        ids_end
      fi
      set +C
      [ -e "$ids_path" ] || break
      ids_high=$((ids_high + 1))
    done
    if [ "$ids_high" -ge "$ids_most" ]; then
      need engine/boot
      ids_next_range || return $?
    elif [ -d "$range" ]; then
      disk_failed "$range" 'cannot give an id'
      return $?
    fi
  done
}

# ids_last_range - set `range` to the directory of the newest open range, which is synced. There are few: each boot opens one, and the checkpoint
# removes full and old ones
ids_last_range() {
  ids_found=
  # Digits only: shells calculate with the name (R7)
  for range in "$FLATQ_DIR"/.ids/[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]; do
    # Look twice before using an older range: some of its ids may not be on the disk
    [ ! -e "$range/open" ] && [ ! -f "$range/open" ] || ids_found=$range
  done
  range=$ids_found
  [ -n "$range" ] || { why='the spool has no range of ids'; return 74; }
  [ -z "$spool_shared" ] || no_links "$range"
}

# ids_find_free - by halving, set ids_high to the first number in `range` that is not taken; to ids_most if all are
ids_find_free() {
  # FLATQ_RANGE is the number of ids that are used of a range's thousand. 999: none is taken
  ids_most=$((1000 + FLATQ_RANGE)) ids_high=999
  for ids_step in 512 256 128 64 32 16 8 4 2 1; do
    [ ! -e "$range/$((ids_high + ids_step))" ] || ids_high=$((ids_high + ids_step))
  done
  ids_high=$((ids_high + 1))
}

# checkpoint_due - called after the answer: run the checkpoint if this process has opened a new range of ids, as happens once in a thousand messages.
# It runs in a subshell, so that nothing in it changes the caller's variables, answer or exit code
checkpoint_due() {
  [ -n "${ids_opened:-}" ] || return 0
  ids_opened=
  (need engine/checkpoint; checkpoint_turn) >/dev/null || :
}

# ids_end - note that the push with this id has ended, successfully or not. Appends a line, which is cheaper on disk than emptying the file
ids_end() {
  [ -h "$journal" ] || { printf '.\n' >>"$journal"; } 2>/dev/null || :
}

part='engine/ids'
