# engine/disk.sh - why a write failed

# disk_why DIRECTORY [WHAT] - see disk_failed. The shell does not say why: write again with tools
disk_why() {
  [ $# -gt 1 ] || set -- "$1" "queue '$queue'"
  reason=$(disk_try "$1" 3>&1 | sed -n 's/^[^:]*: .*: \([A-Z][^:]*\)$/\1/p' | tail -n 1)
  case $reason in
  'No space'* | *quota* | *Quota*) reason='no space left' ;;
  '') [ -w "$1" ] || reason='not writable' ;;
  esac
  reason=${reason:-input or output failed}
  why="$2: $reason"
  case $reason in
  *ermission* | *'not permitted'* | 'not writable') return 77 ;;
  'No such file or directory')
    need engine/proof
    [ -z "${q:-}" ] || ! absent "$q/lock" || { why="queue '$queue' is gone"; return 69; }
    why="$2: $reason" ;;
  esac
  return 74
}

# disk_try DIRECTORY - write 64 KiB to a new file there, or make a directory; errors go to 3. CRASH:
# spool_sweep removes it. A dot in front would hide it from globs among slips
disk_try() {
  nonce_read
  case $1 in
  "$FLATQ_DIR") set -- "$1/.probe.$nonce.$$-000000000000" ;;
  *) set -- "$1/probe.$nonce.$$-000000000000" ;;
  esac
  dd if=/dev/zero bs=65536 count=1 of="$1" 2>&3 || [ -e "$1" ] || mkdir "$1" 2>&3
  rm -f "$1" || rmdir "$1"
}

# reader_gone TEXT - return whether a line of base64's errors says that nobody reads
reader_gone() {
  case "$1
" in
  *'Broken pipe
'* | *'Connection reset by peer
'* | *' (os error 32)
'* | *' (os error 104)
'*) return 0 ;;
  esac
  return 1
}
