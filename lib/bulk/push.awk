# push.awk - write the flat files of a bulk push from lines of base64; bulk_flats of push.sh runs it
#
# Variables of the environment: FLATQ_STAGE, where the blocks are; FLATQ_FIRST, the first id;
# FLATQ_PRIORITY, FLATQ_REST and FLATQ_NONCE, parts of the names; FLATQ_LINES and FLATQ_BYTES, how
# many messages, and about how many bytes, a flat file has; FLATQ_MOST, the most bytes of a message,
# or nothing. Prints the last id, the bytes of all messages and the bytes of all flat files. Exits
# with 65 if a message is too large, 74 if a write failed or a line is not base64.

# Write the lines that were kept as one flat file
function flush(  i, path) {
  if (!n) return
  path = stage "/" priority "." substr(ids[1], 1, 7)
  path = path "/" priority "." ids[1] "." ids[n] "." n ".0." nonce
  for (i = 1; i <= n; i++) {
    print priority "." ids[i] lines[i] >path
    written += length(lines[i]) + 24
  }
  if (close(path)) exit bad = 74
  n = bytes = 0
}
# Whether a message with this id needs a new flat file, which has the ids of one block
function full(id) {
  return n == most_lines || bytes > most_bytes || n && substr(id, 1, 7) != substr(ids[1], 1, 7)
}
BEGIN {
  stage = ENVIRON["FLATQ_STAGE"]
  priority = ENVIRON["FLATQ_PRIORITY"]
  rest = ENVIRON["FLATQ_REST"]
  nonce = ENVIRON["FLATQ_NONCE"]
  id = ENVIRON["FLATQ_FIRST"] + 0
  most_lines = ENVIRON["FLATQ_LINES"] + 0
  most_bytes = ENVIRON["FLATQ_BYTES"] + 0
  most = ENVIRON["FLATQ_MOST"]
}
{
  at = index($0, "=")
  if (length($0) % 4 || at && substr($0, at) != "=" && substr($0, at) != "==") exit bad = 74
  size = length($0) / 4 * 3
  if (at) size -= length($0) - at + 1
  if (most != "" && size > most + 0) exit bad = 65
  number = sprintf("%012.0f", id++)
  if (full(number)) flush()
  ids[++n] = number
  lines[n] = rest size ".-.0-0-0-0\t" $0
  bytes += length($0)
  total += size
}
END {
  if (!bad) flush()
  if (bad) exit bad
  printf "%.0f %.0f %.0f\n", id - 1, total, written
}
