"""The disk and the file operations: names of places, slips and flat files, as short as they can be.

PRIORITY.ID.VERSION                a slip; its version, which stands for tries and counts, grows
                                   with each hand-out and each return
SLIP@OWNER+DEADLINE                in out/ and done/; owner 0: none; deadline 0: none
PRIORITY.FIRST.NONCE               a run, in fold/, tmp/ and head/
PRIORITY.FIRST.LAST.COUNT.NONCE    a flat file; its content is its slips
batch.OWNER[.SEGMENT]              a bulk take, in out/ and done/
OFFSET.COUNT, OFFSET.COUNT.flat    a segment, in claim/; OFFSET.0 a mark; settled.OFFSET
gone/PLACE, gone/q                 that place, or the queue, was removed by drop

Digits are single, so that names sort as the real ones do. The disk is a dict from path to content:
"" for an empty file, DIRECTORY, a tuple of words for others. Every function takes the dict and
changes it."""

from collections import Counter

DIRECTORY = "directory"


def slip_id(name):
    return int(name.split("@")[0].split(".")[1])


def is_flat(name):
    return name.count(".") == 4


def flat_run(name):
    priority, first, _, _, nonce = name.split(".")
    return f"{priority}.{first}.{nonce}"


def segment_count(name):
    return int(name.split(".")[1])


def segment_end(name):
    return int(name.split(".")[0]) + segment_count(name)


def handed_out(slip, owner, deadline):
    return f"{later(slip)}@{owner}+{deadline}"


def later(name):
    """The slip of NAME with the next version."""
    priority, message, version = name.split("@")[0].split(".")
    return f"{priority}.{message}.{int(version) + 1}"


def owner_and_deadline(name):
    owner, deadline = name.split("@")[1].split("+")
    return int(owner), int(deadline)


def listing(disk, place):
    start = place + "/"
    length = len(start)
    return tuple(sorted(path[length:] for path in disk if path.startswith(start)
        and "/" not in path[length:]))


def below(disk, path):
    """PATH and all that lies in it."""
    start = path + "/"
    return [each for each in disk if each == path or each.startswith(start)]


def rename(disk, old, new):
    """Rename, and return True; return False if OLD does not exist, or the directory of NEW does
    not."""
    if old not in disk or (new.count("/") > 1 and new.rpartition("/")[0] not in disk):
        return False
    for path in below(disk, old):
        disk[new + path[len(old):]] = disk.pop(path)
    return True


#: the operations of `act`
ACTS = frozenset("create write rm mkdir rmdir rmplace drop exists read".split())


def act(disk, kind, path="", content=""):
    """Do it, and return what it answers."""
    whole = below(disk, path)
    if kind == "exists":
        return path in disk
    if kind == "read":
        return disk.get(path)
    if kind == "create":
        place = path.rpartition("/")[0]
        if path in disk or path.count("/") > 1 and place not in disk or gone(disk, path):
            return False
        disk[path] = ""
    elif kind == "write" and not gone(disk, path):
        disk[path] = content
    elif kind == "rm":
        if len(whole) == 1:
            del disk[path]
        return None
    elif kind == "mkdir":
        disk[path] = DIRECTORY
    elif kind == "rmdir":
        if len(whole) != 1:
            return False
        del disk[path]
    elif kind == "rmplace":
        if listing(disk, path):
            return False
        disk[f"gone/{path}"] = ""
    elif kind == "drop":
        disk.clear()
        disk["gone/q"] = ""
    return True if kind in ("create", "rmdir", "rmplace") else None


def gone(disk, path):
    """Whether drop has removed the queue, or the place of PATH."""
    place = path.partition("/")[0]
    return f"gone/{place}" in disk or "gone/q" in disk and place not in ("ids", "range")


def messages(disk, path):
    """The ids of the messages whose slips or lines are at PATH or below it."""
    found = []
    for each in below(disk, path):
        name = each.rpartition("/")[2]
        content = disk[each]
        if content == DIRECTORY or each.startswith(("body/", "keys/", "range/",
                "old/")) or each.startswith("claim/") and each.count("/") == 1:
            continue
        if is_flat(name):
            found += [slip_id(slip) for slip in content]
        elif not name.startswith("batch."):
            found.append(slip_id(name))
    return found


def ready(disk):
    """For each id, how many slips (or lines) it has in places where a take finds it. Each state of
    a fold counts once."""
    count = Counter()
    nonces = {path.rpartition(".")[2] for path in disk if path.startswith("queue/")}
    unfolded = {path.split("/")[1] for path in disk if path.startswith("head/")}
    for path, content in disk.items():
        place, _, name = path.partition("/")
        if content == DIRECTORY or place not in ("wal", "fold", "queue", "unfold", "head"):
            continue
        # a run whose flat file is committed is a copy, and so is a flat file whose slips are in
        # head/, until they are removed
        if place == "fold" and name.split("/")[0].rpartition(".")[2] in nonces:
            continue
        if place == "unfold" and (flat_run(name) in unfolded or f"tmp/{flat_run(name)}" not
                in disk):
            continue
        count.update(messages(disk, path))
    return count


def in_flight(disk):
    """As `ready`, for messages that are handed out and not settled."""
    return Counter(message for path, content in disk.items()
        if path.startswith("out/") and content != DIRECTORY
        and f"done/{path.split('/')[1]}" not in disk for message in messages(disk, path))


def segments(disk):
    """The paths of segments that are claimed and not settled. Slips that have become a flat file
    are a copy until they are removed."""
    upto = max([0, *(int(path.partition(".")[2]) for path in disk
        if path.startswith("claim/settled."))])
    return [path for path in disk if path.startswith("claim/") and path.count("/") == 1
        and disk[path] == DIRECTORY
            and f"{path}.flat" not in disk and segment_end(path[6:]) > upto]


def is_claimed_slip(path):
    return path.startswith("claim/") and path.count("/") == 2 and not is_flat(
        path.rpartition("/")[2])


def claimed(disk):
    """As `ready`, for messages that are claimed and not settled."""
    return Counter(message for path in segments(disk) for message in messages(disk, path))
