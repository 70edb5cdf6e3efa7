# engine/owner.sh - who this process is, where that is not simple

# owner_look - called by owner_read where $$ and `now` may not identify this process, or process 1 cannot be seen. In a container whose clock
# (lxcfs) counts from another start than /proc/PID/stat, and in a subshell, whose PID is not $$, set `owner` to PID and start of this process. Set
# owner_lease to `none` if other processes can be seen. If that is unknown, end the verb: with a lease, another verb would take the message while
# we live
owner_look() {
  owner_lease=
  # shellcheck disable=SC3013 # -ef is in every shell that is named in the README
  if [ "${clock_same:-}" != same ] || ! [ "$FLATQ_PROC/self" -ef "$FLATQ_PROC/$$" ]; then
    { read -r owner_line <"$FLATQ_PROC/self/stat" || read -r owner_line <"$FLATQ_PROC/self/stat"; } 2>/dev/null || {
      need engine/proof
      absent "$FLATQ_PROC/self/stat" || die 74 'cannot read which process this is'
      return 0
    }
    # shellcheck disable=SC2086 # the words are what is wanted
    set -- ${owner_line##*') '}
    [ $# -lt 20 ] || { pad "${20}" 000000000000; owner=${owner_line%% *}-$padded; }
  fi
  [ ! -e "$FLATQ_PROC/1/stat" ] || { owner_lease=none; return 0; }
  need engine/proof
  there "$FLATQ_PROC/1/stat"
  case $? in
  0) owner_lease=none ;;
  74) die 74 'cannot see which processes live' ;;
  esac
}

part='engine/owner'
