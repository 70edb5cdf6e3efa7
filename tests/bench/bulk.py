"""Filling and draining: beside redis-cli --pipe, with a log that is synced and in memory only, and
sqlite3's import, which syncs."""

import subprocess
from dataclasses import dataclass, field

from harness import FLOOR, Command, floor
from rivals import Redis, Sqlite

@dataclass
class Pair:
    """A contender that fills its queue from a file of lines, and drains it into one. `bounds`: how
    many times its own time flatq's may be at most."""

    name: str
    fill: Command
    drain: Command
    bounds: dict = field(default_factory=dict)
    seconds: dict = field(default_factory=lambda: {"fill": [], "drain": []})

    def turn(self, run, lines):
        out = run.work / "out"
        self.seconds["fill"].append(self.fill.run())
        with out.open("wb") as file:
            self.seconds["drain"].append(self.drain.run(file.fileno()))
        if subprocess.run(["cmp", "-s", lines, out]).returncode:
            raise RuntimeError(f"{self.name}: drained is not what was filled in")


def bulk(run):
    rounds = 1 if run.quick else 3
    many(run, run.million, rounds, [*ours(run), *programs(run), *servers(run, run.million)])


def ours(run):
    for name in run.trees:
        yield Pair(name,
            run.flatq("bulk", ["push", "-l", "jobs"], str(run.work / "lines"), "on", name),
            run.flatq("bulk", ["drain", "-l", "jobs"], sync="on", name=name))


# What push -l and drain start, and nothing else: perl counts the messages, and writes each in
# base64 behind its state; mawk compares sizes
PROGRAMS = ("""
perl -e 'while (read STDIN, $block, 65536) { $count += $block =~ tr/\\n// } print $count' <lines &&
perl -MMIME::Base64 -ne 'chomp;
  $lines .= sprintf "0000065536.%012d.0.0.60.0.1.%d.-.0-0-0-0\\t%s\\n", $., length,
    encode_base64($_, "");
  $. % 500 or print($lines), $lines = ""; END { print $lines }' <lines >flat && sync flat""", """
mawk -F '\\t' '{ split($1, slip, ".")
  if (length($2) == int((slip[8] + 2) / 3) * 4) print $2 "\\nCg==" }' flat | base64 -d""")


def programs(run):
    if run.there("perl", "mawk"):
        yield Pair(f"its programs alone {FLOOR}", *(floor("programs", text, cwd=str(run.work))
            for text in PROGRAMS))


def servers(run, count):
    if run.there("redis-cli", "redis-check-rdb"):
        for durable in (True, False):
            redis = Redis(run, "bulk", durable)
            load, unload = redis.load("fill", str(run.work / "lines")), redis.unload("drain", count)
            yield Pair(f"{redis.name}, --pipe, lpop", load, unload,
                {"fill": 0.5, "drain": 0.8} if durable else {})
    if run.there("sqlite3"):
        database = Sqlite(run, "bulk", True).database
        subprocess.run(["sqlite3", database, "create table lines (body)"], check=True)
        empty = "begin immediate; select body from lines order by rowid; delete from lines; commit"
        yield Pair("sqlite3 .import, select", Command("fill",
            ["sqlite3", database, f".import {run.work / 'lines'} lines"]),
                   Command("drain", ["sqlite3", database, empty]), {"fill": 1.1, "drain": 1.2})


def many(run, count, rounds, pairs):
    if len(pairs) == 1:
        return
    lines = run.lines(count)
    for turn in range(rounds):
        for pair in pairs if turn % 2 else reversed(pairs):
            pair.turn(run, lines)
    run.notes.append(f"Bulk, {count:,} messages of 100 bytes: fill and drain, messages a second:")
    for pair in pairs:
        fill, drain = (count / sorted(values)[len(values) // 2] for values in pair.seconds.values())
        run.notes.append(f"  {pair.name:24} {fill:>10,.0f} {drain:>10,.0f}")
    for what in ("fill", "drain"):
        run.compare(f"{what} {count:,}", {pair.name: pair.seconds[what] for pair in pairs},
                    {pair.name: pair.bounds[what] for pair in pairs if what in pair.bounds})
