# doors/http/get.sh - GET: hand out a message, or one of each of several groups
#
# get_list has QUEUE:NAME of each message that was taken for the client and whose last byte is not written: if the answer fails, or this
# process is ended, they go back. Once the client may have the last byte, the message keeps its lease, and comes back when that is over: else
# two clients would have it.

need doors/door engine/slip engine/take doors/http/query doors/http/say doors/http/group doors/http/id doors/http/post engine/back

do_get() {
  get_parameters && get_take || return $?
  if [ "$get_count" -eq 0 ]; then
    queue=$groups slip_size=
    [ -z "$group_any" ] || queue=
    if [ "$get_code" -eq 66 ]; then say 204; else say_failed "$get_code"; fi
    return $?
  fi
  get_logged=$get_list get_whole=
  get_send
  # After a part of an answer, only the end of the connection can follow
  [ -n "$get_whole" ] || exit 74
  # shellcheck disable=SC2086 # words
  for get_taken in $get_logged; do
    queue_open "${get_taken%%:*}" && slip_parse "${get_taken#*:}" && queue_log reserve
  done
}

# get_parameters - set get_lease, get_wait, get_most, groups and group_any; return 1 if it has answered with an error
get_parameters() {
  get_lease=60 get_wait=0 get_most=1 groups='' group_any=1
  ! has visibility-timeout || { is_number "$p_visibility" 86400 && get_lease=$number; } || { say 422 'visibility-timeout must be 0 to 86400'; return 1; }
  ! has wait || { is_number "$p_wait" 3600 && get_wait=$number; } || { say 422 'wait must be 0 to 3600'; return 1; }
  ! has max || { is_number "$p_most" 100 && [ "$number" != 0 ] && get_most=$number; } || { say 422 'max must be 1 to 100'; return 1; }
  ! has group-id || { group_name "$p_group" || { say_failed $?; return 1; }; groups=$group group_any=''; }
  # With one connection at a time, a GET that waits would keep out the POST that it waits for
  [ -z "$FLATQ_ONE" ] || get_wait=0
  # With timeout 0 the message is visible again at once, so a second take would return the same one
  [ "$get_lease" != 0 ] || get_most=1
}

# get_take - take up to get_most messages, of different groups, and wait for the first; set get_count, get_list, and get_code if there are fewer
get_take() {
  [ "$get_wait" = 0 ] || door_tell "$get_wait" http || exit 74
  get_bytes=0 get_heads='' get_count=0
  while [ $get_count -lt "$get_most" ]; do
    groups_wait "$get_lease" "$get_wait"
    get_code=$?
    [ $get_code -eq 0 ] || break
    # The client may have gone while it waited
    [ "$get_wait" = 0 ] || ! door_client_gone || take_stop=1
    get_wait=0
    if [ ! -e "$q/body/$slip_id" ]; then
      take_back
      continue
    fi
    get_count=$((get_count + 1))
    stamp_of
    receipt_uuid
    receipt=$uuid
    message_uuid
    get_list="$get_list $queue:$taken" taken=''
    get_line="$receipt $uuid $stamp $slip_size"
    get_bytes=$((get_bytes + ${#get_line} + slip_size + 2))
    get_heads="$get_heads $receipt $uuid $stamp $slip_size"
  done
  door_tell 0 http
  [ -z "$take_stop" ] || { door_gone=gone; exit 74; }
}

# get_send - write the answer: its head, then each message that was taken; set get_whole
get_send() {
  if has max; then
    say_head 200 "$get_bytes" text/plain
  else
    header Message-Id "$uuid"
    header Message-Receipt-Id "$receipt"
    header Message-Timestamp "$stamp"
    say_head 200 "$slip_size" text/plain
    get_bytes=$slip_size
  fi
  [ -z "$again" ] || door_nodelay
  door_blocking "$get_bytes" || exit 74
  # Nothing follows the head of an empty message
  [ "$get_bytes" != 0 ] || get_list=
  printf '%s\r\n' "$headers" 2>/dev/null || exit 74
  headers=
  # shellcheck disable=SC2086 # words
  set -- $get_heads
  for get_taken in $get_list; do
    # RACE: as in body_open
    queue_open "${get_taken%%:*}" && slip_parse "${get_taken#*:}" && body_is_no_link && { command exec 7<"$q/body/$slip_id"; } 2>/dev/null &&
      [ -e "$q/out/${get_taken#*:}" ] || exit 74
    if has max; then printf '%s %s %s %s\n' "$1" "$2" "$3" "$4" 2>/dev/null || exit 74; fi
    # From here on it keeps its lease, whatever signal comes
    get_list=${get_list#" $get_taken"}
    get_said=
    { get_said=$(echo .; exec base64 -d <&7 2>&1 >&4) && [ -n "$get_said" ] || get_cut; } 4>&1
    [ -n "$get_said" ] || exit 74
    close_descriptor 7
    if has max; then printf '\n' 2>/dev/null || exit 74; fi
    shift 4
  done
  get_whole=1
}

# get_cut - base64 has failed. Give the message back only if base64 says that the client is gone: otherwise it may have written all
get_cut() {
  need engine/disk
  ! reader_gone "$get_said" || get_list=" $get_taken$get_list"
  exit 74
}

part='doors/http/get'
