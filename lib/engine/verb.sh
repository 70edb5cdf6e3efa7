# engine/verb.sh - run a verb in the process of flatq or of the line door

# verb_run VERB ARGUMENT ... - run lib/VERB in this process
verb_run() {
  verb_file=$lib/$1
  shift
  # shellcheck source=/dev/null
  . "$verb_file"
}
