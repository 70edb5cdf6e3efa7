# doors/http/group.sh - groups: queues that have one message in flight
#
# A group's queue has the group's name; bytes that a queue's name cannot have become `$` and two hexadecimal digits (plain_of), and a name that
# gets too long becomes `$sha1$` and the SHA-1 of it. This door hands out a message of a group only if no other is in flight, whichever door
# or verb has that; verbs and other doors do not keep to this.

need engine/clock engine/queues engine/lock engine/key engine/take engine/reclaim engine/settle engine/look engine/wait

# group_name PLAIN - set `group` to the queue of the group PLAIN; return 70 or 74 if sha1sum fails
group_name() {
  group=$1
  case $group in
  -*) group=\$2D${group#-} ;;
  esac
  if ! name_check "$group"; then
    # A part that would read as a path upward
    while [ "${group#*.}" != "$group" ]; do group=${group%%.*}\$2E${group#*.}; done
  fi
  [ ${#group} -le 200 ] || { sum_of sha1sum printf %s "$group" && group="\$sha1\$$sum"; }
}

groups_all() {
  groups=
  each_queue groups_add
}

groups_add() {
  groups="$groups $1"
}

# group_busy - put back messages of $q whose lease is over; then return 0 if one in flight is seen, 1 if none (which proves nothing: group_free), or 69
# or 74. Set group_left if all that is seen should have gone back
group_busy() {
  group_again='' group_left=
  while :; do
    group_over=
    for group_path in "$q"/claimed/*/????????????.[1-9]*; do
      [ ! -e "$group_path" ] || return 0
    done
    for group_path in "$q"/out/*; do
      # A stat can fail (ENOMEM) and look like absence, so test twice for the marker
      [ -e "$group_path" ] && [ ! -e "$q/done/${group_path##*/}" ] && [ ! -f "$q/done/${group_path##*/}" ] || continue
      if lease_over "${group_path##*.}"; then group_over=1; else return 0; fi
    done
    [ -n "$group_over" ] || return 1
    [ -z "$group_again" ] || { group_left=1; return 0; }
    queue_reclaim || case $? in
    69) return 69 ;;
    74) return 74 ;;
    *) return 0 ;;
    esac
    group_again=1
  done
}

# group_free - under the lock, return 0 if it is proved that $q has no message in flight (R1), 66 if it has one (and count in group_tries one that
# group_busy did not see or put back); else 69 or 74
group_free() {
  group_busy
  group_code=$?
  case $group_code in
  0) group_tries=${group_left}$group_tries why='another message of the group is in flight'; return 66 ;;
  1) ;;
  *) return $group_code ;;
  esac
  need engine/proof
  # RACE: without the lock, messages only leave these places or are settled, in this order
  files_below claimed out "done" || return $?
  for group_path in $names; do
    case $group_path in
    claimed/*/????????????.[1-9]*/*) ;;
    out/*)
      group_path=${group_path#out/}
      ! named "done/${group_path%%/*}" || continue ;;
    *) continue ;;
    esac
    # The look did not see it
    group_tries=1$group_tries
    why='another message of the group is in flight'
    return 66
  done
}

# groups_first - of those `groups` that have nothing in flight, set group_first to the one whose next message comes first; empty: there is none
groups_first() {
  group_first='' group_least=
  for group in $groups; do
    queue_open "$group" || continue
    queue_put_back_due
    group_busy
    [ $? -eq 1 ] || continue
    queue_scan
    [ -n "$scan_place" ] || continue
    if [ -z "$group_first" ] || [ "$scan_name" \< "$group_least" ]; then group_first=$group group_least=$scan_name; fi
  done
}

# groups_nothing - return 66 if it is proved that no group in `groups` has a free message and, if all were asked for, that there is no other group;
# 0: look again; 74: unknown. One find looks at many groups; where it fails or finds anything, look one by one
groups_nothing() {
  need engine/proof
  # shellcheck disable=SC2086 # names without blanks
  set -- $groups
  while [ $# -gt 0 ]; do
    groups_some=
    while [ $# -gt 0 ] && [ ${#groups_some} -lt 2000 ]; do
      queue_open "$1"
      group_code=$?
      case $group_code in
      0)
        group_busy
        case $? in
        1) groups_some="$groups_some $1" ;;
        74) return 74 ;;
        0)
          # A dead owner may hold it, whom queue_put_back_due looks for once a second
          queue_reclaim || [ $? -ne 74 ] || return 74
          group_busy
          case $? in
          1) return 0 ;;
          74) return 74 ;;
          esac ;;
        esac ;;
      66 | 69) ;;
      *) return $group_code ;;
      esac
      shift
    done
    [ -n "$groups_some" ] || continue
    # shellcheck disable=SC2086 # names without blanks
    queues_nothing $groups_some
    group_code=$?
    [ $group_code -eq 66 ] || return $group_code
  done
  [ -n "$group_any" ] || return 66
  groups_unlisted
}

# groups_unlisted - return 66 if it is proved that the spool has no group but those in `groups`; 0 if it has; 74 if unknown
groups_unlisted() {
  names_in "$FLATQ_DIR" || return $?
  # shellcheck disable=SC2086 # queues' names without blanks, and strange ones, which are none
  for group_disk in $names; do
    name_from_disk "$group_disk"
    case " $groups " in
    *" $name_queue "*) continue ;;
    esac
    name_check "$name_queue" || continue
    there "$FLATQ_DIR/$group_disk/lock"
    group_code=$?
    [ $group_code -eq 1 ] || return $group_code
  done
  return 66
}

# groups_take LEASE - hand out the first message of all `groups`; return 66 if nothing is free. Look without the queue's lock, take under it: so of two
# doors only one gets the message
groups_take() {
  clock_read
  take_owner=0 take_lease=$1 group_tries=
  while :; do
    # RACE: a message came meanwhile, and is gone when we look; or a listing failed. Repeat, but not for ever
    [ ${#group_tries} -lt 20 ] || { why='the groups cannot be listed'; return 74; }
    [ -z "$group_any" ] || groups_all
    groups_first
    if [ -z "$group_first" ]; then
      groups_nothing
      group_code=$?
      case $group_code in
      0) ;;
      66) why='nothing there'; return 66 ;;
      *) return $group_code ;;
      esac
      group_tries=1$group_tries
      continue
    fi
    queue_open "$group_first" || continue
    under_lock groups_take_locked
    group_code=$?
    # RACE: another process was faster, or dropped the queue: look again from the start
    case $group_code in
    66 | 69) ;;
    *) return $group_code ;;
    esac
  done
}

# groups_take_locked - hand out the first message of $q, under its lock, if none is in flight
groups_take_locked() {
  clock_read
  group_free || return $?
  queue_scan
  [ -n "$scan_place" ] || return 66
  take_found
}

# groups_wait LEASE SECONDS - as groups_take, but wait up to SECONDS. A request for any group also waits in .doors/wait, for new groups
groups_wait() {
  groups_take "$1"
  group_code=$?
  [ $group_code -eq 66 ] && [ "$2" != 0 ] || return $group_code
  clock_add "$2" "$now"
  group_deadline=$later
  # shellcheck disable=SC2086 # names without blanks
  wait_begin wait $groups || return $?
  wait_until "$group_deadline" groups_enter groups_again wait_due_queues
  wait_leave
  return "$take_code"
}

# groups_enter - the ENTER of wait_until for groups_wait
groups_enter() {
  [ -z "$group_any" ] || { wait_enter_new; groups_all; }
  wait_queues=$groups
  wait_enter_queues
}

# groups_again - the TAKE of wait_until for groups_wait
groups_again() {
  groups_take "$take_lease"
}

# group_find - find the message of receipt_id and receipt_nonce in any place; set q, queue, slip_path and the slip_ variables. Return 66 if it is gone,
# or was read again
group_find() {
  clock_read
  message_search "$receipt_id" || { group_code=$?; group_settled; return $group_code; }
  [ "$slip_nonce" = "$receipt_nonce" ] || { why='read again'; return 66; }
}

# group_settled - set `queue`, for the log, to the queue that the settled message receipt_id was in; empty if nothing names it any more
group_settled() {
  [ -z "$journal_queue" ] || return 0
  queue=
  for group_path in "$FLATQ_DIR"/*/done/??????????."$receipt_id".*; do
    [ -e "$group_path" ] || continue
    group_path=${group_path%/done/*}
    name_from_disk "${group_path##*/}"
    queue=$name_queue
  done
}

# group_touch SECONDS - show the message that group_find has found to others in SECONDS; if it is ready again, put it in flight anew. Return 66 if it is
# buried or delayed
group_touch() {
  case $slip_path in
  "$q"/out/*) if [ "$1" != 0 ] && lease_over "$slip_deadline"; then under_lock group_touch_ready "$1"; else message_touch "$1"; fi ;;
  "$q"/buried/* | "$q"/delayed/*) why='not in flight'; return 66 ;;
  *) [ "$1" = 0 ] || under_lock group_touch_ready "$1" ;;
  esac || return $?
  [ "$1" != 0 ] || wake "$q/wait"
}

# group_touch_ready SECONDS - under the lock, put a ready message in flight anew; return 66 if the group has another one in flight
group_touch_ready() {
  group_tries=
  while :; do
    clock_read
    group_tried=$group_tries
    # RACE: it may be in flight by now; group_free sees that
    group_free && break
    group_code=$?
    # What the look missed, or could not put back, may be this message, whose lease is over: repeat, but not for ever
    [ $group_code -eq 66 ] && [ "$group_tries" != "$group_tried" ] || return $group_code
    [ ${#group_tries} -lt 5 ] || { why="queue '$queue': cannot be listed"; return 74; }
  done
  message_find "$receipt_id" || return $?
  [ "$slip_nonce" = "$receipt_nonce" ] || { why='read again'; return 66; }
  case $slip_path in
  "$q"/wal/* | "$q"/head/*) message_touch "$1" ;;
  *) why='not in flight'; return 66 ;;
  esac
}

part='doors/http/group'
