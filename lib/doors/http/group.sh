# doors/http/group.sh - groups: queues that have one message in flight, whoever has it

need engine/queues engine/lock engine/take engine/reclaim engine/state engine/proof

# groups_take LEASE - hand out the first message of `groups`, or if group_any is set of all groups;
# return 66 if nothing is free. Look without the lock and take under it: so one of two doors gets it
groups_take() {
  clock_read
  take_owner=0 take_lease=$1 groups_out='' groups_looks=0 groups_failed=66 groups_why=
  # RACE: what one look has seen is gone at the next: repeat, but not for ever
  while [ $groups_looks -lt 20 ]; do
    [ -z "$group_any" ] || groups_all each_queue
    groups_first
    if [ -n "$group_first" ]; then
      queue_open "$group_first" && under_lock groups_take_locked
      group_code=$?
      if [ $group_code -ne 75 ]; then
        # First look at the others
        groups_out="$groups_out $group_first"
        case $group_code in
        0) return 0 ;;
        66 | 69) ;;
        *) groups_failed=$group_code groups_why=$why ;;
        esac
        continue
      fi
    elif [ "$groups_looks" -gt 0 ]; then
      groups_nothing
      group_code=$?
      case $group_code in
      0) ;;
      66) why=$groups_why; return $groups_failed ;;
      *) return $group_code ;;
      esac
    fi
    groups_looks=$((groups_looks + 1))
  done
  why='the groups cannot be listed'
  return 74
}

# groups_all each_queue|all_queues - set `groups` to the queues
groups_all() {
  groups=
  "$1" groups_add
}

groups_add() {
  groups="$groups $1"
}

# groups_first - set group_first to the one of `groups` with nothing in flight whose next message
# comes first, and groups_idle to those that seem to have none
groups_first() {
  group_first='' groups_idle=
  for group in $groups; do
    case " $groups_out " in
    *" $group "*) continue ;;
    esac
    queue_open "$group"
    case $? in
    0)
      queue_put_back_due
      [ -z "$tend_paused" ] && ! group_busy || continue
      queue_scan
      if [ -n "$scan_place" ]; then
        [ -n "$group_first" ] && [ "$scan_name" \> "$group_least" ] ||
          group_first=$group group_least=$scan_name
        continue
      fi ;;
    66) continue ;;
    esac
    groups_idle="$groups_idle $group"
  done
}

# group_busy - put back what is due, and return whether a message of $q is seen in flight; 1 is no
# proof
group_busy() {
  for group_path in "$q"/out/*; do
    [ ! -e "$group_path" ] || { queue_reclaim || return 1; break; }
  done
  for group_path in "$q"/out/* "$q"/claimed/*/????????????.[1-9]*; do
    [ ! -e "$group_path" ] || is_settled "$group_path" || return 0
  done
  return 1
}

# group_free [again] - under the lock, return 0 if it is proved that $q has nothing in flight (R1),
# 66 if it has. RACE: without the lock, messages only leave these places or are settled, in this
# order
group_free() {
  queue_reclaim && files_below claimed out "done" || return
  for group_path in $names; do
    case $group_path in
    claimed/*/????????????.[1-9]*/*) ;;
    out/*)
      group_path=${group_path#out/}
      ! named "done/${group_path%%/*}" || continue ;;
    *) continue ;;
    esac
    # A listing that failed may have hidden it from queue_reclaim: look twice (R1)
    [ -n "$reclaim_saw" ] || [ $# -gt 0 ] || { group_free again; return; }
    return 66
  done
}

# groups_take_locked - under the lock, hand out the first message of $q; 75: it is gone
groups_take_locked() {
  group_free || return
  while queue_scan && [ -n "$scan_place" ]; do
    take_found
    group_code=$?
    [ $group_code -eq 66 ] || return $group_code
  done
  return 75
}

# groups_nothing - return 66 if it is proved that no group in groups_idle has a message, nor is
# there another group if all were asked for; 0: look again; 74. One find looks at many groups
groups_nothing() {
  groups_some=
  for group in $groups_idle ''; do
    groups_some="$groups_some $group"
    [ -z "$group" ] || [ ${#groups_some} -ge 2000 ] || continue
    # shellcheck disable=SC2086 # names without blanks
    queues_nothing $groups_some
    group_code=$?
    [ $group_code -eq 66 ] || return $group_code
    groups_some=
  done
  [ -n "$group_any" ] || return 66
  groups_seen=" $groups "
  groups_all all_queues || return
  for group in $groups; do
    case $groups_seen in
    *" $group "*) ;;
    *) return 0 ;;
    esac
  done
  return 66
}

# groups_wait LEASE SECONDS - as groups_take, but wait up to SECONDS
groups_wait() {
  groups_take "$1"
  group_code=$?
  [ $group_code -eq 66 ] && [ "$2" != 0 ] || return $group_code
  need engine/wait
  take_seconds=$2
  # shellcheck disable=SC2086 # names without blanks
  take_waiting groups_again $groups
}

# groups_again - the TAKE of take_waiting, which has entered us in wait_queues: enter new groups
groups_again() {
  if [ -n "$group_any" ]; then
    wait_enter_new
    groups_all each_queue
    [ "$groups" = " $wait_queues" ] || { wait_queues=${groups# }; wait_enter_queues; }
  fi
  groups_take "$take_lease"
}
