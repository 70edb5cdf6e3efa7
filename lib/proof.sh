# proof.sh - what the engine accepts as proof that something is not there (rule R1 in lib/README.md)
#
# A glob that matches nothing and a `[ -e ]` that is false look the same when the directory could not be read. So whatever removes, settles or
# says "nothing there" asks here, or a rename or an rmdir that succeeded. `ls` and `find` end with 0 only where they have read all.

# names_in DIRECTORY - sets `names`: all names in it, in order, one a line; 74 where it cannot be listed to its end
names_in() {
  names=$(exec ls "$1" 2>/dev/null 9>&-) || { why="queue '$queue': cannot list ${1#"$q/"}"; return 74; }
}

# named NAME - whether NAME is one of `names`
named() {
  case "
$names
" in
  *"
$1
"*) return 0 ;;
  esac
  return 1
}

# files_below PLACE ... - sets `names`: the paths, from $q, of all that is no directory in these places of the queue; 74 as in names_in
files_below() {
  names=$(cd "$q" 2>/dev/null && exec find "$@" ! -type d ! -name '~' 2>/dev/null 9>&-) || { why="queue '$queue': cannot be listed"; return 74; }
}
