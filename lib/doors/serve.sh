# doors/serve.sh - what serve starts in a session of its own: a clock for the guard, and ncat
#
# Descriptor 2 is the guard's pipe, and 5 the log. All that runs here is in one process group.

# serve KEEP UNIX NCAT-OPTION ... - run ncat, without KEEP again after each connection, and tell the
# guard each second. Once the guard is gone, end all
serve() {
  serve_keep=$1 serve_unix=$2
  shift 2
  {
    while :; do
      [ ! -S "$serve_unix" ] || rm -f "$serve_unix"
      ncat "$@" &
      wait "$!"
      case $?$serve_keep in
      # It could not listen, or could not be run
      2 | 126 | 127 | *-k) break ;;
      esac
    done
    printf '\nx\n' >&2
  } &
  trap '' PIPE
  serve_says=t
  while :; do
    # This also reaps what runs ncat, if that was killed
    sleep 1
    kill -0 "$!" 2>/dev/null || serve_says=x
    printf '\n%s\n' "$serve_says" >&2 || break
  done
  trap '' TERM
  kill -TERM 0
  sleep 2
  kill -KILL 0
}
