# stat.awk - make JSON, a text for Prometheus, or a page for people of what stat.sh prints
#
# awk -v form=json|metrics|page|queue -v now=SECONDS -v host=HOST:PORT -f stat.awk - [html=1
# page.html] Anybody may have written what stands in names, messages and logs: it is escaped, or
# shown only if it has the form that it should have. In page.html, a line `%NAME` stands for rows of
# a table, and what is behind `%if NAME` is left out if there are none.

# The name of the queue in a directory
function queue(disk) { sub(/^%/, "", disk); gsub(/,/, "/", disk); return disk }
function slip(text) { return split(text, field, ".") >= 10 && text !~ /[^0-9A-Za-z_.-]/ }

BEGIN {
  digits = "0123456789ABCDEF"
  six = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
  for (code = 32; code < 127; code++) ascii = ascii sprintf("%c", code)
}
html && !logs { exit }
html && !begun { page_begin(); begun = 1 }
html && $1 == "%if" { skip = !count[$2]; next }
html && $1 == "%end" { skip = 0; next }
html && skip { next }
html && /^%/ { page_rows(substr($1, 2)); next }
html { sub(/%host/, host); print; next }

!logs && $1 == "row" {
  row_of[$2] = ++rows
  row[rows, 2] = $2; row[rows, 3] = $3
  for (at = 4; at <= 7; at++) row[rows, at] = 0
  for (at = 8; at <= 10; at++) row[rows, at] = $(at - 4)
  next
}
!logs && $1 == "count" { for (at = 4; at <= 7; at++) row[row_of[queue($2)], at] = $at; next }
!logs && $1 == "ready" && slip($2) { ready[++count["ready"]] = $2; text[field[2] ""] = $3; next }
!logs && $1 == "buried" {
  sub(/.*\//, "", $2)
  if (slip($2)) buried[++count["buried"]] = $2
  next
}
!logs && /^==> body\// { id = substr($2, 6); next }
!logs && id != "" && $0 != "" { text[id] = $0; id = ""; next }
!logs { logs = $0 == "logs"; next }

/^==> .* <==$/ { name = $2; sub(/\/log$/, "", name); name = queue(name); next }
# The first line may be a part of one
length($1) != 13 || $1 !~ /^[0-9]*\.[0-9][0-9]$/ || $2 !~ /^[a-z]+$/ || NF != 7 { next }
form == "queue" { event[++count["events"]] = $0; delete event[count["events"] - 12] }
$1 >= now - 60 && $2 ~ /^(push|pop|delete|settle)$/ {
  n = $7 ~ /^bulk-[0-9]+$/ ? substr($7, 6) : 1
  if ($2 == "push") pushed[name] += n; else gone[name] += n
}

END {
  if (!logs) exit 1
  rates()
  if (form == "json") json()
  if (form == "metrics") metrics()
}

# The name of a queue's group, as it is in a URL
function url(name) {
  if (name !~ /^\$sha1\$/) gsub(/\$/, "%", name)
  gsub(/\+/, "%2B", name)
  return name
}
# How many were pushed, and deleted or popped, in the last minute
function rates(at) {
  for (at = 1; at <= rows; at++) {
    row[at, 11] = pushed[row[at, 2]] + 0
    row[at, 12] = gone[row[at, 2]] + 0
  }
}
function json(at, i, key) {
  split("3 closed 4 ready 5 delayed 6 in_flight 7 buried 8 oldest_seconds 9 bound 10 most_tries" \
    " 11 pushed_last_minute 12 done_last_minute", key, " ")
  printf "{\"time\":%d,\"queues\":[", now
  for (at = 1; at <= rows; at++) {
    printf "%s\n{\"queue\":\"%s\",", (at > 1 ? "," : ""), row[at, 2]
    printf "\"group\":\"%s\"", url(row[at, 2])
    for (i = 1; i in key; i += 2) printf ",\"%s\":%s", key[i + 1], row[at, key[i]]
    printf "}"
  }
  printf "\n]}"
}
function gauge(name, of, help, label,  at) {
  if (help) printf "# HELP flatq_%s %s\n# TYPE flatq_%s gauge\n", name, help, name
  for (at = 1; at <= rows; at++)
    printf "flatq_%s{queue=\"%s\"%s} %d\n", name, row[at, 2], label, row[at, of]
}
function metrics() {
  gauge("messages", 4, "Messages of a queue that are in this state.", ",state=\"ready\"")
  gauge("messages", 5, "", ",state=\"delayed\"")
  gauge("messages", 6, "", ",state=\"in_flight\"")
  gauge("messages", 7, "", ",state=\"buried\"")
  gauge("oldest_seconds", 8, "Seconds since the oldest message that is ready was pushed.")
  gauge("pushed_last_minute", 11, "Messages pushed in the last minute.")
  gauge("done_last_minute", 12, "Messages deleted or popped in the last minute.")
}

# Add a byte of a name or a message to `out`, as HTML; a character of UTF-8 as its number
function put(code) {
  if (more && code >= 128 && code < 192) {
    char = char * 64 + code - 128
    if (!--more) out = out "&#" char ";"
    return
  }
  rest_out()
  more = code < 192 ? 0 : code < 224 ? 1 : code < 240 ? 2 : 3
  char = code - (more == 3 ? 240 : more == 2 ? 224 : 192)
  if (code < 32) out = out " "
  else if (code ~ /^(34|38|39|60|62)$/) out = out "&#" code ";"
  else if (code < 127) out = out substr(ascii, code - 31, 1)
  else if (!more) out = out "&#65533;"
}
# The rest of a character did not come
function rest_out() { if (more) out = out "&#65533;"; more = 0 }
# A queue's name, in which $XX are bytes
function shown(name) {
  for (out = more = ""; match(name, /\$[0-9A-F][0-9A-F]/); name = substr(name, RSTART + 3)) {
    if (RSTART > 1) rest_out()
    out = out substr(name, 1, RSTART - 1)
    put(index(digits, substr(name, RSTART + 1, 1)) * 16 - 17 + \
      index(digits, substr(name, RSTART + 2, 1)))
  }
  rest_out()
  return "<bdi>" out name "</bdi>"
}
# The first 90 bytes of a message
function message(base64, size,  at, bytes, code, step, rest) {
  out = more = ""
  for (at = 1; at <= length(base64) && bytes < 90 && bytes < size; at++) {
    code = index(six, substr(base64, at, 1)) - 1
    if (code < 0) break
    step = at % 4 == 1 ? 64 : at % 4 == 2 ? 16 : at % 4 == 3 ? 4 : 1
    if (step < 64) { put(rest * 64 / step + int(code / step)); bytes++ }
    rest = code % step
  }
  return "<bdi>" out "</bdi>" (bytes < size ? " &hellip;" : "")
}
# busybox reads a number with a zero in front as octal
function plain(value) { sub(/^0+/, "", value); return value + 0 }
function age(time,  seconds) {
  seconds = int(now > time ? now - time : 0)
  return seconds < 60 ? seconds " s" : seconds < 3600 ? int(seconds / 60) " min" : \
    seconds < 172800 ? int(seconds / 3600) " h" : int(seconds / 86400) " d"
}
function cell(value, kind) { return "<td" (kind ? " class=" kind : "") ">" value "</td>" }
function amount(value, kind) { return cell(value + 0, value + 0 ? kind : "z") }

function page_begin() {
  rates()
  count["queues"] = rows
  count["none"] = !rows
  if (host == "" || host ~ /[^A-Za-z0-9.:-]/) host = "localhost:5000"
}
function page_rows(what,  at, from) {
  if (what == "says") {
    if (form == "page") printf "%d queue%s", rows, (rows == 1 ? "" : "s")
    else printf "%s, %s", (row[1, 9] ? "at most " row[1, 9] " messages" : "no bound"), \
      (row[1, 10] ? "at most " row[1, 10] " tries" : "any number of tries")
    printf ", as of %d:%02d:%02d UTC\n", now / 3600 % 24, now / 60 % 60, now % 60
  }
  if (what == "queues") for (at = 1; at <= rows; at++) row_queue(at, row[at, 2])
  if (what == "ready") for (at = 1; at <= count[what]; at++) {
    slip(ready[at])
    print "<tr>" cell(plain(field[2])) cell(message(text[field[2] ""], plain(field[8])), "m") \
      cell(age(plain(field[7]) / 100)) cell(plain(field[1])) cell(field[3]) \
      cell(plain(field[8])) "</tr>"
  }
  if (what == "buried") for (at = count[what]; at > 0 && at > count[what] - 10; at--) {
    slip(buried[at])
    print "<tr>" cell(plain(field[3])) cell(field[12], "m") cell(age(plain(field[1]) / 100)) \
      cell(field[4]) cell(plain(field[9])) "</tr>"
  }
  if (what == "events") for (at = count[what]; at > 0 && at > count[what] - 12; at--) {
    split(event[at], field, " ")
    print "<tr>" cell(age(field[1])) cell(field[2], "m") \
      cell(field[7] ~ /^[0-9A-Za-z_.-]+$/ && field[7] != "-" ? field[7] : "", "m") \
      cell(plain(field[3])) cell(plain(field[4])) cell(plain(field[5])) "</tr>"
  }
}
function row_queue(at, name,  link) {
  link = name
  gsub(/\$/, "%24", link)
  gsub(/\+/, "%2B", link)
  print "<tr><th class=n scope=row><a href=\"/?queue=" link "\">" shown(name) "</a>" \
    (row[at, 3] == "true" ? " (closed)" : "") "</th>" amount(row[at, 4]) amount(row[at, 6]) \
    amount(row[at, 5]) amount(row[at, 7], "bad") \
    (row[at, 4] ? cell(age(now - row[at, 8])) : cell("&ndash;", "z")) \
    amount(row[at, 11]) amount(row[at, 12]) "</tr>"
}
