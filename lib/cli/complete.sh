# cli/complete.sh - what the next word of a command line can be, by the headers: for `flatq
# --complete` (lib/completion/)

need engine/queues cli/usage

# complete_words WORD ... - print what the last WORD can become: each, a tab, and what it means
complete_words() {
  complete_far='' complete_verb=help complete_before=
  while [ $# -gt 1 ]; do
    case $1 in
    -H | --host) [ $# -gt 2 ] || return 0; complete_far=1; shift 2 ;;
    -*) shift ;;
    *) break ;;
    esac
  done
  [ $# -lt 2 ] || { complete_verb=$1; shift; }
  while [ $# -gt 1 ]; do complete_before=$1; shift; done
  complete_is=${1-}
  case " $flatq_verbs " in
  *" $complete_verb "*) complete_after; return ;;
  esac
  [ "$complete_verb" = help ] || return 0
  complete_header flatq
  for complete_verb in $flatq_verbs; do
    title_read <"$lib/$complete_verb"
    complete_say "$complete_verb" "${title#*' - '}"
  done
  complete_say help 'print the help of a verb'
}

# complete_header VERB - print its options; set `title`; complete_takes: what complete_before takes
complete_header() {
  complete_takes=
  {
    title_read
    while read -r complete_line; do
      case $complete_line in
      '#   -'?', --'*) complete_line=${complete_line#'#   '} ;;
      '#'*) continue ;;
      *) break ;;
      esac
      complete_letter=${complete_line%%,*} complete_line=${complete_line#*, }
      complete_long=${complete_line%% *} complete_text=${complete_line#* }
      case $complete_text in
      [A-Z]*)
        case $complete_before in
        "$complete_letter" | "$complete_long") complete_takes=${complete_text%% *} ;;
        esac
        complete_text=${complete_text#* } ;;
      esac
      complete_text=${complete_text#"${complete_text%%[! ]*}"}
      case $complete_is in
      -*)
        complete_say "$complete_letter" "$complete_text"
        complete_say "$complete_long" "$complete_text" ;;
      esac
    done
  } <"$lib/$1"
}

# complete_after - what can come behind a verb
complete_after() {
  complete_header "$complete_verb"
  case $complete_is in
  -*) return 0 ;;
  esac
  complete_line=${title#"$complete_verb "}
  complete_line=${complete_line%% *}
  case $complete_takes in
  '') ;;
  QUEUE*) complete_queues queue; return 0 ;;
  STATE) complete_line='ready|delayed|buried|reserved' complete_before='' ;;
  *) return 0 ;;
  esac
  case $complete_line:$title in
  [a-z]*\|*)
    IFS=\|
    [ -n "$complete_before" ] ||
      for complete_text in $complete_line; do complete_say "$complete_text" ''; done ;;
  *' COMMAND '*) ;;
  *RECEIPT*) complete_queues receipt ;;
  *QUEUE:ID*) complete_queues both ;;
  *QUEUE* | *' FROM '*) complete_queues queue ;;
  esac
}

# complete_queues queue|receipt|both - print the queues; for receipts `QUEUE:`, and then the ids
complete_queues() {
  complete_form=$1
  [ -z "$complete_far" ] && spool_find || return 0
  each_queue complete_queue
}

complete_queue() {
  [ "$complete_form" = receipt ] || complete_say "$1" 'a queue'
  case $complete_form:$complete_is in
  queue:*) ;;
  *:"$1:"*)
    sh "$lib/list" "$1" | while read -r complete_id complete_state complete_text; do
      case $complete_form:$complete_state in
      receipt:reserved | receipt:claimed) ;;
      *) complete_say "$1:$complete_id" "$complete_state" ;;
      esac
    done ;;
  *) complete_say "$1:" 'a message of it' ;;
  esac
}

# complete_say WORD TEXT - print both, if complete_is can become WORD
complete_say() {
  case $1 in
  "$complete_is"*) printf '%s\t%s\n' "$1" "$2" ;;
  esac
}
