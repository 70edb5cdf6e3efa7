# engine/sync.sh - sync many new files by their whole file system, and files that other verbs may
# move meanwhile

# sync_many PATH - as sync_paths, for many new files at once: sync the whole file system that PATH
# lies on
sync_many() {
  [ "$spool_sync" = off ] || sync -f "$1" || sync_failed
}

# sync_moving PATH ... - as sync_paths, but other verbs may have removed a PATH since: an emptied
# directory of delayed/, buried/ or head/, or the body of a message that was taken. If that is all
# that `sync` complains about, sync the whole file system, since the message may be anywhere now
sync_moving() {
  [ "$spool_sync" = on ] || return 0
  # shellcheck disable=SC2086
  sync_said=$(exec sync $sync_how "$@" 2>&1 9>&-) && return 0
  [ -n "$sync_said" ] || { sync_failed; return; }
  while [ -n "$sync_said" ]; do
    case ${sync_said%%'
'*} in
    *': No such file or directory') ;;
    *) sync_failed; return ;;
    esac
    case $sync_said in
    *'
'*) sync_said=${sync_said#*'
'} ;;
    *) sync_said= ;;
    esac
  done
  sync_many "$q"
}
