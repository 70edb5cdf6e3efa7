# doors/rights.sh - what a client of the line door may do: its verbs, and the limits of `flatq door`
# and `launch line`
#
# A client that may use a verb may use all its options. `flatq -H VERB` may ask the door for other
# verbs: its pop asks for reserve, delete and, if the message could not be written out, release.
# `log` is no verb of the line door: it shows the events of all clients.

handler_verbs="push pop reserve delete release touch bury kick peek list stat create close drain \
drop wal"

# rights_read WORD [VALUE ...] - if WORD is a limit, set it to VALUE, and add both, quoted, to
# rights_words; else return 1. A wrong VALUE: exit
rights_read() {
  case ${1-} in
  --allow | --queues | --bytes) [ -n "${2-}" ] || usage ;;
  *) return 1 ;;
  esac
  # Neither a quote nor a newline may come through: launch gives these words to a shell
  case $2 in
  *[!A-Za-z0-9+/\;.\$_\(\)*,-]*) die 65 "$1 takes names with commas between them" ;;
  esac
  rights_words="${rights_words:-} $1 '$2'"
  if [ "$1" = --bytes ]; then
    is_number "$2" 2147483646 || die 65 '--bytes takes a number from 0 to 2147483646'
    FLATQ_MOST_BYTES=${number#0}
    return 0
  fi
  set -f
  IFS=,
  # shellcheck disable=SC2086 # it is to be split at commas
  set -- "$1" $2
  IFS=$blanks
  set +f
  rights_option=$1
  shift
  if [ "$rights_option" = --queues ]; then
    rights_queues=$*
    [ -n "$rights_queues" ] || usage
    return 0
  fi
  for rights_name in "$@"; do
    case " $handler_verbs " in
    *" $rights_name "*) ;;
    *) die 65 "--allow: no verb '$rights_name' in the line door" ;;
    esac
  done
  rights_verbs=$*
  [ -n "$rights_verbs" ] || usage
}

# rights_verb - exit with 77 unless the client may use door_verb
rights_verb() {
  case " ${rights_verbs:-$handler_verbs} " in
  *" $door_verb "*) ;;
  *) die 77 "$door_verb is not allowed here" ;;
  esac
}

# rights_check OPERAND ... - exit with 77 unless the client may use door_verb and all queues that it
# would touch: those of its OPERANDS, names or receipts (QUEUE:ID...), or those that it takes
# without any
rights_check() {
  rights_verb
  [ -n "${rights_queues:-}" ] || return 0
  case $door_verb in
  push | pop | reserve | kick | peek | create | close | drain)
    [ $# -gt 0 ] || set -- "$FLATQ_QUEUE" ;;
  # Of all queues, they show those that are allowed
  list | stat) ;;
  # These take nothing by themselves
  delete | release | touch | bury | drop) ;;
  *) [ $# -gt 0 ] || die 77 "$door_verb of all queues is not allowed here" ;;
  esac
  for rights_name in "$@"; do
    rights_name=${rights_name%%:*}
    name_check "$rights_name" || die $? "$why"
    rights_queue "$rights_name" || die 77 "queue '$rights_name' is not allowed here"
  done
}

# rights_queue QUEUE - return whether the limits allow the queue
rights_queue() {
  [ -n "${rights_queues:-}" ] || return 0
  # The shell does not split them, since it would take them for names of files
  rights_rest="$rights_queues "
  while [ -n "$rights_rest" ]; do
    rights_pattern=${rights_rest%% *} rights_rest=${rights_rest#* }
    # shellcheck disable=SC2254 # it is a pattern
    case $1 in
    $rights_pattern) return 0 ;;
    esac
  done
  return 1
}
