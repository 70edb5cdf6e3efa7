# engine/proof.sh - what is proof that something is not there (R1 in lib/README.md): `ls` and `find`
# end with 0 only if they have read everything
#
# The answers: 66, proved that nothing is there; 74, unknown; 0 or 75, there may be: look again.

need engine/slip

# names_in DIRECTORY - set `names` to all names in it, sorted, one a line; return 74 if that fails
names_in() {
  names=$(exec ls -q "$1" 9>&-) && return 0
  why="queue '${queue:-}': cannot list ${1#"${q:-}/"}"
  return 74
}

# not_listed - set `why`, and return 74
not_listed() {
  why="queue '$queue': cannot be listed"
  return 74
}

# named NAME - return whether NAME is one of `names`
named() {
  case "
$names
" in
  *"
$1
"*) return 0 ;;
  esac
  return 1
}

# find_names ARGUMENT ... - set `names` to what find prints about these places of the queue; return
# 74, or 69 if the queue is gone
find_names() {
  for find_try in 1 2 3 4 5 6 7 8; do
    names=$(cd "$q" && exec find "$@" 9>&-) && return 0
    # RACE: find fails if a directory is removed before it enters it, also by a drop
    need engine/lock
    drop_wait
    [ $? -ne 69 ] || return 69
  done
  queue_there || return
  not_listed
}

# files_below PLACE ... - find_names of all files in these places
files_below() {
  find_names "$@" ! -type d ! -name '~' ! -name '*[!!-~]*'
}

# nothing_ready - return 66 if nothing in $q is ready, due, or in out/ and not yet looked at; 0; 74.
# Of delayed/ list only the directories of thousands, and list it first: what leaves it goes to wal/
# (I2). With 66 of a closed queue, proof_delayed is empty only if nothing is delayed either: then a
# pop ends with 69
nothing_ready() {
  proof_delayed=
  find_names delayed wal fold queue unfold head out \( -path 'delayed/*' -prune -o \
    ! -type d \( -name '??????????.????????????.*' -o -path 'out/batch.*' \) \) -print || {
    [ $? -ne 69 ] || return 66
    return 74
  }
  proof_out=
  for proof_path in $names; do
    case $proof_path in
    out/*) proof_out=1 ;;
    delayed/*[!0-9.]*) ;;
    delayed/*)
      need engine/clock
      proof_delayed=1 proof_path=${proof_path#*/}
      ! window_clock "$proof_path" || nothing_due "$proof_path" || return 0 ;;
    # Files beside blocks and runs are no messages
    queue/??????????.???????/* | head/*/* | wal/* | fold/* | unfold/*) return 0 ;;
    esac
  done
  [ -z "$proof_out" ] || [ -n "$reclaim_saw" ] || {
    need engine/reclaim
    queue_reclaim
    return
  }
  [ -z "$proof_delayed" ] || ! clock_follow || return 0
  [ $# -eq 0 ] && [ -e "$q/closed" ] || return 66
  # RACE: a release may have moved a message from wal/ to delayed/ between these listings
  [ -n "$proof_delayed" ] || { nothing_ready again; return; }
  need engine/window
  windows delayed true
  case $? in
  0) return 66 ;;
  66) ;;
  *) return 74 ;;
  esac
  # RACE: what was delayed may have moved to one of the other places since
  nothing_ready again
  proof_code=$?
  proof_delayed=
  return $proof_code
}

# take_nothing - the end of take_message, which saw nothing in take_there: return 66, 0, 74, or 69
# if all are also closed and nothing is delayed
take_nothing() {
  # shellcheck disable=SC2086 # names
  queues_nothing $take_there
  take_code=$?
  case $take_code.$take_open$nothing_delayed in
  0.*) ;;
  66.) why='closed and empty'; return 69 ;;
  66.*)
    why='nothing there'
    [ -z "$take_paused" ] || why="queue '$take_paused' is paused"
    return 66 ;;
  *) return $take_code ;;
  esac
  # RACE: a message came meanwhile, and is gone now. Repeat, but not for ever
  [ "$take_looked" -lt 20 ] || { not_listed; return; }
  take_looked=$((take_looked + 1))
  clock_read
}

# queues_nothing QUEUE ... - nothing_ready for all of these, by one process if nothing lies in them;
# set nothing_delayed if a message of one is delayed
queues_nothing() {
  nothing_paths='' nothing_delayed=
  for nothing_queue in "$@"; do
    name_to_disk "$nothing_queue"
    for nothing_place in wal fold queue unfold head out delayed; do
      nothing_paths="$nothing_paths ./$name_disk/$nothing_place"
    done
  done
  # shellcheck disable=SC2086 # names
  [ $# -gt 1 ] && names=$(cd "$FLATQ_DIR" &&
    exec find $nothing_paths ! -type d ! -name '~' 9>&-) && [ -z "$names" ] && return 66
  need engine/reclaim
  for nothing_queue in "$@"; do
    # Only queue_reclaim tells what was popped from what is held
    queue_open "$nothing_queue" && queue_reclaim && nothing_ready
    nothing_code=$?
    [ $nothing_code -eq 66 ] || [ $nothing_code -eq 69 ] || return $nothing_code
    [ -z "${proof_delayed:-}" ] || nothing_delayed=1
    proof_delayed=
  done
  return 66
}

# nothing_due TOP - return 75 unless it is proved that nothing in delayed/TOP is due by window_now
nothing_due() {
  # RACE: it was removed, and may have been made again since
  files_below "delayed/$1" || { absent "$q/delayed/$1" || return 75; return 0; }
  for proof_path in $names; do
    proof_path=${proof_path#*/*/}
    case ${proof_path%%/*} in
    *[!0-9]*) continue ;;
    esac
    [ "$window_now" \< "${proof_path%%/*}" ] || return 75
  done
}

# How a flat file's name begins. A `?` would match a dot, and so take a slip for a flat file
flat_like='[0-9][0-9][0-9][0-9][0-9][0-9]'
flat_like="[0-9][0-9][0-9][0-9]$flat_like.$flat_like$flat_like.$flat_like$flat_like"

# not_below ID PLACE ... - return 66 if the message with the 12-digit ID is not in these places, or
# settled; 0; 74
not_below() {
  like_id=$1
  shift
  find_names "$@" ! -type d \( -name "??????????.$like_id.*" \
    -o -name "????????????.??????????.$like_id.*" -o -name "$flat_like.*.*.*" \) || return
  for proof_path in $names; do
    ! is_settled "$proof_path" || continue
    path_has_message "$proof_path" "$like_id" && return 0
    [ $? -ne 74 ] || return 74
  done
  return 66
}

# path_has_message PATH ID - return 0 if PATH, below $q, is the message's slip, a flat file with its
# line, or gone by now; 1; 74
path_has_message() {
  need engine/flat
  flat_parse "${1##*/}" || return 0
  message_in_flat "$q/$1" "$2"
  proof_code=$?
  [ $proof_code -eq 74 ] || return $proof_code
  # RACE: it may have moved, which is no absence. If it is back, read it once more
  absent "$q/$1" || message_in_flat "$q/$1" "$2"
}

# absent PATH - return 0 only if the system says that there is no such file; else 74, with `why`
absent() {
  absent_said=$(exec ls -d "$1" 2>&1 9>&-)
  case $?.$absent_said in
  [12].*': No such file or directory' | [12].*': Not a directory') return 0 ;;
  esac
  why="cannot look at $1"
  return 74
}

# there PATH - return 0 if the file exists, 1 if it is proved that it does not, 74
there() {
  [ -e "$1" ] && return 0
  absent "$1" && return 1
  [ -e "$1" ] || return 74
}

# expect_path PATH WHY - as there, but 66, with that `why`, instead of 1
expect_path() {
  there "$1"
  case $? in
  0) ;;
  1) why=$2; return 66 ;;
  *) return 74 ;;
  esac
}

# queue_there [FD] - return 0 if $q is there, and is the queue whose lock is open as FD; 69 if it
# was dropped; 74
queue_there() {
  expect_path "$q/lock" "queue '$queue' is gone" || { [ $? -ne 66 ] || return 69; return 74; }
  [ $# -gt 0 ] || return 0
  # shellcheck disable=SC2046 # two lines of inode and name
  set -- $(cd "$q" && exec ls -diL lock "/proc/self/fd/0" <&"$1")
  [ $# -eq 4 ] || { why="queue '$queue': cannot look at its lock"; return 74; }
  [ "$1" = "$3" ] || { why="queue '$queue' is gone"; return 69; }
}

# conf_read - read conf for queue_conf
conf_read() {
  read -r queue_bound queue_most_tries queue_rest <"$q/conf" || {
    cat "$q/conf" >/dev/null 9>&- || { why="queue '$queue': cannot read conf"; return 74; }
    # It can be read, so that look failed, or it is damaged
    read -r queue_bound queue_most_tries queue_rest <"$q/conf"
  }
  for conf_word in $queue_rest; do
    case $conf_word in
    dead=*) queue_dead=${conf_word#*=} ;;
    expire=*) ! is_number "${conf_word#*=}" 999999999 || queue_expire=$number ;;
    esac
  done
  is_number "$queue_bound" 999999999 && queue_bound=$number &&
    is_number "$queue_most_tries" 999999999 && queue_most_tries=$number && return 0
  queue_bound=0 queue_most_tries=0 why="queue '$queue': conf is damaged"
  return 65
}

# measure OPTION FILE - set `measured` to the number that `wc OPTION` prints for FILE, or return 74
measure() {
  # Some versions of wc print blanks in front
  measured=$(exec wc "$1" <"$2" 9>&-) && is_number "${measured##* }" 999999999999999 &&
    measured=$number && return 0
  why="queue '${queue:-}': cannot count what is in ${2#"${q:-}/"}"
  return 74
}

# slips_left PLACE ... - return 66 if these places hold no slips but settled ones and batches; 0; 74
slips_left() {
  files_below "$@" || return
  for proof_path in $names; do
    case $proof_path in
    out/batch.*) continue ;;
    esac
    slip_of "$q/$proof_path"
    slip_parse "$slip" && ! is_settled "$proof_path" && return 0
  done
  return 66
}
