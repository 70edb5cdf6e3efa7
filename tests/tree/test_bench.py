"""The bench runs with few rounds and messages, and writes what it says it writes. The test does not
look at its figures, which depend on the machine's load."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from conftest import ROOT, need, share
from servers import module

sys.path.insert(0, str(ROOT / "tests/bench"))
import bench
import bulk

# the rows, what they must compare, and the pictures that can be drawn of them
PARTS = {
    "one-shot": (("push", "pop", "job", "wait"), (
        "push, synced", "push, unsynced", "pop, synced", "pop, unsynced",
        "a job, until it has ended", "a push, to a waiting pop"), ("ratios",)),
    "bulk": (("bulk", "work"), ("fill 2,000", "drain 2,000", "work -- true, 5 jobs"),
    ("ratios", "bulk")),
    "depths": (("depths",), ("push, synced, depth 1,000", "pop, unsynced, depth 10"),
    ("ratios", "depths")),
    "doors": (("doors", "http", "remote"), (
        "connection, line door, list", "connection, HTTP, stats, 4 at a time",
        "HTTP POST, GET, DELETE, synced", "push -H"), ("ratios",)),
    "scale": (("boot", "deep", "launch", "idle"), (
        "a boot, 20 queues", "stat, 20 queues", "reserve, depth 2,000",
        "a door, until it has answered",
        "20 idle connections, processor seconds in a second"), ("ratios",)),
    "counts": (("processes", "bytes"), ("push, bytes read and written, depth 2,000",), ()),
}


def run(place, *words, env=None):
    return subprocess.run([sys.executable, ROOT / "tests/bench/bench.py", "--quick", "--out", place,
        *words], stdin=subprocess.DEVNULL,
                          env={**os.environ, **(env or {})}, capture_output=True, text=True,
                          timeout=600)


@pytest.mark.slow
@pytest.mark.parametrize("part", share("bench", PARTS, 1))
def test_it_measures_and_writes(tmp_path, part):
    need("ncat", "redis-cli", "sqlite3", "nq", "strace")
    rows, compared, pictures = PARTS[part]
    done = run(tmp_path, "--python", sys.executable, *rows)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert [line for line in done.stderr.splitlines()
        if not line.startswith("bench: ")] == [], "no program has failed"
    [path] = tmp_path.glob("*.json")
    found = json.loads(path.read_text())
    assert set(compared) <= {one["row"] for one in found["ratios"]}
    assert found["machine"]["versions"]["base64"] and found["machine"]["cpu"] in done.stdout
    for one in found["ratios"]:
        assert f"{one['row']} / {one['other']}" in done.stdout
        if one["low"] is not None:
            # a door that only waits may use no hundredth of a second
            assert (one["ratio"] > 0 or "processor seconds" in one["row"]) and "flatq" in found[
                "raw"][one["row"]] or one["row"].startswith("a job")
    if importlib.util.find_spec("matplotlib"):
        assert {name.name for name in tmp_path.glob("*.png")} == {f"{path.stem}-{picture}.png"
            for picture in pictures}
    assert [name for name in os.listdir(tmp_path) if name.startswith("work.")] == []


@pytest.mark.slow
def test_rivals_of_pypi(tmp_path):
    for name in ("dirq", "litequeue", "persistqueue"):
        module(name)
    done = run(tmp_path, "--python", sys.executable, "push", "bulk")
    for text in ("push, unsynced / dirq", "fill 20 / litequeue", "drain 20 / persist-queue"):
        assert text in done.stdout, done.stderr


@pytest.mark.slow
def test_beside_beanstalkd_and_the_parent(tmp_path):
    need("beanstalkd")
    done = run(tmp_path, "--parent", "HEAD", "beanstalk")
    assert done.returncode == 0, done.stderr
    for other in ("beanstalkd -b -f0", "flatq at HEAD"):
        assert f"put, reserve, delete, synced / {other}" in done.stdout


def test_without_what_is_missing(tmp_path):
    """The bench names what is missing, and goes on."""
    path = bulk.path_without(tmp_path / "bin", ("redis", "sqlite3", "nq"))
    done = subprocess.run([sys.executable, ROOT / "tests/bench/bench.py", "--quick", "--python",
        "/nowhere", "--out", tmp_path / "out", "push", "job"],
                          env={**os.environ, "PATH": path}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    for name in ("redis-cli", "sqlite3", "nq", "dirq"):
        assert f"bench: {name} is not installed: what needs it is left out\n" in done.stderr
    assert "push, unsynced / the article's" in done.stdout and "No pictures: .venv has no matplotlib" in done.stdout
    assert len(list((tmp_path / "out").glob("*.json"))) == 1


@pytest.mark.parametrize("row, program, called", share("floors", [
    ("pop", "mv", "*' floor.pop floor.out'"), ("work", "mv", "*' slip out/slip'"),
    ("boot", "awk", "*' 1 /dev/null'"),
    ("deep", "mv", "*' slip out'"), ("deep", "mkdir", "*' b'"), ("http", "dd", "*/programs.http.*"),
    ("http", "md5sum", "*/programs.http.*"),
    ("http", "mv", "*' -f slip out/slip'"), ("beanstalk", "dd", "*/programs.stalk.*"),
    ("beanstalk", "mv", "*' -f out/slip slip'"),
], 1))
@pytest.mark.costly
def test_a_floor_of_which_a_program_fails_is_no_floor(tmp_path, row, program, called):
    """It fails in the middle of the floor's script, where flatq does not call it so. That floor
    would be too low."""
    need("ncat", "redis-cli", "sqlite3")
    stub = tmp_path / "bin" / program
    stub.parent.mkdir()
    stub.write_text(
        f'#!/bin/sh\ncase "$PWD $*" in {called}) exit 1 ;; esac\nexec {shutil.which(program)} "$@"\n')
    stub.chmod(0o755)
    done = run(tmp_path / "out", "--python", sys.executable, row,
        env={"PATH": f"{stub.parent}:{os.environ['PATH']}"})
    assert done.returncode == 1 and f"bench: {row} FAILED: " in done.stderr, done


def test_a_row_that_is_not_there(tmp_path):
    done = run(tmp_path, "nonsense")
    assert done.returncode == 2 and "no row nonsense: push, pop," in done.stderr


@pytest.mark.parametrize("other, ratio, aim, low, said", [
    ("redis-cli", 0.8, 0.9, 0.7, ""), ("redis-cli", 0.95, 0.9, 0.7, "over the aim"),
    ("redis-cli", 1.45, 0.9, 1.2, "LOSES by 45%, over the aim"),
    ("redis-cli", 1.1, None, 0.9, "loses, within the spread, by 10%"),
    ("redis-cli", 7.04, None, 6.0, "LOSES: 7.0 times the time"),
    ("ncat (the floor)", 1.45, None, 1.2, "over by 45%"), ("depth 10", 1.02, 1.1, None, ""),
    ("depth 10", 1.2, 1.1, None, "over the aim"),
])
def test_where_we_lose_the_table_says_so(other, ratio, aim, low, said):
    assert bench.verdict(other, ratio, aim, low) == said


def test_sparks_row_is_added_where_there_is_one(tmp_path, monkeypatch, capsys):
    found = bench.Run(tmp_path, sys.executable, True)
    monkeypatch.setitem(sys.modules, "spark", None)
    bench.pipeline(found)
    assert "spark.py is not there" in capsys.readouterr().err
    made = SimpleNamespace(ratios=[("to Parquet", "Spark's text", 1.11, 1.0, 0.9, 1.1)],
        detail=[("to Parquet", "flatq", 1, 1, 1)], notes=["note"], raw={"a": 1})
    monkeypatch.setitem(sys.modules, "spark", SimpleNamespace(rows=lambda work, quick,
        progress: made))
    bench.pipeline(found)
    assert (found.ratios, found.detail, found.notes, found.raw) == (made.ratios, made.detail,
        made.notes, made.raw)


def test_a_row_that_fails_is_said_and_the_others_are_not_lost(tmp_path, monkeypatch, capsys):
    def fails(run):
        raise RuntimeError("no such luck")

    def measures(run):
        run.compare("a row", {"flatq": [1.0, 1.0], "another": [2.0, 2.0]})

    monkeypatch.setattr(bench, "ROWS", {"bad": fails, "good": measures})
    monkeypatch.setattr(bench.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["bench.py", "--quick", "--python", "/nowhere", "--out",
        str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        bench.main()
    said = capsys.readouterr()
    assert ended.value.code == 1 and "bench: bad FAILED: no such luck\n" in said.err and "a row / another" in said.out
    [path] = tmp_path.glob("*.json")
    assert json.loads(path.read_text())["failed"] == ["bad"]
