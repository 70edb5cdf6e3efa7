"""flatq's protocol, step by step, as lib/ has it. Each method stands for the verbs and functions of
lib/ that its docstring names in front of its colon."""

from functools import wraps

from disk import base, flat_run, is_flat, later, owner_and_deadline, slip_id
from programs import Call, Op, calls

#: the process ends with an error, and gives up all that it holds
DIE = Op("die")
LOCK, UNLOCK, SYNC_ALL = Op("lock"), Op("unlock"), Op("syncfs")
PLACES = ("out", "head", "queue", "wal")  # drop removes them in this order
READY = ("wal", "fold", "queue", "unfold", "head")


def operation(kind, child=""):
    return lambda *args: Op(kind, args, child)


create, write, exists, read, mkdir, ls, sync = map(operation,
    "create write exists read mkdir ls sync".split())
rmdir, awk = operation("rmdir", "rmdir"), operation("write", "awk")


def mv(old, new, child="mv", note=""):
    return Op("mv", (old, new), child, note)


def rm(path, child="rm"):
    return Op("rm", (path,), child)


def locked(method):
    """A decorator: under_lock, unless this process has the lock."""
    @wraps(method)
    def under_lock(self, *args):
        held = yield Op("holds")
        if not held:
            yield LOCK
            yield self.recover()
        answer = yield Call(method, (self, *args))
        if not held:
            yield UNLOCK
        return answer
    return under_lock


def messages_of(name):
    """How many messages a slip or a flat file of this name is."""
    return int(base(name).split(".")[3]) if is_flat(name) else 1


def flat_name(slips, nonce):
    """The name of the flat file of these slips."""
    return f"{slips[0][0]}.{slip_id(slips[0])}.{slip_id(slips[-1])}.{len(slips)}.{nonce}"


def in_front(flats, elsewhere):
    """The first of these flat files, as far as all their messages sort before the next flat file
    and before ELSEWHERE."""
    for number, flat in enumerate(flats):
        priority, _, last, *_ = flat.split(".")
        if f"{priority}.{last}" >= min(elsewhere, *flats[number + 1:][:1], "~"):
            return flats[:number]
    return flats


@calls
class Protocol:
    def __init__(self, config):
        self.keys = config.keys  # the key of a message, by id
        self.bound = config.bound
        self.full = config.full
        self.drops = "drop" in config.words  # so places can be missing

    # engine/lock.sh, engine/flat.sh: the lock
    @locked
    def under_lock(self, step=None):
        """lock_queue, under_lock, unlock_queue: an operation or a call; none: only the recovery"""
        if step:
            return (yield step)

    def recover(self):
        """lock_recover, queue_recover, unfold_undo: finish what a killed holder of the lock
        has begun"""
        if self.drops:
            if (yield exists("gone/q")):
                yield DIE
            if (yield exists("dropping")):
                yield self.make_places()
        for run in (yield ls("fold")):
            yield self.fold_finish(run)
        for flat in (yield ls("unfold")):
            yield self.unfold_finish(flat)
        # an unfold was killed before its commit: its stage shows which bodies it has written
        for stage in (yield ls("tmp")):
            if not is_flat(stage):
                yield self.bodies_remove((yield ls(f"tmp/{stage}")))
                yield self.remove_trees("tmp", (stage,), "rm stage")

    # engine/proof.sh, engine/slip.sh
    def paths(self, place):
        """queue_count, find_slip: what is in PLACE or, in fold/ and head/, in its runs"""
        names = yield ls(place)
        if place not in ("fold", "head"):
            return tuple(f"{place}/{name}" for name in names if not name.startswith("batch."))
        found = ()
        for run in names:
            found += tuple(f"{place}/{run}/{name}" for name in (yield ls(f"{place}/{run}")))
        return found

    def slips(self, path):
        """batch_read: the slip at PATH, or the lines of a flat file"""
        return ((yield read(path)) or ()) if is_flat(path) else (base(path),)

    def below(self, message, places):
        """not_below: the first path in these places that has a slip or a line of MESSAGE"""
        for place in places:
            for path in (yield self.paths(place)):
                if message in map(slip_id, (yield self.slips(path))):
                    return path
        return ""

    # drop, engine/common.sh

    @locked
    def drop(self, me):
        """drop, drop_places: an empty queue"""
        yield create("dropping")
        yield self.sweep()
        if not (yield self.count()) and (yield self.drop_rmdirs()):
            yield Op("drop", (), "mv")
        else:
            yield self.make_places()

    def drop_rmdirs(self):
        """drop_places: a place that rmdir removes was empty, and nothing comes into it"""
        for place in PLACES:
            for run in (yield ls("head")) if place == "head" else ():
                yield rmdir(f"head/{run}")
            if not (yield Op("rmplace", (place,), "rmdir")):
                return False
        return True

    def make_places(self):
        """queue_make: all places are there again"""
        for place in PLACES:
            yield rm(f"gone/{place}", "mkdir")
        yield rm("dropping")

    def drop_wait(self):
        """drop_wait: a drop is at work, or was killed. The next process that has the lock finds the
        queue whole, or gone"""
        waited = yield exists("dropping")
        if waited:
            yield self.under_lock()
        return waited

    # engine/push.sh, engine/bound.sh
    def push(self, me, message, priority=5):
        """push_message, push_enter: one message, maybe with a key, to a queue that may have a
        bound"""
        yield Op("begin", ("push",))
        yield write(f"body/{message}", ("whole",))
        commit = self.push_commit(message, f"wal/{priority}.{message}.0")
        locked = self.bound or message in self.keys
        answer = yield (self.under_lock(commit) if locked else commit)
        if answer != "there":
            yield rm(f"body/{message}")
        if answer == "there":
            yield Op("ack", (message,))
        elif answer != "full":
            yield Op("dup", (answer,))

    def push_commit(self, message, slip):
        """push_commit: the slip is created. If it is not: the id that has the key, or `full`"""
        key = self.keys.get(message)
        if key:
            taken = yield self.key_find_dup(key)
            if taken:
                return taken
        if self.bound and (yield self.count()) >= self.bound:
            return "full"
        if key:
            yield write(f"keys/{key}", (message,))
        while not (yield create(slip)):
            if not (yield self.drop_wait()):
                yield DIE
        if self.drops:
            yield self.drop_wait()
        if key:
            yield write(f"keys/{key}", (message, "yes"))
        yield sync(f"body/{message}", "body/", "wal/", *((f"keys/{key}", "keys/") if key else ()))
        return "there"

    def key_find_dup(self, key):
        """key_find_dup: the id of the message that has the key, or 0. It first sweeps settled
        batches, which do not show their ids"""
        if any(name.startswith("batch.") for name in (yield ls("done"))):
            yield self.sweep()
        entry = yield read(f"keys/{key}")
        if not entry or entry[0] in map(slip_id, (yield self.paths("done"))):
            return 0
        if len(entry) == 1 and not (yield self.find(entry[0])):
            taken = yield ls("out")
            batches = tuple(f"out/{name}" for name in taken if name.startswith("batch."))
            if not (yield self.below(entry[0], batches)):
                return 0
        return entry[0]

    def count(self):
        """queue_count: of a queue's messages, all that are not settled"""
        total = 0
        for place in ("wal", "fold", "queue", "head"):
            total += sum(map(messages_of, (yield self.paths(place))))
        for name in (yield ls("out")):
            if not (yield exists(f"done/{name}")):
                batch = name.startswith("batch.")
                total += sum(map(messages_of, (yield ls(f"out/{name}")) if batch else (name,)))
        return total

    # engine/take.sh
    def scan(self, without=""):
        """queue_scan, scan_least: the name that sorts first, and its place, but for one place"""
        first = "~", ""
        for place in READY:
            places = (place,)
            if place == "head":
                places = tuple(f"head/{run}" for run in (yield ls("head")))
            for each in places:
                if each != without:
                    for name in (yield ls(each))[:1]:
                        first = min(first, (name, each))
        return first

    def take(self, me, owner, deadline):
        """take_message, take_found, take_missed, take_slip: the name in out/, or nothing"""
        looked = False
        while True:
            name, at = yield self.scan()
            if not at:
                if looked:
                    yield Op("empty")
                    return ""
                yield self.reclaim(me)
                looked = True
            elif at == "wal" or at.startswith("head/"):
                taken = f"{later(name)}@{owner}+{deadline}"
                if (yield mv(f"{at}/{name}", f"out/{taken}")):
                    return taken
                if self.drops and (yield exists(f"{at}/{name}")) and not (
                        yield self.drop_wait()):
                    yield DIE
            elif at == "queue":
                yield self.unfold(name)
            else:
                yield self.under_lock()

    def pop(self, me):
        """pop, body_print, taken_settle: a take, and then the marker"""
        yield Op("begin")
        taken = yield self.take(me, me, 0)
        if not taken:
            return
        yield Op("print", (f"out/{taken}",), "base64")
        yield create(f"done/{taken}")

    # engine/state.sh
    def reserve(self, me, *acts):
        """reserve, message_reserve, message_delete, message_release, message_touch: a take,
        and then one verb with the receipt"""
        yield Op("begin")
        taken = yield self.take(me, 0, 1 + (yield Op("clock")))
        if not taken:
            return
        yield Op("print", (f"out/{taken}",), "base64")
        act = yield Op("choose", acts)
        found = yield self.find(slip_id(taken))
        name = base(found)
        # the receipt is good until the message is handed out again: in wal/ it has been put back
        # once
        if not found or name != (taken if "@" in name else later(taken)):
            return
        if act == "delete":
            settled = name if "@" in name else f"{name}@0+0"
            if (yield mv(found, f"done/{settled}", note=taken)):
                yield sync(found.rpartition("/")[0] + "/", "done/")
                yield Op("deleted", (slip_id(taken),))
        elif "out/" in found:
            new = f"wal/{later(name)}"
            if act == "touch":
                new = f"out/{name.split('@')[0]}@0+{1 + (yield Op('clock'))}"
            if new != found:
                yield self.slip_move(found, new, taken)

    def slip_move(self, old, new, note=""):
        """slip_move: in a bounded queue under the lock, so that a count does not miss it"""
        move = mv(old, new, note=note)
        yield (self.under_lock(move) if self.bound else move)

    def find(self, message):
        """message_find: the path of the slip of MESSAGE, or nothing"""
        while True:
            found = yield self.find_slip(message)
            if found:
                return found
            flat = yield self.below(message, ("queue",))
            if flat:
                yield self.unfold(base(flat))
            elif (yield self.below(message, ("fold", "unfold"))):
                yield self.under_lock()
            else:
                # it may have moved forward meanwhile, to out/ or head/, or come back, to wal/
                return (yield self.find_slip(message))

    def find_slip(self, message):
        """find_slip: the path of the slip of MESSAGE that is not settled, or nothing"""
        for place in ("head", "out", "wal"):
            for path in (yield self.paths(place)):
                if slip_id(path) == message and not (yield exists(f"done/{base(path)}")) and (
                        yield exists(path)):
                    return path
        return ""

    # engine/reclaim.sh, bulk/batch.sh
    def reclaim(self, me):
        """queue_reclaim, reclaim_some, owner_dead, lease_over: put back what was taken and
        is not settled"""
        now = yield Op("clock")
        for name in (yield ls("out")):
            if (yield exists(f"done/{name}")):
                continue
            owner, deadline = owner_and_deadline(name)
            over = deadline and now >= deadline
            if owner and (yield Op("dead", (owner,))):
                # it may have settled the message before it ended
                over = name.startswith("batch.") or not (yield exists(f"done/{name}"))
            if over:
                yield self.putback(name)

    def putback(self, name):
        """message_putback, batch_putback: a message gets its old place in the order"""
        if name.startswith("batch."):
            yield self.batch_putback(f"out/{name}")
        else:
            yield self.slip_move(f"out/{name}", f"wal/{later(name)}")

    @locked
    def batch_putback(self, batch):
        """batch_putback_locked: the messages of a batch, one after the other, unless it is
        settled"""
        if not (yield exists(f"done/{base(batch)}")):
            for name in (yield ls(batch)):
                if is_flat(name):
                    yield mv(f"{batch}/{name}", f"queue/{name}", "mv flat")
                else:
                    yield mv(f"{batch}/{name}", f"wal/{later(name)}")
            yield rmdir(batch)

    @locked
    def sweep(self, me=0):
        """queue_sweep, sweep_these: under the lock; remove what is settled"""
        names = yield ls("done")
        batches = tuple(name for name in names if name.startswith("batch."))
        slips, outs, keys, bodies = (), (), (), ()
        for name in names:
            if name in batches:
                for path in (yield ls(f"out/{name}")):
                    lines = yield self.slips(f"out/{name}/{path}")
                    slips += lines
                    bodies += () if is_flat(path) else lines
            else:
                if (yield exists(f"out/{name}")):
                    outs += (name,)
                slips, bodies = (*slips, name), (*bodies, name)
        for message in map(slip_id, slips):
            if message in self.keys:
                key = self.keys[message]
                entry = yield read(f"keys/{key}")
                if entry and entry[0] == message:
                    keys += (key,)
        yield self.remove("out", outs, "rm out")
        if batches:
            # the bodies and keys of a batch are known only while it exists: so before it goes, the
            # file that says that it is settled must be on the disk
            yield sync("done/", "out/", *(f"out/{each}/" for each in batches))
        yield self.remove("keys", keys, "rm out")
        yield sync("out/", "keys/")
        yield self.bodies_remove(bodies)
        yield self.remove_trees("out", batches, "rm batch")
        if batches:
            yield sync("out/")
        yield self.remove("done", names, "rm done")

    def bodies_remove(self, slips):
        """bodies_remove: those of these slips"""
        yield self.remove("body", tuple(map(slip_id, slips)), "rm bodies")

    def remove_trees(self, place, names, child):
        """batch_remove, tmp_sweep: rm -rf, each directory after what is in it"""
        for name in names:
            yield self.remove(f"{place}/{name}", (yield ls(f"{place}/{name}")), child)
            yield self.remove(place, (name,), child)

    def remove(self, place, names, child):
        """bodies_remove: these files"""
        for name in names:
            yield rm(f"{place}/{name}", child)

    # engine/flat.sh
    @locked
    def fold(self, me):
        """queue_fold, fold_some: the first messages, of one priority"""
        names = yield ls("wal")
        names = tuple(name for name in names if name[:2] == names[0][:2])
        if len(names) >= 2:
            run = ".".join(names[0].split(".")[:2]) + f".r{me}"
            yield mkdir(f"fold/{run}")
            for name in names:
                yield mv(f"wal/{name}", f"fold/{run}/{name}", "mv run")
            yield self.fold_finish(run)

    def fold_finish(self, run):
        """fold_finish, fold_write: the run becomes a flat file, or goes to head/"""
        nonce = run.split(".")[2]
        for flat in (yield ls("queue")):
            if flat.endswith(f".{nonce}"):
                # the process that renamed it may have been killed before its sync
                yield sync("queue/")
                yield self.fold_remove(run, flat)
                return
        names = yield ls(f"fold/{run}")
        if not names:
            yield rmdir(f"fold/{run}")
            return
        if self.full and (yield Op("choose", ("written", "disk is full"))) == "disk is full":
            yield mv(f"fold/{run}", f"head/{run}", "mv to head")
        else:
            flat = flat_name(names, nonce)
            yield awk(f"tmp/{flat}", names)
            yield sync(f"tmp/{flat}", f"fold/{run}/", "fold/", "wal/")
            yield mv(f"tmp/{flat}", f"queue/{flat}", "mv flat")
            yield sync("queue/")
            yield self.fold_remove(run, flat)

    def fold_remove(self, run, flat):
        """fold_remove: the messages that stand in the flat file"""
        names = yield read(f"queue/{flat}")
        yield self.bodies_remove(names)
        yield self.remove(f"fold/{run}", names, "rm run")
        yield rmdir(f"fold/{run}")
        yield sync("fold/")

    @locked
    def unfold(self, flat):
        """queue_unfold: under the lock"""
        if not (yield exists(f"queue/{flat}")):
            return
        run = flat_run(flat)
        if (yield exists(f"tmp/{run}")):
            yield self.remove_trees("tmp", (run,), "rm stage")
        for old in (yield ls("head")):
            yield rmdir(f"head/{old}")
        lines = yield read(f"queue/{flat}")
        yield mkdir(f"tmp/{run}")
        for line in lines:
            yield awk(f"tmp/{run}/{line}", "")
            yield awk(f"body/{slip_id(line)}", ("whole",))
        yield SYNC_ALL
        yield mv(f"queue/{flat}", f"unfold/{flat}", "mv flat")
        yield sync("unfold/", "queue/")
        yield self.unfold_finish(flat)

    def unfold_finish(self, flat):
        """unfold_finish: the staged slips go to head/, only then the flat file is removed"""
        run = flat_run(flat)
        if (yield exists(f"tmp/{run}")):
            yield mv(f"tmp/{run}", f"head/{run}", "mv run")
        yield sync("head/", "tmp/")
        yield rm(f"unfold/{flat}", "rm flat")
        yield sync("unfold/")

    # bulk/take.sh
    def bulk(self, me):
        """bulk_pop, bulk_print: one round"""
        yield Op("begin")
        batch = f"batch.{me}"
        if (yield self.bulk_choose(batch)):
            for name in (yield ls(f"out/{batch}")):
                yield Op("print", (f"out/{batch}/{name}",), "awk")
            yield self.bulk_settle(batch)
        else:
            yield Op("empty")

    @locked
    def bulk_settle(self, batch):
        """bulk_settle: the marker, then the sweep"""
        yield create(f"done/{batch}")
        yield self.sweep()

    @locked
    def bulk_choose(self, batch):
        """bulk_choose, bulk_singles, bulk_flats, bulk_move: take what lies in one place in
        front of all others"""
        while True:
            name, at = yield self.scan()
            if not at:
                return False
            elsewhere, _ = yield self.scan(at)
            names = yield ls(at)
            if at != "queue":
                chosen = tuple(each for each in names if each < elsewhere)
            else:
                chosen = in_front(names, elsewhere)
                if not chosen:
                    yield self.unfold(name)
            if chosen:
                yield mkdir(f"out/{batch}")
                for each in chosen:
                    yield mv(f"{at}/{each}", f"out/{batch}/{each}", "mv batch")
                if (yield ls(f"out/{batch}")):
                    return True
                yield rmdir(f"out/{batch}")

    # engine/checkpoint.sh, engine/check.sh: what follows when every process was killed, or a boot
    def checkpoint(self, me):
        """checkpoint: without the fold"""
        yield self.reclaim(me)
        yield self.tidy()

    @locked
    def tidy(self):
        """checkpoint_locked, tmp_sweep: under the lock"""
        yield self.sweep()
        yield self.remove_trees("tmp", (yield ls("tmp")), "rm tmp")

    @locked
    def boot(self, me):
        """queue_after_boot, boot_recover, boot_markers, boot_putback: every process is gone. A
        marker may reach the disk without the rename to out/ before it: it is ready again then"""
        for path in (yield self.paths("done")):
            if (yield self.below(slip_id(path), ("wal", "head"))):
                yield rm(path)
        yield self.sweep()
        for name in (yield ls("out")):
            yield self.putback(name)
        yield Op("check")
        yield self.tidy()

    # engine/common.sh, engine/boot.sh: ids. Here a range has two
    def take_id(self, me):
        """ids_next, ids_last_range, ids_next_range: one id"""
        yield Op("begin", ("push",))
        while True:
            last = yield self.last_range()
            for number in (0, 1):
                path = f"range/{last}/{number}"
                if (yield exists(path)):
                    continue
                if (yield create(path)):
                    yield Op("id", (2 * last + number,))
                    return
                if not (yield exists(path)):
                    break
            else:
                yield LOCK
                if (yield self.last_range()) == last:
                    yield mkdir(f"range/{last + 1}")
                yield UNLOCK

    def last_range(self):
        """ids_last_range: its number"""
        return int((yield ls("range"))[-1])

    def retire(self, me):
        """ids_sweep: old ranges are closed, then removed"""
        yield LOCK
        for number in (yield ls("range"))[:-1]:
            yield mv(f"range/{number}", f"old/{number}")
            yield self.remove_trees("old", (number,), "rm range")
        yield UNLOCK

    def clock(self, me):
        """Time passes"""
        yield Op("tick")
