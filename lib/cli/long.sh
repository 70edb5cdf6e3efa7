# cli/long.sh - long options: read only if a word begins with `--`

need cli/usage

# long_main WORD ... - as main, with letters in place of long names; then exit
long_main() {
  long_read "$FLATQ_VERB" "$@"
  eval "main $long_words"
  exit
}

# long_read VERB WORD ... - set long_words, so that `eval "set -- $long_words"` puts letters in
# place of the long names in the verb's header; and long_used to `LETTER=--NAME ...`
long_read() {
  long_header <"$lib/$1"
  shift
  long_words='' long_used='' long_at=0 long_is=option
  for long_word in "$@"; do
    long_at=$((long_at + 1))
    long_put="\"\${$long_at}\""
    case $long_is$long_word in
    value*) long_is=option ;;
    option--) long_is=rest ;;
    option--*) long_letter "${long_word#--}" ;;
    option-?*) long_skip "${long_word#-}" ;;
    option*) long_is=$long_operand ;;
    esac
    long_words="$long_words $long_put"
  done
}

# long_header - read a header; set long_names to ` --NAME=LETTER ...`, a colon behind each letter
# that takes a value; and long_operand to what follows an operand. long_old: a verb's earlier names
long_header() {
  title_read
  # A command's options are its own
  long_names=" --help=h ${long_old:-} " long_operand=option
  case $title in *'[ARGUMENT ...]'*) long_operand=rest ;; esac
  while IFS= read -r long_line; do
    case $long_line in
    '#   -'?', --'*) ;;
    '#'*) continue ;;
    *) break ;;
    esac
    long_line=${long_line#'#   -'}
    long_letter=${long_line%%,*} long_line=${long_line#?, }
    long_name=${long_line%% *}
    case $long_line in
    "$long_name  "*) ;;
    *) long_letter=$long_letter: ;;
    esac
    long_names="$long_names$long_name=$long_letter "
  done
}

# long_letter NAME[=VALUE] - set long_put to the letter, and long_is
long_letter() {
  long_name=--${1%%=*}
  case $long_names in
  *" $long_name="*) ;;
  *)
    # shellcheck disable=SC2086 # names
    near "$long_name" $long_names
    usage "unknown option '$near_shown'" "$near_said" ;;
  esac
  long_letter=${long_names#*" $long_name="}
  long_letter=${long_letter%% *}
  long_used="${long_letter%:}=$long_name $long_used"
  case $long_letter.$1 in
  ?:.*=*) long_put="-${long_letter%:} \"\${$long_at#*=}\"" ;;
  ?:.*) long_put=-${long_letter%:} long_is=value ;;
  *=*) usage "$long_name takes no value" ;;
  *) long_put=-$long_letter ;;
  esac
}

# long_named TEXT - set long_text to the TEXT of an error, which names an option as it was given
long_named() {
  long_text=$1
  for long_name in $long_used; do
    case $1 in
    "-${long_name%%=*} "*) long_text="${long_name#*=} ${1#-? }"; return ;;
    esac
  done
}

# long_skip LETTERS - set long_is to `value` if the next word is the value of the last one
long_skip() {
  long_rest=$1
  while [ -n "$long_rest" ]; do
    long_letter=${long_rest%"${long_rest#?}"} long_rest=${long_rest#?}
    case $long_names in
    *"=$long_letter: "*) [ -n "$long_rest" ] || long_is=value; return ;;
    esac
  done
}
