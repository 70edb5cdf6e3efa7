# Completion of flatq in bash, where bash-completion looks; or read it in ~/.bashrc
_flatq() {
  local words word text begun=
  # Split at blanks alone; the x keeps an empty last word
  read -ra words <<<"${COMP_LINE:0:COMP_POINT}x"
  word=${words[-1]%x} words[-1]=$word COMPREPLY=()
  # bash replaces only what stands behind the last colon
  [[ $COMP_WORDBREAKS != *:* ]] || begun=${word%"${word##*:}"}
  while IFS=$'\t' read -r word text; do
    [[ $word != *: ]] || compopt -o nospace 2>/dev/null
    printf -v word %q "${word#"$begun"}"
    COMPREPLY+=("$word")
  done < <("${words[0]}" --complete "${words[@]:1}" 2>/dev/null)
}
complete -o default -F _flatq flatq
