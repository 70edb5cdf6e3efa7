"""The data source: batch and stream readers over `claim`. sink.py has the writers, format.py the
format on the disk."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped,import-not-found,unused-ignore]
from pyspark.sql.datasource import (
    DataSource, DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter,
    EqualTo, Filter, GreaterThan,
    GreaterThanOrEqual, In, InputPartition, IsNotNull, LessThan, LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from . import format as flat
from .format import Lost
from .options import MOST, Options, Place, Segment
from .sink import StreamWriter, Writer


@dataclass(frozen=True)
class Part(InputPartition):
    """The part that one task reads. `ids`: only offsets from the first to below the second."""

    pieces: tuple[tuple[Place, tuple[flat.Piece, ...]], ...] = ()
    ids: tuple[int, int] | None = None
    vanish: bool = False


def _parts(pieces: list[tuple[Place, flat.Piece]], partitions: int,
        **more: Any) -> list[InputPartition]:
    where = {piece.path: place for place, piece in pieces}
    parts: list[InputPartition] = []
    for some in flat.pack([piece for _, piece in pieces], partitions):
        runs = [(place, tuple(run)) for place, run in itertools.groupby(some,
            lambda piece: where[piece.path])]
        parts.append(Part(tuple(runs), **more))
    return parts


def _claimed(place: Place, held: Iterable[Segment], low: int, high: int,
        strict: bool) -> Iterator[flat.Piece]:
    """The flat files with offsets from low to below high. Raises Lost if a part of them is not held
    and `strict`."""
    at = low
    for segment in sorted(held, key=lambda segment: segment.offset):
        if segment.end <= low or segment.offset >= high:
            continue
        if segment.offset > at and strict:
            break
        for piece in flat.segment(segment.path, segment.offset, segment.count, strict):
            found = piece.cut(low, high)
            if found:
                yield found
        at = segment.end
    if at < high and strict:
        raise Lost(
            f"queue '{place.queue}': what was claimed as offsets {at} and following, before {high}, is not there any more: deleted, "
            "unclaimed or settled by somebody else. Messages may be lost; option failOnDataLoss=false goes on without them"
        )


class _Reads:
    """The common part of the batch and the stream reader."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self.options
        if not isinstance(partition, Part):
            return
        for place, pieces in partition.pieces:
            yield from flat.rows(
                pieces, place.queue, place.host, headers=options.headers, base64=options.base64,
                with_host=options.wild,
                strict=options.strict, vanish=partition.vanish, ids=partition.ids,
            )


class Reader(_Reads, DataSourceReader):
    def __init__(self, options: Options) -> None:
        super().__init__(options)
        if options.starting and options.consumer is None:
            raise ValueError("option startingOffsets: only with a consumer")
        self.queues: set[str] | None = None
        self.low, self.high = 0, 1 << 62

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters that say which queue, or between which offsets."""
        for one in filters:
            column, value = getattr(one, "attribute", ()), getattr(one, "value", None)
            if column in (("queue",), ("offset",)) and isinstance(one, IsNotNull):
                continue
            if column == ("queue",) and isinstance(one, (EqualTo, In)):
                wanted: set[Any] = set(value or ()) if isinstance(one, In) else {value}
                self.queues = wanted if self.queues is None else self.queues & wanted
            elif column == ("offset",) and isinstance(value, int) and isinstance(one,
                    (EqualTo, GreaterThan, GreaterThanOrEqual)):
                self.low = max(self.low, value + isinstance(one, GreaterThan))
                if isinstance(one, EqualTo):
                    self.high = min(self.high, value + 1)
            elif column == ("offset",) and isinstance(value, int) and isinstance(one,
                    (LessThan, LessThanOrEqual)):
                self.high = min(self.high, value + isinstance(one, LessThanOrEqual))
            else:
                yield one

    def partitions(self) -> Sequence[InputPartition]:
        options, found = self.options, []
        for place in options.places():
            if self.queues is not None and place.queue not in self.queues:
                continue
            for piece in self.ready(place) if options.consumer is None else self.held(place,
                    options.consumer):
                found.append((place, piece))
        count = sum(piece.count for _, piece in found)
        if options.consumer is None:
            ids = (self.low, self.high) if (self.low, self.high) != (0, 1 << 62) else None
            return _parts(found, options.parallel(count), ids=ids, vanish=True) or [Part()]
        return _parts(found, options.parallel(count)) or [Part()]

    def ready(self, place: Place) -> list[flat.Piece]:
        try:
            return flat.ready(place.spool, place.queue)
        except FileNotFoundError:
            raise LookupError(f"no queue '{place.queue}' in {place.spool}") from None

    def held(self, place: Place, consumer: str) -> Iterator[flat.Piece]:
        options = self.options
        low, high = place.marks(consumer)[0], None
        if options.starting is not None and place.key not in options.starting:
            raise ValueError(f"option startingOffsets: nothing is said of queue {place.key!r}")
        first = (options.starting or {}).get(place.key, low)
        if low > first and options.strict:
            raise Lost(f"queue '{place.queue}': what was claimed from offset {first} on was settled or unclaimed up to {low}: somebody else reads as "
                       f"consumer '{consumer}', or the `with` of claimed() has ended")
        if options.ending is not None:
            if place.key not in options.ending:
                raise ValueError(f"option endingOffsets: nothing is said of queue {place.key!r}")
            high = options.ending[place.key]
        most = min(options.limit or MOST, MOST if high is None else max(high - low, 0))
        held = place.claim(consumer, most)
        end = min(place.marks(consumer)[1], low + most)
        yield from _claimed(place, held, max(low, first, self.low), min(end, self.high),
            options.strict)


class StreamReader(_Reads, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets as Spark keeps them: {"path": SPOOL, "consumer": NAME, "offsets": {QUEUE: OFFSET}}.
    The numbers are those of `claim`."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.consumer = options.consumer or ""
        self._places: list[Place] | None = None
        self.target: dict[str, int] | None = None
        self.locks: dict[str, int] = {}
        self.most = MOST
        self.held: dict[str, list[Segment]] = {}
        # this thread settles, and claims for the next batch, while Spark works on the current one
        self.beside: ThreadPoolExecutor | None = None
        self.under_way: list[Future[None]] = []

    @property
    def places(self) -> list[Place]:
        # Not in __init__: for errors there, PySpark reports only that there is no reader
        if not self.consumer:
            raise ValueError(
                "option consumer is missing: the name that a stream claims messages as, its own alone (letters, digits, - and _)")
        if self.options.starting is not None:
            raise ValueError(
                "option startingOffsets: only 'earliest': a work queue has no past that could be left out")
        if self._places is None:
            self._places = self.options.places()
        return self._places

    def _offset(self, offsets: dict[str, int]) -> dict[str, Any]:
        return {"path": self.options.path, "consumer": self.consumer, "offsets": offsets}

    def _offsets(self, offset: dict[str, Any]) -> dict[str, int]:
        if offset.get("consumer") != self.consumer:
            raise ValueError(
                f"this checkpoint is of consumer {offset.get('consumer')!r}, and the option says {self.consumer!r}")
        return dict(offset["offsets"])

    def _claim(self, place: Place, most: int) -> list[Segment]:
        """As Place.claim. From then on no other process may read as this consumer, as long as this
        process lives."""
        self._lock(place)
        held = self.held[place.key] = place.claim(self.consumer, most)
        self._lock(place)
        return held

    def _begun(self, place: Place) -> None:
        """Look up what the consumer holds already. Raises LookupError if there is no such queue."""
        if place.key not in self.held:
            self._claim(place, 0)

    def _claim_up_to(self, place: Place, end: int) -> int:
        """Claim up to that offset, if it is not claimed yet and so much is ready. Return the offset
        up to which messages are claimed."""
        done, last = place.marks(self.consumer)
        if last < end:
            self._claim(place, end - done)
            last = place.marks(self.consumer)[1]
        return last

    def _begin(self, act: Callable[[], None]) -> None:
        self.beside = self.beside or ThreadPoolExecutor(1)
        self.under_way.append(self.beside.submit(act))

    def _await(self) -> None:
        """Wait until what was begun is done. Raises what it raised."""
        while self.under_way:
            self.under_way.pop(0).result()

    def stop(self) -> None:
        if self.beside:
            self.beside.shutdown()

    def _lock(self, place: Place) -> None:
        if place.key not in self.locks and (number := place.lock(self.consumer)) is not None:
            self.locks[place.key] = number

    def initialOffset(self) -> dict[str, Any]:
        for place in self.places:
            self._begun(place)
        return self._offset({place.key: place.marks(self.consumer)[0] for place in self.places})

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.options.limit) if self.options.limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = {}
        for place in self.places:
            self._begun(place)
            self.target[place.key] = place.marks(self.consumer)[1] + place.ready()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._await()
        left = self.most = limit.max_rows if isinstance(limit, ReadMaxRows) else MOST
        before, ends = self._offsets(start), {}
        for place in self.places:
            low = before.get(place.key)
            self._begun(place)
            done, last = place.marks(self.consumer)
            if low is None:
                # A queue that the query did not read before: an empty batch records where it begins
                if last > done:
                    raise Lost(
                        f"consumer '{self.consumer}' holds messages of queue '{place.queue}', but this checkpoint has never read {place.key!r}. If the spool "
                        f"was read under another path, finish there first; to hand the messages out again: flatq unclaim -c {self.consumer} {place.queue}"
                    )
                ends[place.key] = done
                continue
            if low > last:
                raise Lost(
                    f"queue '{place.queue}': this checkpoint stands at offset {low}, and consumer '{self.consumer}' has claimed no more than "
                    f"{last}: this is another spool, or an older copy of it. Begin anew, with another checkpoint"
                )
            if low < done and self.options.strict:
                raise Lost(
                    f"queue '{place.queue}': this checkpoint stands at offset {low}, and consumer '{self.consumer}' has settled up to {done}: "
                    "another query reads as it, or it was unclaimed. Option failOnDataLoss=false goes on with what is there"
                )
            most = min(left, MOST if self.target is None else max(self.target.get(place.key,
                0) - low, 0))
            end = min(max(low, self._claim_up_to(place, low + most)), low + most)
            left -= end - low
            ends[place.key] = end
        ends = {**before, **ends}
        return start if ends == before else self._offset(ends)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        before, ends = self._offsets(start), self._offsets(end)
        found = []
        for place in self.places:
            if place.key not in ends:
                continue
            high = ends[place.key]
            low = before.get(place.key, high)
            if low < high:
                held = self.held.get(place.key, [])
                if not any(segment.end >= high for segment in held):
                    self._await()
                    held = self._claim(place, 0)
                found += [(place, piece) for piece in _claimed(place, held, low, high,
                    self.options.strict)]
        gone = sorted(set(ends) - {place.key for place in self.places})
        if gone and any(ends[key] != before.get(key) for key in gone):
            raise ValueError(
                f"this checkpoint reads queue {gone[0]!r} too, and the option queue does not name it")
        if self.target is not None and self.most < MOST:
            # the next batch follows at once, so claim it now
            self._begin(lambda: self._ahead(ends))
        return _parts(found, self.options.parallel(sum(piece.count for _, piece in found)))

    def _ahead(self, ends: dict[str, int]) -> None:
        left = self.most
        for place in self.places:
            low = ends.get(place.key, 0)
            high = min(low + left, (self.target or {}).get(place.key, 0))
            if low < high:
                left -= max(0, min(self._claim_up_to(place, high), high) - low)

    def commit(self, end: dict[str, Any]) -> None:
        ends = self._offsets(end)
        self._begin(lambda: self._settle(ends))

    def _settle(self, ends: dict[str, int]) -> None:
        for place in self.places:
            if place.key in ends:
                place.settle(self.consumer, ends[place.key])


class FlatqSource(DataSource):
    """`spark.read.format("flatq")`, `readStream`, `write` and `writeStream`: a queue's messages as
    a table, and a table's rows as messages.

    Columns: queue string, offset bigint, timestamp timestamp (when it was pushed), value binary,
    attempts int (how often it was handed out, this time included); with includeHeaders also headers
    struct<id bigint, priority bigint, key string> (key: the hash of `push -k`); and host string in
    front, where the path has wildcards.

    | option | read, write | default | means |
    | --- | --- | --- | --- |
    | path | both | $FLATQ_DIR, as for the verbs | the spool; for reading, wildcards select several: `host` is then what the first one matches |
    | queue | both | default | the queue; for reading, several with commas; for writing, a column `queue` overrides it for each row |
    | consumer | read | none | the name to claim messages as; a stream must have one, which no other reader uses |
    | maxOffsetsPerTrigger | read | all that is ready | messages in a batch of a stream; the most that a batch read holds |
    | startingOffsets | read | earliest | in a batch with a consumer also such as `{"jobs": 600}`: from there on, and an error if any of that is settled |
    | endingOffsets | batch | latest | or such as `{"jobs": 700}`: only messages with offsets below |
    | minPartitions | read | as many as cores here; one for less than 10,000 messages | tasks |
    | failOnDataLoss | read | true | false: leave out messages that are missing or damaged |
    | includeHeaders | read | false | the column headers |
    | base64 | read | false | true: `value` is string, base64, for Spark's own unbase64(value), which is faster than Python |
    | jobId | batch write | none | the write's id: a second write with it finishes the first if that was killed, else writes nothing |
    | priority, lease | write | 65536, 60 | as for `push`; a column `priority` overrides it for each row |
    | wait | write | 0 | seconds to wait for room in a queue with a bound |

    **Batch read.** With a consumer, it claims what is ready and reads all that the consumer holds.
    The messages stay claimed, whichever process dies, and are read again next time, until they are
    settled; `flatq.spark.claimed` does both in a `with`. Without a consumer, it only looks at what
    is ready and takes nothing; `offset` is then the message's id, and messages that others take
    meanwhile may be missing.

    **Stream.** A batch's messages are claimed before Spark plans it (with Trigger.AvailableNow and
    a limit, while the batch before it runs), and settled once the next batch has begun. So shell
    consumers may work beside it, a batch that is planned again after a crash is the same, and sinks
    that Spark commits exactly once have each message once. The last batch is settled by the first
    batch of the next start, or by `flatq.spark.run` and `flatq.spark.settle_checkpoint`. Before
    that, what Spark has written is synced (`FLATQ_SYNC=off`: not)."""

    @classmethod
    def name(cls) -> str:
        return "flatq"

    def schema(self) -> str:
        options = Options(self.options)
        return (
            ("host string, " if options.wild else "")
            + f"queue string, offset bigint, timestamp timestamp, value {'string' if options.base64 else 'binary'}, attempts int"
            + (", headers struct<id: bigint, priority: bigint, key: string>" if options.headers
            else "")
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        return Reader(Options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(Options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return Writer(Options(self.options, True), self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamWriter(Options(self.options, True), self.options, schema, overwrite)
