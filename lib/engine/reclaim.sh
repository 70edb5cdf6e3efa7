# engine/reclaim.sh - messages that come back by themselves (delay over, lease over, owner dead),
# and the sweep of settled ones

need engine/slip engine/lock engine/clock engine/process engine/settle bulk/batch

# queue_promote - move delayed messages that are due to wal/. One mv moves many, since their names
# stay the same
queue_promote() {
  set --
  promote_empty='' promote_count=0
  for promote_top in "$q"/delayed/*; do
    window_clock "${promote_top##*/}" || continue
    for promote_path in "$promote_top"/*; do
      case ${promote_path##*/} in
      *[!0-9]*) continue ;;
      esac
      ! [ "$window_now" \< "${promote_path##*/}" ] || break
      promote_empty="$promote_empty ${promote_path#"$q/delayed/"}"
      promote_count=$((promote_count + 1))
      for promote_slip in "$promote_path"/*; do
        [ -e "$promote_slip" ] || continue
        set -- "$@" "$promote_slip"
        [ $# -lt 100 ] || { promote_these "$@"; set --; }
      done
      [ $promote_count -lt 200 ] || { promote_flush "$@"; set --; }
    done
  done
  promote_flush "$@"
}

# promote_flush PATH ... - move the messages that are left, and remove the directories that are
# empty now, some hundred at a time (R9)
promote_flush() {
  [ $# -eq 0 ] || promote_these "$@"
  # shellcheck disable=SC2086 # names without blanks
  [ -z "$promote_empty" ] || (cd "$q/delayed" && exec rmdir -p $promote_empty) || :
  promote_empty='' promote_count=0
}

# promote_these PATH ... - move these messages to wal/; under the lock if the queue has a conf, so
# that a count does not miss them on their way
promote_these() {
  need engine/lock
  if [ -z "$lock_held" ] && seen "$q/conf"; then
    lock_queue || return
    mv -f "$@" "$q/wal/"
    unlock_queue
  else
    # RACE: mv does not find what another verb has already moved
    mv -f "$@" "$q/wal/"
  fi
  wake "$q/wait"
}

# queue_reclaim - put back messages whose lease is over or whose owner is dead; sweep if many are
# settled
queue_reclaim() {
  queue_conf || return
  reclaim_saw='' reclaim_code=0
  set -- "$q"/out/*
  if [ $# -gt 200 ]; then
    reclaim_saw=1
    reclaim_filter "$@" || return
    set --
    for reclaim_name in $reclaim_due; do set -- "$@" "$q/out/$reclaim_name"; done
  fi
  for slip_path in "$@"; do
    reclaim_name=${slip_path##*/}
    [ -e "$slip_path" ] || continue
    reclaim_saw=1
    [ ! -e "$q/done/$reclaim_name" ] || continue
    case $reclaim_name in
    batch.*)
      reclaim_name=${reclaim_name#batch.}
      ! owner_dead "${reclaim_name%%.*}" && ! lease_over "${reclaim_name##*.}" ||
        batch_putback "$slip_path" || reclaim_failed $?
      continue ;;
    esac
    slip_parse "$reclaim_name" || { set_aside "out/$reclaim_name"; continue; }
    if [ "$slip_owner" != 0 ] && owner_dead "$slip_owner"; then
      # RACE: an owner creates its marker, then dies. So look for the marker only after we have seen
      # the owner dead
      ! reclaim_settled || continue
      message_putback dead || reclaim_failed $?
    elif lease_over "$slip_deadline"; then
      message_putback expired || reclaim_failed $?
    fi
  done
  set -- "$q"/done/*
  [ $# -lt 200 ] || queue_sweep || return
  [ $reclaim_code -eq 0 ] || why=$reclaim_why
  return $reclaim_code
}

# reclaim_filter PATH ... - of these many in out/, set reclaim_due to the names of those whose lease
# is over or whose owner is dead, and which are not settled. Two passes: each owner is asked for
# once
reclaim_filter() {
  reclaim_dead=' '
  reclaim_pick "$@" || return
  reclaim_due=
  for reclaim_name in $reclaim_picked; do
    case $reclaim_name in
    *.*) reclaim_due="$reclaim_due $reclaim_name" ;;
    *) ! owner_dead "$reclaim_name" || reclaim_dead="$reclaim_dead$reclaim_name " ;;
    esac
  done
  [ "$reclaim_dead" != ' ' ] || return 0
  reclaim_pick "$@" || return
  reclaim_due=$reclaim_picked
}

# reclaim_pick PATH ... - set reclaim_picked to the names of those whose lease is over or whose
# owner is in reclaim_dead; and, as long as that is empty, to each owner
reclaim_pick() {
  reclaim_picked=$({ printf '%s\n' "$q"/done/* '' "$@" 9>&-; } |
    awk -F / -v "now=$now." -v "dead=$reclaim_dead" '
    $0 == "" { out = 1; next }
    !out { settled[$NF]; next }
    $NF in settled || $NF ~ /[^0-9a-z.-]/ { next }
    { n = split($NF, field, ".")
      owner = field[1] == "batch" ? field[2] : field[n - 1]
      if (field[n] != "000000000000" && field[n] "." <= now || index(dead, " " owner " ")) print $NF
      else if (dead == " " && owner ~ /-/ && !(owner in owners)) { owners[owner]; print owner } }
    END { print "end" }' 9>&-)
  case $reclaim_picked in
  *end) reclaim_picked=${reclaim_picked%end} ;;
  *) why="queue '$queue': cannot look for ended leases"; return 74 ;;
  esac
}

# reclaim_failed CODE - note why a message could not be put back: queue_reclaim puts back the
# others, then returns 74. RACE: it is no error if another process was faster, or has dropped the
# queue
reclaim_failed() {
  case $1 in
  66 | 69) ;;
  *) reclaim_code=74 reclaim_why=$why ;;
  esac
}

# reclaim_settled - look for the marker of reclaim_name, whose owner is dead. Return 1 if it is
# proved that there is none: only then may the message be put back. Return 0 if there is one, or if
# that is unknown (then reclaim_code is set)
reclaim_settled() {
  need engine/proof
  there "$q/done/$reclaim_name"
  case $? in
  1) return 1 ;;
  74) reclaim_failed 74 ;;
  esac
}

# lease_over DEADLINE - return whether there is a deadline and it has passed
lease_over() {
  case $1 in
  000000000000 | *[!0-9]*) return 1 ;;
  esac
  ! [ "$now" \< "$1" ]
}

# queue_sweep - remove settled messages: the slip in out/ if it was settled by a marker; the key;
# once these are synced, the body; last the name in done/
queue_sweep() {
  need engine/lock
  under_lock queue_sweep_locked
}

# queue_sweep_locked - queue_sweep under the lock, 200 names at a time
queue_sweep_locked() {
  sweep_names='' sweep_count=0
  for sweep_path in "$q"/done/*; do
    [ -e "$sweep_path" ] || continue
    # A directory is not a marker
    [ ! -d "$sweep_path" ] || { set_aside "done/${sweep_path##*/}" || return; continue; }
    # Such names would be options or several names to rm
    case ${sweep_path##*/} in
    -* | *[!0-9A-Za-z._-]*) set_aside "done/${sweep_path##*/}" || return; continue ;;
    esac
    sweep_names="$sweep_names ${sweep_path##*/}" sweep_count=$((sweep_count + 1))
    [ $sweep_count -lt 200 ] || { sweep_these || return; sweep_names='' sweep_count=0; }
  done
  [ $sweep_count -eq 0 ] || sweep_these
}

# sweep_these - remove the settled messages in sweep_names. Of a single message, remove the slip in
# out/ first; of a batch, the batch last (batch_sweep)
sweep_these() {
  sweep_out='' sweep_bodies='' sweep_keys=
  for sweep_name in $sweep_names; do
    case $sweep_name in
    batch.*) batch_sweep "$sweep_name" || return; continue ;;
    esac
    slip_parse "$sweep_name" || continue
    sweep_out="$sweep_out out/$sweep_name" sweep_bodies="$sweep_bodies $slip_id"
    sweep_key || return
  done
  # shellcheck disable=SC2086 # names without blanks
  {
    { [ -z "$sweep_out$sweep_keys" ] || (cd "$q" && exec rm -f $sweep_out $sweep_keys); } &&
      sync_paths "$q/out" "$q/keys" &&
      { [ -z "$sweep_bodies" ] || (cd "$q/body" && exec rm -f $sweep_bodies); } &&
      (cd "$q/done" && exec rm -f $sweep_names)
  } || disk_failed "$q/done"
}

# sweep_key - remove the key of a settled message, if the key still belongs to it
sweep_key() {
  [ "$slip_key" != - ] || return 0
  need engine/key
  key_read "$slip_key"
  case $? in
  0) [ "$key_id" != "$id" ] || sweep_keys="$sweep_keys keys/$slip_key" ;;
  66) ;;
  *) return 74 ;;
  esac
}
