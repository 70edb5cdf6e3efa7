# engine/sync.sh - sync files and directories, if FLATQ_SYNC asks for it

# sync_asked - return 0 if what was done must be synced. Else return 1, and set sync_code: 0 if it need not be, 74 if our `sync` does less than it must.
# A verb with `on` may have come since we began (sync_mode). A record that cannot be read proves nothing (R1); before the first one, at a boot,
# boot_tools is empty
sync_asked() {
  [ "$FLATQ_SYNC" = off ] || return 0
  sync_code=0
  [ -n "$boot_tools" ] || return 1
  sync_record || return 0
  case $sync_line in
  off:*) return 1 ;;
  esac
  # Another verb has tried `sync` meanwhile: take from its record how to call it. All else stays as we read it when we began
  sync_whole=$sync_file boot_tools=$sync_line FLATQ_SYNC=on sync_code=74
  [ "${sync_whole:--f}" = -f ] && { tools_same || { need engine/probe; probe_said=''; probe_sync; }; } || { FLATQ_SYNC=off; sync_failed; return 1; }
}

# sync_record - read the record of this boot as it is now. In a function of its own: mksh leaves the one whose redirection fails, with 1 (R12)
sync_record() {
  { read -r sync_epoch sync_wrap sync_same sync_file && read -r sync_line; } 2>/dev/null <"$FLATQ_DIR/.boot/$boot"
}

# sync_failed - set `why`, and return 74
sync_failed() {
  why="queue '${queue:-}': cannot sync"
  return 74
}

# sync_paths PATH ... - sync these files and directories, if that is asked for; if it fails, return 74, with `why`. With uutils, sync_whole is -f
# (probe_sync_file): sync their whole file systems
sync_paths() {
  sync_asked || return "$sync_code"
  # In braces, since a shell says on its own standard error that a program was killed
  { sync ${sync_whole:+-f} "$@"; } 2>/dev/null && return 0
  # A worker outlives a signal to its group, and `sync` does not: once more. Never after an error, which the kernel may report only once
  [ $? -gt 128 ] && { sync ${sync_whole:+-f} "$@"; } 2>/dev/null || sync_failed
}

part='engine/sync'
