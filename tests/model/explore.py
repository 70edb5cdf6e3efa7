"""A breadth-first search through every interleaving, kill and power cut of a few processes, and the
properties that must hold in each state.

A state is one tuple (`State`) that can be hashed. `run` returns an Outcome: how many states there
are, and the shortest run that ends badly."""

import time
from collections import Counter, deque
from typing import NamedTuple

import disk as files
from programs import END, Programs
from protocol import READY, Protocol

KILLED = -2
NONE = frozenset()


class Bad(Exception):
    """A property does not hold."""


class Process(NamedTuple):
    node: int                # where it is
    orphan: str = ""         # the command that lives on after its shell was killed
    opened: object = None    # the names that a listing under way has seen; None: there is none
    # ids acknowledged and ready since its take began; for a push: ids settled before it
    there: frozenset = NONE


class State(NamedTuple):
    disk: frozenset          # (path, content)
    processes: tuple
    acked: frozenset         # ids that a push has printed
    kills: int               # so many may come
    cuts: frozenset          # power: the disks that a cut may leave, each with what it has not got
    lock: int = 0            # the number of its holder, from 1; 0: nobody
    clock: int = 0
    settled: frozenset = NONE  # ids that nobody may get again
    deleted: frozenset = NONE  # those of `settled` whose delete has answered

    def put(self, place, process, **change):
        """This state, with that process in that place."""
        return self._replace(processes=(*self.processes[:place], process,
            *self.processes[place + 1:]), **change)


class Outcome(NamedTuple):
    states: int
    complete: bool           # False: stopped by a limit
    bad: str = ""
    trace: tuple = ()


class Explorer:
    def __init__(self, config, protocol=Protocol):
        self.config = config
        self.protocol = protocol(config)
        self.programs = Programs(() if config.power else ("sync", "syncfs"))
        self.recovery = Programs(("sync", "syncfs"))
        self.recovered = {}
        self.ids = "id " in config.words  # only ids are given: no messages
        self.label = ""      # of the step that is tried

    def first(self):
        config = self.config
        self.begun = [self.programs.start(getattr(self.protocol, method)(number, *rest))
            for number, (_, method, *rest) in enumerate(config.processes, 1)]
        disk = frozenset(config.start.items())
        return State(disk, tuple(map(Process, self.begun)), config.acked, config.kills,
            frozenset([(disk, NONE)] if config.power else ()))

    def run(self, seconds=60.0, most=10_000_000):
        end = time.monotonic() + seconds
        first = self.first()
        parents = {first: None}
        todo = deque([first])
        while todo:
            state = todo.popleft()
            try:
                for reached in self.successors(state):
                    if reached not in parents:
                        parents[reached] = state, self.label
                        self.check(reached)
                        todo.append(reached)
            except Bad as bad:
                return Outcome(len(parents), False, str(bad), self.trace(parents, state))
            if len(parents) > most or time.monotonic() > end:
                return Outcome(len(parents), False)
        return Outcome(len(parents), True)

    def trace(self, parents, state):
        lines = [self.label]
        while parents[state]:
            state, label = parents[state]
            lines.append(label)
        return tuple(reversed(lines))

    # one step

    def successors(self, state):
        waiting = False
        stuck = True
        for place, process in enumerate(state.processes):
            if process.node < 0:
                continue
            op = self.programs.ops[process.node]
            name, method, *_ = self.config.processes[place]
            if op.kind == "lock" and state.lock:
                waiting = True
                continue
            stuck = False
            for words, result in self.results(state, process, op):
                self.label = f"{name} {words}"
                yield self.step(state, place, op, result)
            if (state.kills and not process.orphan and process.node != self.begun[place]
                    and method != "clock"):
                self.label = f"{name} KILLED"
                yield state.put(place, Process(KILLED), kills=state.kills - 1,
                    lock=0 if state.lock == place + 1 else state.lock)
                if op.child:
                    self.label += f", its {op.child.split()[0]} goes on"
                    yield state.put(place, Process(process.node, op.child), kills=state.kills - 1)
        if waiting and stuck:
            self.label = "everybody waits"
            raise Bad("nobody can go on")

    def results(self, state, process, op):
        """(words, result) for every result that the operation can have. A listing that was only
        opened: ... opens, `opened`."""
        kind, args = op.kind, op.args
        if kind == "ls":
            names = files.listing(dict(state.disk), args[0])
            seen = [names]
            if self.config.torn:
                if process.opened is None:
                    yield f"opens {args[0]}/", "opened"
                    return
                seen.append(tuple(name for name in names if name in process.opened))
            for names in seen:
                yield f"lists {args[0]}/: {' '.join(names) or 'none'}", names
        elif kind == "choose":
            for each in args:
                yield f"({each})", each
        else:
            yield " ".join(map(str, (kind, *args))), None

    def step(self, state, place, op, result):
        process, disk = state.processes[place], dict(state.disk)
        me, change, (kind, args) = place + 1, {}, op[:2]
        if result == "opened":
            return state.put(place, process._replace(opened=files.listing(disk, args[0])))
        if kind in files.ACTS and result is None:
            if kind == "mv":
                self.before_move(state, me, disk, *args, op.note)
            result = files.act(disk, kind, *args)
        if kind == "dead":
            result = self.is_dead(state, args[0])
        elif kind in ("lock", "unlock"):
            change["lock"] = me if kind == "lock" else 0
        elif kind == "clock":
            result = state.clock
        elif kind == "tick":
            change["clock"] = state.clock + 1
        elif result or kind not in files.ACTS:
            self.say(state, place, disk, op, change)
        if self.config.power:
            change["cuts"] = self.cuts(state, disk, op)
        node = KILLED if kind == "die" else self.programs.next(process.node, result,
            change.get("lock", state.lock) == me)
        if process.orphan and (node == END or self.programs.ops[node].child != process.orphan):
            node = KILLED
        if node < 0 and change.get("lock", state.lock) == me:
            if node == END:
                raise Bad("ends with the lock")
            change["lock"] = 0
        there = change.pop("there", process.there)
        process = Process(node) if node < 0 else Process(node, process.orphan, None, there)
        reached = state.put(place, process, disk=frozenset(disk.items()), **change)
        if kind == "mv" and result and args[1].startswith(("out/", "done/")):
            moved = frozenset(files.messages(disk, args[1]))
            reached = reached._replace(processes=tuple(each if config[1] == "push" else
                each._replace(there=each.there - moved)
                for each, config in zip(reached.processes, self.config.processes)))
        return reached

    @staticmethod
    def is_dead(state, pid):
        process = state.processes[pid - 1]
        return process.node < 0 or bool(process.orphan)

    # the meaning of a step

    def rank(self, message):
        return self.config.priorities.get(message, 5), message

    def before_move(self, state, me, disk, old, new, note):
        """An mv may take only a message that nobody has, and replaces nothing."""
        if old not in disk:
            return
        if new in disk and not new.startswith("tmp/"):
            raise Bad(f"{new} was there already")
        source, name, target = old.split("/")[0], old.split("/")[1], new.split("/")[0]
        moved = files.messages(disk, old)
        if "@" in note:
            if name.split("@")[0] != (note.split("@")[0] if source == "out" else files.later(note)):
                raise Bad(f"{old} is not what was handed out as {note}")
        elif source == "out":
            owner, deadline = files.owner_and_deadline(name)
            over = self.is_dead(state, owner) if owner else state.clock >= deadline
            if owner != me and not over:
                raise Bad(f"{old} is put back, though somebody who lives holds it")
        elif target == "out":
            if again := state.settled.intersection(moved):
                raise Bad(f"message {min(again)} is handed out again, though it was settled")
            last = max(map(self.rank, moved), default=0)
            first = [each for each in state.processes[me - 1].there.difference(moved)
                if self.rank(each) < last]
            if first:
                raise Bad(f"message {max(moved)} is handed out before {min(first)}")

    def say(self, state, place, disk, op, change):
        """What the step means for State, and whether it may be."""
        kind, args = op.kind, op.args
        there, settled = state.processes[place].there, NONE
        if kind == "mv" and args[1].startswith("done/"):
            settled = files.messages(disk, args[1])
        elif kind == "create" and args[0].startswith("done/"):
            taken = args[0].replace("done/", "out/")
            if taken not in disk:
                raise Bad("settles what it has no longer")
            settled = files.messages(disk, taken)
        elif kind == "create" and args[0].startswith("wal/"):
            self.pushed(state, disk, files.slip_id(args[0]))
        elif kind == "begin" and args:
            change["there"] = state.acked if self.ids else state.settled
        elif kind == "begin":
            ready = state.acked.intersection(files.messages(disk, *READY))
            change["there"] = ready.difference(files.messages(disk, "out"), state.settled)
        elif kind == "empty" and there:
            raise Bad(f"says empty, though {min(there)} was there all the time")
        elif kind == "deleted":
            change["deleted"] = state.deleted.union(args)
        elif kind == "id" and args[0] in state.acked:
            raise Bad(f"id {args[0]} is given twice")
        elif kind == "id" and max(there, default=0) > args[0]:
            raise Bad(f"id {args[0]} is given after {max(there)}")
        elif kind == "dup" and args[0] in there:
            raise Bad(f"says dup of {args[0]}, which was settled before")
        elif kind == "print" and not files.is_flat(args[0]) and args[0] in disk:
            if disk.get(f"body/{files.slip_id(args[0])}") != ("whole",):
                raise Bad(f"message {files.slip_id(args[0])} has no body")
        if kind in ("ack", "id"):
            change["acked"] = state.acked.union(args)
        if settled:
            change["settled"] = state.settled.union(settled)

    def pushed(self, state, disk, message):
        there = {*files.messages(disk, "out", *READY)} - state.settled
        if self.config.bound and len(there) > self.config.bound:
            raise Bad(f"{len(there)} messages in a queue of {self.config.bound}")
        keys = self.config.keys
        for other in there - {message}:
            if message in keys and keys.get(other) == keys[message]:
                raise Bad(f"messages {other} and {message} have the same key")

    # after the step

    def check(self, state):
        """One more state. If all processes were killed now, recovery must put back what was
        promised."""
        if self.ids:
            return
        if self.config.power:
            for cut in {cut for cut, _ in state.cuts}:
                self.check_recovered(state, cut, "boot", state.deleted)
        else:
            self.check_recovered(state, state.disk, "checkpoint", state.settled)

    def check_recovered(self, state, disk, method, settled):
        if disk not in self.recovered:
            self.recovered[disk] = self.recover(dict(disk), method)
        count, damaged = self.recovered[disk]
        for message in damaged & state.acked:
            raise Bad(f"after {method}: message {message} has no whole body, but a slip")
        for message in state.acked | count.keys():
            least, most = message in state.acked - state.settled, message not in settled
            if not least <= count[message] <= most:
                raise Bad(f"after {method}: message {message} is there {count[message]} times, "
                    f"settled: {message in settled}")

    def recover(self, disk, method):
        """How often each message is there after recovery, and which ones were damaged."""
        for message, count in Counter(files.messages(disk, "wal", "queue", "head", "out")).items():
            if count > 1:
                raise Bad(f"message {message} is in {count} places")
        programs, damaged, lock = self.recovery, NONE, False
        node = programs.start(getattr(self.protocol, method)(0))
        for _ in range(400):
            if node == END or "gone/q" in disk:
                count = Counter(files.messages(disk, *READY))
                self.check_left(disk, count)
                return count, damaged
            kind, args = programs.ops[node][:2]
            result = {"dead": True, "clock": 9, "choose": "written"}.get(kind)
            if kind == "mv" and args[0] in disk and args[1] in disk:
                raise Bad(f"after {method}: {args[1]} was there already")
            if kind in files.ACTS:
                result = files.act(disk, kind, *args)
            elif kind == "check":
                damaged = self.set_aside(disk)
            lock = kind == "lock" or lock and kind != "unlock"
            node = programs.next(node, result, lock)
        raise Bad(f"{method} does not end")

    def check_left(self, disk, count):
        slips = files.slips(disk).values()
        for path in sorted(disk):
            place, _, name = path.partition("/")
            if (place in ("fold", "unfold", "tmp", "done", "out", "gone", "dropping")
                    and path != "gone/q"
                    # a killed push leaves its body until the next boot
                    or place == "body" and int(name) in self.config.acked - set(slips)
                    # and its key: the next push with it sees that there is no such message
                    or place == "keys" and disk[path][0] not in count and len(disk[path]) == 2):
                raise Bad(f"after recovery, {path} is left")
        for message in slips:
            if disk.get(f"body/{message}") != ("whole",):
                raise Bad(f"after recovery, message {message} has no body")

    # power cuts

    @staticmethod
    def set_aside(disk):
        """queue_check: slips without a whole body, bodies without a slip, damaged flat files, keys
        without a message."""
        damaged = {path: message for path, message in files.slips(disk).items()
            if disk.get(f"body/{message}") != ("whole",)}
        for path in [*damaged, *(path for path in disk if path.startswith("queue/")
                and disk[path] == ("torn",))]:
            del disk[path]
        slips, there = files.slips(disk).values(), files.messages(disk, *READY)
        for path in list(disk):
            if (path.startswith("body/") and int(path[5:]) not in slips
                    or path.startswith("keys/") and disk[path][0] not in there):
                del disk[path]
        return frozenset(damaged.values())

    @staticmethod
    def cuts(state, disk, op):
        """The disks that a power cut may leave after this step, each with the places and files in
        which it is behind. A step may reach the disk or not, and before an earlier one if it can be
        taken without it; what is written is torn until it is synced."""
        kind, args = op.kind, op.args
        if kind == "syncfs":
            return frozenset([(frozenset(disk.items()), NONE)])
        if kind == "sync":
            return frozenset((frozenset((path, disk.get(path, content) if path in args else content)
                for path, content in cut), behind)
                for cut, behind in state.cuts if not behind.intersection(args))
        before = dict(state.disk)
        changed = {path for path, _ in before.items() ^ disk.items()}
        if not changed:
            return state.cuts
        touched = {path if path in before and path in disk else path.rpartition("/")[0] + "/"
            for path in changed}
        torn = (args[0], ("torn",)) if kind == "write" and args[1] else args
        found = set()
        for cut, behind in state.cuts:
            found.add((cut, behind | touched))
            reached = dict(cut)
            if files.act(reached, kind, *torn):
                found.add((frozenset(reached.items()), behind))
        return frozenset(found)
