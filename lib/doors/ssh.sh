# doors/ssh.sh - flatq -H ssh://[USER@]HOST[:PORT]: reach the line door of another machine by ssh
#
# What runs there is a constant, and a key with `command="flatq door ..."` runs that instead
# (lib/door).

# ssh_connect - as remote_connect
ssh_connect() {
  set -f
  # shellcheck disable=SC2086,SC2016 # FLATQ_SSH is words; the shell there expands the variables
  set -- ${FLATQ_SSH:-ssh -o BatchMode=yes} -T ${remote_port:+-p $remote_port} \
    ${remote_user:+-l $remote_user} "$remote_host" \
    'sh -c '\''exec flatq door --spool "${FLATQ_DIR:-${XDG_STATE_HOME:+$XDG_STATE_HOME/flatq}}"'\'
  set +f
  command -v "$1" >/dev/null || { printf '%s is needed\n' "$1" >&2; exit 69; }
  exec "$@"
}

# ssh_refused - return whether the host's key or the login was refused, so that nothing was asked;
# set `why` to that line
ssh_refused() {
  ssh_line=$(grep -e '^Host key verification failed\.' -e ': Permission denied (' \
    -e ': Too many authentication failures' "$remote_directory/errors" |
    tr -cd '[:print:]\n' | tail -n 1)
  [ -n "$ssh_line" ] && why="$FLATQ_HOST: $ssh_line"
}
