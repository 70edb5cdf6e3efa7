# engine/disk.sh - why a write failed

# disk_why DIRECTORY [WHAT] - see disk_failed
disk_why() {
  [ $# -gt 1 ] || set -- "$1" "queue '$queue'"
  disk_reason "$1"
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

# disk_reason DIRECTORY - set `reason` to the system's text for why a write below DIRECTORY just
# failed. The shell does not tell, so try the write again with tools that do. Only failing verbs pay
# for it.
disk_reason() {
  reason=$(disk_try "$1" 3>&1 | sed -n 's/^[^:]*: .*: \([A-Z][^:]*\)$/\1/p' | tail -n 1)
  case $reason in
  'No space'* | *quota* | *Quota*) reason='no space left' ;;
  '') [ -w "$1" ] || reason='not writable' ;;
  esac
  reason=${reason:-input or output failed}
}

# disk_try DIRECTORY - write 64 KiB to a new file there, or make a directory if no file can be
# created; errors go to descriptor 3. CRASH: the next boot removes it (spool_sweep). Where slips
# lie, a verb sets it aside, as it does with any name that is not ours: so no dot in front, which
# would hide it from globs, and not from find. Beside the queues, a dot: a queue may have the other
# name
disk_try() {
  nonce_read
  case $1 in
  "$FLATQ_DIR") set -- "$1/.probe.$nonce.$$-000000000000" ;;
  *) set -- "$1/probe.$nonce.$$-000000000000" ;;
  esac
  dd if=/dev/zero bs=65536 count=1 of="$1" 2>&3 || [ -e "$1" ] || mkdir "$1" 2>&3
  rm -f "$1" || rmdir "$1"
}

# reader_gone TEXT - return whether base64's error lines say that nobody reads its output. Compare
# only the end of a line: base64 also prints the file's path, which may hold these words
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
