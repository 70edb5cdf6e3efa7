# engine/flat.sh - fold single messages into flat files, and unfold them again: this keeps the cost
# of push and pop from growing with the depth
#
# All of it happens under the queue's lock, after recovery, which only rolls forward (I6). A run is
# named PRIORITY.FIRST.NONCE, for its first message.
#
# A flat file's name is PRIORITY.FIRST.LAST.COUNT.TRIES.NONCE: first and last id, number of lines,
# how often the whole file was handed out and came back, and a nonce that it shares with its run. A
# line is the slip's name, a tab and the body; TRIES of the file is added to that of the slip. A
# flat file is valid if and only if it has COUNT such lines, each with its newline.

need engine/slip engine/lock engine/proof engine/sync

# flat_parse NAME - set flat_priority flat_first flat_last flat_count flat_tries flat_nonce, and
# `run`; return 1 if NAME is not a flat file's
flat_parse() {
  case $1 in
  *[!0-9a-f.]*) return 1 ;;
  esac
  IFS=.
  # shellcheck disable=SC2086 # split at the dots
  set -- $1
  IFS=$blanks
  [ $# -eq 6 ] && [ ${#1} -eq 10 ] && [ ${#2} -eq 12 ] && [ ${#3} -eq 12 ] && [ -n "$6" ] ||
    return 1
  case $1$2$3$4$5 in
  *[!0-9]*) return 1 ;;
  esac
  case $4.$5 in
  0* | . | .* | *. | *.0?*) return 1 ;;
  esac
  flat_priority=$1 flat_first=$2 flat_last=$3 flat_count=$4 flat_tries=$5 flat_nonce=$6
  flat_block=$1.${2%?????} run=$1.$2.$6
}

# message_in_flat PATH ID - return whether the flat file has a line for ID; 74 if it cannot be read
message_in_flat() {
  in_flat=$(awk -F . -v "id=$2" '$2 == id "" { found++ } END { print found + 0, NR }' "$1" 9>&-)
  case $in_flat in
  "0 $flat_count") return 1 ;;
  [1-9]*" $flat_count") return 0 ;;
  esac
  why="queue '$queue': cannot read ${1#"$q/"}"
  return 74
}

# queue_recover - finish what a killed holder of the lock has begun; lock_queue calls it when there
# is anything (R3). Relies only on complete listings: if it overlooked the flat file in unfold/, it
# would take its run in tmp/ for an unfold that had not reached its commit, remove the bodies, and
# lose the messages
queue_recover() {
  for recover_path in "$q"/fold/* "$q"/unfold/*; do
    [ -e "$recover_path" ] || continue
    case ${recover_path##*/} in
    '~') ;;
    *[!0-9a-f.]*) set_aside "${recover_path#"$q"/}" || return ;;
    esac
  done
  names_in "$q/fold" || return
  for recover_run in $names; do
    case $recover_run in
    *[!0-9a-f.]*) continue ;;
    ??????????.????????????.?*)
      [ -f "$q/fold/$recover_run" ] ||
        { fold_finish "$q/fold/$recover_run" || return; continue; } ;;
    esac
    set_aside "fold/$recover_run" || return
  done
  names_in "$q/unfold" || return
  for recover_run in $names; do
    case $recover_run in
    *[!0-9a-f.]*) ;;
    *) unfold_finish "$recover_run" || return ;;
    esac
  done
  # An unfold whose flat file was not renamed yet: that is whole, so remove the run in tmp/ and its
  # bodies
  names_in "$q/tmp" || return
  for recover_run in $names; do
    case $recover_run in
    *[!0-9a-f.]*) ;;
    ??????????.????????????.*)
      [ -f "$q/tmp/$recover_run" ] || unfold_undo "$q/tmp/$recover_run" || return ;;
    esac
  done
}

# How many messages, and about how many bytes, a flat file has at most
flat_lines=500
flat_bytes=4194304

# queue_fold - if wal/ holds FLATQ_FOLD slips (200) or more, fold runs of one priority, in order, of
# up to flat_lines messages and flat_bytes, and at least an eighth of FLATQ_FOLD. A message of
# 100,000 bytes or more stays single
queue_fold() {
  is_number "${FLATQ_FOLD:=200}" 999999 && [ "$number" -gt 0 ] || {
    why='FLATQ_FOLD must be a number from 1 to 999999'
    return 64
  }
  FLATQ_FOLD=$number
  set -- "$q"/wal/*
  [ $# -ge "$FLATQ_FOLD" ] || return 0
  fold_names='' fold_count=0 fold_bytes=0 fold_priority=
  # The last word, no slip, ends the last run
  for fold_path in "$@" end.; do
    fold_name=${fold_path##*/}
    if [ "${fold_name%%.*}" != "$fold_priority" ] || [ $fold_count -ge $flat_lines ] ||
      [ $fold_bytes -gt $flat_bytes ]; then
      [ $fold_count -lt $(((FLATQ_FOLD + 7) / 8)) ] || fold_some || return
      fold_names='' fold_count=0 fold_bytes=0 fold_priority=${fold_name%%.*}
    fi
    slip_parse "$fold_name" && [ ${#slip_size} -le 5 ] || continue
    fold_names="$fold_names $fold_name"
    fold_count=$((fold_count + 1)) fold_bytes=$((fold_bytes + slip_size))
  done
}

# fold_some - move the slips of fold_names to a run, then write their flat file. A slip that another
# process has taken meanwhile is left out
fold_some() {
  nonce_read
  # shellcheck disable=SC2086 # names without blanks
  set -- $fold_names
  slip_parse "$1" || return 74
  fold_path=$q/fold/$slip_priority.$slip_id.$nonce
  mkdir "$fold_path" || { disk_failed "$q/fold"; return; }
  # RACE: mv reports slips that were handed out since the listing, and goes on
  (cd "$q/wal" && exec mv -f "$@" "$fold_path/") || :
  fold_finish "$fold_path" new
}

# fold_finish RUN [new] - write the run's flat file, commit it by one rename, and remove the run.
# CRASH: before the rename, the run is whole, and its file is written again. After it, the flat file
# with the run's nonce proves the commit, and only the removal is left. If the file cannot be
# written (disk full), the run goes forward as it is, to head/, never back (I2).
fold_finish() {
  fold_nonce=${1##*.} fold_at=
  [ $# -eq 2 ] || flat_of "$fold_nonce" || return
  if [ -z "$fold_at" ]; then
    names_in "$1" || return
    # The run seems empty: only rmdir proves that it is
    [ -n "$names" ] || { rmdir "$1" || disk_failed "$q/fold"; return; }
    fold_committed=
    # shellcheck disable=SC2086 # names without blanks
    if ! fold_write "$1" $names; then
      [ -z "$fold_committed" ] || return 74
      rename_path "$1" "$q/head/${1##*/}" || disk_failed "$q/head"
      return
    fi
  else
    # CRASH: the process that renamed it may have died before it synced. A power cut could then undo
    # the rename but not the removal of slips
    sync_paths "${fold_at%/*}" "$q/queue" || return
  fi
  fold_remove "$1"
}

# flat_of NONCE - set fold_at to the flat file with that nonce in queue/; empty: there is none
flat_of() {
  find_names queue \( -type f -name "$flat_like.*.*.$1" \) || return
  fold_at=${names:+$q/$names}
}

# fold_remove RUN - remove the bodies and slips of exactly those messages that the flat file fold_at
# contains; do not go by a listing
fold_remove() {
  flat_parse "${fold_at##*/}" || return 74
  fold_lines=$(exec awk '{ sub(/\t.*/, ""); print }' "$fold_at" 9>&-) || fold_lines=
  fold_run=$1 fold_bodies=
  case $fold_lines in
  *[!0-9a-z.'
'-]*) fold_lines= ;;
  esac
  # shellcheck disable=SC2086 # a name a line
  set -- $fold_lines
  [ $# -eq "$flat_count" ] || {
    why="queue '$queue': cannot read queue/$flat_block/${fold_at##*/}"
    return 74
  }
  for fold_slip in "$@"; do
    fold_slip=${fold_slip#*.}
    fold_bodies="$fold_bodies ${fold_slip%%.*}"
  done
  # shellcheck disable=SC2086 # names without blanks
  { (cd "$q/body" && exec rm -f $fold_bodies) && (cd "$fold_run" && exec rm -f "$@"); } ||
    { disk_failed "$q/fold"; return; }
  if ! rmdir "$fold_run"; then
    # Slips that are left are in no flat file: they go forward
    names_in "$fold_run" || return
    nonce_read
    rename_path "$fold_run" "$q/head/$run.$nonce" || { disk_failed "$q/fold"; return; }
  fi
  sync_paths "$q/fold" || return
}

# fold_write RUN SLIP ... - write the run's flat file; set fold_at to its path, and fold_committed
fold_write() {
  fold_run=$1
  shift
  flat_write "$q/tmp" "$fold_nonce" "$@" || return
  flat_parse "$fold_flat"
  fold_block=$q/queue/$flat_block
  sync_paths "$q/tmp/$fold_flat" "$fold_run" "$q/fold" "$q/wal" &&
    { [ -d "$fold_block" ] || mkdir -p "$fold_block"; } &&
    rename_path "$q/tmp/$fold_flat" "$fold_block/$fold_flat" ||
    { rm -f "$q/tmp/$fold_flat"; return 74; }
  fold_committed=1 fold_at=$fold_block/$fold_flat
  sync_paths "$fold_block" "$q/queue" || return
}

# flat_write DIRECTORY NONCE SLIP ... - write the flat file of these slips, which have one priority
# and are in order; set fold_flat to its name. If it cannot be written, remove it and return 74
flat_write() {
  flat_place=$1 flat_nonce=$2
  shift 2
  slip_parse "${1##*/}" || return 74
  fold_first=$slip_id
  for fold_last in "$@"; do :; done
  slip_parse "${fold_last##*/}" || return 74
  fold_flat=$slip_priority.$fold_first.$slip_id.$#.0.$flat_nonce
  # A large message is alone (claim_write): awk need not read it
  # shellcheck disable=SC2017 # whole threes
  if [ $# -eq 1 ]; then
    fold_size=$((${#1} + (slip_size + 2) / 3 * 4 + 2))
    { printf '%s\t' "$1" && cat "$q/body/$slip_id"; } >"$flat_place/$fold_flat" || fold_size=none
  else
    fold_size=$(for fold_slip in "$@"; do printf '%s\n' "${fold_slip##*/}"; done |
      FLATQ_BODY=$q/body FLATQ_FLAT=$flat_place/$fold_flat FLATQ_LINES=$# awk '
        BEGIN { FS = "."; flat = ENVIRON["FLATQ_FLAT"] }
        { body = ENVIRON["FLATQ_BODY"] "/" $2
          # If a read fails, gawk keeps the line before and reports success
          line = ""
          if ((getline line <body) <= 0 || length(line) != int(($8 + 2) / 3) * 4) { bad = 1; exit }
          close(body)
          print $0 "\t" line >flat
          size += length($0) + length(line) + 2 }
        END {
          if (bad || NR != ENVIRON["FLATQ_LINES"] + 0 || close(flat)) exit 74
          printf "%.0f\n", size
        }') || fold_size=none
  fi
  # Some awks do not notice a full disk: compare the size
  measure -c "$flat_place/$fold_flat" && [ "$fold_size" = "$measured" ] && return 0
  rm -f "$flat_place/$fold_flat"
  return 74
}

# queue_unfold FLAT - make the messages of a flat file single again. Writes everything before the
# first rename, so if writing fails, the flat file is still in its place. CRASH: before the first
# rename nothing has happened; after it, only the slips in tmp/ must go to head/
queue_unfold() {
  for unfold_from in "$q"/queue/*/"$1"; do break; done
  # RACE: the holder of the lock before us may have done it
  [ -e "$unfold_from" ] || return 0
  flat_parse "$1" && [ ! -d "$unfold_from" ] && [ "$unfold_from" = "$q/queue/$flat_block/$1" ] ||
    { set_aside "${unfold_from#"$q"/}"; return; }
  unfold_stage=$q/tmp/$run
  # Remove runs in head/ that are empty
  rmdir "$q"/head/*
  mkdir "$unfold_stage" || { disk_failed "$q/tmp"; return; }
  unfold_lines=$(FLATQ_BODY=$q/body FLATQ_STAGE=$unfold_stage FLATQ_TRIES=$flat_tries awk '
      BEGIN { FS = "\t" }
      # Refuse anything but names and base64: it could be a path to another place, or code
      $1 $2 !~ "^[0-9A-Za-z.+/=-]*$" || $1 ~ "/" { exit 74 }
      { n = split($1, field, "."); body = ENVIRON["FLATQ_BODY"] "/" field[2]
        # The line was cut by a read error that awk does not notice
        if (NF != 2 || n != 10 || length($2) != int((field[8] + 2) / 3) * 4) exit 74
        field[3] += ENVIRON["FLATQ_TRIES"]
        name = field[1]; for (i = 2; i <= n; i++) name = name "." field[i]
        name = ENVIRON["FLATQ_STAGE"] "/" name
        printf "" >name
        if (close(name)) exit 74
        # Write the body after its slip, by which unfold_undo finds it
        printf "%s\n", $2 >body
        if (close(body)) exit 74
        lines++; bytes += length($2) + 1 }
      END { printf "%d %.0f\n", lines, bytes }' <"$unfold_from") || unfold_lines=none
  set -- "$1" "$unfold_stage"/*
  if [ "${unfold_lines% *}" != "$flat_count" ] || [ $# -ne $((flat_count + 1)) ] ||
    ! unfold_whole; then
    disk_failed "$q/tmp" "queue '$queue': cannot unfold"
    unfold_code=$?
    unfold_undo "$unfold_stage" || :
    return $unfold_code
  fi
  sync_many "$unfold_stage" &&
    rename_path "$unfold_from" "$q/unfold/$1" || { disk_failed "$q/unfold"; return; }
  sync_paths "$q/unfold" "$q/queue/$flat_block" || return
  unfold_finish "$1"
}

# unfold_undo RUN - remove the bodies of the slips in this run in tmp/, then the run. Set it aside
# if a slip has a name that no unfold writes: the shell would expand a `*` in it, and rm would take
# the result for names of bodies
unfold_undo() {
  names_in "$1" || return
  undo_bodies=
  case $names in
  *[!0-9A-Za-z.+='
'-]*) set_aside "${1#"$q"/}"; return ;;
  esac
  for undo_slip in $names; do
    undo_slip=${undo_slip#*.} undo_slip=${undo_slip%%.*}
    case $undo_slip in
    *[!0-9]*) ;;
    *) undo_bodies="$undo_bodies $undo_slip" ;;
    esac
  done
  # shellcheck disable=SC2086 # names without blanks
  { [ -z "$undo_bodies" ] || (cd "$q/body" && exec rm -f $undo_bodies); } && rm -rf "$1" ||
    disk_failed "$q/tmp"
}

# unfold_whole - check that all bodies together are as long as in the flat file, since some awks do
# not notice a full disk
unfold_whole() {
  unfold_bodies=
  for unfold_slip in "$unfold_stage"/*; do
    unfold_slip=${unfold_slip##*/} unfold_slip=${unfold_slip#*.}
    unfold_bodies="$unfold_bodies ${unfold_slip%%.*}"
  done
  # shellcheck disable=SC2086 # names without blanks
  unfold_said=$({ cd "$q/body" && exec wc -c $unfold_bodies; } 9>&-) || return
  # The last line of wc has the sum
  # shellcheck disable=SC2086 # two words
  set -- ${unfold_said##*"
"}
  [ $# -eq 2 ] && [ "$1" = "${unfold_lines#* }" ]
}

# unfold_finish FLAT - move the staged slips to head/, then remove the flat file, but only once they
# have been seen there
unfold_finish() {
  flat_parse "$1" && [ ! -d "$q/unfold/$1" ] || {
    set_aside "unfold/$1"
    return
  }
  [ -d "$q/head/$run" ] || rename_path "$q/tmp/$run" "$q/head/$run" || {
    unfold_lost "$1" || return
    return 0
  }
  sync_paths "$q/head" "$q/tmp" || return
  rm -f "$q/unfold/$1" && sync_paths "$q/unfold" || { disk_failed "$q/unfold"; return; }
  for unfold_rest in "$q/queue/$flat_block"/*; do
    [ -e "$unfold_rest" ] || rmdir "$q/queue/$flat_block"
    return 0
  done
}

# unfold_lost FLAT - if it is proved that the messages of the flat file are neither in tmp/ nor in
# head/, set the file aside: no unfold leaves that
unfold_lost() {
  names_in "$q/head" && ! named "$run" && names_in "$q/tmp" && ! named "$run" &&
    set_aside "unfold/$1" || disk_failed "$q/head"
}
