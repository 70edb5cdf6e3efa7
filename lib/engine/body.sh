# engine/body.sh - a body that is not whole, or cannot be read. A power cut leaves any part of one
# that was not synced: a shorter file, or zeros in it

need engine/slip engine/proof engine/piped

# body_look - return 0 if the body is whole, 1 if it is damaged or not there, 74 if it cannot be
# read, 75 if only a program has failed
body_look() {
  there "$q/body/$slip_id" || return
  letters_of "$slip_size"
  measure -c "$q/body/$slip_id" && { [ "$measured" = $((letters + 1)) ] || return 1; } &&
    body_count=$(piped 'wc -c' body_text) || {
    why="queue '$queue': cannot read body/$slip_id"
    ! cat "$q/body/$slip_id" >/dev/null 9>&- || return 75
    return 74
  }
  [ "${body_count##* }" = "$measured" ]
}

# body_text - print the body without what is no base64 and no newline, in linear time
body_text() {
  tr -dc 'A-Za-z0-9+/=\n' <"$q/body/$slip_id" 9>&-
}

# body_fault - set body_reason if nobody can have the message: `damaged`, or `unreadable` at the
# second try. Return 1 if it may be put back
body_fault() {
  body_look
  case $?.$slip_tries in
  1.*) body_reason=damaged ;;
  74.[01] | 75.* | 0.*) return 1 ;;
  *) body_reason=unreadable ;;
  esac
}

# body_bury - bury `slip_path` if nobody can have it, and set body_said; 1: it may be put back
body_bury() {
  body_fault && message_bury '' "$body_reason" || return
  body_said="queue '$queue': message $id is $body_reason: buried"
}
