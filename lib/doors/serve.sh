# doors/serve.sh - what launch starts in a session of its own: ncat, and a clock for the guard
#
# Descriptor 2 is the guard's pipe, and 5 the log. All that runs here, also each handler, is in one
# process group.

# serve KEEP UNIX NCAT-OPTION ... - run ncat; without KEEP, again after each connection.
# UNIX is its socket's path
serve() {
  serve_keep=$1 serve_unix=$2 serve_failed=0 serve_served=
  shift 2
  serve_seconds &
  printf '\ns %s\n' "$!" >&2
  while :; do
    [ ! -S "$serve_unix" ] || rm -f "$serve_unix"
    {
      read -r serve_pid serve_rest </proc/self/stat && printf '\nn %s\n' "$serve_pid" >&2
      exec ncat "$@"
    } &
    wait "$!"
    serve_code=$?
    [ -z "$serve_keep" ] || break
    # 2 means that ncat could not listen, 126 and 127 that it could not be run; any other code, that
    # its connection failed, or the guard ended it
    case $serve_code in
    2 | 126 | 127)
      serve_failed=$((serve_failed + 1))
      [ $serve_failed -lt 5 ] && [ -n "$serve_served" ] && sleep 1 || break ;;
    *) serve_failed=0 serve_served=1 ;;
    esac
  done
  printf '\nx\n' >&2
}

# serve_seconds - tell the guard each second, also if the process that runs ncat is gone. Once the
# guard is gone, end all that runs here
serve_seconds() {
  trap '' PIPE
  serve_says=t
  while :; do
    sleep 1
    read -r serve_pid serve_name serve_state serve_parent serve_rest </proc/self/stat
    [ "$serve_parent" = "$$" ] || serve_says=x
    printf '\n%s\n' "$serve_says" >&2 || break
  done
  trap '' TERM
  kill -TERM 0
  sleep 2
  kill -KILL 0
}
