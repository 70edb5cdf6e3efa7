# table.awk - the lines of table_print as a table: -v form=WHAT, behind date.awk

function age(s) {
  if (s < 3600) return s < 60 ? s "s" : int(s / 60) "m"
  return s < 86400 ? int(s / 3600) "h" : int(s / 86400) "d"
}
function size(b, at) {
  if (b < 1024) return b
  for (at = 1; b >= 1048524 && at < 4; at++) b /= 1024
  return sprintf("%.1f%s", b / 1024, substr("KMGT", at, 1))
}
function shown(name, value) {
  if (name == "ready") ready = value
  if (name == "oldest") return ready ? age(value) : "-"
  if (name == "closed") return value ? "yes" : "-"
  if (name == "paused") return !value ? "-" : value > 4e9 ? "yes" : age(value)
  return name ~ /^(bound|most-tries)$/ && value == 0 ? "-" : value
}
function put(row, column, text) {
  cell[row, column] = text
  if (column > columns) columns = column
  if (length(text) > wide[column]) wide[column] = length(text)
}
BEGIN {
  split(form == "messages" ? "ID STATE PRIORITY TRIES SIZE AGE UNTIL REASON SAID" : "QUEUE",
    heading)
}
NF == 0 { next }
$0 == "=" { whole = 1; next }
form == "stat" {
  if ($1 == "queue") { rows++; at = 0 }
  at++
  # A column only if a queue has one
  if ($1 == "dead" && $2 == "-" || $1 == "expire" && !$2) { cell[rows, at] = "-"; next }
  put(0, at, toupper($1))
  put(rows, at, $1 == "queue" ? $2 : shown($1, $2))
  next
}
{
  rows++
  if (form == "messages") {
    $9 = $0
    for (at = 1; at < 8; at++) sub(/^[^ ]+ ?/, "", $9)
    $8 = $2 == "buried" ? $7 : ""
    $7 = $7 ~ /^[0-9]+$/ && $2 != "buried" ? date($7) : ""
    $6 = age($6)
    $5 = size($5)
  }
  for (at = 1; at <= NF && at < 10; at++) {
    if ($at == "") continue
    put(0, at, heading[at])
    put(rows, at, $at)
  }
}
END {
  if (!whole || failed) exit 1
  for (row = 0; row <= rows; row++) {
    line = ""
    for (at = 1; at <= columns; at++) if (wide[at]) {
      left = form == "messages" ? at == 2 || at >= 7 : at == 1
      line = line (at > 1 ? "  " : "")
      line = line sprintf("%" (left ? "-" : "") wide[at] "s", cell[row, at])
    }
    sub(/ +$/, "", line)
    print line
  }
}
