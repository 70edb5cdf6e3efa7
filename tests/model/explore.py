"""A breadth-first search through every interleaving, kill and power cut of a few processes, and the
properties that must hold in each state.

A state is one tuple (`State`) that can be hashed. `run` returns an Outcome: how many states there
are, and the shortest run that ends badly."""

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import disk as files
from disk import DIRECTORY
from programs import END, Programs
from protocol import Protocol

KILLED = -2
NONE = frozenset()


def put(row, place, value):
    """The tuple, with this value in that place."""
    return (*row[:place], value, *row[place + 1:])


class Bad(Exception):
    """A property does not hold."""


class State(NamedTuple):
    disk: frozenset          # (path, content)
    nodes: tuple             # where each process is
    orphans: tuple           # the command that lives on after its shell was killed, or ""
    listings: tuple          # of each process, under way: (must be seen, may be seen), or None
    acked: frozenset         # ids that a push has printed
    # for each process: ids acknowledged and ready since its take began; for a push: ids settled
    # before it
    there: tuple
    kills: int
    signals: int
    base: frozenset          # power: what is surely on the disk
    told: frozenset          # claims: (offset, ids) that a process was told
    fails: int               # listings that may still fail
    lost: int                # commands whose status may still be lost
    lock: int = 0            # the number of its holder, from 1; 0: nobody
    clock: int = 0
    settled: frozenset = NONE  # ids that nobody may get again
    deleted: frozenset = NONE  # those of `settled` whose delete has answered
    holds: frozenset = NONE  # (id, who, deadline)
    pending: tuple = ()      # power: (paths removed, entries added) that may not be
    soft: frozenset = NONE   # power: files whose content may not be


@dataclass
class Config:
    """`start`: the disk. `processes`: (name, method of Protocol, its arguments after the process's
    number). `acked`: ids that were pushed before."""

    start: dict
    processes: tuple
    acked: tuple = ()
    kills: int = 0
    signals: int = 0
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


@dataclass
class Outcome:
    states: int
    steps: int
    seconds: float
    complete: bool           # False: stopped by a limit
    bad: str = ""
    trace: tuple = ()


class Explorer:
    def __init__(self, config, protocol=Protocol):
        self.config = config
        self.protocol = protocol(config.keys, config.bound, config.full, config.fails, config.drops)
        skip = {"pass"} | (set() if config.power else {"sync", "syncfs"}) | (set()
            if config.signals else {"signal"})
        self.programs = Programs(skip)
        self.recovery = Programs({"pass", "sync", "syncfs", "signal"})
        self.recovered = {}
        # without an unclaim, claimed messages stay so until they are settled
        self.unclaims = "unclaim" in str(config.processes)
        self.steps = 0

    def first(self):
        config = self.config
        nodes = self.begun = tuple(
            self.programs.start(getattr(self.protocol, method), number, *rest)
            for number, (_, method, *rest) in enumerate(config.processes, 1))
        count = len(nodes)
        disk = frozenset(config.start.items())
        told = frozenset((path[6:].split(".")[0], frozenset(files.messages(config.start, path)))
            for path in files.segments(config.start))
        return State(disk, nodes, ("",) * count, (None,) * count, frozenset(config.acked),
            (NONE,) * count, config.kills, config.signals, disk if config.power else NONE, told,
            config.fails, config.lost)

    def run(self, seconds=60.0, most=10_000_000):
        began = time.monotonic()
        first = self.first()
        parents = {first: None}
        todo = deque([first])

        def outcome(*rest):
            return Outcome(len(parents), self.steps, time.monotonic() - began, *rest)

        while todo:
            state = todo.popleft()
            for label, make in self.successors(state):
                self.steps += 1
                try:
                    reached = make()
                    if reached in parents:
                        continue
                    parents[reached] = state, label
                    self.check(reached)
                except Bad as bad:
                    return outcome(False, str(bad), self.trace(parents, state, label))
                todo.append(reached)
            if len(parents) > most or time.monotonic() - began > seconds:
                return outcome(False)
        return outcome(True)

    @staticmethod
    def trace(parents, state, label):
        lines = [label]
        while parents[state]:
            state, label = parents[state]
            lines.append(label)
        return tuple(reversed(lines))

    # one step

    def successors(self, state):
        stuck = True
        for place, node in enumerate(state.nodes):
            if node < 0:
                continue
            op = self.programs.ops[node]
            name = self.config.processes[place][0]
            if op.kind == "lock" and state.lock:
                continue
            stuck = False
            for words, result in self.results(state, place, op):
                yield f"{name} {words}", lambda place=place, op=op, result=result: self.step(state,
                    place, op, result)
            if state.kills and not state.orphans[place] and node != self.begun[
                    place] and self.config.processes[place][1] != "clock":
                yield f"{name} KILLED", lambda place=place: self.kill(state, place, "")
                if op.child:
                    yield (f"{name} KILLED, its {op.child.split()[0]} goes on",
                        lambda place=place, op=op: self.kill(state, place, op.child))
        if stuck and any(node >= 0 for node in state.nodes):
            yield "everybody waits", self.deadlock

    @staticmethod
    def deadlock():
        raise Bad("nobody can go on")

    @staticmethod
    def kill(state, place, child):
        if child:
            state = state._replace(orphans=put(state.orphans, place, child))
        else:
            state = state._replace(nodes=put(state.nodes, place, KILLED),
                lock=0 if state.lock == place + 1 else state.lock)
        holds = frozenset(hold for hold in state.holds if hold[2] or hold[1] != place + 1)
        return state._replace(there=put(state.there, place, NONE), kills=state.kills - 1,
            listings=put(state.listings, place, None), holds=holds)

    def results(self, state, place, op):
        """(words, result) for every result that the operation can have. A listing that was only
        opened: ... opens, None."""
        kind, args = op.kind, op.args
        if kind in ("ls", "least"):
            names = files.listing(dict(state.disk), args[0])
            if state.fails and (names or op.note):
                yield f"cannot list {args[0]}/", "failed"
            if not self.config.torn:
                seen = [names]
            elif state.listings[place] is None:
                yield f"opens {args[0]}/", "opened"
                return
            else:
                must, may = state.listings[place]
                seen = [tuple(sorted(must.union(more))) for size in range(len(may - must) + 1)
                    for more in combinations(sorted(may - must), size)]
            if kind == "least":
                for name in sorted({"".join(names[:1]) for names in seen}):
                    yield f"lists {args[0]}/: first {name or 'none'}", name
            else:
                for names in seen:
                    yield f"lists {args[0]}/: {' '.join(names) or 'none'}", names
        elif kind == "choose":
            for each in args:
                yield f"({each})", each
        elif kind == "signal":
            yield "goes on", False
            if state.signals:
                yield "gets a signal", True
        else:
            words = f"{kind} {' '.join(map(str, args))}".strip()
            yield words + (f"   ({op.note})" if op.note else ""), None
            if state.lost and kind in ("mv", "rm") and op.child and args[0] in dict(state.disk):
                yield f"{words}, which is said to have failed", "status lost"

    def step(self, state, place, op, result):
        self.now = state
        self.place = place
        me = place + 1
        kind, args = op.kind, op.args
        if kind in ("ls", "least") and result == "opened":
            names = frozenset(files.listing(dict(state.disk), args[0]))
            return state._replace(listings=put(state.listings, place, (names, names)))
        disk = dict(state.disk)
        before = disk.copy()
        change = {}
        lost = result == "status lost"
        if result == "failed":
            change["fails"] = state.fails - 1
            result = None if op.note else "" if kind == "least" else ()
        if kind == "mv":
            result = self.move(disk, *args, op.note, change)
        elif kind in files.ACTS:
            result = files.act(disk, kind, *args)
            if kind == "create" and result:
                self.created(disk, args[0], op.note, change)
        elif kind == "dead":
            result = self.is_dead(state, args[0])
        elif kind == "holds":
            result = state.lock == me
        elif kind == "lock":
            change["lock"] = me
        elif kind == "unlock":
            change["lock"] = 0
        elif kind == "clock":
            result = state.clock
        elif kind == "tick":
            change["clock"] = state.clock + 1
        elif kind == "signal":
            change["signals"] = state.signals - bool(result)
        elif kind in ("begin", "empty", "ack", "dup", "deleted", "print", "id", "told", "answered"):
            self.say(disk, kind, args, change)
        if self.config.power:
            self.power(state, before, disk, kind, args, change)
        if lost and result is not False:
            change["lost"] = state.lost - 1
            result = "status lost"
        node = KILLED if kind == "die" else self.programs.next(state.nodes[place], result)
        orphan = state.orphans[place]
        if orphan and (node == END or self.programs.ops[node].child != orphan):
            node = KILLED
        if node < 0:
            change["there"] = put(change.get("there", state.there), place, NONE)
            change["orphans"] = put(state.orphans, place, "")
            if change.get("lock", state.lock) == me:
                if node == END:
                    raise Bad("ends with the lock")
                change["lock"] = 0
        listings = state.listings
        if self.config.torn:
            listings = put(listings, place, None)
            if disk != before:
                listings = tuple(self.seen(disk, state.nodes[at], each) for at,
                    each in enumerate(listings))
        nodes = put(state.nodes, place, node)
        clock = change.get("clock", state.clock)
        holds = frozenset(hold for hold in change.pop("holds", state.holds)
            if (hold[2] > clock if hold[2] else nodes[hold[1] - 1] >= 0))
        return state._replace(disk=frozenset(disk.items()), nodes=nodes, listings=listings,
            holds=holds, **change)

    def seen(self, disk, node, listing):
        if listing is None:
            return None
        names = frozenset(files.listing(disk, self.programs.ops[node].args[0]))
        return listing[0] & names, listing[1] | names

    @staticmethod
    def is_dead(state, pid):
        return state.nodes[pid - 1] < 0 or bool(state.orphans[pid - 1])

    # the meaning of a step

    def rank(self, message):
        return self.config.priorities.get(message, 5), message

    def gone(self, moved, change):
        """MOVED are no longer ready, for any take under way since ..."""
        there = change.get("there", self.now.there)
        takes = [method != "push" for _, method, *_ in self.config.processes]
        change["there"] = tuple(ids - moved if take else ids for take, ids in zip(takes, there))

    def move(self, disk, old, new, note, change):
        if old not in disk:
            return False
        held = files.claimed(disk) if note == "settled" else {}
        if new in disk and not new.startswith("tmp/"):
            raise Bad(f"{new} was there already")
        state, me = self.now, self.place + 1
        moved = frozenset(files.messages(disk, old))
        if files.gone(disk, new) or not files.rename(disk, old, new):
            return False
        source, target = old.split("/")[0], new.split("/")[0]
        holds = state.holds
        others = frozenset(hold for hold in holds if hold[0] not in moved)
        if note == "settled":
            change["settled"] = state.settled | held.keys() - files.claimed(disk).keys()
        elif target == "claim":
            holds = others
        elif source == "claim":
            pass
        elif target == "out":
            deadline = 0 if "batch." in new else files.owner_and_deadline(new)[1]
            if source == "out":
                holds = others.union((i, who, deadline) for i, who, _ in holds - others)
            else:
                self.took(moved, change)
                holds = holds.union((i, me, deadline) for i in moved)
        elif target == "done":
            if any(who != me for _, who, _ in holds - others):
                raise Bad("deleted what somebody else holds")
            change["settled"] = state.settled | moved
            holds = others
        elif source == "out" and note == "gives it back":
            holds = others
        if target in ("out", "done"):
            self.gone(moved, change)
        change["holds"] = holds
        return True

    def took(self, moved, change):
        state = self.now
        for message in sorted(moved):
            if message in state.settled:
                raise Bad(f"message {message} is handed out again, though it was settled")
            if any(hold[0] == message for hold in state.holds):
                raise Bad(f"message {message} is handed out, though somebody who lives holds it")
        first = [i for i in state.there[self.place] - moved if self.rank(i) < max(
            map(self.rank, moved))]
        if first and not self.config.fails:  # a message that could not be listed may be overtaken
            raise Bad(f"message {max(moved)} is handed out before {min(first)}")

    def created(self, disk, path, note, change):
        state = self.now
        if note == "settled":
            name = path[5:]
            if f"out/{name}" not in disk:
                raise Bad("settles what it has no longer")
            moved = frozenset(files.messages(disk, f"out/{name}"))
            change["settled"] = state.settled | moved
            change["holds"] = frozenset(hold for hold in state.holds if hold[0] not in moved)
        elif note:
            message = files.slip_id(path[4:])
            there = set(files.ready(disk)) | set(files.in_flight(disk))
            if self.config.bound and len(there) > self.config.bound:
                raise Bad(f"{len(there)} messages in a queue of {self.config.bound}")
            key = self.config.keys.get(message)
            twin = [other for other in there if other != message and key
                and self.config.keys.get(other) == key]
            if twin:
                raise Bad(f"messages {twin[0]} and {message} have the same key")

    def say(self, disk, kind, args, change):
        state, place = self.now, self.place
        if kind == "begin":
            if args:
                ids = state.acked if self.config.ids else state.settled
            else:
                ready = files.ready(disk).keys() - files.in_flight(disk).keys()
                ids = (state.acked & ready) - state.settled
            change["there"] = put(state.there, place, frozenset(ids))
        elif kind == "empty":
            if state.there[place]:
                raise Bad(f"says empty, though {min(state.there[place])} was there all the time")
        elif kind == "ack":
            change["acked"] = state.acked | {args[0]}
        elif kind == "told":
            offset, ids = args[0].split(".")[0], frozenset(files.messages(disk, f"claim/{args[0]}"))
            if other := [other for first, other in state.told if first == offset and other != ids]:
                raise Bad(f"offset {offset} is given for {sorted(ids)}, after {sorted(other[0])}")
            change["told"] = state.told | {(offset, ids)}
        elif kind == "answered":
            change["deleted"] = state.deleted | state.settled
        elif kind == "deleted":
            change["deleted"] = state.deleted | {args[0]}
        elif kind == "id":
            if args[0] in state.acked:
                raise Bad(f"id {args[0]} is given twice")
            if any(other > args[0] for other in state.there[place]):
                raise Bad(f"id {args[0]} is given after {max(state.there[place])}")
            change["acked"] = state.acked | {args[0]}
        elif kind == "dup":
            if args[0] in state.there[place]:
                raise Bad(f"says dup of {args[0]}, which was settled before")
        elif kind == "print":
            message = args[0]
            if isinstance(message, str):
                if files.is_flat(message.rpartition("/")[2]):
                    return
                message = files.slip_id(message.rpartition("/")[2])
            held = any(hold[:2] == (message, place + 1) for hold in state.holds)
            if held and disk.get(f"body/{message}") != ("whole",):
                raise Bad(f"message {message} has no body")

    # after the step

    def check(self, state):
        """One more state. If all processes were killed now, recovery must put back what was
        promised."""
        if self.config.ids:
            return
        disk = dict(state.disk)
        for path in files.segments(disk):
            count = len(files.messages(disk, path))
            if count != files.segment_count(path[6:]):
                raise Bad(f"{path} has {count} messages")
        places = files.ready(disk) + files.in_flight(disk) + files.claimed(disk)
        for message, count in places.items():
            if count > 1:
                raise Bad(f"message {message} is in {count} places")
        if self.config.power:
            for disk in self.cuts(state):
                self.check_recovered(state, disk, "boot")
        else:
            self.check_recovered(state, state.disk, "checkpoint")

    def check_recovered(self, state, disk, method):
        if disk not in self.recovered:
            self.recovered[disk] = self.recover(disk, method)
        count, left, damaged, held = self.recovered[disk]
        after = "a power cut now" if method == "boot" else "everybody killed now"
        if left:
            raise Bad(f"after {after} and recovery: {left}")
        if damaged & state.acked:
            raise Bad(f"after {after} and recovery: message {min(damaged)} has no whole body, but "
                "a slip")
        for offset, ids in state.told:
            if ids - held - state.settled and not self.unclaims:
                raise Bad(f"after {after} and recovery: what was claimed at offset {offset} is in "
                    "the queue again")
        settled = state.deleted if method == "boot" else state.settled
        for message in state.acked - state.settled:
            if count[message] != 1:
                raise Bad(f"after {after} and recovery: message {message} is there "
                    f"{count[message]} times")
        for message, times in count.items():
            if times > 1 or message in settled:
                raise Bad(f"after {after} and recovery: message {message} is there {times} times, "
                    f"settled: {message in settled}")

    def recover(self, frozen, method):
        """How often each message is there after recovery, and what is wrong with the files that are
        left."""
        disk = dict(frozen)
        programs = self.recovery
        node = programs.start(getattr(self.protocol, method), 0)
        lock, steps, damaged = False, 0, NONE
        while node != END:
            steps += 1
            if steps > 400:
                return Counter(), "recovery does not end", NONE, NONE
            op = programs.ops[node]
            kind, args = op.kind, op.args
            result = {"dead": True, "clock": 9, "holds": lock}.get(kind)
            if kind in files.ACTS:
                result = files.act(disk, kind, *args)
            elif kind == "ls":
                result = files.listing(disk, args[0])
            elif kind == "least":
                result = (files.listing(disk, args[0]) or ("",))[0]
            elif kind == "mv":
                if args[0] in disk and args[1] in disk:
                    return Counter(), f"{args[1]} was there already", NONE, NONE
                result = files.rename(disk, *args)
            elif kind == "die":
                bad = "" if "gone/q" in disk else "recovery ends with an error"
                return Counter(), bad, NONE, NONE
            elif kind == "choose":
                result = args[0]
            elif kind in ("lock", "unlock"):
                lock = kind == "lock"
            elif kind == "check":
                damaged = self.set_aside(disk)
            node = programs.next(node, result)
        held = files.claimed(disk)
        count = files.ready(disk) + held
        return count, self.left_over(disk, count), damaged, held.keys()

    def left_over(self, disk, count):
        if "gone/q" in disk:
            return ""
        if lost := sorted(path for path in disk if path.split("/")[0] in ("fold", "unfold", "tmp",
                "done", "out", "gone", "dropping")):
            return f"{lost[0]} is left"
        slips = {files.slip_id(path.rpartition("/")[2]) for path, content in disk.items()
                 if content != DIRECTORY and (path.startswith(("wal/", "head/"))
                 or files.is_claimed_slip(path))}
        for message in slips:
            if disk.get(f"body/{message}") != ("whole",):
                return f"message {message} has no body"
        for path in sorted(disk):
            # The body of a killed push stays until the next boot
            message = int(path[5:]) if path.startswith("body/") else 0
            if message in self.config.acked and message not in slips:
                return f"{path} is left"
            if path.startswith("keys/") and disk[path][0] not in count:
                # of a killed push: the next push with this key sees that there is no such message
                if len(disk[path]) == 2:
                    return f"{path} is left"
        return ""

    # power cuts

    @staticmethod
    def set_aside(disk):
        """queue_check: slips without a whole body, bodies without a slip, damaged flat files, keys
        without a message."""
        slips, damaged = set(), set()
        for path in sorted(disk):
            place, _, name = path.partition("/")
            if place in ("wal", "head") and disk[path] != DIRECTORY:
                message = files.slip_id(name.rpartition("/")[2])
                if disk.get(f"body/{message}") == ("whole",):
                    slips.add(message)
                else:
                    damaged.add(message)
                    del disk[path]
            elif place == "queue" and disk[path] == ("torn",):
                del disk[path]
            elif files.is_claimed_slip(path):
                slips.add(files.slip_id(name.rpartition("/")[2]))
        for path in sorted(disk):
            if path.startswith("body/") and int(path[5:]) not in slips:
                del disk[path]
        there = files.ready(disk)
        for path in sorted(disk):
            if path.startswith("keys/") and disk[path][0] not in there:
                del disk[path]
        return frozenset(damaged)

    @staticmethod
    def touches(change):
        removed, added = change
        paths = {*removed, *(path for path, _ in added)}
        return paths | {path.rpartition("/")[0] for path in paths if path.count("/") > 1}

    def needs(self, pending):
        """For each pending change, the earlier ones without which it cannot happen."""
        touched = [self.touches(change) for change in pending]
        return [frozenset(early for early in range(late) if touched[early] & touched[late])
            for late in range(len(pending))]

    @staticmethod
    def happen(disk, change):
        removed, added = change
        for path in removed:
            disk.pop(path, None)
        disk.update(added)

    def power(self, state, before, disk, kind, args, change):
        """Note what the step has changed as pending, or mark what it syncs as safe."""
        pending, soft = list(state.pending), set(state.soft)
        base = dict(state.base)
        if disk != before:
            removed = tuple(sorted(path for path in before if path not in disk))
            added = tuple(sorted(((path, content) for path, content in disk.items()
                if before.get(path) != content), key=str))
            pending.append((removed, added))
            if kind == "mv":
                old, new = args
                soft = {new + path[len(old):] if path == old or path.startswith(old + "/")
                    else path for path in soft}
            elif kind == "write" and args[1]:
                soft.add(args[0])
            soft &= disk.keys()
        if kind == "syncfs":
            for each in pending:
                self.happen(base, each)
            pending, soft = [], set()
        elif kind == "sync":
            needs = self.needs(pending)
            chosen = set()
            for number, (gone, added) in enumerate(pending):
                paths = {*gone, *(path for path, _ in added)}
                places = {path.rpartition("/")[0] + "/" for path in paths}
                if places.union(paths & base.keys()).intersection(args):
                    chosen.add(number)
            soft.difference_update(args)
            for number in range(len(pending) - 1, -1, -1):
                if number in chosen:
                    chosen |= needs[number]
            for number in sorted(chosen):
                self.happen(base, pending[number])
            pending = [each for number, each in enumerate(pending) if number not in chosen]
        change.update(base=frozenset(base.items()), pending=tuple(pending), soft=frozenset(soft))

    def cuts(self, state):
        """Every disk that a power cut may leave."""
        pending = state.pending
        needs = self.needs(pending)
        found = set()
        for bits in range(1 << len(pending)):
            chosen = [number for number in range(len(pending)) if bits >> number & 1]
            if any(not needs[number] <= set(chosen) for number in chosen):
                continue
            disk = dict(state.base)
            for number in chosen:
                self.happen(disk, pending[number])
            for path in state.soft & disk.keys():
                disk[path] = ("torn",)
            found.add(frozenset(disk.items()))
        return found
