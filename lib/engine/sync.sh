# engine/sync.sh - sync many files, and files that other verbs may move

# sync_many PATH - as sync_paths, for many new files: sync the file system of PATH
sync_many() {
  [ "$spool_sync" = off ] || sync -f "$1" || sync_failed
}

# sync_moving PATH ... - as sync_paths, but if `sync` complains only that other verbs have removed a
# PATH, sync the file system: the message may be anywhere
sync_moving() {
  [ "$spool_sync" = on ] || return 0
  # shellcheck disable=SC2086
  sync_said=$(exec sync $sync_how "$@" 2>&1 9>&-) && return 0
  [ "$(printf '%s\n' "$sync_said" | sed '/: No such file or directory$/d' && printf end)" = end ] ||
    { sync_failed; return; }
  sync_many "$q"
}
