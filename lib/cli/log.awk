# log.awk - print the events of the queues' logs in words, as log_read of log.sh says
#
# FLATQ_DIR=SPOOL awk -v last=COUNT -v since=SECONDS -v only=ID -f date.awk -f log.awk. Input: the
# `s` lines of the last turn, what `ls` says of the logs, `whole`. With -v json=1, for json_lines.

function many(number, word) { return number " " word (number == "1" ? "" : "s") }
# Set `bulk` to N of `bulk-N`, else `reason` and `due` of [REASON-]delay-SECONDS or -lease-SECONDS
function parse(word, time) {
  bulk = due = ""
  reason = word
  if (word ~ /^bulk-[0-9]+$/) { bulk = substr(word, 6); reason = "-" }
  if (!match(word, /(^|-)(delay|lease)-[0-9]+$/)) return
  reason = RSTART > 1 ? substr(word, 1, RSTART - 1) : "-"
  sub(/^.*-/, "", word)
  due = sprintf("%.0f", time + word)
}
# What came of a message
function words(verb, tries, size, waited,  until, cause) {
  if (bulk != "") return many(bulk, "message") (verb == "push" ? ", " many(size, "byte") : "")
  waited = sprintf("%d.%02d s", waited / 1000, waited % 1000 / 10) " after its push"
  if (due != "") until = " until " date(due + 0)
  cause = reason in why ? why[reason] : reason
  if (reason == "expired" && tries == 0) cause = "nobody took it in time"
  if (reason ~ /^exit-[0-9]+$/) cause = "its command ended with " substr(reason, 6)
  if (reason ~ /^signal-[0-9]+$/) cause = "its command was ended by signal " substr(reason, 8)
  if (verb == "push") return many(size, "byte") (until ? ", delayed" until : "")
  if (verb ~ /^(pop|reserve)$/) return "try " tries ", " waited (until ? ", leased" until : "")
  if (verb == "delete") return (reason == "unheld" ? "deleted" : "done at try " tries) ", " waited
  if (verb == "touch") return (until ? "leased" until : "its lease is longer") ", try " tries
  if (verb == "kick") return "ready again"
  if (verb == "release") {
    cause = reason ~ /^(-|uncounted)$/ ? "" : ": " cause
    return "given back" cause (until ? "," until : "") ", try " tries
  }
  if (verb == "bury") return "set aside: " cause ", try " tries
  if (verb in why) return "back: " why[verb] ", try " tries
  return reason == "-" ? "try " tries : reason
}
# Print the line if it is an event
function event(line, queue,  part, time) {
  if (length(line) > 200 || index(line, " ") != 14 || line !~ form) return
  split(line, part, " ")
  if (only != "" && part[3] != only) return
  # busybox takes 08 for octal, and JSON has no such number
  time = substr(part[1], 1, 10)
  while (time ~ /^0./) sub(/0/, "", time)
  if (time + 0 < since) return
  parse(part[7], time + 0)
  line = queue " " part[2] " " part[3] " "
  if (json) {
    line = time substr(part[1], 11) " " line part[4] " " part[5] " "
    line = line (bulk == "" ? part[6] " 1 " : "- " bulk " ") (due == "" ? "-" : due) " " reason " "
  } else line = date(time + 0) substr(part[1], 11) " " line
  line = line words(part[2], part[4], part[5], part[6] + 0)
  # The lines of one queue stay in their order
  if (part[1] > at_last[queue] "") at_last[queue] = part[1] ""
  printf "%s %09d %s\n", at_last[queue], ++count, line
}
# Read the log from byte `from` to byte `to`; return how far; -1: the file has another inode now
function read(name, inode, from, to, queue,  command, line, next_line, bytes) {
  command = "{ cd \"$FLATQ_DIR\" && exec <\047" name "\047 && set -- $(ls -nid \047" name \
    "\047) && [ \"$1\" = " inode " ] && echo open && tail -c +" sprintf("%.0f", from + 1) \
    " | head -c " sprintf("%.0f", to - from) " | tr \"\\000\" \"\\001\" && echo .; } 2>/dev/null"
  if ((command | getline line) <= 0 || line != "open") { close(command); return -1 }
  if ((command | getline line) <= 0) { failed = 1; exit 1 }
  while ((command | getline next_line) > 0) {
    bytes += length(line) + 1
    event(line, queue)
    line = next_line
  }
  close(command)
  # The last line is a dot, behind what is not yet whole
  if (line !~ /\.$/ || bytes + length(line) - 1 != to - from) { failed = 1; exit 1 }
  return from + bytes
}
function take(name, inode, size,  queue, from, to) {
  queue = name
  sub(/^\.\//, "", queue)
  sub(/\/log[.0-9]*$/, "", queue)
  sub(/^%/, "", queue)
  gsub(/,/, "/", queue)
  # An inode may be used again
  from = was[inode] == name || name !~ /\/log$/ ? at[inode] + 0 : 0
  if (from > size) from = 0
  # No event has over 200 bytes
  if (last != "" && from == 0 && size > last * 201) from = size - last * 201
  to = from < size ? read(name, inode, from, size, queue) : from
  if (to < 0) { again = 1; to = from; name = was[inode] }
  if (name != "") state = state "s " inode " " name " " sprintf("%.0f", to) "\n"
}
BEGIN {
  since += 0
  form = "^[0-9]+\\.[0-9][0-9] [a-z]+ ([0-9]+|-) [0-9]+ [0-9]+ -?[0-9]+ [0-9A-Za-z_-]+$"
  why["asked"] = "on request"
  why["released"] = "given back at its last try"
  why["expired"] = "its lease ended"
  why["dead"] = "its owner died"
  why["boot"] = "the system was started anew"
  why["undelivered"] = "its client was gone"
  why["damaged"] = "its body is damaged or missing"
  why["timeout"] = "its command ran too long"
  why["unfed"] = "its command did not get it in full"
  why["too-big"] = "too large for where it was to go"
}
$0 == "whole" { whole = 1 }
$1 == "s" { was[$2] = $3; at[$2] = $4 }
NF > 6 { take($NF, $1, $6 + 0) }
END {
  if (failed || !whole) exit 1
  printf "%s%send\n", state, again ? "again\n" : "" | "cat 1>&2"
  close("cat 1>&2")
}
