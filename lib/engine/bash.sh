# engine/bash.sh - make bash forget the functions and options of its caller. engine/common.sh sources it first of all, where the shell is bash

# shell_forget_functions - unset inherited functions
shell_forget_functions() {
  unset -f compgen declare
  # First look whether there is any function, which costs no process. A bash that was built without compgen pays for one
  bash_code=0
  # shellcheck disable=SC3044
  compgen -A function -X 'shell_forget*' >/dev/null 2>&1 || compgen -A function -X 'shell_forget*' >/dev/null 2>&1 || bash_code=$?
  case $bash_code in
  1) ;;
  *)
    # shellcheck disable=SC3044 # it prints a line `declare -fx NAME` for each
    for bash_word in $(declare -F 2>/dev/null); do
      case $bash_word in
      declare | -* | shell_forget*) ;;
      *) unset -f "$bash_word" ;;
      esac
    done ;;
  esac
}

# shell_forget_options - undo options from BASHOPTS and SHELLOPTS, and variables that change globs: GLOBIGNORE hides names, and GLOBSORT changes their order
shell_forget_options() {
  {
    unset GLOBIGNORE GLOBSORT EXECIGNORE FUNCNEST BASH_COMPAT
    # shellcheck disable=SC3044
    shopt -u nullglob failglob dotglob nocaseglob nocasematch globstar extglob
    command set +o pipefail +o allexport +o keyword +o monitor
  } 2>/dev/null || :
}

part='engine/bash'
