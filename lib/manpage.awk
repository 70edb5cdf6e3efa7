# manpage.awk - flatq.1 out of the verbs' own headers: awk -f manpage.awk flatq push pop ... (the first is the command itself)
# launch and the doors come last. For `make install`; tests/headers.py reads the same lines for the README.

function text(s) {
  gsub(/\\/, "\\e", s)
  gsub(/-/, "\\-", s)
  gsub(/`/, "", s)
  gsub(/"/, "\\(dq", s)
  if (s ~ /^[.']/) s = "\\&" s
  return s
}

function heading(s) { printf ".SH %s\n", s }

# The end of what is shown line by line
function fill() { if (lines) print ".fi"; lines = 0 }

# The header's first line: VERB ARGUMENTS - what it does
function split_head(s) {
  usage = s
  sub(/ - .*/, "", usage)
  what = substr(s, length(usage) + 4)
}

function finish() {
  if (file == "") return
  if (files == 1) return
  internals = internals ".TP\n.B " name "\n" parts
}

FNR == 1 {
  finish()
  file = FILENAME
  name = file
  sub(/.*\//, "", name)
  files++
  header = 1
  option = 0
  section = parts = ""
  next
}

!header { next }
!/^#/ { header = 0; next }
/^# shellcheck/ { next }

FNR == 2 {
  split_head(substr($0, 3))
  if (files == 1) {
    print ".TH FLATQ 1"
    heading("NAME")
    printf "flatq \\- %s\n", text(what)
    heading("SYNOPSIS")
    printf ".B %s\n", text(usage)
    heading("DESCRIPTION")
  } else {
    if (files == 2) heading("VERBS")
    if (name == "launch") {
      heading("DOORS")
      printf "The queues for programs that connect. They are not verbs: %s, and what it serves beside it; handler is the line door.\n", text(libexec "/launch")
    }
    printf ".SS %s\n%s.\n", text(usage), text(toupper(substr(what, 1, 1)) substr(what, 2))
  }
  next
}

# an option or an argument, and the lines under it that are set in further than it is
match($0, /^# +(--?[A-Za-z0-9][a-z-]*|[A-Z][A-Z]+)( [A-Z][^ ]*)?  +/) {
  line = substr($0, RLENGTH + 1)
  key = substr($0, 1, RLENGTH)
  sub(/^# +/, "", key)
  sub(/ +$/, "", key)
  printf ".TP\n.B %s\n%s\n", text(key), text(line)
  option = 1
  next
}
option && /^#      / { sub(/^# +/, ""); print text($0); next }

/^# (Files|Order|Crash|Exit): / {
  section = $2
  sub(/^# [A-Za-z]+: +/, "")
  if (section == "Exit:") printf ".PP\nExit: %s\n", text($0)
  else if (files > 1) parts = parts ".br\n" section " " text($0) "\n"
  option = 0
  next
}
section == "Exit:" { sub(/^# */, ""); print text($0); next }
section != "" { sub(/^# */, ""); if (files > 1) parts = parts text($0) "\n"; next }

/^#$/ { fill(); if (option) option = 0; bullet = 0; gap = 1; next }
# a list, and what is set in under its points
/^#   - / { fill(); print ".IP \\(bu 2"; bullet = 1; print text(substr($0, 7)); next }
bullet && /^#     / { sub(/^# +/, ""); print text($0); next }
bullet { bullet = 0; gap = 1 }
# set in further than the text: line by line
/^#     / { if (!lines) print ".nf"; lines = 1; sub(/^#     /, ""); print text($0); next }
{ sub(/^# */, ""); fill(); if (gap) print ".PP"; gap = 0; print text($0) }

function variable(name, what) { print ".TP\n.B " name "\n" what }

END {
  finish()
  heading("ENVIRONMENT")
  print "Nothing else that is exported changes what flatq does, but what the shell and its tools go by themselves, as PATH."
  variable("FLATQ_DIR", "the spool; where it is not set, flatq below XDG_STATE_HOME or ~/.local/state")
  variable("XDG_STATE_HOME", "see FLATQ_DIR")
  variable("FLATQ_SYNC", "on: what was acknowledged survives a power cut. off: it survives the death of processes alone")
  variable("FLATQ_MOST_BYTES", "the largest message that push takes, in bytes, one by one or many at once; where it is not set, or 0, what the disk holds")
  variable("FLATQ_PYTHON", "the Python of pressure, mqueue and shovel; python3")
  variable("API_KEY", "what launch http asks every client for")
  variable("TMPDIR", "where launch and -H have temporary files; /tmp")
  variable("FLATQ_PROC", "for tests: a directory that is read in place of /proc")
  variable("FLATQ_RANGE", "for tests: how many ids of each thousand are given")
  variable("FLATQ_FOLD", "for tests: how many messages in wal/ are folded; 200")
  heading("INTERNALS")
  print "The files each verb touches, the order of its steps, and what a crash between them leaves."
  printf "%s", internals
}
