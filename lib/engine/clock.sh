# engine/clock.sh - the wall clock, and times of 12 digits, in hundredths of a second

# clock_add SECONDS TIME - set `later` to their sum; nine years later at most
clock_add() {
  clock_add=$1
  [ "$clock_add" -le 300000000 ] || clock_add=300000000
  unpad "$2"
  pad $((unpadded + clock_add * 100)) 000000000000
  later=$padded
}

# clock_move TIME HUNDREDTHS - set `moved` to their sum, but not below 0
clock_move() {
  unpad "$1"
  unpadded=$((unpadded + $2))
  [ $unpadded -ge 0 ] || unpadded=0
  pad $unpadded 000000000000
  moved=$padded
}

# clock_split TIME - set clock_s to its seconds, and clock_c to two digits of hundredths
clock_split() {
  clock_c=${1#"${1%??}"}
  unpad "${1%??}"
  clock_s=$unpadded
}

# clock_between FROM TO - set between_s, below 0 if TO is earlier, and between_c to its hundredths
clock_between() {
  clock_split "$1"
  between_s=$clock_s between_c=$clock_c
  clock_split "$2"
  between_s=$((clock_s - between_s)) between_c=$((1$clock_c - 1$between_c))
  [ "$between_c" -ge 0 ] || between_s=$((between_s - 1)) between_c=$((between_c + 100))
}

# clock_wall - set wall_epoch to the wall clock's time of the boot; return 1 if `date` fails
clock_wall() {
  is_number "$(date +%s)" 9999999999 || return
  clock_split "$now"
  # A wall clock that starts in 1970 may be behind the uptime
  wall_epoch=$((number - clock_s))
  [ $wall_epoch -ge 0 ] || wall_epoch=0
}

# clock_date - read `now`, and set wall_ahead to the hundredths that the wall clock is ahead of it;
# return 1 if `date` fails
clock_date() {
  clock_said=$(exec date +%s.%N 9>&-)
  clock_read
  case $clock_said in
  *[0-9].[0-9][0-9]*) ;;
  *) clock_said=${clock_said%%[!0-9]*}.00 ;;
  esac
  clock_c=${clock_said#*.}
  is_number "${clock_said%.*}" 9999999999 || return
  unpad "$now"
  wall_ahead=$((number * 100 + 1${clock_c%"${clock_c#??}"} - 100 - unpadded))
}

# clock_follow - once in 100 s: if the spool's wall clock differs from the system's by over a
# minute, set epoch, note it in the record of this boot, and return 0
clock_follow() {
  [ "${clock_followed:-}" != "${now%????}" ] || return
  clock_followed=${now%????}
  clock_wall || return
  follow_by=$((wall_epoch - epoch))
  [ "${follow_by#-}" -gt 60 ] || return
  epoch=$wall_epoch
  # RACE: if another verb has renamed it meanwhile, its time counts
  for follow_record in "$FLATQ_DIR/.boot/$boot".v1.*; do :; done
  mv -f "$follow_record" \
    "$FLATQ_DIR/.boot/$boot.v1.$epoch.${follow_record#"$FLATQ_DIR/.boot/$boot".v1.*.}" &&
    sync_paths "$FLATQ_DIR/.boot" || :
}

# window_clock TOP - set window_now to the time by the clock of delayed/TOP (engine/window.sh), and
# window_ahead to its hundredths more than `now`; return 1 if nothing there is due, or TOP not ours
window_clock() {
  case $1 in
  *[!0-9.]* | *.*.* | 0?*.* | ???????????*.*) return 1 ;;
  0??????) window_ahead=0 window_now=$now ;;
  ?*.??????? | [1-9]??????)
    window_ahead=${1%.*}
    # An earlier version counted since 1970
    [ "$window_ahead" != "$1" ] || window_ahead=0
    window_ahead=$(((epoch - window_ahead) * 100))
    clock_move "$now" $window_ahead
    window_now=$moved ;;
  *) return 1 ;;
  esac
  ! [ "$window_now" \< "${1##*.}00000" ]
}
