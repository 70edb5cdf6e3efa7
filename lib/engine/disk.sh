# engine/disk.sh - why a write failed: only a verb that fails pays for finding out

# disk_reason DIRECTORY - set `reason` to the system's text for why a write below DIRECTORY just failed.
# The shell does not tell, so try the write again with a tool that does. Only failing verbs pay for it.
disk_reason() {
  reason=$({ dd if=/dev/zero of="$1/probe.$$" bs=65536 count=1 || :; rm -f "$1/probe.$$"; } 2>&1 |
    { sed -n 's/^dd: .*: \([A-Z][^:]*\)$/\1/p' | tail -n 1; } 2>/dev/null)
  case $reason in
  'No space'* | *quota* | *Quota*) reason='no space left' ;;
  '') [ -w "$1" ] || reason='not writable' ;;
  esac
  reason=${reason:-input or output failed}
}
