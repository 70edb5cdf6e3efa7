# engine/probe.sh - try whether programs do what flatq relies on (lib/TOOLS.md)

# tools_probe - with the spool's lock: return 70 if a program does less than it must; else set
# base64_wrap, sync_how, and probe_said to what was tried
tools_probe() {
  probe_said='' probe_try=$FLATQ_DIR/.try
  why='/dev/full is missing, with which failed writes are tried: mount /dev'
  [ -c /dev/full ] || return 70
  probe base64 coreutils 'cannot write one long line' probe_wrap &&
    probe base64 coreutils 'hides a read error' \
      probe_fails "$probe_try" /dev/null base64 "$base64_wrap" &&
    probe base64 coreutils 'hides a write error' probe_fails /dev/null /dev/full probe_encode &&
    probe base64 coreutils 'hides a write error but the last' probe_name base64 &&
    probe base64 coreutils 'hides a read error when it decodes' \
      probe_fails /dev/null /dev/null base64 -d "$probe_try" &&
    probe base64 coreutils 'hides a write error when it decodes' \
      probe_fails /dev/null /dev/full probe_decode QUJD &&
    probe base64 coreutils 'decodes damaged text' \
      probe_fails /dev/null /dev/null probe_decode 'QQ!=' &&
    probe base64 coreutils 'decodes no more than the first of several pieces' probe_pieces &&
    probe mv coreutils 'copies when a rename fails' probe_rename &&
    probe_sync &&
    probe ls coreutils 'does not show nine columns' probe_columns &&
    probe find findutils 'hides a failed look' \
      probe_fails /dev/null /dev/null find "$probe_try/none" &&
    probe flock flock 'does not lock' probe_lock &&
    probe dd coreutils 'reads more than it is asked to' probe_exact &&
    probe head coreutils 'hides a write error' probe_fails /dev/zero /dev/full head -c 3 &&
    probe sed sed 'changes NUL bytes' probe_nul &&
    probe sed sed 'adds a newline to the last line' probe_last_line &&
    probe awk gawk 'does not know what flatq uses' probe_awk
}

# probe_sync - try sync, in /dev, since the spool's disk may fail
probe_sync() {
  [ "$spool_sync" = on ] || return 0
  probe sync coreutils 'cannot sync a directory' sync /dev &&
    probe sync coreutils 'hides that a file could not be synced' probe_sync_file &&
    probe sync coreutils 'cannot sync one file system' sync -f /dev &&
    probe sync coreutils 'hides that a file system could not be synced' probe_name sync
}

# probe_sync_file - succeed if `sync FILE` reports an error, or set sync_how=-f: in uutils 0.12, -d
# and -f do, and -d can be tried
probe_sync_file() {
  sync_how=
  ! probe_fails /dev/null /dev/null sync /dev/null || return 0
  case $(sync --version 2>&1) in
  *'(uutils coreutils)'*) probe_fails /dev/null /dev/null sync -d /dev/null && sync_how=-f ;;
  *) return 1 ;;
  esac
}

# probe TOOL PACKAGE SYMPTOM COMMAND ... - return 70, with `why`, if COMMAND fails twice (R1)
probe() {
  probe_tool=$1 probe_package=$2 probe_symptom=$3
  shift 3
  if { "$@" || "$@"; }; then
    probe_said="$probe_said$probe_tool: no sign that it $probe_symptom
"
    return 0
  fi
  probe_path=$(command -v "$probe_tool") || probe_path=
  case $probe_path in
  '') why="$probe_tool is missing: install it (apk add $probe_package)" ;;
  */*)
    case $("$probe_tool" --version 2>&1) in
    *uutils*) probe_package="$probe_package; apt install coreutils-from-gnu" ;;
    esac
    why="$probe_tool ($probe_path) $probe_symptom: install GNU's (apk add $probe_package)" ;;
  *) why="$probe_tool of this shell $probe_symptom: run flatq by another shell (apk add dash)" ;;
  esac
  return 70
}

# probe_fails INPUT OUTPUT COMMAND ... - succeed if COMMAND, with these files open, fails
probe_fails() {
  probe_input=$1 probe_output=$2
  shift 2
  { ! "$@"; } <"$probe_input" >"$probe_output"
}

# probe_wrap - set base64_wrap to -w0 or, for one that does not know -w and does not wrap, to --
probe_wrap() {
  for base64_wrap in -w0 --; do
    probe_out=$(printf '%0100d' 0 | base64 "$base64_wrap")
    [ ${#probe_out} -ne 136 ] || return 0
  done
  return 1
}

probe_encode() {
  printf ABC | base64 "$base64_wrap"
}

probe_decode() {
  printf %s "$1" | base64 -d
}

# probe_name TOOL - refuse BusyBox's, whose fault cannot be tried: base64 reports only the last of
# many failed writes, sync -f none
probe_name() {
  case $("$1" --version 2>&1) in
  *BusyBox*) return 1 ;;
  esac
}

probe_pieces() {
  [ "$(printf 'QQ==\nQg==\n' | base64 -d)" = AB ]
}

# probe_rename - a directory cannot be moved by its name `.`, but be copied
probe_rename() {
  ! mv -f "$probe_try/." "$FLATQ_DIR/.try.moved" && [ ! -e "$FLATQ_DIR/.try.moved" ] && return 0
  rmdir "$FLATQ_DIR/.try.moved"
  return 1
}

probe_columns() {
  # shellcheck disable=SC2012,SC2046 # the columns are what is wanted
  set -- $(cd "$lib/engine" && exec ls -qln common.sh)
  [ $# -eq 9 ] && [ "$9" = common.sh ] && is_number "$5" 999999999999
}

probe_lock() {
  ! { flock -n 7 7>>"$FLATQ_DIR/.lock"; }
}

probe_exact() {
  probe_out=$(printf abcdef | {
    dd bs=1 count=1 iflag=fullblock && dd bs=65536 count=2 iflag=fullblock,count_bytes && cat
  })
  [ "$probe_out" = abcdef ]
}

probe_nul() {
  [ "$(printf 'a\000b\n.\nc\n' | sed -n -e '/^\.$/q' -e p | tr '\000' x)" = axb ]
}

probe_last_line() {
  [ "$(printf . | sed -n -e p && printf /)" = ./ ]
}

probe_awk() {
  # shellcheck disable=SC2016 # awk's
  probe_out=$(FLATQ_PROBE=1.2 awk -F '\t' -v "sum=3" '
    BEGIN {
      n = split(ENVIRON["FLATQ_PROBE"], field, ".")
      printf "%012.0f %d %d", 12345678901, n, sum
      exit 74
    }' </dev/null)
  [ "$?.$probe_out" = '74.012345678901 2 3' ]
}
