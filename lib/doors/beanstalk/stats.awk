# stats.awk WHAT ASKED INSTANCE - add up what connections have counted (tally.sh), and print lines:
# `list`: the tubes; `tube`: of the tube ASKED (66: there is none); `stats`: ASKED is the largest
# size of a job; `fold`: new `sums`. Standard input: `open PID-TIME` for each open connection,
# `count DIRECTORY URGENT READY DELAYED RESERVED BURIED end` for each queue, and `whole`

BEGIN {
  what = ARGV[1]; asked = ARGV[2]; instance = ARGV[3]
  ARGC = 1
  tube("default")
}

$1 == "open" { open[$2] }
$1 == "count" { counts[$2] = $0 }
$1 == "whole" { whole = 1 }

function tube(name) {
  if (!(name in known)) { known[name]; names[++tubes] = name }
}

function add(line,    words, count, i, at, name, value) {
  count = split(line, words, " ")
  for (i = 2; i <= count; i++) {
    at = index(words[i], "=")
    name = at ? substr(words[i], 1, at - 1) : words[i]
    value = at ? substr(words[i], at + 1) : 1
    if (name == "watch") watches[words[1], value]
    else if (name == "ignore") delete watches[words[1], value]
    else if (name == "use") uses[words[1]] = value
    else if (name == "producer") producer[words[1]]
    else if (name == "worker") worker[words[1]]
    else if (name == "waits") waits[words[1]] = value
    else sum[name] += value
  }
}

# Some awks print large numbers as 1e+10
function row(key, value) { printf "%s: %.0f\n", key, value }

END {
  if (!whole) exit 1
  split("sums old counts", files, " ")
  last = what == "fold" ? 2 : 3
  for (i = 1; i <= last; i++) while ((getline line < (instance "/" files[i])) > 0) add(line)
  for (disk in counts) {
    split(counts[disk], words, " ")
    for (i = 3; i <= 7; i++) held[i] += words[i]
    sub(/^%/, "", disk)
    gsub(/,/, "/", disk)
    if (words[4] + words[5] + words[6] + words[7]) tube(disk)
  }
  for (owner in open) {
    connections++
    producers += (owner in producer)
    workers += (owner in worker)
    waiting += waits[owner]
    if (owner in uses) { using[uses[owner]]++; tube(uses[owner]) }
  }
  for (pair in watches) {
    split(pair, half, SUBSEP)
    if (!(half[1] in open)) { delete watches[pair]; continue }
    watching[half[2]]++
    waiters[half[2]] += waits[half[1]]
    tube(half[2])
  }
  if (what == "list") for (i = 1; i <= tubes; i++) print "- " names[i]
  if (what == "tube" && !(asked in known)) exit 66
  if (what ~ /^(tube|stats)$/) {
    split("urgent 3 ready 4 reserved 6 delayed 5 buried 7", state, " ")
    for (i = 1; i < 10; i += 2) row("current-jobs-" state[i], held[state[i + 1]])
  }
  if (what == "tube") {
    row("total-jobs", sum["jobs/" asked])
    row("current-using", using[asked])
    row("current-watching", watching[asked])
    row("current-waiting", waiters[asked])
    row("cmd-delete", sum["deletes/" asked])
    row("cmd-pause-tube", sum["pauses/" asked])
  }
  if (what == "stats") {
    commands = "put peek peek-ready peek-delayed peek-buried reserve reserve-with-timeout delete" \
      " release use watch ignore bury kick touch stats stats-job stats-tube list-tubes" \
      " list-tube-used list-tubes-watched pause-tube"
    count = split(commands, command, " ")
    for (i = 1; i <= count; i++) row("cmd-" command[i], sum["cmd-" command[i]])
    for (name in sum) if (name ~ "^jobs/") jobs += sum[name]
    row("job-timeouts", sum["job-timeouts"])
    row("total-jobs", jobs)
    row("max-job-size", asked)
    row("current-tubes", tubes)
    row("current-connections", connections)
    row("current-producers", producers)
    row("current-workers", workers)
    row("current-waiting", waiting)
    row("total-connections", sum["connections"])
  }
  if (what == "fold") {
    for (name in sum) printf "- %s=%.0f\n", name, sum[name]
    for (owner in uses) if (owner in open) {
      print owner " use=" uses[owner] " waits=" (waits[owner] + 0) \
        (owner in producer ? " producer" : "") (owner in worker ? " worker" : "")
    }
    for (pair in watches) { split(pair, half, SUBSEP); print half[1] " watch=" half[2] }
  }
}
