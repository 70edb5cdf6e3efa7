# engine/slip.sh - a slip (lib/README.md, "Body and slip"): parse its name, rename it, log that

# slip_parse NAME - set id and the slip_ variables to what NAME, in wal/ or out/, says; 1: not valid
slip_parse() {
  # Others could act as a pattern when the shell splits the name
  case $1 in
  *[!0-9a-z.-]*) return 1 ;;
  esac
  IFS=.
  # shellcheck disable=SC2086 # split at the dots
  set -- $1
  IFS=$blanks
  case $# in
  10) slip_owner=0 slip_deadline=000000000000 ;;
  12) slip_owner=${11} slip_deadline=${12} ;;
  *) return 1 ;;
  esac
  slip_priority=$1 slip_id=$2 slip_tries=$3 slip_nonce=$4 slip_lease=$5 slip_delay=$6 slip_born=$7
  slip_size=$8 slip_key=$9 slip_counts=${10}
  # Shells calculate with these: 08 is an error there, and letters are names of variables (R7)
  case $1$2$7.$3.$5.$6.$8. in
  *[!0-9.]* | *..* | *.0[0-9]*) return 1 ;;
  esac
  [ ${#1}.${#2}.${#7} = 10.12.12 ] && [ ${#3} -le 9 ] && [ ${#5} -le 10 ] && [ ${#6} -le 10 ] &&
    [ ${#8} -le 12 ] && [ -n "$4" ] || return 1
  case $slip_key in
  -) ;;
  k*[!0-9a-f]*) return 1 ;;
  k????????????????????????????????) ;;
  *) return 1 ;;
  esac
  case -$slip_counts in
  *[!0-9-]* | *--* | *- | *-0[0-9]* | *-*-*-*-*-* | \
    *[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]*)
    return 1 ;;
  -*-*-*-*) ;;
  *) return 1 ;;
  esac
  unpad "$slip_id"
  id=$unpadded
}

# rename_path FROM TO - rename it. Return 0 if it was renamed, also by an mv that was killed
# afterwards (R2); 1 if not, or if another process was faster; 74 if another has moved the file on,
# or removed it, from FROM or from TO
rename_path() {
  moved_said=$(exec mv -f "$1" "$2" 2>&1) && return 0
  case $moved_said in
  *'o such file'*) return 1 ;;
  esac
  [ ! -e "$1" ] || return 1
  [ -e "$2" ] || { why="it is unknown whether ${1#"$FLATQ_DIR/"} was renamed"; return 74; }
}

# is_settled PATH - whether the message whose slip is, or was, at PATH in out/ is settled
is_settled() {
  [ -e "$q/done/${1##*/}" ]
}

# queue_log VERB [REASON] - log_line about the message in the slip_ variables
queue_log() {
  clock_epoch "$now"
  # With the 1, 08 is not octal
  log_line "$1" "$id" "$slip_tries" "$slip_size" $(((1$epoch_time - 1$slip_born) * 10)) "${2:--}"
}
