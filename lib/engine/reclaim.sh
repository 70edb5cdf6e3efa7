# engine/reclaim.sh - messages that come back by themselves, and the sweep of settled ones

need engine/slip engine/lock engine/clock engine/process engine/state bulk/batch

# queue_promote - move delayed messages that are due to wal/, many at once: their names stay
queue_promote() {
  set --
  promote_empty=
  for promote_top in "$q"/delayed/*; do
    window_clock "${promote_top##*/}" || continue
    for promote_path in "$promote_top"/*; do
      case ${promote_path##*/} in
      *[!0-9]*) continue ;;
      esac
      ! [ "$window_now" \< "${promote_path##*/}" ] || break
      for promote_slip in "$promote_path"/*; do
        [ ! -e "$promote_slip" ] || set -- "$@" "$promote_slip"
        [ $# -lt 100 ] && [ ${#promote_empty} -lt 10000 ] || { promote_these "$@"; set --; }
      done
      promote_empty="$promote_empty ${promote_path#"$q/delayed/"}"
    done
  done
  promote_these "$@"
}

# promote_these PATH ... - move these to wal/, under the lock if a count may miss them; remove the
# directories in promote_empty
promote_these() {
  if [ $# -gt 0 ]; then
    set -- mv -f "$@" "$q/wal/"
    # RACE: mv does not find what another verb has moved
    if seen "$q/conf"; then under_lock "$@"; else "$@"; fi
    wake "$q/wait"
  fi
  # shellcheck disable=SC2086 # names without blanks
  [ -z "$promote_empty" ] || (cd "$q/delayed" && exec rmdir -p $promote_empty) || :
  promote_empty=
}

# queue_reclaim - put back what has no lease or owner any more; sweep if many are settled
queue_reclaim() {
  queue_conf || return
  reclaim_saw='' reclaim_code=0 reclaim_alive=0
  set -- "$q"/out/*
  if [ $# -gt 200 ]; then
    reclaim_saw=1
    reclaim_some || return
    # shellcheck disable=SC2086 # names without blanks
    set -- $reclaim_names
  fi
  for reclaim_name in "$@"; do
    reclaim_name=${reclaim_name##*/} slip_path=$q/out/${reclaim_name##*/}
    [ "$reclaim_name" != '*' ] || [ -e "$slip_path" ] || break
    reclaim_saw=1 reclaim_owner=${reclaim_name%.*}
    case $reclaim_name in
    batch.*) reclaim_owner=${reclaim_owner#batch.} reclaim_owner=${reclaim_owner%%.*} ;;
    ??????????.????????????.*.????????????) reclaim_owner=${reclaim_owner##*.} ;;
    *) set_aside "out/$reclaim_name"; continue ;;
    esac
    reclaim_why=expired
    if ! lease_over "${reclaim_name##*.}"; then
      [ "$reclaim_owner" != "$reclaim_alive" ] && [ "$reclaim_owner" != 0 ] || continue
      reclaim_why=
    fi
    ! is_settled "$slip_path" || continue
    if [ "$reclaim_owner" != 0 ] && owner_dead "$reclaim_owner"; then
      # RACE: it may have made its marker before it died
      need engine/proof
      absent "$q/done/$reclaim_name" ||
        { is_settled "$slip_path" || reclaim_code=74 reclaim_said=$why; continue; }
      reclaim_why=dead
    fi
    case $reclaim_why.$reclaim_name in
    .*) reclaim_alive=$reclaim_owner; continue ;;
    *.batch.*) batch_putback "$slip_path" ;;
    *) slip_parse "$reclaim_name" || continue; message_putback "$reclaim_why" ;;
    esac || case $? in
    # RACE: another process was faster
    66 | 69) ;;
    *) reclaim_code=74 reclaim_said=$why ;;
    esac
  done
  set -- "$q"/done/*
  [ $# -lt 200 ] || under_lock queue_sweep || return
  [ $reclaim_code -eq 0 ] || why=$reclaim_said
  return $reclaim_code
}

# reclaim_some - of many in out/, set reclaim_names to those with an owner, or whose lease is over
reclaim_some() {
  reclaim_names=$(cd "$q/out" && printf '%s\n' * 9>&- | awk -F . -v "now=$now." '
    /[^0-9a-z.-]/ { next }
    $(NF - 1) != "0" || $NF "." <= now
    END { print "end" }' 9>&-)
  case $reclaim_names in
  *end) reclaim_names=${reclaim_names%end} ;;
  *) why="queue '$queue': cannot look for ended leases"; return 74 ;;
  esac
}

# lease_over DEADLINE - return whether there is a deadline, and it has passed
lease_over() {
  case $1 in
  000000000000 | *[!0-9]*) return 1 ;;
  esac
  ! [ "$now" \< "$1" ]
}

# queue_sweep - under the lock, remove settled messages (lib/README.md, "Steps")
queue_sweep() {
  sweep_names=
  for sweep_path in "$q"/done/[0-9]* "$q"/done/batch.*; do
    case ${sweep_path##*/} in
    *[!0-9a-z.-]*) continue ;;
    esac
    [ -f "$sweep_path" ] || continue
    sweep_names="$sweep_names ${sweep_path##*/}"
    [ ${#sweep_names} -lt 20000 ] || { sweep_these || return; sweep_names=; }
  done
  [ -z "$sweep_names" ] || sweep_these
}

# sweep_these - queue_sweep for sweep_names
sweep_these() {
  sweep_out='' sweep_bodies='' sweep_keys=
  for sweep_name in $sweep_names; do
    case $sweep_name in
    batch.*) batch_sweep "$sweep_name" || return; continue ;;
    esac
    slip_parse "$sweep_name" || continue
    sweep_out="$sweep_out out/$sweep_name" sweep_bodies="$sweep_bodies $slip_id"
    [ "$slip_key" != - ] || continue
    need engine/key
    key_read "$slip_key"
    case $? in
    0) [ "$key_id" != "$id" ] || sweep_keys="$sweep_keys keys/$slip_key" ;;
    66) ;;
    *) return 74 ;;
    esac
  done
  # shellcheck disable=SC2086 # names without blanks
  { [ -z "$sweep_out$sweep_keys" ] || (cd "$q" && exec rm -f $sweep_out $sweep_keys); } &&
    sync_paths "$q/out" "$q/keys" &&
    bodies_remove $sweep_bodies &&
    (cd "$q/done" && exec rm -f $sweep_names) || disk_failed "$q/done"
}
