"""The small configurations that are explored."""

from dataclasses import dataclass, field
from functools import cached_property

from disk import DIRECTORY, messages

#: words for processes that need more than a method of Protocol: its arguments. `push:3:1` is a push
#: of message 3 with priority 1
PROCESSES = {"reserve": ("reserve", "delete", "release", "touch"), "touch": ("reserve", "touch"),
    "release": ("reserve", "release", "delete"), "id": ("take_id",)}


@dataclass
class Config:
    start: dict              # the disk
    words: str               # the processes
    kills: int = 0
    # a listing takes two steps: what comes or goes between them may be seen or not
    torn: bool = False
    power: bool = False      # the power may fail, and a boot follows
    keys: dict = field(default_factory=dict)
    bound: int = 0
    priorities: dict = field(default_factory=dict)
    full: bool = False       # a fold may find the disk full

    @cached_property
    def processes(self):
        """(name, method, its arguments) of each."""
        found = []
        for number, each in enumerate(self.words.split(), 1):
            word, *args = each.split(":")
            method, *more = PROCESSES.get(word, (word,))
            found.append((f"{each} {number}", method, *more, *map(int, args)))
        return tuple(found)

    @cached_property
    def acked(self):
        """The ids that were pushed, or only given, before."""
        given = {int(path[8:]) for path in self.start if path.startswith("range/0/")}
        return frozenset(given.union(messages(self.start, *self.start)))


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


KEYS = {1: "k", 2: "k", 3: "k"}
ONE, TWO, FLAT = singles(1), singles(1, 2), flat(1, 2)
FLAT3 = {**FLAT, **singles(3)}
UNFOLD_WRECK = {**singles(1, 2, place="tmp/5.1.x"), "tmp/5.1.x": DIRECTORY,
    **flat(1, 2, place="unfold")}
WRECK = {**singles(1, 2, place="fold/5.1.x"), "fold/5.1.x": DIRECTORY}
KEYED = {**ONE, "keys/k": (1, "yes")}
RUN = {**singles(1, 3, place="head"), **singles(2)}
RESERVED = {"body/1": ("whole",), "out/5.1.1@0+1": ""}
BOUND = {**RESERVED, **singles(2)}
IDS = {"range/0": DIRECTORY, "range/0/0": ""}

CONFIGS = {
    "pop reclaim sweep": Config(TWO, "pop reclaim sweep", kills=1),
    "push push pop": Config({}, "push:1 push:2 pop", kills=1),
    "urgent": Config(FLAT, "push:3:1 pop", kills=1, priorities={3: 1}),
    "pop pop torn": Config(TWO, "pop pop reclaim", kills=1, torn=True),
    "unfold reserve": Config(FLAT, "reserve pop clock", kills=1),
    "fold pop pop": Config(TWO, "fold pop pop", kills=1),
    "fold pop torn": Config(TWO, "fold pop", kills=1, torn=True),
    "fold pop killed twice": Config(TWO, "fold pop", kills=2),
    "fold, disk full": Config(TWO, "fold pop", kills=1, full=True),
    "unfold pop pop": Config(FLAT, "pop pop", kills=1),
    "lease": Config(TWO, "reserve pop clock", kills=1),
    "two leases": Config(ONE, "reserve reserve clock"),
    "bulk pop": Config(TWO, "bulk pop", kills=1),
    "bulk of a flat file": Config(FLAT3, "bulk pop", kills=1),
    "bulk reclaim": Config(TWO, "bulk reclaim", kills=1),
    "bulk fold": Config(TWO, "bulk fold", kills=1),
    "key": Config(KEYED, "push:2 pop sweep", kills=1, keys=KEYS),
    "key, two pushes": Config({}, "push:1 push:2 pop", kills=1, keys=KEYS),
    "key, bulk": Config(KEYED, "push:2 bulk", kills=1, keys=KEYS),
    "bound": Config(ONE, "push:2 push:3 pop", bound=2),
    "bound, put back": Config(BOUND, "push:3 reclaim clock", bound=2),
    "bound, touch, torn": Config(TWO, "touch push:3 clock", bound=2, torn=True),
    "power: push pop": Config({}, "push:1 pop", power=True),
    "power: pop sweep": Config(ONE, "pop sweep", power=True),
    "power: push fold": Config(ONE, "push:2 fold", power=True),
    "power: pop fold": Config(singles(1, 2, 3), "pop fold", power=True),
    "power: key": Config({}, "push:1 push:2", power=True, keys=KEYS),
    "power: unfold": Config(FLAT, "pop", power=True),
    "power: delete": Config(ONE, "reserve sweep", power=True),
    "power: bulk": Config(TWO, "bulk", power=True),
    "bulk of a run": Config(RUN, "bulk pop"),
    "wreck of a fold": Config(WRECK, "fold pop", kills=1),
    "wreck of an unfold": Config(UNFOLD_WRECK, "fold pop", kills=1),
    "drop push": Config({}, "drop push:1 push:2", kills=1),
    "drop release": Config(ONE, "drop release", kills=1),
    "drop reclaim": Config(RESERVED, "drop reclaim pop clock", kills=1),
    "drop unfold": Config(FLAT, "drop pop", kills=1),
    "drop sweep": Config(ONE, "drop pop sweep", kills=1),
    "drop, wreck of an unfold": Config(UNFOLD_WRECK, "drop push:3"),
    "ids": Config({"range/0": DIRECTORY}, "id id id", kills=1),
    "ids, old ranges": Config(IDS, "id id id retire"),
}
