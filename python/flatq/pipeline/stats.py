"""Statistics of the events. A message is done when it was popped, deleted or settled. Depth counts
messages that are neither done nor buried, from the first event in the logs. Latency is the time
since the push, which the logs do not have for bulk pops and settles. Spark counts; what is
collected here does not grow with the number of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from .common import grid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DONE = ("pop", "delete", "settle")
#: Why a message came back, and the verb of its event
BACK = {"released": "release", "lease over": "expired", "owner dead": "dead", "at boot": "boot",
    "undelivered": "undelivered"}
WIDTHS = [0.01 * factor * 10 ** power for power in range(4) for factor in (1, 2, 5)] + [
    30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, *(3600.0 * hours for hours in (1, 2, 6, 12)),
    *(86400.0 * days for days in (1, 2, 7, 28, 91, 364, 3640))]
SHARES = (0.5, 0.9, 0.95, 0.99, 1.0)


@dataclass
class Queue:
    """Numbers of one queue: events by verb, where a bulk counts each message."""

    name: str
    verbs: dict[str, int] = field(default_factory=dict)
    first: float = float("inf")
    last: float = 0
    pushed_bytes: int = 0

    @property
    def pushed(self) -> int:
        return self.verbs.get("push", 0)

    @property
    def done(self) -> int:
        return sum(self.verbs.get(verb, 0) for verb in DONE)

    @property
    def seconds(self) -> float:
        return self.last - self.first or 1.0


@dataclass
class Stats:
    queues: list[Queue]
    #: seconds since 1970 at the first event, and of an interval
    start: float = 0
    width: float = 1
    #: by queue, then by interval: pushed, done, and messages there at its end
    series: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    #: by queue and verb (pop, delete, reserve): how many, and milliseconds at `shares`
    latency: dict[tuple[str, str], tuple[int, list[float]]] = field(default_factory=dict)
    #: by queue and try: how often handed out
    tries: dict[tuple[str, int], int] = field(default_factory=dict)
    #: by queue and reason: how often buried, and how many still are
    dead: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    shares: tuple[float, ...] = SHARES


def utc(seconds: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime(form)


def deepest(found: Stats, most: int) -> list[tuple[str, list[int]]]:
    """The depth of each queue over time, the deepest first; a last row sums up those beyond
    `most`."""
    rows = [(name, [point[2] for point in series]) for name, series in found.series.items()]
    rows.sort(key=lambda row: -max(row[1]))
    if len(rows) > most:
        others = rows[most - 1:]
        rows[most - 1:] = [(f"{len(others)} others",
            [sum(depths) for depths in zip(*(values for _, values in others))])]
    return rows


def collect(events: DataFrame, intervals: int = 20,
        shares: tuple[float, ...] = SHARES) -> Stats:
    events = events.selectExpr(
        "queue", "cast(time AS double) AS at", "verb", "id", "tries", "size", "milliseconds",
        "reason", "count").persist()
    try:
        found = Stats(overview(events), shares=shares)
        if found.queues:
            over_time(events, found, intervals)
            delivery(events, found)
    finally:
        events.unpersist()
    return found


def overview(events: DataFrame) -> list[Queue]:
    queues: dict[str, Queue] = {}
    for name, verb, count, first, last, size in events.groupBy("queue", "verb").agg(F.sum("count"),
            F.min("at"), F.max("at"), F.sum("size")).collect():
        one = queues.setdefault(name, Queue(name))
        one.verbs[verb] = count
        one.first, one.last = min(one.first, first), max(one.last, last)
        if verb == "push":
            one.pushed_bytes = size
    return [queues[name] for name in sorted(queues)]


def once_buried(events: DataFrame) -> DataFrame:
    """What became of each message that was ever buried."""
    return events.where("verb IN ('bury', 'kick', 'delete')").join(events.where(
        "verb = 'bury'").select("queue", "id").distinct(), ["queue", "id"])


def over_time(events: DataFrame, found: Stats, intervals: int) -> None:
    found.start = min(queue.first for queue in found.queues)
    span = max(queue.last for queue in found.queues) - found.start
    # one event alone has no rate: it is not a hundred a second
    found.width = next((width for width in WIDTHS if span / width < intervals),
        WIDTHS[-1]) if span else 1.0
    count = int(span / found.width) + 1
    # what happened at the very end belongs to the last interval, too
    at = (f"least({count - 1}, cast(floor(round((at - {found.start!r}D) * 100) / "
        f"{found.width * 100!r}D) AS int)) AS bin")
    names = ", ".join(f"'{verb}'" for verb in DONE)
    moved = (f"CASE WHEN verb = 'push' THEN count WHEN verb IN ({names}) THEN -count "
        "WHEN verb = 'bury' THEN -1 ELSE 0 END")
    rows = events.selectExpr("queue", at, "if(verb = 'push', count, 0) AS pushed",
        f"if(verb IN ({names}), count, 0) AS done", f"{moved} AS change")
    if any("bury" in queue.verbs for queue in found.queues):
        # A kick puts back buried messages, not delayed ones; and a buried message can be deleted
        again = once_buried(events).selectExpr("queue", at, "verb",
            "lag(verb) OVER (PARTITION BY queue, id ORDER BY at, verb) AS before",
        ).where("before = 'bury' AND verb IN ('kick', 'delete')")
        rows = rows.union(again.selectExpr("queue", "bin", "0L", "0L", "1L"))
    parts: dict[tuple[str, int], Any] = {}
    for row in rows.groupBy("queue", "bin").agg(*(
            F.sum(name) for name in ("pushed", "done", "change"))).collect():
        parts[row[0], row[1]] = row[2:]
    for queue in found.queues:
        depth, points = 0, []
        for number in range(count):
            pushed, done, change = parts.get((queue.name, number), (0, 0, 0))
            depth += change
            points.append((pushed, done, depth))
        found.series[queue.name] = points


def delivery(events: DataFrame, found: Stats) -> None:
    shares = ", ".join(map(repr, found.shares))
    timed = events.where("verb IN ('pop', 'delete', 'reserve') AND milliseconds IS NOT NULL "
        "AND (verb <> 'reserve' OR tries = 1)")
    # exact: the logs count in hundredths of a second, so there are few different values
    spread = F.expr(f"percentile(milliseconds, array({shares}))")
    for queue, verb, count, values in timed.groupBy("queue", "verb").agg(F.count("*"),
            spread).collect():
        found.latency[queue, verb] = (count, list(values))
    # `work` logs only how a try ended, so every line with a try counts as one
    handed = events.where("id IS NOT NULL AND tries > 1").select("queue", "id", "tries").distinct()
    for queue, tries, count in handed.groupBy("queue", "tries").count().collect():
        found.tries[queue, tries] = count
    if not any("bury" in queue.verbs for queue in found.queues):
        return
    # a message is still buried where that is the last that happened to it
    dead = once_buried(events).selectExpr("queue", "verb", "at", "coalesce(reason, '-') AS reason",
        "max(struct(at, verb)) OVER (PARTITION BY queue, id) AS last").where("verb = 'bury'")
    for queue, reason, count, still in dead.groupBy("queue", "reason").agg(F.count("*"),
            F.expr("sum(if(last.verb = 'bury' AND last.at = at, 1, 0))")).collect():
        found.dead[queue, reason] = (count, still)


def text(found: Stats, most: int = 20) -> str:
    """The statistics as tables; of many intervals, `most` rows at most."""
    if not found.queues:
        return "no events"
    rows: list[Sequence[object]] = [(one.name, one.pushed, one.done, one.seconds,
        one.pushed / one.seconds, one.done / one.seconds, one.pushed_bytes)
        for one in found.queues]
    heads = ["queue", "pushed", "done", "seconds", "pushed/s", "done/s", "bytes"]
    parts = ["Throughput\n" + grid(heads, rows)]
    count, depths, rows = max(map(len, found.series.values())), deepest(found, 8), []
    step = -(-count // most)
    width = found.width * step
    for low in range(0, count, step):
        end = min(low + step, count)
        pushed, done = (sum(point[at] for series in found.series.values()
            for point in series[low:end]) / width for at in (0, 1))
        depth = sum(series[end - 1][2] for series in found.series.values())
        form = "%Y-%m-%d %H:%M:%S" + (".%f" if width < 1 else "")
        rows.append([utc(found.start + low * found.width, form)[:22], pushed, done,
            *[depth] * (len(found.series) > 1), *(values[end - 1] for _, values in depths)])
    heads = ["from", "pushed/s", "done/s", *["depth"] * (len(found.series) > 1),
        *(f"depth {name}" for name, _ in depths)]
    parts.append(f"Over time, by {width:g} s, in UTC; depth at the end of each\n"
        + grid(heads, rows))
    ends = {"pop": "push to pop", "delete": "push to delete", "reserve": "push to first reserve"}
    shown = [found.shares.index(share) for share in SHARES]
    rows = [[queue, ends[verb], count, *(values[at] for at in shown)]
        for (queue, verb), (count, values) in sorted(found.latency.items())]
    heads = ["queue", "from", "messages", *("most" if share == 1 else f"{share * 100:g}%"
        for share in SHARES)]
    parts.append("Latency, milliseconds\n" + (grid(heads, rows) if rows else "none in the logs"))
    rows = []
    for queue in found.queues:
        again = {tries: count for (name, tries), count in found.tries.items() if name == queue.name}
        rows.append([queue.name, sum(again.values()), max(again, default=1),
            *(queue.verbs.get(verb, 0) for verb in BACK.values())])
    parts.append("Redeliveries\n" + grid(["queue", "handed out again", "most tries", *BACK], rows))
    rows = [[*key, *counts] for key, counts in sorted(found.dead.items())]
    parts.append("Dead letters\n" + (grid(["queue", "reason", "buried", "still there"], rows)
        if rows else "none"))
    return "\n\n".join(parts)
