# check.sh - what is done once after each boot, and by doctor at any time: every file is looked at, and what is not whole is set aside

# queue_after_boot - everybody who held or waited for anything is gone
queue_after_boot() {
  name_from_disk "${q##*/}"
  queue=$name
  clock_read
  queue_make && lock_queue || return
  rm -f "$q"/wait/* "$q"/room/* "$q/tended" 2>/dev/null
  queue_conf && boot_markers && boot_putback && queue_sweep && rm -rf "$q"/tmp/* 2>/dev/null && queue_check
  boot_code=$?
  unlock_queue
  return $boot_code
}

# boot_markers - where directories reach the disk in another order than they were changed, a pop's marker may be there without the
# rename before it: then its message was not taken
boot_markers() {
  set --
  for boot_marker in "$q"/done/*; do
    slip_parse "${boot_marker##*/}" || continue
    for boot_slip in "$q"/wal/??????????."$slip_id".* "$q"/head/*/??????????."$slip_id".*; do
      [ ! -e "$boot_slip" ] || set -- "$@" "$boot_marker"
    done
  done
  [ $# -eq 0 ] || rm -f "$@" 2>/dev/null || disk_failed "$q/done" "queue '$queue'"
}

boot_putback() {
  for found in "$q"/out/*; do
    [ -e "$found" ] && [ ! -e "$q/done/${found##*/}" ] || continue
    if [ -d "$found" ]; then
      batch_putback "$found" || return
    elif slip_parse "${found##*/}"; then
      message_putback boot || return
    fi
  done
}

# queue_check - under the lock, after recovery; prints what was wrong
queue_check() {
  check_slips && check_flats && check_keys
}

# check_list - ID SIZE NAME of every slip that has a body of its own
check_list() {
  for check_path in "$q"/wal/* "$q"/head/*/* "$q"/delayed/*/*/* "$q"/buried/* "$q"/out/* "$q"/out/batch.*/* "$q"/claimed/*/*/* "$q"/done/*; do
    [ -f "$check_path" ] || continue
    slip_of "$check_path"
    case $check_path in
    "$q"/out/batch.*/* | "$q"/claimed/*) slip=${check_path##*/} ;;
    esac
    slip_parse "$slip" && printf '%s %s %s\n' "$slip_id" "$slip_size" "${check_path#"$q/"}"
  done
}

# check_slips - each slip has a whole body, each body a slip. A message without one is buried; a body without one is removed, unless
# somebody is writing it
check_slips() {
  for check_path in "$q"/wal/* "$q"/head/*/* "$q"/delayed/*/*/*; do
    slip_parse "${check_path##*/}" || [ ! -e "$check_path" ] || check_strange "$check_path"
  done
  # each list says where it ends: one that was cut would have all that is behind it buried
  check_wrong=$({
    check_list
    printf 'end slips\n'
    # shellcheck disable=SC2012 # the names are ids
    { ls -ln "$q/body" && printf 'end\n'; } | awk 'NF > 8 { print "body", $5, $9 } $1 == "end" { print "end bodies" }'
  } | FLATQ_BODY=$q/body awk '
      $1 == "end" { ends++; next }
      $1 == "body" { bytes[$3] = $2; next }
      { size[$1] = $2; name[$1] = $3 }
      END {
        if (ends != 2) exit 74
        for (id in name) {
          if (!(id in bytes)) { if (name[id] !~ /^done/) print "bury", name[id]; continue }
          file = ENVIRON["FLATQ_BODY"] "/" id; line = ""
          if ((getline line <file) < 0) line = "?"
          close(file)
          if (name[id] !~ /^done/ && (bytes[id] != int((size[id] + 2) / 3) * 4 + 1 || line !~ /^[A-Za-z0-9+\/]*=*$/)) print "bury", name[id]
        }
        for (id in bytes) if (!(id in name)) print "remove", id
      }' 2>/dev/null) || { why="queue '$queue': cannot be checked"; return 74; }
  # one pair of words a line, none with blanks
  # shellcheck disable=SC2086
  set -- $check_wrong
  while [ $# -gt 1 ]; do
    if [ "$1" = remove ]; then
      check_body "$2"
    else
      found=$q/$2
      slip_of "$found"
      slip_parse "$slip" || :
      case $2 in
      buried/*.damaged | out/batch.* | claimed/*) ;;
      *)
        message_bury '' damaged || return
        printf "queue '%s': message %s was damaged: buried\n" "$queue" "$id" ;;
      esac
    fi
    shift 2
  done
}

# check_body ID - a body without a slip
check_body() {
  journal=$FLATQ_DIR/.ids/${1%???}/1${1#?????????}
  journal_end=.
  { { read -r journal_pid journal_time journal_queue && { read -r journal_end || journal_end=; }; } <"$journal"; } 2>/dev/null || journal_end=.
  if [ -z "$journal_end" ]; then
    owner_dead "$journal_pid-$journal_time" || return 0
    ids_end
  fi
  # RACE: its slip may have come, or moved, while the places were listed; its push has ended, so it is in one of them. Twice, since it may move
  # while we look. (One in a flat file needs no body)
  for check_look in 1 2; do
    for check_path in "$q"/out/??????????."$1".* "$q"/wal/??????????."$1".* "$q"/head/*/??????????."$1".* "$q"/delayed/*/*/??????????."$1".* \
      "$q"/buried/????????????.??????????."$1".* "$q"/out/batch.*/??????????."$1".* "$q"/claimed/*/*/??????????."$1".* "$q"/done/??????????."$1".*; do
      flat_parse "${check_path##*/}" || [ ! -e "$check_path" ] || return 0
    done
  done
  rm -f "$q/body/$1" 9>&9 2>/dev/null
  printf "queue '%s': what a killed push left of %s was removed\n" "$queue" "$1"
}

check_strange() {
  slip_strange "${1#"$q/"}"
  printf "queue '%s': %s is no slip: set aside in tmp/\n" "$queue" "${1##*/}"
}

# check_flats - a flat file with bad lines is written anew without them; the bad ones are kept in tmp/
check_flats() {
  for check_path in "$q"/queue/*/*; do
    check_name=${check_path##*/}
    [ "$check_name" != '*' ] || continue
    flat_parse "$check_name" || { check_strange "$check_path"; continue; }
    check_bad=$(check_awk 0 <"$check_path") || { why="queue '$queue': cannot be checked"; return 74; }
    [ "$check_bad" = "0 $flat_count" ] && continue
    check_awk 1 <"$check_path" >"$q/tmp/strange.$check_name" &&
      check_awk 2 <"$check_path" >"$q/tmp/flat" || { disk_failed "$q/tmp" "queue '$queue'"; return; }
    measure -l "$q/tmp/flat" || return
    check_good=$measured
    printf "queue '%s': %s of %s lines of a flat file were damaged: set aside in tmp/\n" "$queue" "$((flat_count - check_good))" "$flat_count"
    if [ "$check_good" != 0 ]; then
      mv -f "$q/tmp/flat" "${check_path%/*}/$flat_priority.$flat_first.$flat_last.$check_good.$flat_tries.$flat_nonce" 2>/dev/null 9>&9 ||
        { disk_failed "$q/queue" "queue '$queue'"; return; }
    fi
    [ "$check_good" = "$flat_count" ] || rm -f "$check_path" 9>&9 2>/dev/null
    sync_paths "${check_path%/*}"
  done
}

# check_awk 0|1|2 - of a flat file: how many lines are bad and how many good; the bad ones; the good ones
check_awk() {
  awk -F '\t' -v "how=$1" '
    { n = split($1, field, ".")
      good = NF == 2 && n == 10 && length(field[1]) == 10 && length(field[2]) == 12 && $2 ~ /^[A-Za-z0-9+\/]*=*$/ &&
        length($2) == int((field[8] + 2) / 3) * 4
      if (how == (good ? 2 : 1)) print
      if (good) goods++; else bads++ }
    END { if (!how) print bads + 0, goods + 0 }'
}

# check_keys - the keys are those of the messages that are there
check_keys() {
  for check_path in "$q"/keys/*; do
    [ -e "$check_path" ] || return 0
    slip_key=${check_path##*/}
    { read -r key_id <"$check_path"; } 2>/dev/null && number "$key_id" 999999999999 || key_id=0
    pad "$key_id" 000000000000
    if message_find "$padded" && [ "$slip_key" = "${check_path##*/}" ]; then
      { printf '%s\nyes\n' "$id" >|"$check_path"; } 2>/dev/null || { disk_failed "$q/keys" "queue '$queue'"; return; }
    elif ! message_held "$padded"; then
      rm -f "$check_path" 9>&9 2>/dev/null
    fi
  done
}
