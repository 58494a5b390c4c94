# Prints the numbers of a reply, given in hex, as the format of their sequence writes them. Numbers are at most 2^53 - 1, so
# they fit into awk's; IDs don't. An error goes to standard error.

BEGIN { for (i = 0; i < 256; i++) bytes[sprintf("%02x", i)] = i }

{ for (i = 1; i <= NF; i++) value[size++] = bytes[$i] }

END {
  at = 10 # C3 01 and the schema's fingerprint
  text() # the correlation ID
  kind = long() # which branch: IdBatch, IdError or SequenceBatch
  if (kind == 1) { code = text(); print code ": " text() > "/dev/stderr"; exit 1 }
  if (kind != 2) { print "the reply has no numbers" > "/dev/stderr"; exit 1 }
  text() # the name of the sequence
  first = long(); count = long(); step = long(); format = text()
  if (format == "") format = "{number}"
  if (!match(format, /[{]number(:[0-9]+)?[}]/)) { print "the format " format " has no {number}" > "/dev/stderr"; exit 1 }
  digits = substr(format, RSTART + 8, RLENGTH - 9) + 0
  for (i = 0; i < count; i++) {
    printf "%s%0" digits ".0f%s\n", substr(format, 1, RSTART - 1), first + i * step, substr(format, RSTART + RLENGTH)
  }
}

# Avro's int and long: seven bits in each byte, low ones first, then zigzag.
function long(   sum, scale, byte) {
  for (scale = 1; (byte = value[at++]) >= 128; scale *= 128) sum += (byte - 128) * scale
  sum += byte * scale
  return sum % 2 ? -(sum + 1) / 2 : sum / 2
}

function text(   left, found) {
  for (left = long(); left > 0; left--) found = found sprintf("%c", value[at++])
  return found
}
