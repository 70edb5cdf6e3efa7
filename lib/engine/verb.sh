# engine/verb.sh - run a verb in the process of flatq or of the line door

# verb_run VERB ARGUMENT ... - run lib/VERB in this process. A file that was not read to its end (see need) has not called its last line, main, which
# begins with shell_reset, which sets verb_begun
verb_run() {
  verb_file=$lib/$1 verb_begun=
  shift
  # shellcheck source=/dev/null
  command . "$verb_file"
  verb_code=$?
  [ -n "$verb_begun" ] || die 74 "cannot read $verb_file"
  return $verb_code
}

part='engine/verb'
