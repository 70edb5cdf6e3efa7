# flatq.awk - write flatq.1 from the headers of the scripts, for `make install`:
#   awk -v version=0 -v libexec=DIRECTORY -f flatq.awk flatq push pop ... handler ...
# The first file is the command itself; the doors come last.

function text(s) {
  gsub(/\\/, "\\e", s)
  gsub(/-/, "\\-", s)
  gsub(/`/, "", s)
  gsub(/"/, "\\(dq", s)
  if (s ~ /^[.']/) s = "\\&" s
  return s
}

function heading(s) { printf ".SH %s\n", s }

# End a block that is shown line by line
function fill() { if (lines) print ".fi"; lines = 0 }

function finish() { if (files > 1) internals = internals ".TP\n.B " name "\n" parts }

FNR == 1 {
  finish()
  name = FILENAME
  sub(/.*\//, "", name)
  files++
  header = titled = 1
  title = ""
  inside = 0
  section = parts = ""
  next
}

!header { next }
!/^#/ { header = 0; next }

# The title may have several lines
titled && $0 != "#" { sub(/^# */, ""); title = title (title == "" ? "" : " ") $0; next }
titled {
  titled = 0
  usage = title
  sub(/ - .*/, "", usage)
  what = substr(title, length(usage) + 4)
  if (files == 1) {
    printf ".TH FLATQ 1 \"\" \"flatq %s\"\n", version
    heading("NAME")
    printf "flatq \\- %s\n", text(what)
    heading("SYNOPSIS")
    printf ".B %s\n", text(usage)
    heading("DESCRIPTION")
  } else {
    if (files == 2) heading("VERBS")
    if (name == "handler") {
      heading("DOORS")
      print "What serve runs for each connection, in " text(libexec) "; handler is the line door."
    }
    printf ".SS %s\n%s.\n", text(usage), text(toupper(substr(what, 1, 1)) substr(what, 2))
  }
  next
}

# An option or an argument; lines below it that are indented further belong to it
match($0, /^#   (-[A-Za-z0-9], --[a-z0-9-]+|[A-Z][A-Z]+)( [A-Z][^ ]*)?  +/) {
  line = substr($0, RLENGTH + 1)
  key = substr($0, 1, RLENGTH)
  sub(/^# +/, "", key)
  sub(/ +$/, "", key)
  printf ".TP\n.B %s\n%s\n", text(key), text(line)
  inside = 6
  next
}
inside && match($0, /^# +/) && RLENGTH > inside { print text(substr($0, RLENGTH + 1)); next }

/^# Example: / {
  sub(/^# Example: /, "")
  examples = examples ".PP\n" text(what) ":\n.RS\n.nf\n" text($0) "\n.fi\n.RE\n"
  next
}
/^#$/ {
  fill()
  if (section == "Exit:" && files == 1) heading("NOTES")
  inside = 0; gap = 1; section = ""
  next
}
/^# (Files|Order|Crash|Exit): / {
  section = $2
  sub(/^# [A-Za-z]+: +/, "")
  if (section == "Exit:" && files == 1) { heading("EXIT STATUS"); part(text($0)) }
  else part((section == "Exit:" ? ".PP" : ".br") "\n" section " " text($0))
  next
}
section != "" { sub(/^# */, ""); part(text($0)); next }

# A list
/^#   - / { fill(); print ".IP \\(bu 2"; inside = 5; print text(substr($0, 7)); next }
inside { gap = inside == 5; inside = 0 }
# What is indented further than the text is shown line by line
/^#     / { if (!lines) print ".nf"; lines = 1; sub(/^#     /, ""); print text($0); next }
{ sub(/^# */, ""); fill(); if (gap) print ".PP"; gap = 0; print text($0) }

function part(s) { if (section == "Exit:") print s; else if (files > 1) parts = parts s "\n" }
function variable(name, what) { print ".TP\n.B " name "\n" what }

END {
  finish()
  heading("ENVIRONMENT")
  print "No other exported variable changes what flatq does, except those that the shell and its"
  print "tools use themselves, such as PATH."
  variable("FLATQ_DIR", "the spool; else flatq below XDG_STATE_HOME or ~/.local/state")
  variable("XDG_STATE_HOME", "see FLATQ_DIR")
  variable("FLATQ_QUEUE", "the queue of a verb that names none, at the line door too; else default")
  variable("FLATQ_SYNC",
    "on or off, when the spool is made: on, an acknowledged message survives a power cut; " \
    "off, only the death of processes. Later, another value is refused")
  variable("FLATQ_MOST_BYTES",
    "the largest message that push takes, in bytes; else, or if it is 0, the disk is the limit")
  variable("FLATQ_PYTHON", "the Python that runs pressure, mqueue and shovel; else python3")
  variable("FLATQ_SSH", "what \\-H ssh://HOST and shovel run to connect, split at blanks; else " \
    "ssh \\-o BatchMode=yes")
  variable("API_KEY", "the key that every client of serve http has to send")
  variable("TMPDIR", "where -H and top put temporary files; else /tmp")
  variable("TZ", "the time zone in which log prints times; else the system's")
  variable("FLATQ_PROC", "for tests: a directory that is read in place of /proc")
  variable("FLATQ_RANGE", "for tests: how many ids of each thousand are given")
  variable("FLATQ_FOLD", "for tests: how many messages in wal/ are folded; 200")
  heading("REQUIREMENTS")
  print "The first verb after each boot tries the programs that flatq relies on."
  print "A program that hides a failure could lose or alter messages. Then the verb ends with"
  print "70 before it stores or takes anything, and its line names the program, what it does, and"
  print "what to install. doctor \\-v and flatq \\-\\-version \\-v show what is tried."
  heading("EXAMPLES")
  printf "%s", examples
  heading("FILES")
  variable("/var/lib/flatq", "the spool of the units flatq@ and flatq\\-work@ of systemd")
  heading("SEE ALSO")
  print "at(1), crontab(5), nq(1), ncat(1), systemd.socket(5)"
  heading("INTERNALS")
  print "The files each verb touches, the order of its steps, and what a crash between them leaves."
  printf "%s", internals
}
