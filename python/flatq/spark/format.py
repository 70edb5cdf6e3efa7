"""How messages lie on the disk (lib/README.md). It needs pyarrow, but neither Spark nor Java."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import os
import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from ..slips import Flat, Slip, disk_name, flat_of, slip_of

#: Rows, and bytes of a flat file, that make one batch of rows
ROWS, BYTES = 16384, 4 << 20

#: What lies between the dots of a line; `rest` has COUNTS, a tab and the body
_FIELDS = [*Slip._fields, "rest"]
_TYPES = {**dict.fromkeys(("priority", "id", "tries", "born", "size"), pa.int64()),
    "key": pa.binary(), "rest": pa.binary()}
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

HEADERS = pa.struct([("id", pa.int64()), ("priority", pa.int64()), ("key", pa.string())])
#: A row's message: in a table that becomes messages, one of these columns
BODY = ("body", "value")


class Damaged(ValueError):
    """A line is malformed, or a body does not match its slip."""


class Lost(LookupError):
    """Messages are missing: a segment, a flat file, or lines of one."""


def schema(headers: bool = False, base64: bool = False, old: bool = False) -> pa.Schema:
    """The columns; old: those before."""
    return pa.schema([
        ("queue", pa.string()), *([] if old else [("id", pa.int64())]), ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        (BODY[old], pa.string() if base64 else pa.binary()),
        ("attempts" if old else "tries", pa.int32()), *([("headers", HEADERS)] if headers else []),
    ])


@dataclass(frozen=True)
class Piece:
    """`count` lines from `skip` on of a flat file of `lines`; or slips, with bodies in `path`.

    offset: of the first row; None: a row's offset is its id. tries: beside those of the slips."""

    path: str
    count: int
    lines: int
    tries: int = 0
    skip: int = 0
    offset: int | None = None
    slips: tuple[str, ...] = ()

    @property
    def name(self) -> Flat:
        """What the flat file's name says."""
        said = flat_of(os.path.basename(self.path))
        assert said is not None
        return said

    def part(self, low: int, high: int) -> Piece:
        """The rows from number low to below high."""
        return replace(self, count=high - low, skip=self.skip + low, slips=self.slips[low:high],
            offset=None if self.offset is None else self.offset + low)

    def cut(self, low: int, high: int) -> Piece | None:
        """The part with those offsets."""
        assert self.offset is not None
        low, high = max(low - self.offset, 0), min(high - self.offset, self.count)
        return self.part(low, high) if low < high else None


def listed(path: str) -> list[str]:
    """The names in a directory; none if it is gone. One that cannot be listed is not empty."""
    with contextlib.suppress(FileNotFoundError):
        return os.listdir(path)
    return []


def flat(path: str, offset: int | None = None, tries: int = 0) -> Piece | None:
    """The flat file at path; None if its name is not one's."""
    said = flat_of(os.path.basename(path))
    return Piece(path, said.lines, said.lines, said.tries + tries, 0, offset) if said else None


def segment(path: str, offset: int, count: int, strict: bool = True) -> list[Piece]:
    """The flat files of a segment of `claim`, which counts as a try. Raises Lost if they do not
    have `count` messages; if not `strict`, only for more."""
    pieces, end = [], offset
    for name in sorted(listed(path)):
        piece = flat(os.path.join(path, name), end, 1)
        if piece is None:
            raise Damaged(f"{path}/{name}: not a flat file's name")
        pieces.append(piece)
        end += piece.count
    if end - offset > count or end - offset < count and strict:
        raise Lost(f"{path}: {end - offset} of {count} messages are there")
    return pieces


def queue_name(disk: str) -> str:
    return disk.removeprefix("%").replace(",", "/")


def is_queue(path: str) -> bool:
    """Whether this directory of a spool is a queue's."""
    return os.path.isdir(os.path.join(path, "wal"))


def claim_dir(spool: str, queue: str, consumer: str) -> str:
    return os.path.join(spool, disk_name(queue), "claimed", consumer)


def marks(spool: str, queue: str, consumer: str) -> list[int]:
    """The offset up to which `consumer` has settled, then the ends of all its later claims,
    whatever became of them."""
    names = listed(claim_dir(spool, queue, consumer))
    settled = max((int(name[8:]) for name in names if re.fullmatch(r"settled\.[0-9]{12}", name)),
        default=0)
    claims = (re.fullmatch(r"([0-9]{12})\.([0-9]+)(\.flat)?", name) for name in names)
    ends = {int(claim[1]) + int(claim[2]) for claim in claims if claim}
    return [settled, *sorted(end for end in ends if end > settled)]


def _listing_failed(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def ready(spool: str, queue: str) -> list[Piece]:
    """The ready messages of a queue, each once: its places are listed in the order in which
    messages move. Raises FileNotFoundError."""
    top = os.path.join(spool, disk_name(queue))
    os.stat(os.path.join(top, "wal"))
    flats: dict[str, Piece] = {}
    slips: dict[str, str] = {}
    heads: set[str] = set()
    for place in ("wal", "fold", "queue", "unfold", "head"):
        walk = os.walk(os.path.join(top, place), onerror=_listing_failed)
        for directory, _, names in sorted(walk):
            if place == "head":
                heads.add(os.path.basename(directory))
            for name in sorted(names):
                if piece := flat(os.path.join(directory, name)):
                    flats[name] = piece
                elif slip := slip_of(name):
                    slips[slip.body] = name
    found = sorted(name[:23] for name in slips.values())
    for name, piece in list(flats.items()):
        # CRASH: a killed unfold leaves its flat file beside its run (PRIORITY.ID.NONCE) in head/:
        # count the slips. A killed fold leaves its slips beside the flat file: count that, whose
        # lines begin with PRIORITY.ID. RACE: so does a fold after our look at wal/
        if f"{name[:23]}.{piece.name.nonce}" in heads:
            del flats[name]
            continue
        at = bisect.bisect_left(found, name[:23])
        if at < len(found) and found[at] <= name[:11] + name[24:36]:
            with contextlib.suppress(FileNotFoundError), open(piece.path, "rb") as file:
                for line in file:
                    slips.pop(line[11:23].decode(errors="replace"), None)
    singles = tuple(slips.values())
    rest = Piece(os.path.join(top, "body"), len(singles), len(singles), slips=singles)
    return [*flats.values(), *([rest] if singles else [])]


def pack(pieces: Sequence[Piece], partitions: int) -> list[list[Piece]]:
    """Split the pieces into at most so many lists, in order, of about equally many messages."""
    whole = sum(piece.count for piece in pieces)
    lists: list[list[Piece]] = [[] for _ in range(max(1, partitions))]
    share, before = -(-whole // len(lists)), 0
    for piece in pieces:
        for low in range(0, piece.count, share):
            part = piece.part(low, min(low + share, piece.count))
            lists[(before + part.count // 2) * len(lists) // whole].append(part)
            before += part.count
    return [some for some in lists if some]


@dataclass
class _Block:
    """Whole lines of one piece."""

    piece: Piece
    first: int
    count: int
    data: bytes

    @property
    def offset(self) -> int | None:
        """The offset of the first line; None if offsets are ids."""
        base = self.piece.offset
        return None if base is None else base + self.first - self.piece.skip

    def follows(self, other: _Block) -> bool:
        """Whether both can be in one batch of rows."""
        end = None if other.offset is None else other.offset + other.count
        return (self.offset, self.piece.tries) == (end, other.piece.tries)

    def lines(self) -> list[_Block]:
        return [_Block(self.piece, self.first + at, 1, line + b"\n")
            for at, line in enumerate(self.data.split(b"\n")[:-1])]


def _singles(piece: Piece) -> Iterator[_Block]:
    """Single messages as the lines of a flat file. Those that are gone were taken meanwhile."""
    lines: list[bytes] = []
    size = first = 0
    for name in piece.slips:
        slip = slip_of(name)
        assert slip is not None
        with contextlib.suppress(FileNotFoundError), \
                open(os.path.join(piece.path, slip.body), "rb") as file:
            lines.append(b"%b\t%b\n" % (name.encode(), file.read().partition(b"\n")[0]))
            size += len(lines[-1])
        if size > BYTES:
            yield _Block(piece, first, len(lines), b"".join(lines))
            first, size, lines = first + len(lines), 0, []
    if lines:
        yield _Block(piece, first, len(lines), b"".join(lines))


def _blocks(piece: Piece, strict: bool, vanish: bool) -> Iterator[_Block]:
    """The lines of a piece in blocks of about BYTES. Raises Lost if lines are missing and
    `strict`."""
    if piece.slips:
        yield from _singles(piece)
        return
    try:
        flat_file = open(piece.path, "rb", buffering=0)
    except FileNotFoundError:
        if strict and not vanish:
            raise Lost(f"{piece.path}: the file is missing, with {piece.lines} messages") from None
        return
    line, end, rest = 0, piece.skip + piece.count, b""
    with flat_file:
        while read := flat_file.read(BYTES):
            data = rest + read
            cut = data.rfind(b"\n") + 1
            data, rest = data[:cut], data[cut:]
            count = data.count(b"\n")
            low, high = max(piece.skip - line, 0), min(end - line, count)
            if low < high:
                if high - low < count:
                    data = b"".join(data.splitlines(True)[low:high])
                yield _Block(piece, line + low, high - low, data)
            line += count
    if not strict:
        return
    if rest:
        raise Damaged(f"{piece.path}: line {line + 1} ends without a newline")
    if line != piece.lines:
        raise Lost(f"{piece.path}: {line} lines, and its name says {piece.lines}")


def _decode(data: bytes, count: int, base64: bool) -> pa.Table:
    """Columns priority, id, tries, born, key and value. Raises ValueError if anything is wrong."""
    table = csv.read_csv(
        pa.BufferReader(data),
        csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=_FIELDS),
        csv.ParseOptions(delimiter=".", quote_char=False, ignore_empty_lines=False),
        csv.ConvertOptions(check_utf8=False, column_types=_TYPES, strings_can_be_null=False,
        include_columns=list(_TYPES)),
    ).combine_chunks()
    if table.num_rows != count:
        raise ValueError("not so many lines")
    rest, size = table["rest"].chunk(0), table["size"].chunk(0)
    if pc.all(pc.starts_with(rest, b"0-0-0-0\t")).as_py():
        body = pc.binary_slice(rest, 8, 1 << 30)
    else:
        pairs = [one.split(b"\t") for one in rest.to_pylist()]
        body = pa.array([text for _, text in pairs], pa.binary())
    whole = pc.divide(pc.add(size, 2), 3)
    if not pc.all(pc.equal(pc.binary_length(body), pc.multiply(whole, 4))).as_py():
        raise ValueError("not as long as the slip says")
    if base64:
        # decoders drop characters that are not base64 and report nothing, so compare the lengths
        padding = pc.sum(pc.subtract(pc.multiply(whole, 3), size)).as_py()
        text = body.buffers()[2]
        if (text.to_pybytes() if text else b"").translate(None, _ALPHABET) != b"=" * padding:
            raise ValueError("not base64")
        value = body.cast(pa.string())
    else:
        value = pa.array(list(map(a2b_base64, body.to_pylist())), pa.binary())
        if not pc.all(pc.equal(pc.binary_length(value), size)).as_py():
            raise ValueError("not base64")
    columns = {name: table[name].chunk(0) for name in ("priority", "id", "tries", "born", "key")}
    return pa.table({**columns, "value": value})


def _decoded(blocks: list[_Block], base64: bool,
        strict: bool) -> Iterator[tuple[_Block, pa.Table]]:
    """The rows of blocks, with the block that each table begins in. Where something is wrong,
    decodes each block and then each line alone: Damaged names the line."""
    count = sum(block.count for block in blocks)
    try:
        table = _decode(b"".join(block.data for block in blocks), count, base64)
    except (ValueError, pa.ArrowException):
        if count > 1:
            for one in blocks if len(blocks) > 1 else blocks[0].lines():
                yield from _decoded([one], base64, strict)
        elif strict:
            raise Damaged(f"{blocks[0].piece.path}: line {blocks[0].first + 1} is damaged: not a "
                "slip, a tab, and base64 of as many bytes as the slip says") from None
        return
    yield blocks[0], table


def rows(pieces: Iterable[Piece], queue: str, *, headers: bool = False, base64: bool = False,
        old: bool = False, strict: bool = True,
        vanish: bool = False) -> Iterator[pa.RecordBatch]:
    """The messages of pieces as batches of rows, in order. About BYTES at a time are in memory.

    strict: raise Lost or Damaged for a message that is missing or damaged; else it is left out.
    vanish: files may disappear, since others take messages."""
    like = schema(headers, base64, old)

    def batch(block: _Block, table: pa.Table) -> pa.RecordBatch:
        plain = {name: table[name].chunk(0) for name in table.column_names}
        count, offset = table.num_rows, plain["id"]
        if block.offset is not None:
            # faster than range()
            offset = pc.cumulative_sum(pa.repeat(1, count), start=block.offset - 1)
        columns = [
            pa.repeat(pa.scalar(queue, pa.string()), count),
            *([] if old else [plain["id"]]), offset,
            pc.multiply(plain["born"], 10000).cast(pa.timestamp("us", tz="UTC")), plain["value"],
            pc.add(plain["tries"], block.piece.tries).cast(pa.int32()),
        ]
        if headers:
            key = plain["key"].cast(pa.string())
            key = pc.if_else(pc.equal(key, "-"), pa.scalar(None, pa.string()), key)
            columns.append(pa.StructArray.from_arrays([plain["id"], plain["priority"], key],
                fields=list(HEADERS)))
        return pa.RecordBatch.from_arrays(columns, schema=like)

    held: list[_Block] = []
    count = size = 0
    for piece in pieces:
        for block in _blocks(piece, strict, vanish):
            count, size = count + block.count, size + len(block.data)
            if held and (count > ROWS or size > BYTES or not block.follows(held[-1])):
                yield from itertools.starmap(batch, _decoded(held, base64, strict))
                held, count, size = [], block.count, len(block.data)
            held.append(block)
    if held:
        yield from itertools.starmap(batch, _decoded(held, base64, strict))


class Stage:
    """Flat files for a queue to take in, as a bulk push stages them:
    `directory`/PRIORITY.BLOCK/FLAT. The ids of a file do not cross a hundred thousand.

    born: hundredths of a second since 1970. most: messages and bytes of a flat file, as
    lib/bulk/stage.sh prints them."""

    def __init__(self, directory: str, first: int, nonce: str, born: int, most: tuple[int, int],
            lease: int = 60) -> None:
        self.directory, self.next, self.nonce = directory, first, nonce
        # base64 makes four bytes of three
        self.rows, self.bytes = most[0], most[1] // 4 * 3
        self.middle = f".0.0.{lease}.0.{born:012d}."
        self.files: list[str] = []

    def write(self, bodies: Sequence[bytes], priority: int = 65536) -> None:
        """Store bodies, in order, with the next ids."""
        at = 0
        # the form of a line, by size: there are few sizes and many rows
        forms: dict[int, bytes] = {}
        while at < len(bodies):
            first = self.next
            some = bodies[at:at + min(self.rows, 100000 - first % 100000)]
            sizes = list(map(len, some))
            fit = max(1, bisect.bisect_right(list(itertools.accumulate(sizes)), self.bytes))
            some, sizes = some[:fit], sizes[:fit]
            forms.update((size, f"{priority:010d}.%012d{self.middle}{size}.-.0-0-0-0\t%b".encode())
                for size in set(sizes).difference(forms))
            # one step for all lines takes half the time of a step for each
            fields = zip(range(first, first + len(some)), map(b2a_base64, some))
            form = b"".join(map(forms.__getitem__, sizes))
            lines = form % tuple(itertools.chain.from_iterable(fields))
            self.next, at = first + len(some), at + len(some)
            name = f"{priority:010d}.{first:012d}"
            block = os.path.join(self.directory, name[:18])
            path = f"{block}/{name}.{self.next - 1:012d}.{len(some)}.0.{self.nonce}"
            os.makedirs(block, exist_ok=True)
            with open(path, "xb") as file:
                file.write(lines)
            self.files.append(path)
