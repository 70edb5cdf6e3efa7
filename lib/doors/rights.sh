# doors/rights.sh - what a client of the line door may do: its verbs, and the limits of `flatq door`
# and `flatq serve line`
#
# A client that may use a verb may use all its options. `log` is no verb of the line door: it shows
# the events of all clients.

handler_verbs="push pop reserve delete release touch bury kick peek why list stat wait create \
close pause resume drain drop wal"

# rights_read LETTER VALUE - set a limit of `flatq door`, or of `flatq serve line`, which exports it
rights_read() {
  case $2 in
  *[!A-Za-z0-9+/\;.\$_\(\)*,-]*) die 65 "-$1 takes names with commas between them" ;;
  *[!,]*) ;;
  *) usage "-$1 needs a value" ;;
  esac
  case $1 in
  z) option_number z "$2" 2147483646; FLATQ_MOST_BYTES=${number#0} ;;
  q) rights_queues=$2 ;;
  a)
    rights_verbs=$2 rights_rest=$2,
    while [ -n "$rights_rest" ]; do
      case " $handler_verbs " in
      *" ${rights_rest%%,*} "*) ;;
      *) die 65 "-a takes verbs of the line door: '${rights_rest%%,*}' is none" ;;
      esac
      rights_rest=${rights_rest#*,}
    done ;;
  esac
}

# rights_verb - exit with 77 unless the client may use door_verb
rights_verb() {
  case ,${rights_verbs:-$door_verb}, in
  *",$door_verb,"*) ;;
  *) die 77 "$door_verb is not allowed here" ;;
  esac
}

# rights_check OPERAND ... - exit with 77 unless the client may use door_verb and all queues that it
# would touch: OPERANDS, which are names or receipts, or those that it takes without any
rights_check() {
  rights_verb
  [ -n "${rights_queues:-}" ] || return 0
  case $door_verb in
  push | pop | reserve | kick | peek | create | close | drain)
    [ $# -gt 0 ] || set -- "$FLATQ_QUEUE" ;;
  # These show the queues that are allowed, or take nothing by themselves
  list | stat | delete | release | touch | bury | why | drop | resume | wait) ;;
  # QUEUE [SECONDS]
  pause) [ $# -eq 0 ] || set -- "$1" ;;
  *) [ $# -gt 0 ] || die 77 "$door_verb of all queues is not allowed here" ;;
  esac
  for rights_name in "$@"; do
    rights_name=${rights_name%%:*}
    name_check "$rights_name" || die $? "$why"
    rights_queue "$rights_name" || die 77 "queue '$rights_name' is not allowed here"
  done
}

rights_queue() {
  rights_rest=${rights_queues:-*},
  while [ -n "$rights_rest" ]; do
    rights_pattern=${rights_rest%%,*} rights_rest=${rights_rest#*,}
    # shellcheck disable=SC2254 # it is a pattern
    case $1 in
    $rights_pattern) return 0 ;;
    esac
  done
  return 1
}
