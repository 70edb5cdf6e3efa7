# stat.awk - make JSON, a text for Prometheus, or a page for people of what stat.sh prints
#
# Anybody may have written what stands in names, messages and logs: it is escaped, or shown only if
# it has the right form. In page.html, a line `%NAME` stands for the rows of a table, and what is
# behind `%if NAME` goes if there are none.

BEGIN {
  six = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
  # The first four are states; the last two, names before, go on for one version
  split("ready delayed reserved buried oldest bound most_tries paused pushed_last_minute" \
    " done_last_minute in_flight oldest_seconds", key, " ")
  if (host == "" || host ~ /[^A-Za-z0-9.:-]/) host = "localhost:5000"
}
html && (!logs || form !~ /page|queue|missing/) { exit }
html {
  if ($1 == "%if") skip = $2 == "none" ? form != "page" || count["queues"] : !count[$2]
  else if ($1 == "%end") skip = 0
  else if (!skip) {
    if (/^%/) page_rows(substr($1, 2))
    else { sub(/%host/, host); print }
  }
  next
}
logs { log_line(); next }
$1 == "row" {
  add("queues", $2)
  closed[$2] = $3
  for (i = 5; i <= 8; i++) value[$2, key[i]] = $(i - 1)
  value[$2, "oldest_seconds"] = $4
  next
}
$1 == "count" {
  for (i = 1; i <= 4; i++) value[queue($2), key[i]] = $(i + 3)
  value[queue($2), "in_flight"] = $6
  next
}
$1 ~ /^(ready|buried|delayed|reserved)$/ && slip($2) {
  add($1, $2)
  if ($1 == "ready") text_of[field[2] ""] = $3
  next
}
id != "" { text_of[id] = $0; id = ""; next }
/^==> (body|why)\// { id = $2; sub(/^body./, "", id); next }
$0 == "logs" { logs = 1 }

END {
  if (!logs) exit 1
  if (form == "json") json()
  if (form == "metrics") metrics()
}

function add(what, line) { list[what, ++count[what]] = line }
# The name of the queue in a directory
function queue(disk) { sub(/^%/, "", disk); gsub(/,/, "/", disk); return disk }
function slip(path) {
  sub(/.*\//, "", path)
  return split(path, field, ".") >= 10 && path !~ /[^0-9A-Za-z_.-]/
}
function log_line() {
  if (/^==> .* <==$/) { name = $2; sub(/\/log$/, "", name); name = queue(name); return }
  # The first line may be a part of one
  if (length($1) != 13 || $1 !~ /^[0-9]*\.[0-9][0-9]$/ || $2 !~ /^[a-z]+$/ || NF != 7) return
  if (form == "queue") add("events", $0)
  if ($1 >= now - 60 && $2 ~ /^(push|pop|delete|settle)$/)
    value[name, $2 == "push" ? "pushed_last_minute" : "done_last_minute"] += \
      $7 ~ /^bulk-[0-9]+$/ ? substr($7, 6) : 1
}

# The name of a queue's group, as it is in a URL
function url(name) {
  if (name !~ /^\$sha1\$/) gsub(/\$/, "%", name)
  gsub(/\+/, "%2B", name)
  return name
}
function json(at, i) {
  printf "{\"time\":%d,\"queues\":[", now
  for (at = 1; at <= count["queues"]; at++) {
    name = list["queues", at]
    printf "%s\n{\"queue\":\"%s\",\"group\":\"%s\",\"closed\":%s", (at > 1 ? "," : ""), name, \
      url(name), closed[name]
    for (i = 1; i in key; i++) printf ",\"%s\":%.0f", key[i], value[name, key[i]]
    printf "}"
  }
  printf "\n]}"
}
function gauge(metric, help, state,  at, name) {
  if (help) printf "# HELP flatq_%s %s\n# TYPE flatq_%s gauge\n", metric, help, metric
  for (at = 1; at <= count["queues"]; at++) {
    name = list["queues", at]
    printf "flatq_%s{queue=\"%s\"%s} %d\n", metric, name, (state ? ",state=\"" state "\"" : ""), \
      value[name, state ? state : metric]
  }
}
function metrics(i) {
  for (i = 1; i <= 4; i++)
    gauge("messages", i > 1 ? "" : "Messages of a queue that are in this state.", key[i])
  gauge("oldest_seconds", "Seconds since the oldest message that is ready was pushed.")
  gauge("pushed_last_minute", "Messages pushed in the last minute.")
  gauge("done_last_minute", "Messages deleted or popped in the last minute.")
}

# The browser shows U+FFFD for bytes that are not UTF-8
function byte(code) { return code ? sprintf("%c", code) : " " }
function hex(digit) { return index("123456789ABCDEF", digit) }
# A queue's name, in which $XX are bytes
function shown(name,  out) {
  while (match(name, /\$[0-9A-F][0-9A-F]/)) {
    out = out substr(name, 1, RSTART - 1) \
      byte(hex(substr(name, RSTART + 1, 1)) * 16 + hex(substr(name, RSTART + 2, 1)))
    name = substr(name, RSTART + 3)
  }
  return safe(out name)
}
# The first 90 bytes of a message
function message(base64, size,  at, out, code, step, rest) {
  for (at = 1; at <= length(base64) && length(out) < 90 && length(out) < size; at++) {
    code = index(six, substr(base64, at, 1)) - 1
    if (code < 0) break
    # 64, 16, 4, 1
    step = step > 1 ? step / 4 : 64
    if (step < 64) out = out byte(rest * 64 / step + int(code / step))
    rest = code % step
  }
  return safe(out) (length(out) < size ? " &hellip;" : "")
}
# As HTML: a name, a message, or a line of a failed command
function safe(text) {
  gsub(/[\001-\037\177]/, " ", text)
  gsub(/&/, "\\&amp;", text)
  gsub(/</, "\\&lt;", text)
  return "<bdi>" text "</bdi>"
}
# busybox reads a number with a zero in front as octal
function plain(value) { sub(/^0+/, "", value); return value + 0 }
function span(seconds) {
  seconds = int(seconds > 0 ? seconds : 0)
  return seconds < 60 ? seconds " s" : seconds < 3600 ? int(seconds / 60) " min" : \
    seconds < 172800 ? int(seconds / 3600) " h" : int(seconds / 86400) " d"
}
function cell(value, kind) { return "<td" (kind ? " class=" kind : "") ">" value "</td>" }
function amount(name, of, kind) {
  return cell(value[name, of] + 0, value[name, of] + 0 ? kind : "z")
}

# The rows for `%WHAT`; of buried messages and events the last ones, latest first
function page_rows(what,  n, bound, tries, last, most) {
  if (what == "says") {
    n = count["queues"]; name = list["queues", 1]
    bound = value[name, "bound"]; tries = value[name, "most_tries"]
    if (form == "page") printf "%d queue%s", n, (n == 1 ? "" : "s")
    else if (form == "missing") printf "No such queue: see <a href=\"/\">all queues</a>"
    else printf "%s, %s", (bound ? "at most " bound " messages" : "no bound"), \
      (tries ? "at most " tries " tries" : "any number of tries") \
      (value[name, "paused"] + 0 ? ", paused" : "")
    printf ", as of %d:%02d:%02d UTC\n", now / 3600 % 24, now / 60 % 60, now % 60
  }
  last = what ~ /buried|events/
  most = what == "events" ? 12 : 10
  for (n = 1; n <= count[what] && !(last && n > most); n++)
    print "<tr>" row(what, list[what, last ? count[what] + 1 - n : n]) "</tr>"
}
function number(n) { return cell(plain(field[n])) }
function told(id, size) { return cell(message(text_of[field[id] ""], plain(field[size])), "m") }
function since(n) { return cell(span(now - plain(field[n]) / 100)) }
function row(what, text,  part, last) {
  if (what == "queues") return row_queue(text)
  if (what == "events") {
    split(text, field, " ")
    return cell(span(now - field[1])) cell(field[2], "m") \
      cell(field[7] ~ /^[0-9A-Za-z_.-]+$/ && field[7] != "-" ? field[7] : "", "m") \
      number(3) number(4) number(5)
  }
  last = split(text, part, "/")
  split(part[last], field, ".")
  if (what == "buried")
    return number(3) told(3, 9) cell(field[12], "m") \
      cell(safe(substr(text_of["why/" field[3]], 1, 90)), "m") since(1) number(4)
  text = number(2) told(2, 8)
  if (what == "ready") return text since(7) number(1) number(3) number(8)
  if (what == "delayed")
    return text cell(span((part[2] ~ /\./ ? part[2] + 0 : epoch) + plain(part[3]) / 100 - now)) \
      number(1) number(3)
  sub(/-.*/, "", field[11])
  return text cell(plain(field[12]) ? span(epoch + plain(field[12]) / 100 - now) : "&ndash;") \
    cell(field[11] ~ /^0/ ? "&ndash;" : field[11]) number(3)
}
function row_queue(name,  link) {
  link = name
  gsub(/\$/, "%24", link)
  gsub(/\+/, "%2B", link)
  return "<th class=n scope=row><a href=\"/?queue=" link "\">" shown(name) "</a>" \
    (closed[name] == "true" ? " (closed)" : "") \
    (value[name, "paused"] + 0 ? " (paused)" : "") "</th>" amount(name, "ready") \
    amount(name, "delayed") amount(name, "reserved") amount(name, "buried", "bad") \
    (value[name, "ready"] ? cell(span(value[name, "oldest"])) : \
      cell("&ndash;", "z")) amount(name, "pushed_last_minute") amount(name, "done_last_minute")
}
