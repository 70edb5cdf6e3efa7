# engine/check.sh - check a queue and set aside what is not whole: after a boot, and in doctor

need engine/slip engine/queues engine/lock engine/boot engine/proof engine/key engine/flat \
  engine/state engine/reclaim bulk/batch

# queue_after_boot - put back all that was handed out, and check all; if it fails, `why` names a
# file
queue_after_boot() {
  name_from_disk "${q##*/}"
  queue=$name_queue
  clock_read
  { [ -e "$q/lock" ] && queue_placed || queue_make; } && under_lock boot_recover || check_blame $?
}

# boot_recover - queue_after_boot under the lock
boot_recover() {
  # A damaged conf does not hinder the recovery
  queue_conf || {
    boot_code=$?
    [ $boot_code -eq 65 ] || return $boot_code
    printf '%s\n' "$why"
  }
  need engine/checkpoint
  boot_delays && boot_markers && queue_sweep && boot_putback && tmp_sweep boot &&
    queue_check boot && { ! queue_unread || rm -f "$FLATQ_DIR/.unread.${q##*/}"; }
}

# boot_delays - put the time of the last boot in front of the directories that it left in delayed/
boot_delays() {
  { read -r boot_since <"$FLATQ_DIR/.unread.${q##*/}" && is_number "$boot_since" 9999999999; } ||
    number=${boot_before:-$epoch}
  boot_since=$number
  names_in "$q/delayed" || return
  for boot_top in $names; do
    case $boot_top in
    0??????) ;;
    *) continue ;;
    esac
    # Without a battery, two boots may have the same time
    while [ -e "$q/delayed/$boot_since.$boot_top" ]; do boot_since=$((boot_since + 1)); done
    mv -fT "$q/delayed/$boot_top" "$q/delayed/$boot_since.$boot_top" ||
      { disk_failed "$q/delayed"; return; }
  done
  [ -z "$names" ] || sync_paths "$q/delayed"
}

# check_blame CODE - return CODE; if that is 74, let `why` name what cannot be read and its remedy
check_blame() {
  [ "$1" -eq 74 ] || return "$1"
  blame_said=$(find "$q" -type f -exec cat {} + 2>&1 >/dev/null 9>&- | head -n 1)
  blame_mend="mend the disk, or who may read it, or set the queue aside: flatq doctor -a $queue"
  case $blame_said in
  '' | *[![:print:]]*) return "$1" ;;
  # find names the directories
  "cat: $q/body/"* | "cat: $q/queue/"*) blame_mend="try flatq doctor $queue" ;;
  esac
  why="queue '$queue': cannot read ${blame_said#*: }: $blame_mend"
  return "$1"
}

# boot_markers - remove markers of pops whose rename, which came before them, a power cut has undone
boot_markers() {
  names_in "$q/done" || return
  [ -n "$names" ] || return 0
  boot_wrong=$({ cd "$q" && find wal head "done" ! -type d 9>&- && printf 'end\n'; } | awk -F / '
    $0 == "end" { whole = 1; next }
    { split($NF, field, ".") }
    $1 == "done" { if (field[1] != "batch") marker[$NF] = field[2]; next }
    { there[field[2]] }
    END {
      if (!whole) exit 74
      for (name in marker) if (marker[name] in there) print name
    }') || { not_listed; return; }
  for boot_marker in $boot_wrong; do
    ! slip_parse "$boot_marker" || rm -f "$q/done/$boot_marker" || {
      disk_failed "$q/done"
      return
    }
  done
}

# boot_putback - put back what the sweep has left in out/, as message_putback does, but without a
# process each. CRASH: the next verb creates the same names, as there is no record of this boot
boot_putback() {
  names_in "$q/out" || return
  boot_out=$names
  names_in "$q/done" || return
  case ${boot_out:+$names} in
  [0-9]* | batch.*) why="queue '$queue': cannot be swept"; return 74 ;;
  esac
  boot_made=
  for boot_name in $boot_out; do
    slip_path=$q/out/$boot_name
    case $boot_name in
    batch.*) batch_putback "$slip_path" boot || return; continue ;;
    esac
    slip_parse "$boot_name" || continue
    if [ -e "$q/body/$slip_id" ] && ! tries_over && slip_count timeouts && slip_format &&
      true >>"$q/wal/$slip"; then
      queue_log boot
      boot_made="$boot_made $boot_name"
      [ ${#boot_made} -lt 20000 ] || boot_remove || return
    else
      slip_parse "$boot_name"
      message_putback boot || return
    fi
  done
  [ -z "$boot_made" ] || boot_remove
}

# boot_remove - remove from out/ what has slips in wal/ now
boot_remove() {
  sync_paths "$q/wal" || return
  # shellcheck disable=SC2086 # names without blanks
  (cd "$q/out" && exec rm -f $boot_made) || { disk_failed "$q/out"; return; }
  boot_made=
}

# check_say FORMAT WORD ... - print a line about the queue; if that fails, set check_mute
check_say() {
  check_format=$1
  shift
  # shellcheck disable=SC2059 # the formats are ours
  printf "queue '%s': $check_format\n" "$queue" "$@" || check_mute=1
}

# queue_check [boot] - with the lock, check all, and print what is wrong. `boot`: no verb is at work
queue_check() {
  check_boot=${1:-} check_keyed='' check_orphans=0
  check_slips && check_flats && check_keys || return
  for check_path in "$q"/why/*; do
    [ ! -e "$check_path" ] || [ -e "$q/body/${check_path##*/}" ] || rm -f "$check_path"
  done
  [ $check_orphans -eq 0 ] ||
    check_say '%s bodies without a message, of killed pushes or of pushes at work: %s' \
      "$check_orphans" 'the first verb after a boot removes those of killed ones'
}

# check_slips - bury each message whose body is not whole; at a boot, remove bodies without a slip,
# else count them
check_slips() {
  for check_path in "$q"/wal/* "$q"/head/*/* "$q"/delayed/*/*/*; do
    slip_parse "${check_path##*/}" || [ ! -e "$check_path" ] || check_set_aside "$check_path" ||
      return
  done
  # The slips, in the order in which messages move, and the bodies. A list without its end is cut
  # shellcheck disable=SC2012 # the names are ids
  check_list=$({
    cd "$q" &&
      find delayed buried wal fold head out claimed "done" ! -type d ! -path '*[!!-~]*' 9>&- &&
        printf 'end\n' && ls -ln body && printf 'end\n'
  } | awk "$letters_awk"'
      $1 == "end" { ends++; next }
      !ends {
        n = split($0, part, "/"); n = split(part[n], field, "."); first = part[1] == "buried"
        id = field[2 + first]
        # Slips only: the messages of a flat file have no bodies of their own
        if ((n == 10 || n == 12) && length(id) == 12) {
          size[id] = field[8 + first]; name[id] = $0
          if (part[1] != "done" && field[9 + first] ~ /^k/) keyed = 1
        }
        next
      }
      NF > 8 { bytes[$9] = $5 }
      END {
        if (ends != 2) exit 74
        for (id in bytes) if (!(id in name)) print "remove", id
        if (keyed) print "keyed"
        for (id in name) {
          if (name[id] ~ /^done/ || name[id] ~ /^buried.*[.](damaged|unreadable)$/) continue
          if (bytes[id] != letters(size[id]) + 1) { print "look", name[id]; continue }
          ids = ids " " id; names = names " " name[id]
          if (++count % 200 == 0) { print "text" ids; print "unless" names; ids = names = "" }
        }
        if (ids != "") { print "text" ids; print "unless" names }
      }') || { not_listed; return; }
  IFS='
'
  for check_line in $check_list; do
    IFS=$blanks
    # shellcheck disable=SC2086 # words without blanks
    set -- $check_line
    check_how=$1
    shift
    case $check_how in
    remove)
      # Its push may be at work, but not at a boot (R4)
      [ -n "$check_boot" ] || { check_orphans=$((check_orphans + 1)); continue; }
      rm -f "$q/body/$1" || { disk_failed "$q/body"; return; }
      check_say 'what a killed push left of %s was removed' "$1"
      continue ;;
    keyed) check_keyed=1; continue ;;
    # The lengths are right; a power cut may have left zeros
    text)
      check_odd=$({ (cd "$q/body" && exec cat "$@" 9>&-) && printf '!'; } |
        tr -d 'A-Za-z0-9+/=\n' | wc -c)
      continue ;;
    unless) [ "${check_odd##* }" != 1 ] || continue ;;
    esac
    for check_path in "$@"; do check_bury "$check_path" || return; done
  done
  IFS=$blanks
}

# check_bury PATH - bury the message of a slip if its body is damaged; in doctor, also if unreadable
check_bury() {
  slip_path=$q/$1
  slip_of "$slip_path"
  case $1 in
  out/batch.* | claimed/*) return 0 ;;
  esac
  slip_parse "$slip" || return 0
  need engine/body
  body_look
  case $?${check_doctor:-} in
  0*) return 0 ;;
  74 | 75*) return 74 ;;
  741) set -- unreadable ;;
  *) set -- damaged ;;
  esac
  message_bury '' "$1"
  case $? in
  0) check_say "message %s was $1: buried" "$id" ;;
  # RACE: it was taken or settled since the list
  66) ;;
  *) return 74 ;;
  esac
}

# check_set_aside PATH - set aside the file, which is no slip, and say so
check_set_aside() {
  set_aside "${1#"$q/"}" || return
  check_say '%s is no slip: set aside in tmp/' "${strange_shown##*/}"
}

# check_flats - check_flat for each flat file that has bad lines
check_flats() {
  for check_path in "$q"/queue/*/*; do
    check_name=${check_path##*/}
    [ "$check_name" != '*' ] || continue
    flat_parse "$check_name" || { check_set_aside "$check_path" || return; continue; }
    check_bad=$(check_awk 0) || check_bad=
    check_keyed=1
    [ "$check_bad" = "0 $flat_count" ] || check_flat || return
  done
}

# check_flat - write the flat file check_path anew, its bad lines to tmp/; in doctor, set it aside
# if it cannot be read
check_flat() {
  [ -n "$check_bad" ] || {
    why="queue '$queue': cannot read ${check_path#"$q/"}"
    [ -n "${check_doctor:-}" ] && ! cat "$check_path" >/dev/null 9>&- || return 74
    set_aside "${check_path#"$q/"}" || return
    check_say 'a flat file cannot be read: set aside in tmp/, %s messages from %s to %s' \
      "$flat_count" "$flat_first" "$flat_last"
    return 0
  }
  # CRASH: new names, since a killed doctor may have left others
  nonce_read
  check_aside=$q/tmp/strange.$nonce.$check_name check_new=$q/tmp/flat.$nonce
  piped cat check_awk 1 >"$check_aside" && piped cat check_awk 2 >"$check_new" &&
    sync_paths "$check_new" "$check_aside" "$q/tmp" ||
    { disk_failed "$q/tmp"; rm -f "$check_new" "$check_aside"; return 74; }
  check_good=${check_bad#* }
  [ -s "$check_aside" ] || rm -f "$check_aside"
  check_say '%s of %s lines of a flat file were damaged: set aside in tmp/' \
    "$((flat_count - check_good))" "$flat_count"
  # CRASH: between two renames, the file has fewer lines than its name says, as before: an unfold
  # refuses it, a drain hands out what it has, and the next doctor goes on
  check_whole=$flat_priority.$flat_first.$flat_last.$check_good.$flat_tries.$flat_nonce
  if [ "$check_good" != 0 ]; then
    rename_path "$check_new" "$check_path" &&
      { [ "$check_good" = "$flat_count" ] ||
        rename_path "$check_path" "${check_path%/*}/$check_whole"; }
  else
    rm -f "$check_path"
  fi || { disk_failed "$q/queue"; return; }
  sync_paths "${check_path%/*}"
}

# check_awk HOW - print, of the flat file check_path, 0: how many lines are bad, and good; 1: those
# that are bad; 2: good; return 74 if it cannot be read
check_awk() {
  { cat "$check_path" 9>&- && printf '\nend\n'; } | lines_short |
    awk -F '\t' -v "how=$1" "$letters_awk"'
    { whole = !parts && $0 == "end~"; ends = sub(/~$/, "") }
    whole || $0 == "" && !parts { next }
    { part[++parts] = $0 }
    parts == 1 {
      good = NF == 2 && split($1, field, ".") == 10 && length(field[1]) == 10 &&
        length(field[2]) == 12
      found = 0
      $0 = $2
    }
    { found += length($0); if (/[^A-Za-z0-9+\/=]/) good = 0 }
    ends {
      if (found != letters(field[8])) good = 0
      for (i = 1; i <= parts; i++)
        if (how == (good ? 2 : 1)) printf "%s%s", part[i], (i < parts ? "" : "\n")
      if (good) goods++; else bads++
      parts = 0
    }
    END { if (!whole) exit 74; if (!how) print bads + 0, goods + 0 }'
}

# check_keys - make keys/ agree with the messages
check_keys() {
  for check_path in "$q"/keys/k* "$q"/claimed/*/*; do
    [ ! -e "$check_path" ] || check_keyed=1
  done
  [ -n "$check_keyed" ] || return 0
  # KEY ID of unconfirmed keys and, at a boot, when none is settled meanwhile, of those that a power
  # cut lost; then `gone`, and KEY ID of those without a message. Slips move while we look, bodies
  # do not
  check_fix=$({
    {
      cd "$q" &&
        find delayed buried wal head out claimed ! -type d -name '*.k*' ! -path '*[!!-~]*' &&
          find queue out claimed -type f -name "$flat_like.*.*.*" \
        -exec cut -f 1 {} + && printf 'end\n' && ls body && printf 'end\n'
    } 9>&-
    for check_path in "$q"/keys/k*; do
      [ -e "$check_path" ] || break
      key_read "${check_path##*/}" || continue
      printf 'key %s %s %s\n' "${check_path##*/}" "${key_id:-0}" "${key_is:-no}"
    done
    printf 'end\n'
  } | awk -v "boot=$check_boot" '
      $1 == "end" { ends++; next }
      $1 == "key" && NF == 4 { id[$2] = $3; is[$2] = $4; next }
      ends { sub(/^0+/, ""); body[$0]; next }
      { skip = /^buried\//; sub(/.*\//, "")
        n = split($0, field, "."); key = field[9 + skip]; at = field[2 + skip]
        if (n != 10 && n != 12 || length(at) != 12) next
        if (length(key) != 33 || key !~ /^k[0-9a-f]*$/) next
        sub(/^0+/, "", at)
        there[key " " at] = 1
        if (!(key in first) || at + 0 < first[key] + 0) first[key] = at }
      END {
        if (ends != 3) exit 74
        if (boot) for (key in first) if (!((key " " id[key]) in there)) {
          print key, first[key]; is[key] = "yes"; id[key] = first[key]
        }
        for (key in id) {
          if (!((key " " id[key]) in there)) { if (!(id[key] in body)) gone[key] }
          else if (is[key] != "yes") print key, id[key]
        }
        print "gone"
        for (key in gone) print key, id[key]
      }') || { not_listed; return; }
  for check_word in ${check_fix%gone*}; do
    case $check_word in
    k*) check_key=$check_word; continue ;;
    esac
    file_put "keys/$check_key" "$check_word
yes" || { disk_failed "$q/keys"; return; }
  done
  keys_remove "${check_fix#*gone}"
}
