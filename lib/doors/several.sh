# doors/several.sh - serve several doors: a process `serve` for each

need engine/process cli/usage

# several WORD ... - start `serve` for each door, whose PID-TIME is in serve_doors; end when one
# of them has ended
several() {
  serve_doors=
  clock_read
  serve_self=$$-$now
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    exec sh "$lib/serve" --parent "$serve_self" "$@" 2>&5 5>&- &
    clock_read
    serve_doors="$serve_doors $!-$now"
    options "$@"
    shift "$serve_words"
  done
  # Before, a signal just ends us: each door ends when its parent has
  trap_stop several_end
  trap 'several_kill USR1' USR1
  while :; do
    for serve_one in $serve_doors; do
      ! owner_dead "$serve_one" || several_end TERM
    done
    sleep 1 &
    wait "$!"
  done
}

# several_end SIGNAL - end all doors; exit with the code of one that has failed, else by SIGNAL
several_end() {
  trap '' HUP INT TERM USR1
  several_kill TERM
  serve_code=0
  for serve_one in $serve_doors; do
    wait "${serve_one%-*}"
    several_code=$?
    # From 128 on: by a signal
    [ $several_code -ge 128 ] || [ $serve_code -ne 0 ] || serve_code=$several_code
  done
  [ $serve_code -ne 0 ] || end_by "$1"
  exit $serve_code
}

several_kill() {
  for serve_own in $serve_doors; do
    owner_dead "$serve_own" || kill "-$1" "${serve_own%-*}"
  done
}
