# page.awk - make a page for people of what page_one, or stat_row and stat_logs, print: a row for each queue, messages, and behind a line `logs` the logs
#
# awk -v now=SECONDS -v form=all|one -v host=HOST:PORT -f page.awk. What stands in names, messages and logs may have been written by anybody: it is
# escaped (html), or shown only if it has the form that it should have.

function queue(disk) { sub(/^%/, "", disk); gsub(/,/, "/", disk); return disk }
function url(name) { gsub(/\$/, "%24", name); gsub(/\+/, "%2B", name); return name }
# What stands in byte[1..count], as HTML: valid UTF-8 as numbers of characters, other bytes as %XX
function html(count,  at, code, more, char, to, out) {
  for (at = 1; at <= count; at++) {
    code = byte[at]
    more = code >= 240 ? 3 : code >= 224 ? 2 : 1
    char = code - (more == 3 ? 240 : more == 2 ? 224 : 192)
    for (to = at + 1; to <= at + more && to <= count && byte[to] >= 128 && byte[to] < 192; to++) char = char * 64 + byte[to] - 128
    if (code == 9 || code == 10 || code == 13) out = out " "
    else if (code == 34 || code == 38 || code == 39 || code == 60 || code == 62) out = out "&#" code ";"
    else if (code >= 32 && code < 127) out = out sprintf("%c", code)
    else if (code >= 194 && code < 245 && to > at + more && char >= (more == 3 ? 65536 : more == 2 ? 2048 : 160) && char < 1114112 &&
      (char < 55296 || char > 57343)) { out = out "&#" char ";"; at += more }
    else out = out sprintf("%%%02X", code)
  }
  return out
}
# A name as its group has it: $XX are bytes
function shown(name,  count, high, low) {
  for (count = 0; name != ""; name = substr(name, 2)) {
    high = index(hex, substr(name, 2, 1)); low = index(hex, substr(name, 3, 1))
    if (substr(name, 1, 1) == "$" && high && low && length(name) > 2) { byte[++count] = high * 16 + low - 17; name = substr(name, 3) }
    else byte[++count] = index(ascii, substr(name, 1, 1)) + 31
  }
  return "<bdi>" html(count) "</bdi>"
}
# The first 90 bytes of a message
function body(text, size,  at, count, code, rest, more) {
  for (at = 1; at <= length(text) && count < 90 && count < size; at++) {
    code = index(six, substr(text, at, 1)) - 1
    if (code < 0) break
    if (at % 4 == 2) { byte[++count] = rest * 4 + int(code / 16); rest = code % 16 }
    else if (at % 4 == 3) { byte[++count] = rest * 16 + int(code / 4); rest = code % 4 }
    else if (at % 4 == 0) byte[++count] = rest * 64 + code
    else rest = code
  }
  # No part of a character at the end
  if (count < size) { more = " &hellip;"; while (count && byte[count] >= 128 && byte[count] < 192) count--; if (byte[count] >= 192) count-- }
  return "<bdi>" html(count) "</bdi>" more
}
# busybox reads a number with a zero in front as octal
function plain(value) { sub(/^0+/, "", value); return value + 0 }
function number(value,  text, out) {
  for (text = sprintf("%d", plain(value)); length(text) > 3; text = substr(text, 1, length(text) - 3)) out = "," substr(text, length(text) - 2) out
  return text out
}
function age(seconds) {
  seconds = int(seconds < 0 ? 0 : seconds)
  return seconds < 60 ? seconds " s" : seconds < 3600 ? int(seconds / 60) " min" : seconds < 172800 ? int(seconds / 3600) " h" : int(seconds / 86400) " d"
}
function cell(value, kind) { value += 0; return "<td" (value == 0 ? " class=z" : kind && value ? " class=" kind : "") ">" number(value) "</td>" }
# Messages in and out of the last ten minutes, a point for each 20 seconds. Of a log that was cut, begin where it does
function line(name,  from, at, most, one, two) {
  from = (name in cut || bytes[name] > 262000) && name in first ? first[name] : 0
  for (at = from; at < 30; at++) { if (came[name, at] > most) most = came[name, at]; if (went[name, at] > most) most = went[name, at] }
  for (at = from == 29 ? 28 : from; at < 30; at++) {
    one = one " " at * 4 + 2 "," sprintf("%.1f", 21 - (most ? 19 * came[name, at < from ? from : at] / most : 0))
    two = two " " at * 4 + 2 "," sprintf("%.1f", 21 - (most ? 19 * went[name, at < from ? from : at] / most : 0))
  }
  return "<td><svg viewBox=\"0 0 120 23\" role=img aria-label=\"in and out, the last ten minutes\"><polyline class=i points=\"" substr(one, 2) \
    "\"/><polyline class=o points=\"" substr(two, 2) "\"/></svg></td>"
}
function numbers(name, ready, delayed, flight, buried, oldest) {
  print line(name) cell(ready) cell(flight) cell(delayed) cell(buried, "bad") "<td" (ready ? ">" age(oldest) : " class=z>&ndash;") "</td>" \
    cell(pushed[name]) cell(gone[name]) "</tr>"
}
function head(title, columns) { print "</table></div>\n<h2>" title "</h2>\n<div class=w><table>\n<tr>" columns "</tr>" }
function id_of(text) { return sprintf("%.0f", plain(text)) }
function top(title, says,  bare) {
  bare = title; gsub(/<[^>]*>/, "", bare)
  print "<!DOCTYPE html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n<meta name=viewport content=\"width=device-width, initial-scale=1\">"
  print "<meta http-equiv=refresh content=5>\n<title>" bare "</title>\n<link rel=icon href=\"data:,\">\n<style>"
  print ":root { color-scheme: light dark; --b: #fff; --t: #1c1c1c; --s: #5c5c5c; --l: #dcdcd8; --i: #0072b2; --o: #b84a00; --a: #b3261e }"
  print "@media (prefers-color-scheme: dark) { :root { --b: #161615; --t: #e8e8e5; --s: #a8a8a4; --l: #3a3a37; --i: #56b4f0; --o: #f08a45; --a: #ff8a80 } }"
  print "body { font: 16px/1.5 system-ui, sans-serif; color: var(--t); background: var(--b); margin: 2rem auto; max-width: 72rem; padding: 0 1rem }"
  print "h1, h2 { font-size: 1.4rem; line-height: 1.3; margin: 0; overflow-wrap: anywhere } h2 { font-size: 1.1rem; margin: 1.5rem 0 .3rem }"
  print "p { margin: 0 0 1rem } p, .z, th { color: var(--s) } a { color: var(--i) } .w { overflow-x: auto } pre { overflow-x: auto; font-size: .9rem }"
  print "table { border-collapse: separate; border-spacing: 0; width: 100% } td, th { border-bottom: 1px solid var(--l); padding: .4rem .7rem;"
  print "  text-align: right; white-space: nowrap; font-weight: 400; font-variant-numeric: tabular-nums } thead th { vertical-align: bottom }"
  print "th.n { white-space: nowrap } .n { text-align: left; min-width: 8rem; max-width: 22rem; overflow: hidden; text-overflow: ellipsis; position: sticky; left: 0; background: var(--b) }"
  print ".m { text-align: left; max-width: 30rem; overflow: hidden; text-overflow: ellipsis } td.bad { color: var(--a); font-weight: 600 }"
  print "svg { width: 120px; height: 23px; vertical-align: middle } polyline { fill: none; stroke: var(--i); stroke-width: 1.5 } polyline.o { stroke: var(--o) }"
  print ".i { color: var(--i) } .o { color: var(--o) } tfoot td, tfoot th { font-weight: 600; border-bottom: 0 }"
  print "@media (max-width: 40rem) { body { margin: 1rem auto; font-size: 15px } td, th { padding: .4rem .3rem } th { white-space: normal } .n { max-width: 8rem } .m { max-width: 13rem } svg { width: 90px } }"
  printf "</style>\n</head>\n<body>\n<h1>%s</h1>\n<p role=status>%s, as of %d:%02d:%02d UTC</p>\n", title, says, now / 3600 % 24, now / 60 % 60, now % 60
}
function heads() {
  print "<div class=w><table>\n<thead><tr><th class=n>queue</th><th><span class=i>in</span> and <span class=o>out</span>, 10 min</th><th>ready</th><th>in flight</th><th>delayed</th><th>buried</th><th>oldest</th>"
  print "<th>in / min</th><th>out / min</th></tr></thead>\n<tbody>"
}
function row(at,  name, text) {
  name = rows[at, 2]; text = shown(name)
  print "<tr><th class=n scope=row>" (form == "all" ? "<a href=\"/?queue=" url(name) "\">" text "</a>" : text) (rows[at, 3] == "true" ? " (closed)" : "") "</th>"
  numbers(name, rows[at, 4], rows[at, 5], rows[at, 6], rows[at, 7], rows[at, 8])
  for (of = 4; of <= 7; of++) sum[of] += rows[at, of]
  if (rows[at, 4] && rows[at, 8] > oldest) oldest = rows[at, 8]
}
function slip(text) { return split(text, field, ".") >= 10 && text !~ /[^0-9A-Za-z_.-]/ }
# The page of all queues
function page_all(  at, of, name) {
  top("flatq", count == 1 ? "1 queue" : number(count) " queues")
  if (count) {
    heads()
    for (at = 1; at <= count; at++) row(at)
    if (count > 1) {
      for (at = 1; at <= count; at++) {
        name = rows[at, 2]; pushed[""] += pushed[name]; gone[""] += gone[name]
        for (of = 0; of < 30; of++) { came["", of] += came[name, of]; went["", of] += went[name, of] }
      }
      print "</tbody>\n<tfoot><tr><th class=n scope=row>all</th>"
      numbers("", sum[4], sum[5], sum[6], sum[7], oldest)
    }
    print "</table></div>"
  } else {
    print "<p>Nothing yet. The first message makes a queue; push one by HTTP, or here in a shell:</p>"
    print "<pre>curl \"http://" host "/queue?group-id=mails\" -d hello\nprintf hello | flatq push mails</pre>"
  }
}
# The page of one queue
function page_one(  at, says) {
  says = rows[1, 9] ? "at most " number(rows[1, 9]) " messages" : "no bound"
  top("<a href=\"/\">flatq</a> / " shown(rows[1, 2]), says ", " (rows[1, 10] ? "at most " number(rows[1, 10]) " tries" : "any number of tries"))
  heads()
  row(1)
  head("Oldest messages that are ready", readies ? "<th>id</th><th class=m>message</th><th>age</th><th>priority</th><th>tries</th><th>bytes</th>" : \
    "<td class=m>none</td>")
  for (at = 1; at <= readies; at++) {
    slip(ready[at])
    print "<tr><td>" id_of(field[2]) "</td><td class=m>" body(text[field[2] ""], plain(field[8])) "</td><td>" age(now - plain(field[7]) / 100) "</td><td>" \
      number(field[1]) "</td><td>" number(field[3]) "</td><td>" number(field[8]) "</td></tr>"
  }
  if (buries) head("Buried last", "<th>id</th><th class=m>reason</th><th>since</th><th>tries</th><th>bytes</th>")
  for (at = buries; at > 0 && at > buries - 10; at--) {
    slip(buried[at])
    print "<tr><td>" id_of(field[3]) "</td><td class=m>" field[12] "</td><td>" age(now - plain(field[1]) / 100) "</td><td>" number(field[4]) "</td><td>" \
      number(field[9]) "</td></tr>"
  }
  if (all) head("Last events", "<th>ago</th><th class=m>event</th><th class=m>reason</th><th>id</th><th>tries</th><th>bytes</th>")
  for (at = all; at > 0 && at > all - 12; at--) {
    split(events[at], field, " ")
    print "<tr><td>" age(now - field[1]) "</td><td class=m>" field[2] "</td><td class=m>" \
      (field[7] ~ /^[0-9A-Za-z_.-]+$/ && field[7] != "-" ? field[7] : "") "</td><td>" (field[3] == "-" ? "&ndash;" : id_of(field[3])) "</td><td>" \
      number(field[4]) "</td><td>" number(field[5]) "</td></tr>"
  }
  print "</table></div>"
}
BEGIN {
  hex = "0123456789ABCDEF"; six = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
  for (code = 32; code < 127; code++) ascii = ascii sprintf("%c", code)
}
!logs && $1 == "row" { count++; for (at = 2; at <= 10; at++) rows[count, at] = $at; next }
!logs && $1 == "ready" && slip($2) { ready[++readies] = $2; text[field[2] ""] = $3; next }
!logs && $1 == "buried" && slip($2) { buried[++buries] = $2; next }
!logs && /^==> body\// { id = $2; sub(/^body\//, "", id); next }
!logs && id != "" && $0 != "" { text[id] = $0; id = ""; next }
!logs && $1 == "rotated" { for (at = 2; at <= NF; at++) cut[queue($at)]; next }
$0 == "logs" { logs = 1; next }
!logs { next }
/^==> .* <==$/ { name = $2; sub(/\/log$/, "", name); name = queue(name); next }
{ bytes[name] += length($0) + 1 }
# The first line may be a part of one
length($1) != 13 || $1 !~ /^[0-9]*\.[0-9][0-9]$/ || $2 !~ /^[a-z]+$/ || NF != 7 { next }
{ at = $1 < now - 600 ? 0 : int(($1 - now + 600) / 20)
  if (at > 29) at = 29
  if (!(name in first)) first[name] = at
  if (form == "one") { events[++all] = $0; delete events[all - 12] } }
$1 >= now - 600 && $2 ~ /^(push|pop|delete|settle)$/ {
  n = $7 ~ /^bulk-[0-9]+$/ ? substr($7, 6) : 1
  if ($2 == "push") came[name, at] += n; else went[name, at] += n
  if ($1 >= now - 60) { if ($2 == "push") pushed[name] += n; else gone[name] += n }
}
END {
  if (!logs) exit 1
  if (form == "all") page_all(); else page_one()
  print "</body>\n</html>"
}
