# date.awk - date(TIME) of seconds since 1970: DATE TIME by the local clock. If `date` fails, sets
# `failed` and ends

# The local date, hours, minutes, seconds and zone
function local_time(time,  command) {
  time = sprintf("%.0f", time)
  if (time in local_times) return local_times[time]
  command = "date -d @" time " \"+%F %H %M %S %z\" 2>/dev/null"
  command | getline local_times[time]
  close(command)
  if (local_times[time] !~ / [+-][0-9][0-9][0-9][0-9]$/) { failed = 1; exit 1 }
  return local_times[time]
}
function zone(time) { return substr(local_time(time), 21) }
# Ask once for a day; once for a quarter of an hour if the clocks change on that day
function date(time,  step, base, part, seconds) {
  base = int(time / 86400) * 86400
  step = zone(base) == zone(base + 86400) ? 86400 : 900
  base = int(time / step) * step
  split(local_time(base), part, " ")
  # With the 1 in front, 08 is not octal
  seconds = (("1" part[2]) * 60 + ("1" part[3])) * 60 + ("1" part[4]) - 366100 + time - base
  if (seconds >= 86400) split(local_time(base + step), part, " ")
  return sprintf("%s %02d:%02d:%02d", part[1], int(seconds / 3600) % 24, int(seconds / 60) % 60,
    seconds % 60)
}
