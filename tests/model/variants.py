"""What is broken on purpose, and the configuration that shows it: each is one place in protocol.py that asks for its name in `wrong`."""

VARIANTS = {
    # take
    "second smallest": "fold pop killed twice",
    "wrong order": "fold pop killed twice",
    "wal last": "fold pop killed twice",
    # settle, put back
    "no second look": "pop reclaim sweep",
    "lease of a living owner": "pop reclaim sweep",
    "putback in two steps": "pop reclaim sweep",
    "stale receipt": "two leases",
    "batch putback looks for no marker": "bulk reclaim",
    # fold, unfold
    "fold goes back": "fold, disk full",
    "fold removes bodies first": "fold, disk full",
    "flat file is not renamed": "fold pop killed twice",
    "recovery while unlocked": "wreck of a fold",
    "no recovery": "fold pop killed twice",
    "unfold renames before writing": "unfold push",
    "unfold moves slips first": "unfold push",
    "unfold removes first": "unfold push",
    # bulk, sweep
    "bulk without lock": "bulk fold",
    "bulk takes all of a place": "bulk of a run",
    "sweep removes the marker first": "pop reclaim sweep",
    # keys, bound, ids
    "key after slip": "key, two pushes",
    "no lock": "bound",
    "put back without the lock": "bound, put back",
    "ack before slip": "push push pop",
    "range is not renamed first": "ids, old ranges",
    # power
    "ack before sync": "power: push pop",
    "body is not synced": "power: push pop",
    "body's directory is not synced": "power: push pop",
    "wal is not synced": "power: push pop",
    "delete is not synced": "power: delete",
    "flat file is not synced": "power: fold",
    "unfold is not synced": "power: unfold",
    "sweep does not sync": "power: pop sweep",
    "sweep removes the body first": "power: pop sweep",
}

# What lib/ does at the time of writing, and the model shows to be wrong. The model without any variant has it mended. A name moves up to
# VARIANTS when lib/ is mended too.
AS_BUILT = {
    # take_back, in a trap after taken_settle, looks for no marker: the message is back, its body is swept, and every pop fails on it
    "take back looks for no marker": "signal",
    # sweep_these removes out/batch.* first: killed there, nobody knows the batch's keys and bodies any longer
    "sweep forgets the batch": "key, bulk",
    # message_find lists out/ before wal/ and head/: what is taken, or unfolded, meanwhile is not found; journal_orphan removes its body
    "find looks at out first": "journal, pop",
    # message_touch renames within out/ without the lock: a listing of many calls may miss both names, so a bounded queue is counted too low
    "touch without the lock": "bound, touch, torn",
    # an unfold killed before its commit leaves bodies beside the flat file; a bulk take of that file leaves them for good
    "killed unfold leaves bodies": "bulk of a flat file",
    # a marker in done/ can reach the disk without the earlier rename to out/, where a file system does not keep the order of directories
    "boot trusts a marker": "power: pop sweep",
}
