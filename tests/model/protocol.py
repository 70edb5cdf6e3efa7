"""flatq's protocol, step by step, as lib/ has it. Each method stands for the verbs and functions of
lib/ that its docstring names in front of its colon. `keys` gives the key of a message, by id."""

from disk import (flat_run, handed_out, is_flat, later, owner_and_deadline, segment_count,
    segment_end, slip_id)
from programs import Op, checked

#: the process ends with an error, and gives up all that it holds
DIE = Op("die")
LOCK, UNLOCK = Op("lock"), Op("unlock")
PLACES = ("out", "head", "queue", "wal")  # drop removes them in this order
READY = ("wal", "fold", "queue", "unfold", "head")


def mv(old, new, child="mv", note=""):
    return Op("mv", (old, new), child, note)


def rm(path, child="rm"):
    return Op("rm", (path,), child)


def create(path, note=""):
    return Op("create", (path,), "", note)


def write(path, content, child=""):
    return Op("write", (path, content), child)


def exists(path):
    return Op("exists", (path,))


def read(path):
    return Op("read", (path,))


def rmdir(path, child="rmdir"):
    return Op("rmdir", (path,), child)


def ls(place):
    return Op("ls", (place,))


def least(place):
    return Op("least", (place,))


def sync(*paths):
    return Op("sync", paths)


def named(path):
    """The id of the slip at PATH."""
    return slip_id(path.rpartition("/")[2])


def messages_of(name):
    """How many messages a slip or a flat file of this name is."""
    return int(name.split(".")[3]) if is_flat(name) else 1


def flat_name(slips, nonce):
    """The name of the flat file of these slips."""
    return f"{slips[0][0]}.{slip_id(slips[0])}.{slip_id(slips[-1])}.{len(slips)}.{nonce}"


def has(message, slips):
    return any(slip_id(slip) == message for slip in slips or ())


@checked
def in_turn(*ops):
    while ops:
        yield ops[0]
        ops = ops[1:]


@checked
def each(names, method):
    """METHOD for each name, one after the other."""
    while names:
        name, names = names[0], names[1:]
        yield from method(name)


@checked
class Protocol:
    def __init__(self, keys=(), bound=0, full=False, fails=0, drops=False):
        self.keys = dict(keys)
        self.bound = bound
        self.full = full
        self.fails = fails  # a listing can fail, so what must be proved then is proved
        self.drops = drops  # a process drops the queue, so places can be missing

    # engine/proof.sh, engine/slip.sh: if a glob's listing fails, it shows nothing; names_in ends
    # with an error

    def names_in(self, place):
        """names_in: a listing that fails is an error"""
        names = yield Op("ls", (place,), "", "proved")
        if names is None:
            yield DIE
        return names

    def moved(self, old, new, child="mv", note=""):
        """rename_path: whether NEW is what OLD was, whatever mv's status says"""
        done = yield mv(old, new, child, note)
        if done != "status lost":
            return done
        there = yield exists(old)
        if there:
            return False
        return (yield exists(new))

    def nothing_ready(self):
        """nothing_ready: whether it is sure that no message is ready"""
        places = READY
        while places:
            place, places = places[0], places[1:]
            names = yield from self.names_in(place)
            while names:
                name, names = f"{place}/{names[0]}", names[1:]
                if place not in ("fold", "head") or (yield from self.names_in(name)):
                    return False
        return True

    def nowhere(self, message):
        """not_below: whether it is sure that the message has no slip and no line"""
        places = ("out", *READY)
        while places:
            place, places = places[0], places[1:]
            names = yield from self.names_in(place)
            while names:
                name, names = names[0], names[1:]
                if name.startswith("batch."):
                    found = False
                elif place in ("fold", "head"):
                    found = has(message, (yield from self.names_in(f"{place}/{name}")))
                elif is_flat(name):
                    found = has(message, (yield read(f"{place}/{name}")))
                else:
                    found = slip_id(name) == message
                    if found and place == "out":
                        found = not (yield exists(f"done/{name}"))
                if found:
                    return False
        return True

    # drop, engine/spool.sh

    def drop(self, me):
        """drop, drop_places: a place that rmdir removes was empty, and nothing comes into it any
        more"""
        yield LOCK
        yield from self.recover()
        yield create("dropping")
        yield from self.sweep()
        count = yield from self.count()
        places = PLACES
        while places and not count:
            place, places = places[0], places[1:]
            if place == "head":
                runs = yield ls("head")
                while runs:
                    yield rmdir(f"head/{runs[0]}")
                    runs = runs[1:]
                runs = ()
            if not (yield Op("rmplace", (place,), "rmdir")):
                count = 1
        if not count:
            yield Op("drop", (), "mv")
        else:
            places = place = ""
            yield from self.make_places()
            yield rm("dropping")
        yield UNLOCK

    def make_places(self):
        """queue_make: all places are there again"""
        yield from in_turn(*(rm(f"gone/{place}", "mkdir") for place in PLACES))

    def drop_wait(self):
        """drop_wait: a drop is at work, or was killed. The next process that has the lock finds the
        queue whole, or gone"""
        if not (yield exists("dropping")):
            return False
        yield LOCK
        yield from self.recover()
        yield UNLOCK
        return True

    # engine/push.sh, engine/bound.sh

    def push(self, me, message, priority=5):
        """push_message, push_commit, push_enter: one message, maybe with a key, to a queue
        that may have a bound"""
        yield Op("begin", ("push",))
        key = self.keys.get(message, "")
        slip = f"{priority}.{message}.0"
        yield write(f"body/{message}", ("whole",))
        if self.bound or key:
            yield LOCK
            yield from self.recover()
        if key:
            taken = yield from self.key_find_dup(key)
            if taken:
                yield UNLOCK
                yield rm(f"body/{message}")
                yield Op("dup", (taken,))
                return
        if self.bound:
            count = yield from self.count()
            if count + 1 > self.bound:
                yield UNLOCK
                yield rm(f"body/{message}")
                return
        if key:
            yield write(f"keys/{key}", (message,))
        while not (yield create(f"wal/{slip}", "the message is there")):
            if not (yield from self.drop_wait()):
                yield DIE
        if self.drops:
            yield from self.drop_wait()
        if key:
            yield write(f"keys/{key}", (message, "yes"))
            yield sync(f"body/{message}", "body/", "wal/", f"keys/{key}", "keys/")
        else:
            yield sync(f"body/{message}", "body/", "wal/")
        if self.bound or key:
            yield UNLOCK
        yield Op("ack", (message,))

    def key_find_dup(self, key):
        """key_find_dup: the id of the message that has the key, or 0. It first sweeps settled
        batches, which do not show their ids"""
        batches = yield ls("done")
        if any(name.startswith("batch.") for name in batches):
            yield from self.sweep()
        entry = yield read(f"keys/{key}")
        if not entry or entry == ("torn",):
            return 0
        done = yield ls("done")
        if any(not name.startswith("batch.") and slip_id(name) == entry[0] for name in done):
            return 0
        if len(entry) == 1:
            found = yield from self.find(entry[0])
            if not found and not (yield from self.message_held(entry[0])):
                return 0
        return entry[0]

    def count(self):
        """queue_count: of a queue's messages, all that are not settled"""
        names = yield ls("wal")
        total = len(names)
        names = yield from self.in_runs("fold")
        total += len(names)
        names = yield ls("queue")
        total += sum(map(messages_of, names))
        names = yield from self.in_runs("head")
        total += len(names)
        names = yield ls("out")
        while names:
            name, names = names[0], names[1:]
            if (yield exists(f"done/{name}")):
                continue
            if name.startswith("batch."):
                total += sum(map(messages_of, (yield ls(f"out/{name}"))))
            else:
                total += 1
        return total

    def in_runs(self, place):
        """queue_count, find_slip: a glob of the runs in PLACE and of the slips in them"""
        runs = yield ls(place)
        found = ()
        while runs:
            run, runs = f"{place}/{runs[0]}", runs[1:]
            found += tuple(f"{run}/{name}" for name in (yield ls(run)))
        return found

    # engine/take.sh

    def scan(self):
        """queue_scan: the place and the name that sort first"""
        places = READY
        at = name = ""
        while places:
            place, places = places[0], places[1:]
            if place == "head":
                runs = yield ls("head")
                while runs:
                    run, runs = runs[0], runs[1:]
                    if not (name and run >= name):
                        found = yield least(f"head/{run}")
                        if found and (not name or found < name):
                            at, name = f"head/{run}", found
                        found = ""
                run = ""
            else:
                found = yield least(place)
                if found and (not name or found < name):
                    at, name = place, found
                found = ""
        return at, name

    def take(self, me, owner, deadline):
        """take_message, take_pick, take_slip, queue_unfold: the name in out/, or nothing"""
        looked = False
        while True:
            at, name = yield from self.scan()
            if not at:
                sure = looked
                if looked and self.fails:
                    sure = yield from self.nothing_ready()
                if sure:
                    yield Op("empty")
                    return ""
                sure = False
                yield from self.reclaim(me)
                looked = True
            elif at == "wal" or at.startswith("head/"):
                taken = handed_out(name, owner, deadline)
                if (yield from self.moved(f"{at}/{name}", f"out/{taken}")):
                    return taken
                if self.drops and (yield exists(f"{at}/{name}")):
                    if not (yield from self.drop_wait()):
                        yield DIE
            else:
                yield LOCK
                yield from self.recover()
                if at == "queue":
                    yield from self.unfold(name)
                yield UNLOCK
            at = name = taken = ""

    def pop(self, me):
        """pop, body_print, taken_settle: a signal may come before or after the marker"""
        yield Op("begin")
        taken = yield from self.take(me, me, 0)
        if not taken:
            return
        yield Op("print", (slip_id(taken),), "base64")
        # from here on a signal runs take_stopped, which gives back what is not settled
        if (yield Op("signal")):
            yield from self.take_back(taken)
            return
        yield create(f"done/{taken}", "settled")
        if (yield Op("signal")):
            yield from self.take_back(taken)

    def take_back(self, taken):
        """take_back: in a trap, unless it is settled"""
        if (yield exists(f"done/{taken}")):
            return
        yield mv(f"out/{taken}", f"wal/{later(taken)}", "mv", "gives it back")

    # engine/state.sh

    def reserve(self, me, lease=1, acts=("delete", "release", "touch")):
        """reserve, message_reserve, message_delete, message_release, message_touch: a take,
        and then one verb with the receipt"""
        yield Op("begin")
        now = yield Op("clock")
        taken = yield from self.take(me, 0, now + lease)
        if not taken:
            return
        yield Op("print", (slip_id(taken),), "base64")
        act = yield Op("choose", acts)
        found = yield from self.find(slip_id(taken))
        if not found:
            return
        name = found.rpartition("/")[2]
        # the receipt is good until the message is handed out again: in wal/ it has been put back
        # once
        same = name == taken if "@" in name else name == later(taken)
        if not same:
            return
        if act == "delete":
            settled = name if "@" in name else f"{name}@0+0"
            if (yield from self.moved(found, f"done/{settled}", "mv", "deleted")):
                yield sync(found.rpartition("/")[0] + "/", "done/")
                yield Op("deleted", (slip_id(taken),))
        elif act == "release":
            if "out/" in found:
                if self.bound:
                    yield LOCK
                yield mv(found, f"wal/{later(name)}", "mv", "gives it back")
                if self.bound:
                    yield UNLOCK
        elif act == "touch" and "out/" in found:
            now = yield Op("clock")
            slip = name.split("@")[0]
            if f"{slip}@0+{now + lease}" != name:
                if self.bound:
                    yield LOCK
                yield mv(found, f"out/{slip}@0+{now + lease}", "mv", "touched")
                if self.bound:
                    yield UNLOCK

    def find(self, message):
        """message_find: the path of the slip of MESSAGE, or nothing"""
        while True:
            found = yield from self.find_slip(message)
            if found:
                return found
            flats = yield ls("queue")
            at = ""
            while flats and not at:
                flat, flats = flats[0], flats[1:]
                if has(message, (yield read(f"queue/{flat}"))):
                    at = flat
            flat = flats = ""
            moving = bool(at)
            if not at:
                names = yield from self.in_runs("fold")
                moving, names = any(named(name) == message for name in names), ()
            if not moving:
                flats = yield ls("unfold")
                while flats and not moving:
                    moving = has(message, (yield read(f"unfold/{flats[0]}")))
                    flats = flats[1:]
                flats = ""
            if not moving:
                # a message that moved forward meanwhile is in out/ or head/; one that came back is
                # in wal/
                found = yield from self.find_slip(message)
                if found or not self.fails:
                    return found
                if (yield from self.nowhere(message)):
                    return ""
                continue
            held = yield Op("holds")
            if not held:
                yield LOCK
            yield from self.recover()
            if at:
                yield from self.unfold(at)
            if not held:
                yield UNLOCK
            at = ""
            moving = held = False

    def find_slip(self, message):
        """find_slip: the path of the slip of MESSAGE that is not settled, or nothing"""
        places = ("head", "out", "wal")
        while places:
            place, places = places[0], places[1:]
            if place == "head":
                paths = yield from self.in_runs("head")
            else:
                paths = tuple(f"{place}/{path}" for path in (yield ls(place))
                    if not path.startswith("batch."))
            paths = tuple(path for path in paths if named(path) == message)
            while paths:
                path, paths = paths[0], paths[1:]
                # lib/ looks at a glob's paths when it has listed all places. Here the two are
                # nearer together, which hides no gap between places
                marked = yield exists(f"done/{path.rpartition('/')[2]}")
                if not marked and (yield exists(path)):
                    return path
                marked = False
        return ""

    # engine/reclaim.sh, bulk/batch.sh

    def reclaim(self, me):
        """queue_reclaim, reclaim_some, owner_dead, lease_over: put back what was taken and
        is not settled"""
        now = yield Op("clock")
        names = yield ls("out")
        while names:
            name, names = names[0], names[1:]
            if (yield exists(f"done/{name}")):
                continue
            if name.startswith("batch."):
                if (yield Op("dead", (int(name.split(".")[1]),))):
                    yield from self.batch_putback(name)
                continue
            owner, deadline = owner_and_deadline(name)
            over = bool(deadline and now >= deadline)
            if owner and (yield Op("dead", (owner,))):
                over = True
                if (yield exists(f"done/{name}")):
                    over = False
            if over:
                yield from self.putback(name)
            owner = deadline = over = 0

    def putback(self, name):
        """message_putback, slip_move: it gets its old place in the order"""
        held = yield Op("holds")
        if self.bound and not held:
            yield LOCK
        yield mv(f"out/{name}", f"wal/{later(name)}", "mv", "put back")
        if self.bound and not held:
            yield UNLOCK

    def batch_putback(self, batch):
        """batch_putback: unless it is settled"""
        held = yield Op("holds")
        if not held:
            yield LOCK
        if not (yield exists(f"done/{batch}")):
            yield from self.give_back(f"out/{batch}")
        if not held:
            yield UNLOCK

    def give_back(self, place):
        """batch_putback_locked: the messages of a batch, one after the other"""
        names = yield ls(place)
        while names:
            name, names = names[0], names[1:]
            if is_flat(name):
                yield mv(f"{place}/{name}", f"queue/{name}", "mv flat", "put back")
            else:
                yield mv(f"{place}/{name}", f"wal/{later(name)}", "mv", "put back")
        yield rmdir(place, "")

    def reclaimer(self, me):
        """queue_reclaim: as any verb does it once a second"""
        yield from self.reclaim(me)

    def sweep(self):
        """queue_sweep, sweep_these: under the lock; remove what is settled"""
        names = yield ls("done")
        todo, slips, outs, keys, bodies, whole = names, (), (), (), (), ()
        while todo:
            name, todo = todo[0], todo[1:]
            if name.startswith("batch."):
                inside = yield from self.names_in(f"out/{name}")
                while inside:
                    each, inside = inside[0], inside[1:]
                    if is_flat(each):
                        slips += (yield read(f"out/{name}/{each}")) or ()
                    else:
                        bodies, slips = (*bodies, f"body/{slip_id(each)}"), (*slips, each)
                    each = ""
                whole = (*whole, f"out/{name}")
            else:
                if (yield exists(f"out/{name}")):
                    outs = (*outs, f"out/{name}")
                bodies, slips = (*bodies, f"body/{slip_id(name)}"), (*slips, name)
            name = ""
        while slips:
            message, slips = slip_id(slips[0]), slips[1:]
            key = self.keys.get(message, "")
            if key:
                entry = yield read(f"keys/{key}")
                if entry and entry[0] == message:
                    keys = (*keys, f"keys/{key}")
        message = key = entry = ""
        yield from self.remove(outs, "rm out")
        if whole:
            # the bodies and keys of a batch are known only while it exists: so before it goes, the
            # file that says that it is settled must be on the disk
            yield sync("done/", "out/", *(f"{each}/" for each in whole))
        yield from self.remove(keys, "rm out")
        yield sync("out/", "keys/")
        yield from self.remove(bodies, "rm body")
        yield from self.remove(whole, "rm batch")
        if whole:
            yield sync("out/")
        yield from self.remove(tuple(f"done/{name}" for name in names), "rm done")

    def remove(self, paths, child):
        """bodies_remove, batch_remove, tmp_remove: rm -rf, one path after the other, each
        directory after what is in it"""
        while paths:
            path, paths = paths[0], paths[1:]
            inside = yield from self.names_in(path)
            while inside:
                yield from self.removed(f"{path}/{inside[0]}", child)
                inside = inside[1:]
            yield from self.removed(path, child)

    def removed(self, path, child):
        """bodies_remove: one path; a status of failure is an error, even if the file is gone"""
        if (yield rm(path, child)):
            yield DIE

    # engine/flat.sh

    def recover(self):
        """lock_recover, queue_recover, unfold_undo: finish what a killed holder of the lock
        has begun"""
        if self.drops:
            if (yield exists("gone/q")):
                yield DIE
            if (yield exists("dropping")):
                yield from self.make_places()
                yield rm("dropping")
        runs = yield from self.names_in("fold")
        while runs:
            run, runs = runs[0], runs[1:]
            yield from self.fold_finish(run)
        yield from each((yield from self.names_in("unfold")), self.unfold_finish)
        # an unfold was killed before its commit: its stage shows which bodies it has written
        stages = yield from self.names_in("tmp")
        while stages:
            stage, stages = stages[0], stages[1:]
            if not is_flat(stage) and not stage.startswith("claim"):
                yield from self.bodies_remove((yield from self.names_in(f"tmp/{stage}")))
                yield from self.remove((f"tmp/{stage}",), "rm stage")

    def bodies_remove(self, slips):
        """bodies_remove: those of these slips"""
        yield from self.remove(tuple(f"body/{slip_id(slip)}" for slip in slips), "rm bodies")

    def fold(self, me):
        """checkpoint, queue_fold, fold_some: of one run"""
        yield LOCK
        yield from self.recover()
        names = yield ls("wal")
        names = tuple(name for name in names if name[:2] == names[0][:2])
        if len(names) >= 2:
            run = ".".join(names[0].split(".")[:2]) + f".r{me}"
            yield Op("mkdir", (f"fold/{run}",))
            while names:
                yield mv(f"wal/{names[0]}", f"fold/{run}/{names[0]}", "mv run")
                names = names[1:]
            yield from self.fold_finish(run)
        yield UNLOCK

    def fold_finish(self, run):
        """fold_finish: the run becomes a flat file, or goes to head/"""
        nonce = run.split(".")[2]
        flats = tuple(flat for flat in (yield from self.names_in("queue"))
            if flat.endswith(f".{nonce}"))
        if not flats:
            names = yield from self.names_in(f"fold/{run}")
            if not names:
                yield rmdir(f"fold/{run}")
                return
            full = yield Op("choose", ("written", "disk is full")) if self.full else Op("pass")
            done = False
            if full != "disk is full":
                done = yield from self.fold_write(run, names, nonce)
            if not done:
                yield mv(f"fold/{run}", f"head/{run}", "mv to head")
                return
            flats = (flat_name(names, nonce),)
            names = full = done = ""
        else:
            # the process that renamed it may have been killed before its sync
            yield sync("queue/")
        yield from self.fold_remove(run, flats[0])

    def fold_remove(self, run, flat):
        """fold_remove: the messages that stand in the flat file, whatever a listing says"""
        names = yield read(f"queue/{flat}")
        if names == ("torn",):
            yield DIE
        left = names
        while left:
            yield from self.removed(f"body/{slip_id(left[0])}", "rm bodies")
            left = left[1:]
        while names:
            yield from self.removed(f"fold/{run}/{names[0]}", "rm run")
            names = names[1:]
        yield rmdir(f"fold/{run}")
        yield sync("fold/")

    def fold_write(self, run, names, nonce):
        """fold_write: whether the flat file is there"""
        flat = flat_name(names, nonce)
        yield write(f"tmp/{flat}", names, "awk")
        yield sync(f"tmp/{flat}", f"fold/{run}/", "fold/", "wal/")
        if not (yield from self.moved(f"tmp/{flat}", f"queue/{flat}", "mv flat",
                "the fold is committed")):
            yield rm(f"tmp/{flat}", "rm flat")
            return False
        yield sync("queue/")
        return True

    def unfold(self, flat):
        """queue_unfold: under the lock"""
        if not (yield exists(f"queue/{flat}")):
            return
        run = flat_run(flat)
        if (yield exists(f"tmp/{run}")):
            yield from self.remove((f"tmp/{run}",), "rm stage")
        yield from in_turn(*(rmdir(f"head/{run}") for run in (yield ls("head"))))
        lines = yield read(f"queue/{flat}")
        yield Op("mkdir", (f"tmp/{run}",))
        while lines:
            yield write(f"tmp/{run}/{lines[0]}", "", "awk")
            yield write(f"body/{slip_id(lines[0])}", ("whole",), "awk")
            lines = lines[1:]
        yield Op("syncfs")
        yield mv(f"queue/{flat}", f"unfold/{flat}", "mv flat", "the unfold is committed")
        yield sync("unfold/", "queue/")
        yield from self.unfold_finish(flat)

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
        """bulk_pop, bulk_print, bulk_settle: one round"""
        yield Op("begin")
        batch = f"batch.{me}"
        yield LOCK
        got = yield from self.bulk_choose(batch)
        yield UNLOCK
        if not got:
            if self.fails:
                yield Op("empty")
            return
        yield from in_turn(*(Op("print", (f"out/{batch}/{name}",), "awk")
            for name in (yield from self.names_in(f"out/{batch}"))))
        yield LOCK
        yield create(f"done/{batch}", "settled")
        yield from self.sweep()
        yield UNLOCK

    def bulk_choose(self, batch):
        """bulk_choose, bulk_singles, bulk_flats, bulk_move: take what lies in one place in
        front of all others"""
        while True:
            yield from self.recover()
            at, name = yield from self.scan()
            if not at:
                sure = True
                if self.fails:
                    sure = yield from self.nothing_ready()
                if sure:
                    return False
                continue
            elsewhere = yield from self.bulk_elsewhere(at)
            names = yield ls(at)
            if at == "queue":
                chosen = ()
                while names and is_flat(names[0]):
                    priority, first, last, _, _ = names[0].split(".")
                    if elsewhere and f"{priority}.{last}" >= elsewhere or names[
                            1:] and f"{priority}.{last}" >= names[1]:
                        break
                    chosen, names = (*chosen, names[0]), names[1:]
                # the explorer compares locals: these shall not tell states apart
                priority = first = last = ""  # noqa: F841
                if not chosen:
                    yield from self.unfold(name)
            else:
                chosen = tuple(each for each in names if not elsewhere or each < elsewhere)
            names = elsewhere = name = ""
            if chosen:
                yield Op("mkdir", (f"out/{batch}",))
                while chosen:
                    yield mv(f"{at}/{chosen[0]}", f"out/{batch}/{chosen[0]}", "mv batch")
                    chosen = chosen[1:]
                got = yield from self.names_in(f"out/{batch}")
                if got:
                    return True
                yield rmdir(f"out/{batch}", "")
                got = ()

    def bulk_elsewhere(self, at):
        """queue_scan: the first message in any other place"""
        name = ""
        if at != "wal":
            name = yield least("wal")
        if at != "queue":
            found = yield least("queue")
            name = min(filter(None, (name, found)), default="")
            found = ""
        runs = yield ls("head")
        while runs:
            run, runs = f"head/{runs[0]}", runs[1:]
            if run != at:
                found = yield least(run)
                name = min(filter(None, (name, found)), default="")
                found = ""
        return name

    # bulk/claim.sh, of one name

    def claimer(self, me, most, acts):
        """claim, claim_more, claim_list, settle, unclaim: claim, and then settle all that
        it printed, or unclaim"""
        yield Op("begin")
        yield LOCK
        settled, upto, held = yield from self.claim_recover()
        batch, new = f"batch.{me}", False
        while held < most:
            got = yield from self.bulk_choose(batch)
            if not got:
                break
            inside = yield from self.names_in(f"out/{batch}")
            size = sum(map(messages_of, inside))
            yield mv(f"out/{batch}", f"claim/{upto}.{size}", "mv claim", "claimed")
            held, upto, new, inside, size, got = held + size, upto + size, True, (), 0, False
        if new:
            yield create(f"claim/{upto}.0")
        yield from self.claim_flatten(me)
        yield Op("syncfs")
        yield from in_turn(*(Op("told", (name,))
            for name in self.segments((yield ls("claim")), settled)))
        yield UNLOCK
        if not held:
            return
        settled = held = new = 0
        act = yield Op("choose", acts)
        yield LOCK
        if act == "settle":
            yield from self.claim_settle(upto)
        else:
            yield from self.claim_back(me)
        yield UNLOCK

    def unclaimer(self, me):
        """unclaim: of all"""
        yield LOCK
        yield from self.claim_back(me)
        yield UNLOCK

    @staticmethod
    def segments(names, settled):
        """The segments that are not settled, in the order of their offsets. If one is there twice,
        the flat one counts"""
        return tuple(name for name in names if name[0].isdigit() and segment_count(name)
            and segment_end(name) > settled and f"{name}.flat" not in names)

    def claim_recover(self):
        """claim_open, claim_make, claim_recover: the offset before which all is settled, the next
        offset, and how many messages are held"""
        names = yield from self.names_in("claim")
        if not names:
            yield create("claim/settled.0")
            yield sync("claim/")
            return 0, 0, 0
        settled = int(names[-1].split(".")[1])
        over = tuple(name for name in names if name[0].isdigit()
            and (segment_end(name) <= settled or f"{name}.flat" in names))
        there = tuple(name for name in names if name[0].isdigit() and name not in over)
        upto = max((settled, *map(segment_end, there)))
        held = sum(map(segment_count, there))
        names = there = ()
        while over:
            yield from self.segment_sweep(over[0])
            over = over[1:]
        return settled, upto, held

    def segment_sweep(self, segment):
        """batch_read, batch_remove: a segment; a mark holds no message"""
        yield from self.bodies_remove(tuple(name for name in (yield from self.names_in(
            f"claim/{segment}")) if not is_flat(name)))
        yield from self.remove((f"claim/{segment}",), "rm claim")

    def claim_flatten(self, me):
        """claim_flatten, claim_write: segments of slips become flat files"""
        names = tuple(name for name in (yield from self.names_in("claim")) if name[0].isdigit()
            and segment_count(name) and not name.endswith(".flat"))
        while names:
            segment, names = names[0], names[1:]
            slips = yield from self.names_in(f"claim/{segment}")
            if not is_flat(slips[0]):
                stage = f"tmp/claim.c{me}"
                flat = flat_name(slips, f"c{me}")
                yield Op("mkdir", (stage,))
                yield write(f"{stage}/{flat}", slips, "awk")
                yield Op("syncfs")
                yield mv(stage, f"claim/{segment}.flat", "mv claim", "the segment is flat")
                yield sync("claim/")
                yield from self.segment_sweep(segment)
            segment = slips = stage = flat = ""

    def claim_settle(self, at):
        """claim_settle, claim_ends: all messages before AT; under the lock"""
        settled, _, _ = yield from self.claim_recover()
        names = self.segments((yield from self.names_in("claim")), settled)
        if at <= settled or at not in map(segment_end, names):
            return
        names = ()
        yield mv(f"claim/settled.{settled}", f"claim/settled.{at}", "mv claim", "settled")
        yield sync("claim/")
        yield Op("answered")
        yield from self.claim_recover()

    def claim_back(self, me):
        """claim_back, batch_new: under the lock"""
        settled, upto, _ = yield from self.claim_recover()
        if settled == upto:
            return
        if not (yield exists(f"claim/{upto}.0")):
            yield create(f"claim/{upto}.0")
        names = self.segments((yield from self.names_in("claim")), settled)
        batches = tuple(f"out/batch.{me}.{name}" for name in names)
        while names:
            yield mv(f"claim/{names[0]}", f"out/batch.{me}.{names[0]}", "mv claim")
            names = names[1:]
        yield sync("claim/", "out/")
        names = ()
        yield from each(batches, self.give_back)
        yield Op("syncfs")
        yield mv(f"claim/settled.{settled}", f"claim/settled.{upto}", "mv claim")
        yield sync("claim/")
        yield from self.claim_recover()

    # engine/checkpoint.sh, engine/check.sh

    def checkpoint(self, me):
        """checkpoint, checkpoint_locked, tmp_sweep: without the fold"""
        yield from self.reclaim(me)
        yield LOCK
        yield from self.recover()
        yield from self.claims_recover()
        yield from self.sweep()
        yield from self.remove(tuple(f"tmp/{name}" for name in (yield ls("tmp"))), "rm tmp")
        yield UNLOCK

    def claims_recover(self):
        """claims_recover: of one name"""
        if (yield ls("claim")):
            yield from self.claim_recover()

    def sweeper(self, me):
        """queue_sweep: as queue_reclaim calls it, without recovery"""
        yield LOCK
        if self.drops:
            yield from self.recover()
        yield from self.sweep()
        yield UNLOCK

    def message_held(self, message):
        """not_below: whether a bulk take or a claim has it"""
        batches = tuple(f"out/{name}" for name in (yield ls("out")) if name.startswith("batch."))
        batches += tuple(f"claim/{name}" for name in (yield ls("claim")))
        while batches:
            inside = yield ls(batches[0])
            while inside:
                lines = (inside[0],)
                if is_flat(inside[0]):
                    lines = yield read(f"{batches[0]}/{inside[0]}")
                if has(message, lines):
                    return True
                inside, lines = inside[1:], ()
            batches = batches[1:]
        return False

    def boot(self, me):
        """queue_after_boot: every process is gone; damaged files are set aside"""
        yield LOCK
        yield from self.recover()
        names = yield ls("out")
        while names:
            name, names = names[0], names[1:]
            if not (yield exists(f"done/{name}")):
                if name.startswith("batch."):
                    yield from self.batch_putback(name)
                else:
                    yield from self.putback(name)
        yield from self.unmark()
        yield from self.sweep()
        yield from self.remove(tuple(f"tmp/{name}" for name in (yield ls("tmp"))), "rm tmp")
        yield Op("check")
        yield from self.claims_recover()
        yield UNLOCK

    def unmark(self):
        """boot_markers: a marker may reach the disk without the rename to out/ that came before it.
        The message is ready again then"""
        names = yield ls("done")
        while names:
            name, names = names[0], names[1:]
            if not name.startswith("batch.") and (yield from self.find_slip(slip_id(name))):
                yield rm(f"done/{name}")
            name = ""

    # engine/spool.sh, engine/boot.sh: ids. Here a range has two

    def take_id(self, me):
        """ids_next, ids_last_range, ids_next_range: one id"""
        yield Op("begin", ("push",))
        while True:
            last = int((yield ls("range"))[-1])
            low, high = -1, 2
            while high - low > 1:
                middle = (low + high) // 2
                if (yield exists(f"range/{last}/{middle}")):
                    low = middle
                else:
                    high = middle
            low = middle = 0
            while high < 2:
                if (yield create(f"range/{last}/{high}")):
                    yield Op("id", (2 * last + high,))
                    return
                if not (yield exists(f"range/{last}/{high}")):
                    break
                high += 1
            if high == 2:
                yield LOCK
                if (yield ls("range"))[-1] == str(last):
                    yield Op("mkdir", (f"range/{last + 1}",))
                yield UNLOCK
            last = high = 0

    def take_block(self, me):
        """ids_block: a range for the caller, and a new one for the others"""
        yield Op("begin", ("push",))
        yield LOCK
        last = int((yield ls("range"))[-1])
        yield Op("mkdir", (f"range/{last + 2}",))
        yield UNLOCK
        yield Op("id", (2 * last + 2,))

    def retire(self, me):
        """ids_sweep, ids_sweep_locked: old ranges are closed, then removed"""
        yield LOCK
        ranges = (yield ls("range"))[:-1]
        while ranges:
            yield mv(f"range/{ranges[0]}", f"old/{ranges[0]}")
            yield from self.remove((f"old/{ranges[0]}",), "rm range")
            ranges = ranges[1:]
        yield UNLOCK

    def clock(self, me):
        """Time passes"""
        yield Op("tick")
