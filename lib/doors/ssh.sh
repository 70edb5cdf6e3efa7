# doors/ssh.sh - flatq -H ssh://[USER@]HOST[:PORT]: reach the line door of another machine by ssh
#
# What runs there is a constant, and a key with `command="flatq door ..."` runs that instead
# (lib/door). Of the URL, only names of plain characters are taken, none with - in front: so no part
# of it is an option of ssh, or a word for a shell here or there.

# ssh_read - set ssh_host, ssh_user and ssh_port, of which the last two may be empty, from
# FLATQ_HOST; exit with 64 if it is no such URL
ssh_read() {
  ssh_host=${FLATQ_HOST#ssh://} ssh_user='' ssh_port='' ssh_good=1
  case $ssh_host in
  *@*)
    ssh_user=${ssh_host%@*} ssh_host=${ssh_host##*@}
    case $ssh_user in '' | -* | *[!A-Za-z0-9@._+-]*) ssh_good= ;; esac ;;
  esac
  case $ssh_host in
  *']') ;;
  *:*)
    ssh_port=${ssh_host##*:} ssh_host=${ssh_host%:*}
    is_number "$ssh_port" 65535 && [ "$number" != 0 ] && ssh_port=$number || ssh_good= ;;
  esac
  case $ssh_host in
  '['*']')
    ssh_host=${ssh_host#'['} ssh_host=${ssh_host%']'}
    case $ssh_host in '' | *[!0-9A-Fa-f:.]*) ssh_good= ;; esac ;;
  '' | -* | *[!A-Za-z0-9._-]*) ssh_good= ;;
  esac
  [ -n "$ssh_good" ] || die 64 '-H takes HOST:PORT, unix:PATH or ssh://[USER@]HOST[:PORT]'
}

# ssh_connect - as remote_connect
ssh_connect() {
  set -f
  # shellcheck disable=SC2086,SC2016 # FLATQ_SSH is words; the shell there expands the variables
  set -- ${FLATQ_SSH:-ssh -o BatchMode=yes} -T ${ssh_port:+-p $ssh_port} \
    ${ssh_user:+-l $ssh_user} "$ssh_host" \
    'sh -c '\''exec flatq door --spool "${FLATQ_DIR:-${XDG_STATE_HOME:+$XDG_STATE_HOME/flatq}}"'\'
  set +f
  command -v "$1" >/dev/null || { printf '%s is needed\n' "$1" >&2; exit 69; }
  exec $remote_with "$@"
}

# ssh_failed - set `why` to ssh's reason, a line of the file `errors`, where a banner may stand
# above it. Return 77 if the host's key or the login was refused, so that nothing was asked; else 69
ssh_failed() {
  why=$(sed -n -e '/^Host key verification failed\.\r*$/p' -e '/: Permission denied (.*)\.\r*$/p' \
    -e '/: Too many authentication failures\r*$/p' "$remote_directory/errors" | ssh_last)
  if [ -n "$why" ] && [ ! -s "$remote_directory/raw" ]; then
    why="$FLATQ_HOST: $why"
    return 77
  fi
  why=$(ssh_last <"$remote_directory/errors")
  why="$FLATQ_HOST: ${why:-no whole answer}"
  return 69
}

# ssh_last - print the last line of standard input that says something
ssh_last() {
  tr -cd '[:print:]\n' | grep . | tail -n 1
}
