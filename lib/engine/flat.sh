# engine/flat.sh - fold single messages into flat files, and unfold them: this keeps the cost of
# push and pop from growing with the depth. All under the queue's lock, after recovery (I6)
#
# A run is named PRIORITY.FIRST.NONCE, for its first message. A flat file is named
# PRIORITY.FIRST.LAST.COUNT.TRIES.NONCE: first and last id, number of lines, how often the whole
# file came back, which adds to the TRIES of its slips, and the nonce of its run. A line is the
# slip's name, a tab and the body. Valid if and only if it has COUNT such lines, each with its
# newline. A fold leaves messages of 100,000 bytes or more in wal/. One of large_body bytes or more,
# of push -l or claim, is alone in its file: fold and unfold copy it without awk.

need engine/slip engine/lock engine/proof engine/sync

# flat_parse NAME - set flat_priority flat_first flat_last flat_count flat_tries flat_nonce,
# flat_block and `run`; 1: no flat file's name
flat_parse() {
  case $1 in
  # Another character, a letter outside NONCE, too many fields, TRIES with a zero in front
  *[!0-9a-f.]* | *[a-f]*.* | *.*.*.*.*.*.* | *.*.*.*.0?*.*) return 1 ;;
  ??????????.????????????.????????????.[1-9]*.?*.?*) ;;
  *) return 1 ;;
  esac
  IFS=.
  # shellcheck disable=SC2086 # split at the dots
  set -- $1
  IFS=$blanks
  flat_priority=$1 flat_first=$2 flat_last=$3 flat_count=$4 flat_tries=$5 flat_nonce=$6
  flat_block=$1.${2%?????} run=$1.$2.$6
}

# message_in_flat PATH ID - after flat_parse, return whether the flat file has a line for ID; 74
message_in_flat() {
  ! [ "$2" \< "$flat_first" ] && ! [ "$flat_last" \< "$2" ] || return 1
  case $2 in
  "$flat_first" | "$flat_last") return 0 ;;
  esac
  in_flat=$(awk -F . -v "id=$2" '$2 == id "" { found++ } END { print found + 0, NR }' "$1" 9>&-)
  case $in_flat in
  "0 $flat_count") return 1 ;;
  [1-9]*" $flat_count") return 0 ;;
  esac
  why="queue '$queue': cannot read ${1#"$q/"}"
  return 74
}

# flat_enter PATH NAME - after flat_parse, rename the flat file at PATH into its block of queue/
flat_enter() {
  { [ -d "$q/queue/$flat_block" ] || mkdir -p "$q/queue/$flat_block"; } &&
    rename_path "$1" "$q/queue/$flat_block/$2"
}

# block_leave BLOCK - remove this directory of queue/ if it is empty
block_leave() {
  for block_path in "$q/queue/$1"/*; do break; done
  [ -e "$block_path" ] || rmdir "$q/queue/$1" || :
}

# ids_of SLIP ... - set `ids` to the ids of these slips, of 12 digits
ids_of() {
  ids=
  for ids_slip in "$@"; do
    ids_slip=${ids_slip##*/} ids_slip=${ids_slip#*.}
    ids="$ids ${ids_slip%%.*}"
  done
}

# queue_recover - finish what a killed holder of the lock has begun (R3). By complete listings: to
# overlook the flat file in unfold/ would undo its run in tmp/, and lose the messages
queue_recover() {
  for recover_path in "$q"/fold/* "$q"/unfold/*; do
    [ -e "$recover_path" ] || continue
    case ${recover_path##*/} in
    '~') ;;
    *[!0-9a-f.]*) set_aside "${recover_path#"$q"/}" || return ;;
    esac
  done
  for recover_place in fold unfold tmp; do
    names_in "$q/$recover_place" || return
    for recover_name in $names; do
      recover_path=$q/$recover_place/$recover_name
      case $recover_place/$recover_name in
      */*[!0-9a-f.]*) ;;
      unfold/*) unfold_finish "$recover_name" ;;
      fold/??????????.????????????.?*)
        if [ -f "$recover_path" ]; then set_aside "fold/$recover_name"
        else fold_finish "$recover_path"; fi ;;
      fold/*) set_aside "fold/$recover_name" ;;
      # An unfold whose flat file was not renamed yet: that is whole
      tmp/??????????.????????????.*) [ -f "$recover_path" ] || unfold_undo "$recover_path" ;;
      esac || return
    done
  done
}

# The most messages of a flat file, and about the most bytes
flat_lines=500
flat_bytes=4194304

# queue_fold - if wal/ holds FLATQ_FOLD slips (200) or more, fold runs of one priority, of at least
# an eighth of that
queue_fold() {
  is_number "${FLATQ_FOLD:=200}" 999999 && [ "$number" -gt 0 ] || {
    why='FLATQ_FOLD must be a number from 1 to 999999'
    return 64
  }
  FLATQ_FOLD=$number
  set -- "$q"/wal/*
  [ $# -ge "$FLATQ_FOLD" ] || return 0
  fold_count=0 fold_bytes=0 fold_priority=
  # The last word, no slip, ends the last run
  for fold_path in "$@" end.; do
    fold_name=${fold_path##*/}
    if [ "${fold_name%%.*}" != "$fold_priority" ] || [ $fold_count -ge $flat_lines ] ||
      [ $fold_bytes -gt $flat_bytes ]; then
      [ $fold_count -lt $(((FLATQ_FOLD + 7) / 8)) ] || fold_some || return
      fold_names='' fold_count=0 fold_bytes=0 fold_priority=${fold_name%%.*}
    fi
    # Not those of 100,000 bytes or more
    slip_parse "$fold_name" && [ ${#slip_size} -le 5 ] || continue
    fold_names="$fold_names $fold_name"
    fold_count=$((fold_count + 1)) fold_bytes=$((fold_bytes + slip_size))
  done
}

# fold_some - move the slips of fold_names to a run, then write their flat file
fold_some() {
  nonce_read
  # shellcheck disable=SC2086 # names
  set -- $fold_names
  slip_parse "$1"
  fold_path=$q/fold/$slip_priority.$slip_id.$nonce
  mkdir "$fold_path" || { disk_failed "$q/fold"; return; }
  # RACE: mv goes on if one was handed out since the listing
  (cd "$q/wal" && exec mv -f "$@" "$fold_path/") || :
  fold_finish "$fold_path" new
}

# fold_finish RUN [new] - write the run's flat file, commit it by one rename, and remove the run.
# CRASH: before the rename, its file is written again; after it, the flat file with the run's nonce
# proves the commit. If the file cannot be written (disk full), the run goes to head/ (I2)
fold_finish() {
  fold_nonce=${1##*.} fold_at=
  if [ $# -eq 1 ]; then
    find_names queue \( -type f -name "$flat_like.*.*.$fold_nonce" \) || return
    fold_at=${names:+$q/$names}
  fi
  if [ -n "$fold_at" ]; then
    # CRASH: who renamed it may have died before it synced: a power cut could undo the rename, but
    # not the removal
    sync_paths "${fold_at%/*}" "$q/queue" || return
  else
    names_in "$1" || return
    # The run seems empty: only rmdir proves that it is
    [ -n "$names" ] || { rmdir "$1" || disk_failed "$q/fold"; return; }
    # shellcheck disable=SC2086 # names
    if ! fold_write "$1" $names; then
      [ -z "$fold_at" ] || return 74
      rename_path "$1" "$q/head/${1##*/}" || disk_failed "$q/head"
      return
    fi
  fi
  fold_remove "$1"
}

# fold_remove RUN - remove bodies and slips of just those messages that the flat file fold_at has
# shellcheck disable=SC2086 # names
fold_remove() {
  flat_parse "${fold_at##*/}" || return 74
  fold_lines=$(exec cut -f 1 "$fold_at" 9>&-) || fold_lines=
  fold_run=$1
  case $fold_lines in
  *[!0-9a-z.'
'-]*) fold_lines= ;;
  esac
  set -- $fold_lines
  [ $# -eq "$flat_count" ] || {
    why="queue '$queue': cannot read queue/$flat_block/${fold_at##*/}"
    return 74
  }
  ids_of "$@"
  bodies_remove $ids && (cd "$fold_run" && exec rm -f "$@") && rmdir "$fold_run" ||
    { disk_failed "$q/fold"; return; }
  sync_paths "$q/fold"
}

# fold_write RUN SLIP ... - write the run's flat file; set fold_at once it is in queue/
fold_write() {
  fold_run=$1
  shift
  flat_write "$q/tmp" "$fold_nonce" "$@" || return
  flat_parse "$fold_flat"
  fold_block=$q/queue/$flat_block
  sync_paths "$q/tmp/$fold_flat" "$fold_run" "$q/fold" "$q/wal" &&
    flat_enter "$q/tmp/$fold_flat" "$fold_flat" || { rm -f "$q/tmp/$fold_flat"; return 74; }
  fold_at=$fold_block/$fold_flat
  sync_paths "$fold_block" "$q/queue"
}

# flat_write DIRECTORY NONCE SLIP ... - write the flat file of these slips; set fold_flat to its
# name. If it cannot be written, remove it and return 74
flat_write() {
  flat_place=$1 flat_nonce=$2
  shift 2
  slip_parse "$1" || return 74
  fold_first=$slip_id
  for fold_last in "$@"; do :; done
  slip_parse "$fold_last" || return 74
  fold_flat=$slip_priority.$fold_first.$slip_id.$#.0.$flat_nonce
  if [ $# -eq 1 ]; then
    letters_of "$slip_size"
    fold_size=$((${#1} + letters + 2))
    { printf '%s\t' "$1" && cat "$q/body/$slip_id"; } >"$flat_place/$fold_flat" || fold_size=none
  else
    fold_size=$(printf '%s\n' "$@" |
      FLATQ_BODY=$q/body FLATQ_FLAT=$flat_place/$fold_flat FLATQ_LINES=$# awk "$letters_awk"'
        BEGIN { FS = "."; flat = ENVIRON["FLATQ_FLAT"] }
        { body = ENVIRON["FLATQ_BODY"] "/" $2
          # If a read fails, gawk keeps the line before and reports success
          line = ""
          if ((getline line <body) <= 0 || length(line) != letters($8)) { bad = 1; exit }
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

# queue_unfold FLAT - make the messages of a flat file single again. CRASH: all is written before
# the first rename, and after it, only the slips in tmp/ must go to head/
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
  if [ "$flat_count" = 1 ]; then
    unfold_bytes=$(unfold_alone)
  else
    unfold_bytes=$(FLATQ_BODY=$q/body FLATQ_STAGE=$unfold_stage FLATQ_TRIES=$flat_tries \
      awk "$letters_awk"'
      BEGIN { FS = "\t" }
      # Refuse anything but names and base64: it could be a path to another place, or code
      $1 $2 !~ "^[0-9A-Za-z.+/=-]*$" || $1 ~ "/" { exit 74 }
      { n = split($1, field, "."); body = ENVIRON["FLATQ_BODY"] "/" field[2]
        # The line was cut by a read error that awk does not notice
        if (NF != 2 || n != 10 || length($2) != letters(field[8])) exit 74
        field[3] += ENVIRON["FLATQ_TRIES"]
        name = field[1]; for (i = 2; i <= n; i++) name = name "." field[i]
        name = ENVIRON["FLATQ_STAGE"] "/" name
        printf "" >name
        close(name)
        # Write the body after its slip, by which unfold_undo finds it
        printf "%s\n", $2 >body
        close(body)
        bytes += length($2) + 1 }
      END { printf "%.0f\n", bytes }' <"$unfold_from")
  fi || unfold_bytes=none
  set -- "$1" "$unfold_stage"/*
  if [ $# -ne $((flat_count + 1)) ] || ! unfold_whole; then
    disk_failed "$q/tmp" "queue '$queue': cannot unfold"
    unfold_code=$?
    unfold_undo "$unfold_stage" || :
    return $unfold_code
  fi
  sync_many "$unfold_stage" &&
    rename_path "$unfold_from" "$q/unfold/$1" || { disk_failed "$q/unfold"; return; }
  unfold_finish "$1"
}

# unfold_alone - unfold the one message of unfold_from; print the body's length
unfold_alone() {
  slip=$(exec head -c 256 "$unfold_from" 9>&-) && slip_parse "${slip%%	*}" || return
  unfold_slip=${slip%%	*}
  letters_of "$slip_size"
  slip_tries=$((slip_tries + flat_tries))
  slip_format
  file_new "$unfold_stage/$slip" &&
    tail -c "+$((${#unfold_slip} + 2))" "$unfold_from" >"$q/body/$slip_id" 9>&- &&
    printf '%s\n' $((letters + 1))
}

# unfold_undo RUN - remove this run in tmp/, and first the bodies of its slips
unfold_undo() {
  names_in "$1" || return
  # shellcheck disable=SC2086 # names
  ids_of $names && bodies_remove $ids && rm -rf "$1" || disk_failed "$q/tmp"
}

# unfold_whole - whether all bodies together are as long as in the flat file (a full disk)
# shellcheck disable=SC2086 # names
unfold_whole() {
  ids_of "$unfold_stage"/*
  unfold_said=$({ cd "$q/body" && exec wc -c $ids; } 9>&-) || return
  # The last line of wc has the sum
  set -- ${unfold_said##*"
"}
  [ "${1:-}" = "$unfold_bytes" ]
}

# unfold_finish FLAT - move the staged slips to head/; only then remove the flat file. CRASH: as in
# fold_finish, of the rename to unfold/
unfold_finish() {
  flat_parse "$1" && [ ! -d "$q/unfold/$1" ] || { set_aside "unfold/$1"; return; }
  sync_moving "$q/unfold" "$q/queue/$flat_block" || return
  # If its messages are in neither, no unfold has left the file
  [ -d "$q/head/$run" ] || rename_path "$q/tmp/$run" "$q/head/$run" || {
    absent "$q/tmp/$run" && absent "$q/head/$run" && set_aside "unfold/$1" || disk_failed "$q/head"
    return
  }
  sync_paths "$q/head" "$q/tmp" || return
  rm -f "$q/unfold/$1" && sync_paths "$q/unfold" || { disk_failed "$q/unfold"; return; }
  block_leave "$flat_block"
}
