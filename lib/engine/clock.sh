# engine/clock.sh - calculate with times of 12 digits, hundredths of a second (clock_read, clock_epoch)

# clock_add SECONDS TIME - set `later` to their sum. More than nine years count as nine years; in mksh, which counts in 32 bits, no sum is later than 2038
clock_add() {
  clock_split "$2"
  if [ ${#1} -gt 9 ] || [ "$1" -gt 300000000 ]; then
    clock_sum=$((clock_s + 300000000))
  else
    clock_sum=$((clock_s + $1))
  fi
  # The sum was too large for mksh
  [ "$clock_sum" -ge "$clock_s" ] || clock_sum=2147483647
  pad "$clock_sum" 0000000000
  later=$padded$clock_c
}

# clock_sub SECONDS TIME - set `earlier` to TIME minus SECONDS, but not below 0
clock_sub() {
  clock_split "$2"
  clock_s=$((clock_s - $1))
  [ "$clock_s" -ge 0 ] || clock_s=0
  pad "$clock_s" 0000000000
  earlier=$padded$clock_c
}

part='engine/clock'
