# engine/clock.sh - calculate with times of 12 digits, in hundredths of a second

# clock_add SECONDS TIME - set `later` to their sum. More than nine years count as nine years
clock_add() {
  clock_add=$1
  [ "$clock_add" -le 300000000 ] || clock_add=300000000
  unpad "$2"
  pad $((unpadded + clock_add * 100)) 000000000000
  later=$padded
}

# clock_sub SECONDS TIME - set `earlier` to TIME minus SECONDS, but not below 0
clock_sub() {
  unpad "$2"
  unpadded=$((unpadded - $1 * 100))
  [ "$unpadded" -ge 0 ] || unpadded=0
  pad "$unpadded" 000000000000
  earlier=$padded
}

# clock_split TIME - set clock_s to its seconds, a number, and clock_c to its hundredths, two digits
clock_split() {
  clock_c=${1#"${1%??}"}
  unpad "${1%??}"
  clock_s=$unpadded
}

# clock_between FROM TO - set between_s and between_c to the seconds and the hundredths, 0 to 99,
# from FROM to TO. If TO is earlier, between_s is below 0
clock_between() {
  clock_split "$1"
  between_s=$clock_s between_c=$clock_c
  clock_split "$2"
  between_s=$((clock_s - between_s)) between_c=$((1$clock_c - 1$between_c))
  [ "$between_c" -ge 0 ] || between_s=$((between_s - 1)) between_c=$((between_c + 100))
}
