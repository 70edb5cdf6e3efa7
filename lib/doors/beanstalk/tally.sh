# doors/beanstalk/tally.sh - what the connections of a door tell each other: the tubes they use and watch, and their counters
#
#   .doors/INSTANCE/PID-TIME   a connection, three lines: USED PRODUCER WORKER WAITING; the tubes it watches; its counters, NAME=N each
#                              If these are long, the file is not written anew for each answer. What changed is added to it, in three lines as
#                              above: the tubes watched since, and as -TUBE those ignored since; what the counters have gained
#   .doors/INSTANCE/gone       the counters of connections that have ended: a line each, after the name of its file, or one line for many
#   .doors/INSTANCE/draining   puts are refused
#   .doors/INSTANCE/lock       held while counters are moved into `gone`, or `gone` is shortened, or all is added up
#
# These are only statistics: losing them in a crash harms no message.

need engine/process

# tally_begin - create this connection's file. launch passes the door's instance in door_of
tally_begin() {
  door_instance=$FLATQ_DIR/.doors/$door_of
  tally_own || return $?
  [ -d "$door_instance" ] || mkdir -p "$door_instance" 2>/dev/null || { disk_failed "$FLATQ_DIR" 'door'; return $?; }
  tally_file=$door_instance/$owner tallies=' connections=1 ' tally_added=0 watch_new='' tally_new=''
  tally_write
}

# tally_own - in a group's spool, return 74 if a name that we read or write is a link: another member may have made it
tally_own() {
  [ -z "$spool_shared" ] || no_links "$FLATQ_DIR/.doors" "$door_instance" "$door_instance"/*
}

# tally NAME - add one to a counter
tally() {
  tally_new="${tally_new:-}$1=1 "
  if word_take "$tallies" "$1="; then tallies="$words$1=$((${word#*=} + 1)) "; else tallies="$tallies$1=1 "; fi
}

# word_take LIST KEY - set `word` to the word of LIST that begins with KEY, and `words` to LIST without it; return 1 if there is none. LIST has a
# blank on each side of each word. `${list#*" $key"}` would take the square of the list's length
word_take() {
  case $1 in
  *" $2"*) ;;
  *) return 1 ;;
  esac
  words=${1%%" $2"*} word_key=$2
  # shellcheck disable=SC2086 # words
  set -- $1
  while :; do
    case "$1 " in
    "$word_key"*) break ;;
    esac
    shift
  done
  word=$1
  shift
  words="$words $*${1:+ }"
}

# tally_write - write the file of this connection: all of it if that is short, or if as much as that was added since; else add what changed (R8)
tally_write() {
  # Count what was put back since (engine/settle.sh)
  while [ "${putbacks:-0}" -gt 0 ]; do
    putbacks=$((putbacks - 1))
    tally job-timeouts
  done
  tally_state="$used $door_producer $door_worker $door_waiting" tally_long=$((${#watched} + ${#tallies}))
  if [ -h "$tally_file" ] || [ -h "$door_instance" ] || [ -h "$FLATQ_DIR/.doors" ]; then
    :
  elif [ $tally_long -le 4096 ] || [ "$tally_added" -gt $tally_long ]; then
    tally_added=0
    printf '%s\n%s\n%s\n' "$tally_state" "$watched" "$tallies" >|"$tally_file"
  else
    tally_added=$((tally_added + ${#tally_state} + ${#watch_new} + ${#tally_new}))
    printf '%s\n%s\n%s\n' "$tally_state" "$watch_new" "$tally_new" >>"$tally_file"
  fi 2>/dev/null || :
  watch_new='' tally_new=''
}

# tally_lock - lock the counters, on descriptor 7, until `close_descriptor 7`. Look for links again: they may have been made while we waited
tally_lock() {
  tally_own && command exec 7>>"$door_instance/lock" && flock 7 7>&7 && tally_own
} 2>/dev/null

# tally_end - keep the counters beyond the connection's end
tally_end() {
  tally_write
  tally_lock || { close_descriptor 7; return 0; }
  printf '%s%s\n' "${tally_file##*/}" "$tallies" >>"$door_instance/gone" && rm -f "$tally_file"
  # Only now and then, chosen by the last digits of the time
  clock_read
  case $now in
  *[0257]3) tally_fold ;;
  esac
  close_descriptor 7
} 2>/dev/null

# tally_fold - make one line of those in `gone`, which grows with each connection. CRASH: counters may be lost
tally_fold() {
  mv -f "$door_instance/gone" "$door_instance/fold.$owner" || return 0
  # A new file: another member may make a link of that name now
  (set -C && exec awk -v "name=$owner.sum" '
    {
      if ($1 in seen) next
      seen[$1]
      for (i = 2; i <= NF; i++) { at = index($i, "="); if (at) sum[substr($i, 1, at - 1)] += substr($i, at + 1) }
    }
    END { printf "%s", name; for (one in sum) printf " %s=%d", one, sum[one]; print "" }' "$door_instance/fold.$owner" >"$door_instance/gone")
  rm -f "$door_instance/fold.$owner"
} 2>/dev/null

# tally_read - set tally_files to the files of living connections; add the counters of killed ones to `gone`
tally_read() {
  tally_files=
  for tally_path in "$door_instance"/[0-9]*-*; do
    [ -e "$tally_path" ] || continue
    if owner_dead "${tally_path##*/}"; then
      tally_text=
      { while read -r tally_line && read -r tally_line && read -r tally_line; do tally_text="$tally_text $tally_line"; done <"$tally_path"; } 2>/dev/null
      [ -z "$tally_text" ] || { printf '%s%s\n' "${tally_path##*/}" "$tally_text" >>"$door_instance/gone"; } 2>/dev/null
      rm -f "$tally_path"
    else
      tally_files="$tally_files $tally_path"
    fi
  done
}

# tally_sum - print `NAME N`: the sums of all counters and, over living connections, of what they are and do with which tube. Run it in a process of
# its own, which holds the lock until it ends
tally_sum() {
  tally_lock || return 74
  tally_read
  # shellcheck disable=SC2086 # paths: the spool's own may have blanks
  (
    cd "$door_instance" || exit
    set --
    for tally_path in $tally_files; do
      set -- "$@" "${tally_path##*/}"
    done
    # RACE: a file may be removed while we look: then its counters are in `gone`, which is read last, and may have them twice if two processes
    # added them
    awk '
      function counters(text,  n, i, at, words) {
        n = split(text, words, " ")
        for (i = 1; i <= n; i++) {
          at = index(words[i], "=")
          if (at) sum[substr(words[i], 1, at - 1)] += substr(words[i], at + 1)
        }
      }
      function watches(text,  n, i, words) {
        n = split(text, words, " ")
        for (i = 1; i <= n; i++) if (words[i] ~ /^-/) delete watched[substr(words[i], 2)]; else watched[words[i]]
      }
      function connection(  tube, words) {
        split(state, words, " ")
        sum["open"]++; sum["using/" words[1]]++; sum["producers"] += words[2]; sum["workers"] += words[3]; sum["waiting"] += words[4]
        waits = words[4]
        for (tube in watched) { sum["watching/" tube]++; if (waits) sum["waiting/" tube]++ }
      }
      BEGIN {
        for (file = 1; file < ARGC; file++) {
          path = ARGV[file]
          split("", watched)
          while ((getline one < path) > 0 && (getline two < path) > 0 && (getline three < path) > 0) { seen[path]; state = one; watches(two); counters(three) }
          close(path)
          if (path in seen) connection()
        }
        while ((getline one < "gone") > 0) {
          path = substr(one, 1, index(one, " ") - 1)
          if (!(path in seen)) counters(one)
          seen[path]
        }
        for (name in sum) print name, sum[name]
      }' "$@"
  )
}

part='doors/beanstalk/tally'
