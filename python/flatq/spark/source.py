"""The data source: batch and stream readers over `claim`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource, DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from . import format as flat
from .format import Lost
from .options import MOST, Options, Place, in_line, refuse, told
from .sink import StreamWriter, Writer

if TYPE_CHECKING:
    from ..queue import Segment


@dataclass(frozen=True)
class Part(InputPartition):
    """What one task reads."""

    pieces: tuple[tuple[str, tuple[flat.Piece, ...]], ...] = ()
    vanish: bool = False


def _parts(found: dict[str, list[flat.Piece]], options: Options,
        vanish: bool = False) -> list[InputPartition]:
    queues = {piece.path: queue for queue, pieces in found.items() for piece in pieces}
    some = [piece for pieces in found.values() for piece in pieces]
    return [Part(tuple((queue, tuple(run)) for queue, run in itertools.groupby(part,
        lambda piece: queues[piece.path])), vanish)
        for part in flat.pack(some, options.parallel(sum(piece.count for piece in some)))]


def _claimed(place: Place, held: Iterable[Segment], low: int, high: int,
        strict: bool) -> Iterator[flat.Piece]:
    """The flat files with offsets from low to below high. Raises Lost if not all are held, and
    `strict`."""
    at = low
    for segment in sorted(held, key=lambda segment: segment.offset):
        if segment.end <= low or segment.offset >= high:
            continue
        if segment.offset > at and strict:
            break
        for piece in flat.segment(segment.path, segment.offset, segment.count, strict):
            if found := piece.cut(low, high):
                yield found
        at = segment.end
    if at < high and strict:
        raise Lost(f"queue '{place.queue}': what was claimed as offsets {at} and following, before "
            f"{high}, is not there any more: deleted, unclaimed or settled. Messages may be lost; "
            "option failOnDataLoss=false goes on without them")


class _Reads:
    """What the batch and the stream reader share."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self.options
        assert isinstance(partition, Part)
        try:
            for queue, pieces in partition.pieces:
                yield from flat.rows(pieces, queue, headers=options.headers, base64=options.base64,
                    old=options.old, strict=options.strict, vanish=partition.vanish)
        except Exception as error:
            raise in_line(error) from None


class Reader(_Reads, DataSourceReader):
    def __init__(self, options: Options) -> None:
        super().__init__(options)
        if options.starting and options.consumer is None:
            refuse("startingOffsets", options.given["startingOffsets"],
                "'earliest', and there is no option group.id")
        self.places = options.places()

    @told
    def partitions(self) -> Sequence[InputPartition]:
        consumer = self.options.consumer
        found = {place.queue: place.pieces() if consumer is None else list(self.held(
            place, consumer)) for place in self.places}
        return _parts(found, self.options, consumer is None) or [Part()]

    def held(self, place: Place, consumer: str) -> Iterator[flat.Piece]:
        options = self.options
        low = place.marks(consumer)[0]
        first = (options.starting or {}).get(place.queue, low)
        if low > first and options.strict:
            raise Lost(f"queue '{place.queue}': what was claimed from offset {first} on was "
                f"settled or unclaimed up to {low}: another reader is consumer '{consumer}', or "
                "the `with` of claimed() has ended")
        high = (options.ending or {}).get(place.queue, low + MOST)
        most = min(options.limit or MOST, max(high - low, 0))
        held = place.claim(consumer, most)
        last = place.marks(consumer)[1]
        if first > last:
            refuse("startingOffsets", first, f"claimed: queue '{place.queue}' is, up to {last}")
        end = min(last, low + most)
        yield from _claimed(place, held, max(low, first), end, options.strict)


class StreamReader(_Reads, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets as Spark keeps them: {"path": SPOOL, "consumer": NAME, "offsets": {QUEUE: OFFSET}}.
    The numbers are those of `claim`."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.consumer = options.consumer or ""
        self._places: list[Place] | None = None
        self.target: dict[str, int] | None = None
        self.locks: dict[str, int | None] = {}
        self.held: dict[str, list[Segment]] = {}
        # This thread settles a batch while Spark works on the next one. Made later: Spark pickles
        # readers
        self.beside: ThreadPoolExecutor | None = None
        self.settling: Future[None] | None = None

    @property
    def places(self) -> list[Place]:
        # Not in __init__: PySpark does not show its errors
        if not self.consumer:
            refuse("group.id", None, "a name that this stream alone claims messages as")
        for name, usual in (("startingOffsets", "earliest"), ("endingOffsets", "latest")):
            if (text := self.options.given.get(name, usual)) != usual:
                refuse(name, text, f"'{usual}', as a stream needs")
        if self._places is None:
            self._places = self.options.places()
        return self._places

    def _offset(self, offsets: dict[str, int]) -> dict[str, Any]:
        return {"path": self.options.path, "consumer": self.consumer, "offsets": offsets}

    def _offsets(self, offset: dict[str, Any]) -> dict[str, int]:
        if offset.get("consumer") != self.consumer:
            refuse("group.id", self.consumer, f"{offset.get('consumer')!r}, which this checkpoint "
                "is of")
        return dict(offset["offsets"])

    def _claim(self, place: Place, most: int) -> list[Segment]:
        """As Place.claim; as long as this process lives, no other may read as this consumer."""
        locked = self.locks.get(place.queue) or place.lock(self.consumer)
        held = self.held[place.queue] = place.claim(self.consumer, most)
        # the first claim of a name makes what is locked
        self.locks[place.queue] = locked or place.lock(self.consumer)
        return held

    def _begun(self, place: Place) -> tuple[int, int]:
        """Look up once what the consumer holds; return its marks. Raises LookupError."""
        if place.queue not in self.held:
            self._claim(place, 0)
        return place.marks(self.consumer)

    def _reach(self, place: Place, low: int, most: int) -> int:
        """Claim up to `most` messages from offset low on, with AvailableNow none that came after the
        start. Return where they end."""
        if self.target is not None:
            most = min(most, max(self.target.get(place.queue, 0) - low, 0))
        done, last = place.marks(self.consumer)
        if last < low + most:
            self._claim(place, low + most - done)
            last = place.marks(self.consumer)[1]
        return min(max(low, last), low + most)

    def _await(self) -> None:
        """Raises what the settling of the last batch has raised."""
        settling, self.settling = self.settling, None
        if settling:
            settling.result()

    def stop(self) -> None:
        if self.beside:
            self.beside.shutdown()

    @told
    def initialOffset(self) -> dict[str, Any]:
        return self._offset({place.queue: self._begun(place)[0] for place in self.places})

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.options.limit) if self.options.limit else ReadAllAvailable()

    @told
    def prepareForTriggerAvailableNow(self) -> None:
        self.target = {place.queue: self._begun(place)[1] + place.ready() for place in self.places}

    @told
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._await()
        left = limit.max_rows if isinstance(limit, ReadMaxRows) else MOST
        before, ends = self._offsets(start), {}
        for place in self.places:
            low = before.get(place.queue)
            done, last = self._begun(place)
            here = (f"queue '{place.queue}': this checkpoint stands at offset {low}, and consumer "
                f"'{self.consumer}' has")
            if low is None:
                # A queue that the query did not read before: an empty batch records where it begins
                if last > done:
                    raise Lost(f"consumer '{self.consumer}' holds messages of queue "
                        f"'{place.queue}', which this checkpoint has never read. Hand them out "
                        f"again: flatq unclaim -c {self.consumer} {place.queue}")
                ends[place.queue] = done
                continue
            if low > last:
                raise Lost(f"{here} claimed no more than {last}: this is another spool, or an "
                    "older copy of it. Begin anew, with another checkpoint")
            if low < done and self.options.strict:
                raise Lost(f"{here} settled up to {done}: another query reads as it, or it was "
                    "unclaimed. Option failOnDataLoss=false goes on with what is there")
            ends[place.queue] = self._reach(place, low, left)
            left -= ends[place.queue] - low
        ends = {**before, **ends}
        return start if ends == before else self._offset(ends)

    @told
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        before, ends = self._offsets(start), self._offsets(end)
        gone = set(ends) - {place.queue for place in self.places}
        for key in sorted(key for key in gone if ends[key] != before.get(key)):
            refuse("subscribe", ",".join(self.options.queues), f"with queue {key!r}, which this "
                "checkpoint reads too")
        found = {}
        for place in self.places:
            high = ends.get(place.queue, 0)
            low = before.get(place.queue, high)
            if low >= high:
                continue
            held = self.held.get(place.queue, [])
            if not any(segment.end >= high for segment in held):
                held = self._claim(place, 0)
            found[place.queue] = list(_claimed(place, held, low, high, self.options.strict))
        return _parts(found, self.options)

    @told
    def commit(self, end: dict[str, Any]) -> None:
        self._await()
        self.beside = self.beside or ThreadPoolExecutor(1)
        self.settling = self.beside.submit(self._settle, self._offsets(end))

    def _settle(self, ends: dict[str, int]) -> None:
        for place in self.places:
            if place.queue in ends:
                place.settle(self.consumer, ends[place.queue])


class FlatqSource(DataSource):
    """A queue's messages as a table, and a table's rows as messages.

    Columns: queue string, id bigint, offset bigint, timestamp timestamp (when it was pushed), body
    binary, tries int (how often it was handed out, this time included); with includeHeaders also
    headers struct<id bigint, priority bigint, key string> (key: the hash of `push -k`). With
    `option("columns", "old")`, for one version, body is `value`, tries is `attempts`, and there is
    no id. A write takes a row's message from `body` or `value`.

    The options are named as those of Spark's Kafka source. `queue` and `consumer`, their names
    before, give a DeprecationWarning.

    | option | for | default | means |
    | --- | --- | --- | --- |
    | path | all | as for the verbs | the spool |
    | subscribe | read | default | the queue, or several with commas |
    | topic | write | none | the queue; overrides a column `queue` |
    | group.id | read | none | the name to claim messages as; a stream must have its own |
    | maxOffsetsPerTrigger | read | all | messages in a batch of a stream; most of a batch read |
    | startingOffsets | read | earliest | or, with group.id, such as `{"jobs": 600}`: from there |
    | endingOffsets | batch read | latest | or such as `{"jobs": 700}`: only offsets below |
    | minPartitions | read | cores, 1 below 10,000 messages | tasks |
    | failOnDataLoss | read | true | false: leave out messages that are missing or damaged |
    | includeHeaders | read | false | the column headers |
    | base64 | read | false | true: `body` is base64, for Spark's unbase64, which is faster |
    | columns | read | new | old: the names before, with a DeprecationWarning |
    | jobId | batch write | none | the same id again: finish that write, or do nothing |
    | priority, lease | write | 65536, 60 | as for `push`; overridden by a column `priority` |
    | wait | write | 0 | seconds to wait for room in a queue with a bound |

    **Batch read.** With group.id, it claims what is ready and reads all that the consumer holds,
    each time until that is settled; `flatq.spark.claimed` does both. Without it, it only looks at
    what is ready; `offset` is then the id, too, and messages that others take meanwhile may be
    missing.

    **Stream.** A batch's messages are claimed before Spark plans it, and settled once the next
    batch has begun. So a batch that is planned again after a crash is the same, sinks that Spark
    commits exactly once have each message once, and shell consumers may work beside it. The last
    batch is settled by the next start, or by `flatq.spark.run` and `settle_checkpoint`. What Spark
    has written is synced first, if the spool's verbs sync."""

    @classmethod
    def name(cls) -> str:
        return "flatq"

    @told
    def schema(self) -> StructType:
        options = Options(self.options)
        for place in options.places():
            place.check()
        return from_arrow_schema(flat.schema(options.headers, options.base64, options.old), False)

    @told
    def reader(self, schema: StructType) -> DataSourceReader:
        return Reader(Options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(Options(self.options))

    @told
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return Writer(Options(self.options, True), schema, overwrite)

    @told
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamWriter(Options(self.options, True), schema, overwrite)
