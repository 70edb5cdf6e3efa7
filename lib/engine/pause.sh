# engine/pause.sh - a paused queue hands out no message
#
# `paused` has UNTIL BOOT SECONDS, or `- - SECONDS` without an end. Meanwhile `tended` is a
# directory: a take, which reads and writes that file anyway, fails to, and looks here. So a queue
# that is not paused costs it nothing.

need engine/lock engine/clock

# queue_paused - set paused_left to the seconds that the pause of $q is left, 4294967295 without an
# end, 0 if it is not paused; paused_until and paused_seconds. 74: unknown. Reads `now`
queue_paused() {
  paused_left=0 paused_until='' paused_boot='' paused_seconds=0
  # One look, or read, that failed is no absence; two reads are none without proof (R1)
  [ -d "$q/tended" ] || [ -d "$q/tended" ] || return 0
  read -r paused_until paused_boot paused_seconds <"$q/paused" ||
    read -r paused_until paused_boot paused_seconds <"$q/paused" || {
    need engine/proof
    absent "$q/paused" || { why="queue '$queue': cannot read paused"; return 74; }
  }
  case $paused_until.$paused_boot in
  -.-) paused_left=$paused_seconds ;;
  *[!0-9]*."$boot") ;;
  ????????????."$boot")
    clock_between "$now" "$paused_until"
    paused_left=$((between_s + (between_c > 0))) ;;
  esac
  [ "$paused_left" -gt 0 ] || paused_left=0 paused_seconds=0
}

# pause_look - for a take that cannot write `tended`: set tend_paused if the queue is paused; end a
# pause that is over, under the lock. RACE: another verb may have paused the queue anew
pause_look() {
  queue_paused || return
  if [ "$paused_left" -gt 0 ]; then
    tend_paused=1
  elif [ -n "$lock_held" ]; then
    rmdir "$q/tended" || :
  elif [ -d "$q/tended" ]; then
    under_lock pause_look
  fi
}

# pause_set SECONDS - under the lock, pause $q for SECONDS; empty: without an end; 0: resume it.
# CRASH: it is paused as long as `tended` is a directory
pause_set() {
  if [ "$1" = 0 ]; then
    { rmdir "$q/tended" || [ ! -d "$q/tended" ]; } && rm -f "$q/paused" ||
      { disk_failed "$q"; return; }
    sync_paths "$q" || return
    wake "$q/wait" 999999999
    return
  fi
  pause_text='- - 4294967295' pause_tries=0
  [ -z "$1" ] || { clock_add "$1" "$now"; pause_text="$later $boot $1"; }
  # CRASH: a power cut must not leave `tended` with a part of `paused`, which is no end of the pause
  file_put paused "$pause_text" && sync_paths "$q/paused" || { disk_failed "$q"; return; }
  until mkdir "$q/tended" || [ -d "$q/tended" ]; do
    # RACE: a take may write the file again
    [ $pause_tries -lt 100 ] && rm -f "$q/tended" || { disk_failed "$q"; return; }
    pause_tries=$((pause_tries + 1))
  done
  sync_paths "$q"
}
