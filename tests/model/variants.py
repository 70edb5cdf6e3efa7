"""What is broken on purpose, and the configuration that shows it: each is one place in protocol.py that asks for its name in `wrong`."""

VARIANTS = {
    # take
    "second smallest": "fold pop killed twice",
    "wrong order": "fold pop killed twice",
    "wal last": "fold pop killed twice",
    # settle, put back
    "take back looks for no marker": "signal",
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
    "killed unfold leaves bodies": "bulk of a flat file",
    # bulk, sweep
    "bulk without lock": "bulk fold",
    "bulk takes all of a place": "bulk of a run",
    "sweep removes the marker first": "pop reclaim sweep",
    "sweep forgets the batch": "key, bulk",
    # claims
    "marks do not count": "unclaim",
    "slips go before the flat file": "claim fold",
    "settle sweeps first": "claim fold",
    "settled segments are counted": "claim claim",
    "unclaim empties the segment": "claim of a flat file",
    # keys, bound, ids
    "find looks at out first": "journal, pop",
    "touch without the lock": "bound, touch, torn",
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
    "a new claim is not synced": "power: claim",
    "claim is not synced": "power: claim of a flat file",
    "settle is not synced": "power: claim",
    "sweep removes the body first": "power: pop sweep",
    "boot trusts a marker": "power: pop sweep",
}
