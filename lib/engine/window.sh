# engine/window.sh - delayed/ and buried/, where messages lie by time in directories (windows)
#
#   delayed/[SINCE.]THOUSANDS/WHEN/SLIP        WHEN it is due
#   buried/THOUSANDS/TENS/WHEN.SLIP.REASON     WHEN it was buried
#
# WHEN is in hundredths of a second: of buried/ since 1970; of delayed/ since this boot or, for what
# was delayed before it, since SINCE, the wall clock's time of its own boot (boot_delays). TENS
# lacks the last three digits of WHEN, THOUSANDS the last five. Earlier versions had buried messages
# in buried/ itself, and in delayed/ counted since 1970: THOUSANDS does not begin with 0.

need engine/clock

# window_make DIRECTORY - set `place` to this directory of delayed/ or buried/, and create it
window_make() {
  place=$q/$1 window_tries=0
  while [ ! -d "$place" ]; do
    # Without -p, which would make a dropped queue again
    mkdir "${place%/*}" "$place" && continue
    # RACE: a drop has removed the place, or other verbs empty directories
    need engine/lock
    drop_wait
    window_code=$?
    [ $window_code -le 1 ] || return $window_code
    [ $window_tries -lt 5 ] || { disk_failed "${place%/*/*}"; return; }
    window_tries=$((window_tries + 1))
  done
}

# delay_place SECONDS [WHEN] - set `place` to delayed/THOUSANDS/WHEN, and create it
delay_place() {
  # The input of a push may have taken longer than the delay (R5)
  clock_read
  clock_follow || :
  clock_add "$1" "$now"
  later=${2:-$later}
  window_make "delayed/${later%?????}/$later"
}

# delay_at TIME - for push -A: set push_when to TIME, by the clock of `now`, and push_delay; or exit
delay_at() {
  is_number "$(exec date -d "$1" +%s)" 9999999999 || die 65 '-A takes a time as date -d does'
  push_when=$number
  clock_date || die 70 'date failed'
  push_when=$((push_when * 100 - wall_ahead))
  push_delay=$(((push_when - unpadded + 99) / 100))
  [ $((unpadded - push_when)) -lt 100 ] || die 65 '-A takes no time in the past'
  # As clock_add
  [ "$push_delay" -le 300000000 ] || die 65 '-A takes no time in more than nine years'
  pad "$push_when" 000000000000
  push_when=$padded
}

# windows PLACE FUNCTION - call `FUNCTION PATH ...` for each window of PLACE, in the order of time,
# while it returns 66, and return its last code; remove empty windows. 74: one cannot be listed
windows() {
  window_call=$2
  window_each "$q/$1"/*
}

# window_each PATH ... - windows in these directories
window_each() {
  for window_path in "$@"; do
    window_in "$window_path"
    window_code=$?
    [ $window_code -eq 66 ] || return $window_code
  done
  return 66
}

# window_in PATH - windows in one directory, or for a file that lies beside them
window_in() {
  [ -e "$1" ] || return 66
  [ -d "$1" ] || { "$window_call" "$1"; return; }
  for window_try in 1 2 3; do
    set -- "$1" "$1"/*
    if [ -e "$2" ]; then
      shift
      if [ -d "$1" ]; then window_each "$@"; else "$window_call" "$@"; fi
      return
    fi
    # RACE: a message may have come, or another verb has removed the directory, which was empty then
    ! rmdir "$1" || return 66
    need engine/proof
    ! absent "$1" || return 66
  done
  why="queue '$queue': cannot list ${1#"$q/"}"
  return 74
}
