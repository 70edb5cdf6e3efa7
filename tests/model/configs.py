"""The small configurations that are explored."""

from dataclasses import dataclass, field

from disk import DIRECTORY, messages


@dataclass
class Config:
    """`start`: the disk. `processes`: (name, method of Protocol, its arguments after the process's
    number)."""

    start: dict
    processes: tuple
    kills: int = 0
    signals: bool = False    # a pop may get a signal before or after the marker
    # a listing takes two steps: what comes or goes between them may be seen or not
    torn: bool = False
    power: bool = False
    keys: dict = field(default_factory=dict)
    bound: int = 0
    priorities: dict = field(default_factory=dict)
    ids: bool = False        # only ids are given: no messages
    full: bool = False       # a fold may find the disk full
    # so many listings of a run may fail: a glob then shows nothing, and names_in reports it
    fails: int = 0
    lost: int = 0            # so many times an mv or rm takes effect and reports a failure
    drops: bool = False      # a process drops the queue

    @property
    def acked(self):
        """The ids that were pushed, or only given, before."""
        if self.ids:
            return frozenset(int(path[8:]) for path in self.start if path.count("/") == 2)
        return frozenset(each for path in self.start for each in messages(self.start, path))


def singles(*messages, place="wal"):
    """A disk with these messages in wal/, or in a run in head/."""
    disk = {}
    if place == "head":
        place = f"head/5.{messages[0]}.x"
        disk[place] = DIRECTORY
    for message in messages:
        disk[f"{place}/5.{message}.0"] = ""
        disk[f"body/{message}"] = ("whole",)
    return disk


def flat(*messages, place="queue"):
    name = f"5.{messages[0]}.{messages[-1]}.{len(messages)}.x"
    return {f"{place}/{name}": tuple(f"5.{message}.0" for message in messages)}


def reserved(message, deadline=1):
    return {f"body/{message}": ("whole",), f"out/5.{message}.1@0+{deadline}": ""}


POP, POP2 = ("pop A", "pop"), ("pop B", "pop")
RESERVE = ("reserve", "reserve", 1)
FOLD, BULK = ("fold", "fold"), ("bulk", "bulk")
SWEEP, RECLAIM = ("sweep", "sweep"), ("reclaim", "reclaim")
EITHER = ("settle", "unclaim")
CLAIM, CLAIM2 = ("claim A", "claimer", 2, EITHER), ("claim B", "claimer", 2, EITHER)
CLAIM_ALL, CLAIM_ALL2 = ("claim A", "claimer", 3, EITHER), ("claim B", "claimer", 3, EITHER)
UNCLAIM, SETTLE = ("unclaim", "claim_back"), ("claim", "claimer", 2, ("settle",))
DROP = ("drop", "drop")
TOUCH = ("reserve", "reserve", 1, ("touch",))
RELEASE = ("release", "reserve", 1, ("release", "delete"))
CLOCK = ("clock", "clock")


def push(message, priority=5):
    return (f"push {message}", "push", message, priority)


KEYS = {1: "k", 2: "k", 3: "k"}
UNFOLD_WRECK = {**singles(1, 2, place="tmp/5.1.x"), "tmp/5.1.x": DIRECTORY,
    **flat(1, 2, place="unfold")}
WRECK = {**singles(1, 2, place="fold/5.1.x"), "fold/5.1.x": DIRECTORY}
COMMITTED = {**WRECK, "queue/5.1.2.2.x": ("5.1.0", "5.2.0")}
KEYED = {**singles(1), "keys/k": (1, "yes")}

CLAIMED = {"claim/settled.0": "", "claim/0.1.flat": DIRECTORY,
    "claim/0.1.flat/5.2.2.1.x": ("5.2.0",), "claim/1.0": ""}

CONFIGS = {
    "pop pop reclaim": Config(singles(1, 2), (POP, POP2, RECLAIM), kills=1),
    "pop reclaim sweep": Config(singles(1, 2), (POP, RECLAIM, SWEEP), kills=1),
    "signal": Config(singles(1), (POP, SWEEP), kills=1, signals=True),
    "push push pop": Config({}, (push(1), push(2), POP), kills=1),
    "urgent": Config(flat(1, 2), (push(3, 1), POP), kills=1, priorities={3: 1}),
    "pop pop torn": Config(singles(1, 2), (POP, POP2, RECLAIM), kills=1, torn=True),
    "unfold reserve": Config(flat(1, 2), (RESERVE, POP, CLOCK), kills=1),
    "fold pop pop": Config(singles(1, 2), (FOLD, POP, POP2), kills=1),
    "fold pop torn": Config(singles(1, 2), (FOLD, POP), kills=1, torn=True),
    "fold pop killed twice": Config(singles(1, 2), (FOLD, POP), kills=2),
    "fold, disk full": Config(singles(1, 2), (FOLD, POP), kills=1, full=True),
    "unfold pop pop": Config(flat(1, 2), (POP, POP2), kills=1),
    "unfold push": Config(flat(1, 2), (POP, push(3)), kills=1),
    "lease": Config(singles(1, 2), (RESERVE, POP, CLOCK), kills=1),
    "two leases": Config(singles(1), (RESERVE, ("reserve B", "reserve", 1), CLOCK), kills=0),
    "bulk pop": Config(singles(1, 2), (BULK, POP), kills=1),
    "bulk of a flat file": Config({**flat(1, 2), **singles(3)}, (BULK, POP), kills=1),
    "bulk reclaim": Config(singles(1, 2), (BULK, RECLAIM), kills=1),
    "bulk fold": Config(singles(1, 2), (BULK, FOLD), kills=1),
    "key": Config(KEYED, (push(2), POP, SWEEP), kills=1, keys=KEYS),
    "key, two pushes": Config({}, (push(1), push(2)), kills=1, keys=KEYS),
    "key, push killed": Config({}, (push(1), push(2), POP), kills=1, keys=KEYS),
    "key, bulk": Config(KEYED, (push(2), BULK), kills=1, keys=KEYS),
    "bound": Config(singles(1), (push(2), push(3), POP), bound=2),
    "bound, put back": Config({**reserved(1), **singles(2)}, (push(3), RECLAIM, CLOCK), bound=2),
    "bound, touch, torn": Config(singles(1, 2), (TOUCH, push(3), CLOCK), bound=2, torn=True),
    "power: push pop": Config({}, (push(1), POP), power=True),
    "power: pop sweep": Config(singles(1), (POP, SWEEP), power=True),
    "power: push fold": Config(singles(1), (push(2), FOLD), power=True),
    "power: pop fold": Config(singles(1, 2, 3), (POP, FOLD), power=True),
    "power: key": Config({}, (push(1), push(2)), power=True, keys=KEYS),
    "power: fold": Config(singles(1, 2), (FOLD,), power=True),
    "power: unfold": Config(flat(1, 2), (POP,), power=True),
    "power: delete": Config(singles(1), (RESERVE, SWEEP), power=True),
    "power: bulk": Config(singles(1, 2), (BULK,), power=True),
    "claim claim": Config(singles(1, 2), (CLAIM, CLAIM2), kills=1),
    "claim pop": Config(singles(1, 2), (CLAIM, POP), kills=1),
    "claim of a flat file": Config({**flat(1, 2), **singles(3)}, (CLAIM_ALL, CLAIM_ALL2), kills=1),
    "claim fold": Config(singles(1, 2), (CLAIM, FOLD), kills=2),
    "unclaim": Config({**CLAIMED, **singles(1)}, (UNCLAIM, CLAIM2), kills=1),
    "unclaim pop reclaim": Config(CLAIMED, (UNCLAIM, POP, RECLAIM), kills=1),
    "power: claim": Config(singles(1, 2), (SETTLE,), power=True),
    "power: claim of a flat file": Config(flat(1, 2), (SETTLE,), power=True),
    "power: unclaim": Config(CLAIMED, (UNCLAIM,), power=True),
    "bulk of a run": Config({**singles(1, 3, place="head"), **singles(2)}, (BULK, POP)),
    "wreck of a fold": Config(WRECK, (FOLD, POP), kills=1),
    "wreck of an unfold": Config(UNFOLD_WRECK, (FOLD, POP), kills=1),
    "unread: fold pop": Config(singles(1, 2), (FOLD, POP), fails=1),
    "unread: wreck of a fold": Config(WRECK, (FOLD, POP), kills=1, fails=1),
    "unread: committed fold": Config(COMMITTED, (FOLD, POP), fails=1),
    "unread: pop pop": Config(singles(1, 2), (POP, POP2), fails=2),
    "unread: unfold": Config(flat(1, 2), (POP, POP2), fails=1),
    "unread: bulk": Config(singles(1, 2), (BULK, POP), kills=1, fails=1),
    "unread: claim": Config({**CLAIMED, **singles(1)}, (CLAIM2,), fails=1),
    "unread: delete": Config(singles(1), (RESERVE, SWEEP, CLOCK), fails=1),
    "lost: pop pop": Config(singles(1, 2), (POP, POP2, RECLAIM), lost=1),
    "lost: fold pop": Config(singles(1, 2), (FOLD, POP), kills=1, lost=1),
    "lost: unfold": Config(flat(1, 2), (POP, POP2), lost=1),
    "lost: delete": Config(singles(1), (RESERVE, POP, SWEEP, CLOCK), lost=1),
    "lost: claim": Config(singles(1, 2), (CLAIM, CLAIM2), lost=1),
    "drop push": Config({}, (DROP, push(1), push(2)), kills=1, drops=True),
    "drop release": Config(singles(1), (DROP, RELEASE), kills=1, drops=True),
    "drop reclaim": Config(reserved(1), (DROP, RECLAIM, POP, CLOCK), kills=1, drops=True),
    "drop unfold": Config(flat(1, 2), (DROP, POP), kills=1, drops=True),
    "drop sweep": Config(singles(1), (DROP, POP, SWEEP), kills=1, drops=True),
    "drop, wreck of an unfold": Config(UNFOLD_WRECK, (DROP, push(3)), drops=True),
    "ids": Config({"range/0": DIRECTORY}, tuple((f"push {n}", "take_id") for n in range(3)),
    ids=True, kills=1),
    "ids, old ranges": Config({"range/0": DIRECTORY, "range/0/0": ""},
    (("push A", "take_id"), ("push B", "take_id"), ("bulk", "take_block"), ("retire", "retire"),
                              ("push C", "take_id")), ids=True),
}
