# cli/python.sh - run the verbs that are written in Python: find the interpreter and the package

# python_option - add the option that getopts has found to python_words, with its number
python_option() {
  case $option in
  [of]) number= ;;
  [wt]) option_seconds "$option" "$OPTARG" ;;
  [nbz]) option_number "$option" "$OPTARG" 999999999999 ;;
  *) other_option ;;
  esac
  python_words="$python_words -$option $number"
}

# python_run MODULE ARGUMENT ... - become `python3 -m MODULE`, or $FLATQ_PYTHON, with the package
# from the source tree, around a wheel's shell files, or among that Python's own
python_run() {
  python=${FLATQ_PYTHON:-python3}
  python_set='or set FLATQ_PYTHON'
  command -v "$python" >/dev/null || die 69 \
    "needs Python 3.9 or later, '$python' is not there: apt install python3, $python_set"
  for python_path in "$lib/../python" "$lib/../.." ''; do
    [ ! -e "$python_path/flatq/verbs.py" ] || break
  done
  if [ -n "$python_path" ]; then
    export PYTHONPATH="$python_path${PYTHONPATH:+:$PYTHONPATH}"
  else
    "$python" -c "import importlib.util, sys; sys.exit(not importlib.util.find_spec('$1'))" ||
      die 69 "needs the Python package flatq: pip install ./python, $python_set"
  fi
  export FLATQ_LIB="$lib"
  exec "$python" ${shell_name:+-X flatq} -m "$@" 2>&5 5>&-
}
