"""flatq.spark reads and writes flat files with pyarrow alone, without Spark and without Java."""

import os
import subprocess
import sys
from base64 import b64decode
from pathlib import Path

import pytest

from conftest import ROOT
from engine import pop, push
from servers import module

pa = module("pyarrow")

from flatq.spark import format as flat
from flatq import slips
from flatq.spark import options

BODIES = [b"", b"\0", b"\n", b"\t", b"=", "é".encode(), bytes(range(256)),
    *(os.urandom(size) for size in range(1, 60)), b"x" * 70_000]


def table(pieces, **more):
    return [row for batch in flat.rows(pieces, "jobs", **more) for row in batch.to_pylist()]


def staged(path, bodies, first=1000, **more):
    stage = flat.Stage(str(path), first, "abc123", 176_371_200_012, (500, 4 << 20))
    stage.write(bodies, **more)
    pieces, offset = [], 0
    for file in stage.files:
        pieces.append(flat.flat(file, offset))
        offset += pieces[-1].count
    return pieces


def claim(flatq, *args):
    pieces = []
    for line in flatq("claim", "-c", "me", *args, check=0).out.splitlines():
        offset, count, path = line.decode().split(" ", 2)
        pieces += flat.segment(path, int(offset), int(count))
    return pieces


def ready(flatq, queue="default"):
    return flat.ready(str(flatq.spool), queue)


def test_what_the_verbs_write(flatq):
    """The rows have all of each message, in order."""
    bulk = [body for body in BODIES if b"\0" not in body]
    push(flatq, b"one", "-k", "key")
    flatq("push", "-0", input=b"".join(body + b"\0" for body in bulk), check=0)
    push(flatq, b"urgent", "-p", "7")
    receipt = flatq("reserve", check=0).out.split(b" ")[0].decode()
    flatq("release", receipt, check=0)
    pieces = claim(flatq)
    rows = table(pieces, headers=True)
    assert [row["body"] for row in rows] == [b"urgent", b"one", *bulk]
    assert [(row["offset"], row["queue"], row["tries"]) for row in rows] == [
        (n, "jobs", 2 if n == 0 else 1) for n in range(len(rows))]
    urgent, one, first = (row["headers"] for row in rows[:3])
    assert urgent["priority"] == 7 and urgent["key"] is None
    assert len(one["key"]) == 33 and one["id"] < first["id"]
    pushed = os.path.getmtime(flatq.spool)
    assert all(abs(row["timestamp"].timestamp() - pushed) < 300 for row in rows)
    former = [(row["value"], row["attempts"], "id" in row) for row in table(pieces, old=True)]
    assert former == [(row["body"], row["tries"], False) for row in rows]
    assert [row["id"] for row in rows] == [row["headers"]["id"] for row in rows]
    for row, text in zip(rows, table(pieces, base64=True)):
        assert b64decode(text["body"], validate=True) == row["body"]


@pytest.mark.parametrize("queue", ["a/b", ".x", "a.b", ".a/b;c"])
def test_names_on_disk(flatq, queue):
    push(flatq, b"1", queue)
    assert [row["body"] for row in table(ready(flatq, queue))] == [b"1"]
    flatq("claim", "-c", "me", queue, check=0)
    assert os.path.isdir(flat.claim_dir(str(flatq.spool), queue, "me"))
    [disk] = [name for name in os.listdir(flatq.spool) if flat.is_queue(str(flatq.spool / name))]
    assert (slips.disk_name(queue), flat.queue_name(disk)) == (disk, queue)


def test_tries_of_a_whole_file_count(flatq):
    flatq("push", "-l", input=b"x\n" * 200, check=0)
    claim(flatq)
    flatq("unclaim", "-c", "me", check=0)
    assert {row["tries"] for row in table(claim(flatq))} == {2}


def test_a_queue_that_cannot_be_listed_is_not_empty(flatq, monkeypatch):
    push(flatq, b"x", "q")
    scandir = os.scandir

    def refuse(path):
        if os.fspath(path).endswith("/wal"):
            raise PermissionError(13, os.strerror(13), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError):
        ready(flatq, "q")


def test_a_failed_sync_is_an_error(flatq, tmp_path, monkeypatch):
    """A settle, too, which would delete the messages of a table that is not on the disk."""
    class System:
        def __init__(self, *words, **more):
            pass

        def syncfs(self, file):
            return -1

    monkeypatch.setattr(options.ctypes, "CDLL", System)
    monkeypatch.setattr(options.ctypes, "get_errno", lambda: 5)
    flatq.syncs()
    monkeypatch.delenv("FLATQ_SYNC", raising=False)
    flatq("push", "-l", input=b"1\n", check=0)
    claim(flatq)
    place = options.Place(str(flatq.spool), "default")
    for act in (lambda: options.sync(str(tmp_path)), lambda: place.settle("me", 1)):
        with pytest.raises(OSError, match="Input/output error"):
            act()
    assert place.marks("me") == (0, 1)
    monkeypatch.undo()
    # The system says it once
    with pytest.raises(OSError, match="a sync has failed"):
        place.settle("me", 1)
    flatq("doctor", check=0)
    flatq("unclaim", "-c", "me", check=0)
    claim(flatq)
    assert (place.marks("me"), place.settle("me", 2), place.marks("me")) == ((1, 2), 2, (2, 2))
    flatq("drop", "default", check=0)


def test_files_of_a_stage(tmp_path):
    """500 messages or some MiB at most, no ids across a hundred thousand, and a large message
    alone."""
    sizes = [1] * 1300 + [5 << 20] + [1 << 20] * 5
    pieces = staged(tmp_path, [b"x" * size for size in sizes], first=99_900, priority=3)
    assert [piece.count for piece in pieces][:4] == [100, 500, 500, 200]
    assert max(piece.count for piece in pieces) == 500
    for piece in pieces:
        path = Path(piece.path)
        priority, first, last, count, tries, _ = path.name.split(".")
        assert (priority, int(last) - int(first) + 1, tries) == ("0000000003", int(count), "0")
        assert path.parent.name == f"{priority}.{first[:7]}" and first[:7] == last[:7]
    assert [len(row["body"]) for row in table(pieces)] == sizes


def test_any_range_of_offsets(tmp_path):
    bodies = [b"%d" % n for n in range(1700)]
    pieces = staged(tmp_path, bodies)
    for low, high in ((0, 1), (499, 501), (500, 1000), (5, 5), (1700, 9000)):
        cut = [found for piece in pieces if (found := piece.cut(low, high))]
        rows = [(row["offset"], row["body"]) for row in table(cut)]
        assert rows == list(enumerate(bodies))[low:high]
    for partitions in (1, 2, 3, 8, 200):
        lists = flat.pack(pieces, partitions)
        assert len(lists) <= partitions and all(lists)
        assert [row["body"] for some in lists for row in table(some)] == bodies
    assert max(sum(piece.count for piece in some) for some in flat.pack(pieces, 4)) <= 500
    assert flat.pack([], 3) == []


#: what becomes of lines of a flat file, the eighth of them above all
DAMAGES = {
    "nonsense": lambda line: b"nonsense\n", "empty": lambda line: b"\n",
    "no tab": lambda line: line.replace(b"\t", b" "),
    "shorter": lambda line: line[:-2] + b"\n", "four shorter": lambda line: line[:-5] + b"\n",
    "no ASCII": lambda line: line[:-9] + b"\x80*\n",
    "no base64": lambda line: line[:80] + b"*" + line[81:],
    "NULs": lambda line: b"\0" * 99 + b"\n",
    "no number": lambda line: b"x" + line, "CR": lambda line: line[:80] + b"\r" + line[81:],
    "cut": None, "cut early": None,
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("base64", [False, True])
def test_a_damaged_line(tmp_path, damage, base64):
    """The error names file and line. Where data may be lost, the others are read, at their
    offsets."""
    bodies = [os.urandom(100) for _ in range(1000)]
    pieces = staged(tmp_path, bodies)
    path = Path(pieces[1].path)
    lines = path.read_bytes().splitlines(True)[:20]
    if DAMAGES[damage]:
        lines[7] = DAMAGES[damage](lines[7])
    else:
        lines[-1] = lines[-1][:50 if damage == "cut early" else -1]
    small = path.with_name(path.name.replace(".500.", ".20."))
    path.unlink()
    small.write_bytes(b"".join(lines))
    pieces[1] = flat.flat(str(small), 500)
    says = "line 8 is damaged" if DAMAGES[damage] else "line 20 ends without a newline"
    with pytest.raises(flat.Damaged, match=says) as raised:
        table(pieces, base64=base64)
    assert str(small) in str(raised.value)
    rows = table(pieces, base64=base64, strict=False)
    assert {row["offset"] for row in rows} >= {*range(507), *range(508, 519)} and len(rows) == 519
    if not base64:
        assert all(row["body"] == bodies[row["offset"]] for row in rows)


def test_a_damaged_body(flatq):
    """Of a single message, as a look finds it."""
    for n in range(5):
        push(flatq, b"%d" % n)
    body = sorted((flatq.spool / "default/body").iterdir())[2]
    for text in (b"", b"Mg=", b"Mg=\n=", b"Mg==Mg==\n", b"\n\n"):
        body.write_bytes(text)
        pieces = ready(flatq)
        with pytest.raises(flat.Damaged, match="line 3 is damaged"):
            table(pieces)
        assert [row["body"] for row in table(pieces, strict=False)] == [b"0", b"1", b"3", b"4"]


def test_lost(tmp_path):
    pieces = staged(tmp_path, [b"%d" % n for n in range(1500)])
    file = Path(pieces[1].path)
    rest = [*range(500), *range(1000, 1500)]

    def offsets(**more):
        return [row["offset"] for row in table(pieces, **more)]

    with file.open("rb+") as lines:
        lines.readline()
        lines.truncate(lines.tell())
    with pytest.raises(flat.Lost, match="1 lines, and its name says 500"):
        table(pieces)
    assert offsets(strict=False) == sorted([*rest, 500])
    file.unlink()
    with pytest.raises(flat.Lost, match="the file is missing, with 500 messages"):
        table(pieces)
    assert offsets(strict=False) == offsets(vanish=True) == rest
    segment, none = file.parent, str(tmp_path / "none")
    with pytest.raises(flat.Lost, match="1000 of 1500 messages are there"):
        flat.segment(str(segment), 0, 1500)
    with pytest.raises(flat.Lost, match="0 of 5"):
        flat.segment(none, 0, 5)
    assert flat.segment(none, 0, 5, False) == []
    (segment / "strange").touch()
    with pytest.raises(flat.Damaged, match="not a flat file's name"):
        flat.segment(str(segment), 0, 1500)


def test_a_look_at_what_is_ready(flatq):
    """It has all ready messages, each once, wherever they lie, and no other message."""
    flatq("push", "-l", input=b"".join(b"%d\n" % n for n in range(700)), check=0)
    assert pop(flatq) == b"0"
    singles = [b"single %d" % n for n in range(5)]
    for body in singles:
        push(flatq, body)
    push(flatq, b"delayed", "-d", "1000")
    flatq("reserve", check=0)
    rows = table(ready(flatq), vanish=True)
    expected = [*(b"%d" % n for n in range(2, 700)), *singles]
    assert sorted(row["body"] for row in rows) == sorted(expected)
    assert len({row["offset"] for row in rows}) == len(expected)
    assert {row["tries"] for row in rows} == {0}
    flatq("drain", check=0)
    assert table(ready(flatq)) == []
    with pytest.raises(FileNotFoundError):
        ready(flatq, "none")


def test_what_a_killed_fold_or_unfold_has_left_counts_once(flatq):
    """It was killed just before it removed the first copy."""
    top = flatq.spool / "default"
    for n in range(6):
        push(flatq, b"%d" % n)
    flatq("wal", env={"FLATQ_FOLD": "5"}, check=0)
    [file] = top.glob("queue/*/*")
    lines = [line.split(b"\t") for line in file.read_bytes().splitlines()]
    priority, first, *_, nonce = file.name.split(".")

    def left(place, lines):
        run = top / place / f"{priority}.{first}.{nonce}"
        run.mkdir()
        for slip, text in lines:
            (run / slip.decode()).touch()
            (top / "body" / slip.decode().split(".")[1]).write_bytes(text + b"\n")

    def there(first, last):
        found = sorted(row["body"] for row in table(ready(flatq), vanish=True))
        assert options.Place(str(flatq.spool), "default").ready() == len(found)
        assert found == [b"%d" % n for n in range(first, last)]

    push(flatq, b"6")
    left("fold", lines[:4])
    there(0, 7)
    push(flatq, b"7")
    assert flatq("wal", check=0).err == b""
    there(0, 8)
    file.rename(top / "unfold" / file.name)
    # another consumer has taken the first one meanwhile
    left("head", lines[1:])
    there(1, 8)


def test_a_fold_after_the_look_at_wal_counts_once(flatq, monkeypatch):
    for n in range(6):
        push(flatq, b"%d" % n)
    walk = os.walk

    def folded(top, **more):
        if top.endswith("/fold"):
            flatq("wal", env={"FLATQ_FOLD": "5"}, check=0)
        return walk(top, **more)

    monkeypatch.setattr(flat.os, "walk", folded)
    assert sum(piece.count for piece in ready(flatq)) == 6


def test_a_large_file_without_spark(tmp_path):
    """Where there is no PySpark. The file has 400 MB of large messages, of which a part is in
    memory at a time."""
    path = tmp_path / f"0000065536.{1000:012d}.{1399:012d}.400.0.abc"
    body = b"QUJD" * 250_000
    with path.open("wb") as file:
        for n in range(400):
            file.write(b"0000065536.%012d.0.0.60.0.176371200012.750000.-.0-0-0-0\t%s\n" % (1000 + n,
                body))
    code = f"""
import resource, sys
sys.modules["pyspark"] = None
sys.path.insert(0, {str(ROOT / "python")!r})
from flatq.spark import format as flat
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
count = sum(batch.num_rows for batch in flat.rows([flat.flat({str(path)!r}, 0)], "q"))
print(count, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    count, grown = map(int, done.stdout.split())
    assert count == 400 and grown < 150, done
