# engine/missed.sh - when a take does not get what it has found at the first try

need engine/lock engine/proof

# take_missed - the end of take_found: return 66 to look again, or why that is of no use
take_missed() {
  case $scan_place in
  wal | head/*)
    slip_parse "$scan_name" || { set_aside "$scan_place/$scan_name" && return 66; return; }
    # RACE: another process was faster, or a drop has removed out/
    if [ -e "$take_from" ]; then
      drop_wait
      take_code=$?
      case $take_code in
      0 | 69) return 66 ;;
      1) ;;
      *) return $take_code ;;
      esac
    fi ;;
  *)
    # lock_queue empties fold/ and unfold/
    need engine/flat
    under_lock queue_unfold "$scan_name" || return ;;
  esac
  [ "$take_lost" = "$take_from" ] || { take_lost=$take_from; return 66; }
  # It was found before, and nothing can be done with it
  [ ! -e "$take_from" ] || { disk_failed "$q/out"; return; }
  why="queue '$queue': cannot look at ${take_from#"$q"/}"
  return 74
}

# taken_ours - return 66 if what was taken is no longer ours, 74 if unknown
taken_ours() {
  expect_path "$q/out/$taken" "queue '$queue': message $id is no longer yours"
}

# settle_missed - why taken_settle could not rename the slip; settle_code is rename_path's
settle_missed() {
  [ "$settle_code" -eq 1 ] || return 74
  taken_ours || return
  disk_failed "$q/done"
}
