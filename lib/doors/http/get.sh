# doors/http/get.sh - GET: hand out a message, or one of each of several groups
#
# get_list has QUEUE:NAME of each message that goes back if the answer fails: not once the client
# may have its last byte.

need engine/back engine/take doors/http/group

do_get() {
  get_parameters || return
  get_take
  [ $get_count = 0 ] || { get_send; return; }
  queue=$groups slip_size=
  [ -z "$group_any" ] || queue=
  if [ "$get_code" -eq 66 ]; then say 204; else say_failed "$get_code"; fi
}

# get_parameters - return 1 if it has answered that one is wrong
get_parameters() {
  query_number visibility-timeout 0 86400 60 || return
  get_lease=$number
  query_number wait 0 3600 0 || return
  get_wait=$number
  query_number max 1 100 1 || return
  get_most=$number groups='' group_any=1
  if has group-id; then
    group_name "$value" || { say_failed $?; return 1; }
    groups=$group group_any=
  fi
  # With timeout 0, a second take would return the same message
  [ "$get_lease" != 0 ] || get_most=1
}

# get_take - take up to get_most messages, and wait for the first; set get_count, get_list, and
# get_code if there are fewer
get_take() {
  get_bytes=0 get_count=0
  door_waits "$get_wait" || exit 74
  while [ $get_count -lt "$get_most" ]; do
    groups_wait "$get_lease" "$get_wait"
    get_code=$?
    [ $get_code -eq 0 ] || break
    [ "$get_wait" = 0 ] || ! door_client_gone || take_stop=1
    get_wait=0
    # Without its body, to give it back buries it
    if [ ! -e "$q/body/$slip_id" ]; then
      need engine/proof
      absent "$q/body/$slip_id"
      get_code=$? get_why=$why
      take_back
      [ $get_code -ne 0 ] || continue
      why=$get_why
      break
    fi
    get_count=$((get_count + 1)) get_list="$get_list $queue:$taken" taken=
    get_line
    get_bytes=$((get_bytes + ${#get_line} + slip_size + 2))
  done
  door_waits 0
  [ -z "$take_stop" ] || { door_gone=gone; exit 74; }
}

# get_line - set `receipt`, `stamp`, and get_line, the line before one of several messages
get_line() {
  receipt=$queue:$id.$slip_tries.$slip_nonce
  while [ "${receipt#*+}" != "$receipt" ]; do receipt=${receipt%%+*}%2B${receipt#*+}; done
  stamp_of
  get_line="$receipt $id $stamp $slip_size"
}

# get_group QUEUE - set `group` to its group-id, as a URL has it
get_group() {
  group=$1
  case $group in
  \$sha1\$*) ;;
  *) while [ "${group#*\$}" != "$group" ]; do group=${group%%\$*}%${group#*\$}; done ;;
  esac
  while [ "${group#*+}" != "$group" ]; do group=${group%%+*}%2B${group#*+}; done
}

get_send() {
  if ! has max; then
    get_bytes=$slip_size
    header Message-Id "$id"
    header Message-Receipt-Id "$receipt"
    header Message-Timestamp "$stamp"
    get_group "$queue"
    header Message-Group-Id "$group"
    header Message-Receive-Count "$slip_tries"
  fi
  say_head 200 "$get_bytes" text/plain
  [ -z "$again" ] || door_nodelay
  door_blocking "$get_bytes" || exit 74
  get_sent=$get_list
  [ "$get_bytes" != 0 ] || get_list=
  printf '%s\r\n' "$headers" || exit 74
  headers=
  for get_taken in $get_sent; do
    queue_open "${get_taken%%:*}" && slip_parse "${get_taken#*:}" || exit 74
    # RACE: as in body_open
    command exec 7<"$q/body/$slip_id" && [ -e "$q/out/${get_taken#*:}" ] || exit 74
    if has max; then
      get_line
      printf '%s\n' "$get_line" || exit 74
    fi
    get_list=${get_list#" $get_taken"}
    { get_said=$(exec base64 -d <&7 2>&1 >&6 6>&-) && body_whole || get_cut; } 6>&1
    exec 7<&-
    ! has max || printf '\n' || exit 74
    queue_log reserve "lease-$get_lease"
  done
}

# get_cut - the message was not written in full: end the connection. Give it back only if base64
# says that the client is gone; bury it if it is not whole
get_cut() {
  need engine/disk
  if reader_gone "$get_said"; then
    get_list=" $get_taken$get_list"
  else
    need engine/body
    slip_path=$q/out/${get_taken#*:}
    clock_read
    body_bury
  fi
  exit 74
}
