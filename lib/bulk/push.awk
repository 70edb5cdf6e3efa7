# push.awk - write the flat files of a bulk push. A message comes as short lines of base64
# (lines_short), and then an empty line
#
# The environment has FLATQ_STAGE, where the blocks are; FLATQ_FIRST, the first id; parts of the
# names; the most of a flat file, FLATQ_LINES messages and about FLATQ_BYTES; FLATQ_LARGE, from
# which size on a message is alone in one; FLATQ_MOST, the most bytes of a message, or nothing.
# Prints the last id, the bytes of all messages and of all flat files. Exits with 65 if a message is
# too large, 74 if a write failed or a message is not whole.

# Write the messages that were kept, text[1] to text[texts], as one flat file
function flush(  i, path) {
  if (!n) return
  path = stage "/" priority "." substr(first, 1, 7)
  path = path "/" priority "." first "." last "." n ".0." nonce
  for (i = 1; i <= texts; i++) {
    printf "%s", text[i] >path
    written += length(text[i])
  }
  if (close(path)) exit bad = 74
  n = bytes = texts = 0
}
# Whether a message with this id needs a new flat file, which has the ids of one block
function full(id) {
  return n == most_lines || bytes > most_bytes || n && substr(id, 1, 7) != substr(first, 1, 7)
}
BEGIN {
  stage = ENVIRON["FLATQ_STAGE"]
  priority = ENVIRON["FLATQ_PRIORITY"]
  rest = ENVIRON["FLATQ_REST"]
  nonce = ENVIRON["FLATQ_NONCE"]
  id = ENVIRON["FLATQ_FIRST"] + 0
  most_lines = ENVIRON["FLATQ_LINES"] + 0
  most_bytes = ENVIRON["FLATQ_BYTES"] + 0
  large = ENVIRON["FLATQ_LARGE"] + 0
  most = ENVIRON["FLATQ_MOST"]
}
$0 != "" {
  at = index($0, "=")
  if (at) padded = length($0) - at + 1
  part[++parts] = $0
  letters += length($0)
  next
}
{
  size = letters / 4 * 3 - padded
  if (most != "" && size > most + 0) exit bad = 65
  number = sprintf("%012.0f", id++)
  if (size >= large || full(number)) flush()
  if (!n++) first = number
  last = number
  text[++texts] = priority "." number rest size ".-.0-0-0-0\t"
  for (i = 1; i <= parts; i++) text[++texts] = part[i]
  text[++texts] = "\n"
  bytes += letters
  total += size
  parts = letters = padded = 0
  if (size >= large) flush()
}
END {
  if (parts && !bad) bad = 74
  if (!bad) flush()
  if (bad) exit bad
  printf "%.0f %.0f %.0f\n", id - 1, total, written
}
