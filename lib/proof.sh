# proof.sh - what the engine accepts as proof that something is not there (rule R1 in lib/README.md)
#
# A glob that matches nothing and a `[ -e ]` that is false look the same when the directory could not be read. So whatever removes, settles or
# says "nothing there" asks here, or a rename or an rmdir that succeeded. `ls` and `find` end with 0 only where they have read all.

# names_in DIRECTORY - sets `names`: all names in it, in order, one a line; 74 where it cannot be listed to its end
names_in() {
  # the shell may fail to read all of it: no name has a `/` (R6). -q: yash reads no byte that is no character
  names=$({ ls -q "$1" && printf /; } 2>/dev/null 9>&-) || names=
  case $names in
  */) names=${names%/} names=${names%?} ;;
  *) false ;;
  esac || { why="queue '${queue:-}': cannot list ${1#"${q:-}/"}"; return 74; }
}

# captured TEXT - sets `captured`: TEXT without its last line `end`, by which a command whose output was taken with `$( )` says that it is through.
# 74: it was cut, since the shell's own read may fail, and no status tells (R6)
captured() {
  case $1 in
  end) captured= ;;
  *'
end') captured=${1%?end} ;;
  *) why="queue '${queue:-}': what was found was not read to its end"; return 74 ;;
  esac
}

# spool_listed PATH ... - 66 where PATH ..., which the shell has listed, are all queues that the spool has; 75: there are more; 74
spool_listed() {
  names_in "$FLATQ_DIR" || return
  [ -e "$1" ] || shift
  for proof_path in "$@"; do
    case $names in
    *?"
"*) names=${names#*"
"} ;;
    *) names= ;;
    esac
  done
  [ -n "$names" ] || return 66
  why="spool $FLATQ_DIR: cannot be listed"
  return 75
}

# named NAME - whether NAME is one of `names`
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

# find_names ARGUMENT ... - sets `names`: what find says of these places of the queue; 74, 69 where it is gone.
# RACE: find fails where a directory goes (a run that was emptied, a batch that was put back) after it stood in its parent's listing: again
find_names() {
  # its last place is `lock`, which is always there: an answer that does not end with it was cut (R6)
  find_mark=
  for find_word in "$@"; do
    case $find_word in
    '!' | '(' | -*) [ -n "$find_mark" ] || { set -- "$@" lock; find_mark=1; } ;;
    esac
    set -- "$@" "$find_word"
    shift
  done
  for find_try in 1 2 3 4 5 6 7 8; do
    names=$(cd "$q" 2>/dev/null && exec find "$@" 2>/dev/null 9>&-) && case $names in
    lock | *'
lock') names=${names%lock} names=${names%?}; return 0 ;;
    esac
    # RACE: a drop takes the places away while it looks whether they are empty
    drop_wait
    [ $? -ne 69 ] || return 69
    [ -e "$q" ] || break
  done
  queue_gone || return
  why="queue '$queue': cannot be listed after $find_try looks"
  return 74
}

# files_below PLACE ... - sets `names`: the paths, from $q, of all that is no directory in these places of the queue; 74 as in names_in
files_below() {
  # what has other bytes in its name is strange; and yash could not read it
  find_names "$@" ! -type d ! -name '~' ! -name '*[!!-~]*'
}

# nothing_ready - 66 where surely nothing of $q is ready, nor due, nor in out/ without having been looked at; 0: look again; 74. Only the
# thousands of delayed/ are listed: there may be many
nothing_ready() {
  need fold
  find_names wal fold queue unfold head out delayed \( -path 'delayed/*' -prune -o \
    ! -type d \( -name '??????????.????????????.*' -o -path 'out/batch.*' -o -name lock \) \) -print || {
    # RACE: dropped meanwhile, or a drop looks whether it is empty
    [ -e "$q" ] || [ -e "$q/lock" ] || return 66
    drop_wait
    case $? in
    0) return 0 ;;
    69) return 66 ;;
    esac
    return 74
  }
  clock_epoch "$now"
  proof_out=
  for proof_path in $names; do
    case $proof_path in
    out/*) proof_out=1 ;;
    delayed/*[!0-9]*) ;;
    delayed/*) proof_path=${proof_path#*/}; [ "$epoch_time" \< "${proof_path}00000" ] || proof_due "$proof_path" || { [ $? -eq 75 ] && return 0; return 74; } ;;
    # what lies beside blocks and runs is strange, and nobody's
    queue/??????????.???????/* | head/*/* | wal/* | fold/* | unfold/*) return 0 ;;
    esac
  done
  [ -z "$proof_out" ] || [ -n "${reclaim_saw-1}" ] || return 0
  return 66
}

# proof_due THOUSANDS - 0 where none of what is delayed there is due; 75 where something is, now: look again; 74
proof_due() {
  files_below "delayed/$1" || { [ -e "$q/delayed/$1" ] || return 0; return 74; }
  for proof_path in $names; do
    proof_path=${proof_path#*/*/}
    case ${proof_path%%/*} in
    *[!0-9]*) continue ;;
    esac
    [ "$epoch_time" \< "${proof_path%%/*}" ] || return 75
  done
}

# nowhere ID - 66 where the message with the 12-digit ID is surely in none of the places that message_find looks at; 0: look again; 74
nowhere() {
  names_like "$1" out wal fold queue unfold head delayed buried || return
  for proof_path in $names; do
    case $proof_path in
    out/batch.*) continue ;;
    out/*) [ ! -e "$q/done/${proof_path##*/}" ] || continue ;;
    esac
    is_like "$1" && return 0
    [ $? -ne 74 ] || return 74
  done
  return 66
}

# What a flat file's name begins with: priority, first and last id. A `?` of find's would take a dot as well, and with it a slip for a flat file
flat_like='[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9].[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9].[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]'

# names_like ID PLACE ... - sets `names`: the paths of slips with ID, and of all flat files, in these places
names_like() {
  like_id=$1
  shift
  find_names "$@" ! -type d \( -name "??????????.$like_id.*" -o -name "????????????.??????????.$like_id.*" -o -name "$flat_like.*.*.*" -o -name lock \)
}

# is_like ID - whether proof_path is the message's slip, or a flat file with a line of it; 74 where it cannot be read
is_like() {
  flat_parse "${proof_path##*/}" || return 0
  ! [ "$1" \< "$flat_first" ] && ! [ "$flat_last" \< "$1" ] && message_in_flat "$q/$proof_path" "$1"
}

# absent PATH - 0 only where the system says that there is no such file; else 74, with `why`: it is there, and the look at it failed, or nobody knows
absent() {
  absent_said=$(exec ls -d "$1" 2>&1 9>&-)
  case $?.$absent_said in
  [12].*': No such file or directory' | [12].*': Not a directory') return 0 ;;
  esac
  why="cannot look at $1"
  return 74
}

# there PATH - 0 where there is such a file, 1 where the system says that there is none, 74 where nobody knows
there() {
  [ -e "$1" ] && return 0
  absent "$1" && return 1
  [ -e "$1" ] || return 74
}

# expect PATH WHY - 0 where there is such a file; 66, with that `why`, where the system says that there is none; 74
expect() {
  there "$1"
  case $? in
  0) ;;
  1) why=$2; return 66 ;;
  *) return 74 ;;
  esac
}

# queue_gone [FD] - 69 where $q was surely dropped, or is another queue than the one whose lock is open as FD; 74 where nobody knows; else 0
queue_gone() {
  if absent "$q/lock"; then
    why="queue '$queue' is gone"
    return 69
  fi
  why="queue '$queue': cannot look at its lock"
  if [ $# -eq 0 ]; then
    [ -e "$q/lock" ] || return 74
    return 0
  fi
  gone_said=$(cd "$q" 2>/dev/null && exec ls -diL lock "$FLATQ_PROC/self/fd/0" <&"$1" 2>/dev/null) || return 74
  # shellcheck disable=SC2086 # two lines of inode and name
  set -- $gone_said
  [ $# -eq 4 ] || return 74
  [ "$1" != "$3" ] || return 0
  why="queue '$queue' is gone"
  return 69
}

# conf_read - queue_conf of a conf that the shell has not read to the end of a line: an empty one, or one that cannot be read
conf_read() {
  conf_said=$({ cat "$q/conf" && printf '\nend'; } 2>/dev/null 9>&-) && captured "$conf_said" || { why="queue '$queue': cannot read conf"; return 74; }
  # shellcheck disable=SC2086 # words
  set -- $captured
  queue_bound=${1:-} queue_most=${2:-}
}

# measure OPTION FILE - sets `measured`: what `wc OPTION` says of FILE; 74 where that is no number
measure() {
  measured=$({ wc "$1" <"$2" && printf /; } 2>/dev/null 9>&-) || measured=
  case $measured in
  */) measured=${measured%/} measured=${measured%?} ;;
  *) measured= ;;
  esac
  # some have blanks in front
  number "${measured##* }" 999999999999999 && measured=$number && return 0
  why="queue '${queue:-}': cannot count what is in ${2#"${q:-}/"}"
  return 74
}

# slips_left PLACE ... - 66 where surely no slip is in these places of the queue, but in a batch or settled; 0: look again; 74
slips_left() {
  files_below "$@" || return
  for proof_path in $names; do
    case $proof_path in
    out/batch.*) continue ;;
    esac
    slip_of "$q/$proof_path"
    slip_parse "$slip" && [ ! -e "$q/done/${proof_path##*/}" ] && return 0
  done
  return 66
}
