# doors/http/group.sh - groups: queues that have one message in flight, whichever door or verb has
# it. Verbs and other doors do not keep to this

need engine/queues engine/lock engine/take engine/reclaim engine/settle engine/proof

# groups_take LEASE - hand out the first message of `groups`, or if group_any is set of all groups;
# return 66 if nothing is free. It looks without the queue's lock and takes under it: so of two
# doors only one gets the message
groups_take() {
  clock_read
  take_owner=0 take_lease=$1 groups_out='' groups_looks='' groups_failed=
  while :; do
    [ -z "$group_any" ] || { groups=; each_queue groups_add; }
    groups_first
    if [ -n "$group_first" ]; then
      queue_open "$group_first" && under_lock groups_take_locked
      group_code=$?
      case $group_code in
      0) return 0 ;;
      75) ;;
      *)
        # First look at the others
        groups_out="$groups_out $group_first"
        case $group_code in
        66 | 69) ;;
        *) groups_failed=$group_code groups_why=$why ;;
        esac
        continue ;;
      esac
    elif [ -n "$groups_looks" ]; then
      groups_nothing
      group_code=$?
      if [ $group_code -eq 66 ] && [ -n "$groups_failed" ]; then
        why=$groups_why group_code=$groups_failed
      fi
      [ $group_code -eq 0 ] || return $group_code
    fi
    # RACE: what one look has seen is gone at the next: repeat, but not for ever
    groups_looks=1$groups_looks
    [ ${#groups_looks} -lt 20 ] || { why='the groups cannot be listed'; return 74; }
  done
}

groups_add() {
  groups="$groups $1"
}

# groups_first - of those `groups` that have nothing in flight, set group_first to the one whose
# next message comes first. Set groups_idle to those that seem to have none
groups_first() {
  group_first='' group_least='' groups_idle=
  for group in $groups; do
    case " $groups_out " in
    *" $group "*) continue ;;
    esac
    queue_open "$group"
    case $? in
    0)
      queue_put_back_due
      ! group_busy || continue
      queue_scan
      if [ -n "$scan_place" ]; then
        if [ -z "$group_first" ] || [ "$scan_name" \< "$group_least" ]; then
          group_first=$group group_least=$scan_name
        fi
        continue
      fi ;;
    66) continue ;;
    esac
    groups_idle="$groups_idle $group"
  done
}

# group_busy - return whether a message of $q is seen in flight, after putting back what is due; 1
# proves nothing
group_busy() {
  for group_path in "$q"/out/*; do
    [ ! -e "$group_path" ] || { queue_reclaim || return 1; break; }
  done
  for group_path in "$q"/out/* "$q"/claimed/*/????????????.[1-9]*; do
    [ ! -e "$group_path" ] || is_settled "$group_path" || return 0
  done
  return 1
}

# group_free - under the lock, return 0 if it is proved that $q has nothing in flight (R1), 66 if it
# has; else 69 or 74. RACE: without the lock, messages only leave these places or are settled, in
# this order
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
    why='another message of the group is in flight'
    return 66
  done
}

# groups_take_locked - under the lock of $q, hand out its first message if none is in flight; return
# 75 if it is gone
groups_take_locked() {
  group_free || return
  while queue_scan && [ -n "$scan_place" ]; do
    take_found
    group_code=$?
    [ $group_code -eq 66 ] || return $group_code
  done
  return 75
}

# groups_nothing - return 66 if it is proved that no group in groups_idle has a message and, if all
# were asked for, that there is no other group; 0: look again; 74. One find looks at many groups
groups_nothing() {
  # shellcheck disable=SC2086 # names without blanks
  set -- $groups_idle
  while [ $# -gt 0 ]; do
    groups_some=
    while [ $# -gt 0 ] && [ ${#groups_some} -lt 2000 ]; do
      groups_some="$groups_some $1"
      shift
    done
    # shellcheck disable=SC2086 # names without blanks
    queues_nothing $groups_some
    group_code=$?
    [ $group_code -eq 66 ] || return $group_code
  done
  why='nothing there'
  [ -n "$group_any" ] || return 66
  groups_seen=$groups groups=
  all_queues groups_add || return
  for group in $groups; do
    case " $groups_seen " in
    *" $group "*) ;;
    *) return 0 ;;
    esac
  done
  return 66
}

# groups_wait LEASE SECONDS - as groups_take, but wait up to SECONDS. A request for any group also
# waits in .doors/wait, for new groups
groups_wait() {
  groups_take "$1"
  group_code=$?
  [ $group_code -eq 66 ] && [ "$2" != 0 ] || return $group_code
  clock_add "$2" "$now"
  group_deadline=$later
  need engine/wait
  # shellcheck disable=SC2086 # names without blanks
  wait_begin wait $groups || return
  wait_until "$group_deadline" groups_enter groups_again wait_due_queues
  wait_leave
  return "$take_code"
}

# groups_enter - the ENTER of wait_until for groups_wait
groups_enter() {
  [ -z "$group_any" ] || { wait_enter_new; groups=; each_queue groups_add; }
  wait_queues=$groups
  wait_enter_queues
}

# groups_again - the TAKE of wait_until for groups_wait
groups_again() {
  groups_take "$take_lease"
}
