"""The disk and the file operations: names of places, slips and flat files, as short as they can be.

PRIORITY.ID.VERSION                a slip; its version, which stands for tries and counts, grows
                                   with each hand-out and each return
SLIP@OWNER+DEADLINE                in out/ and done/; owner 0: none; deadline 0: none
PRIORITY.FIRST.NONCE               a run, in fold/, tmp/ and head/
PRIORITY.FIRST.LAST.COUNT.NONCE    a flat file; its content is its slips
batch.OWNER                        a bulk take, in out/ and done/
gone/PLACE, gone/q                 that place, or the queue, was removed by drop

Digits are single, so that names sort as the real ones do. The disk is a dict from path to content:
"" for an empty file, DIRECTORY, a tuple of words for others. Every function takes the dict and
changes it."""

DIRECTORY = "directory"


def base(path):
    return path.rpartition("/")[2]


def slip_id(path):
    return int(base(path).split("@")[0].split(".")[1])


def is_flat(path):
    return base(path).count(".") == 4


def flat_run(name):
    priority, first, _, _, nonce = name.split(".")
    return f"{priority}.{first}.{nonce}"


def later(name):
    """The slip of NAME with the next version."""
    priority, message, version = name.split("@")[0].split(".")
    return f"{priority}.{message}.{int(version) + 1}"


def owner_and_deadline(name):
    """Of a slip or a batch in out/."""
    if name.startswith("batch."):
        return int(name.split(".")[1]), 0
    return tuple(map(int, name.split("@")[1].split("+")))


def listing(disk, place):
    start = place + "/"
    length = len(start)
    return tuple(sorted(path[length:] for path in disk if path.startswith(start)
        and "/" not in path[length:]))


def below(disk, path):
    """PATH and all that lies in it."""
    start = path + "/"
    return [each for each in disk if each == path or each.startswith(start)]


def gone(disk, path):
    """Whether the directory of PATH does not exist: one below a place, or what drop has removed."""
    return (path.count("/") > 1 and path.rpartition("/")[0] not in disk or "gone/q" in disk
        or f"gone/{path.partition('/')[0]}" in disk)


#: the operations of `act`
ACTS = frozenset("create write rm mkdir rmdir rmplace mv drop exists read ls".split())


def act(disk, kind, path="", more=""):
    """Do it, and return what it answers. MORE: what to write, or the new name."""
    if kind == "exists":
        return path in disk
    if kind == "read":
        return disk.get(path)
    if kind == "ls":
        return listing(disk, path)
    whole = below(disk, path)
    if kind in ("create", "write", "mkdir"):
        if gone(disk, path) or kind == "create" and path in disk:
            return False
        disk[path] = DIRECTORY if kind == "mkdir" else more
    elif kind in ("rm", "rmdir"):
        if whole != [path]:
            return False
        del disk[path]
    elif kind == "mv":
        if path not in disk or gone(disk, more):
            return False
        for each in whole:
            disk[more + each[len(path):]] = disk.pop(each)
    elif kind == "rmplace":
        if listing(disk, path):
            return False
        disk[f"gone/{path}"] = ""
    elif kind == "drop":
        disk.clear()
        disk["gone/q"] = ""
    return True


def messages(disk, *paths):
    """The ids of the messages whose slips or lines are at these paths or below them."""
    found = []
    for each in (each for path in paths for each in below(disk, path)):
        place, content = each.split("/")[0], disk[each]
        if not (content == DIRECTORY or place in ("body", "keys", "range", "old")
                or base(each).startswith("batch.")):
            found += map(slip_id, content if is_flat(each) else [each])
    return found


def slips(disk):
    """The path and the id of each slip in wal/ and head/."""
    return {path: slip_id(path) for path, content in disk.items()
        if content != DIRECTORY and path.startswith(("wal/", "head/"))}
