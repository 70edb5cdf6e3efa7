"""The bench runs with few rounds and messages, and writes what it says it writes."""

import json
import os
import subprocess
import sys

import pytest

from conftest import ROOT, need
from servers import module

sys.path.insert(0, str(ROOT / "tests/bench"))
import bench
import userlands

# the options and rows, and what the table must have
PARTS = {
    "push pop": ("push, synced / ", "push, unsynced / dirq", "pop, synced / ", "pop, unsynced / "),
    "bulk work": ("fill 2,000 / ", "drain 2,000 / ", "work -- true, 5 jobs / "),
    "doors http remote": ("connection, line door, list / ", "HTTP POST, GET, DELETE, synced / ",
        "push -H / "),
    "boot deep launch idle": ("a boot, 20 queues / ", "stat, 20 queues / ",
        "reserve, depth 2,000 / ", "a door, until it has answered / ",
        "20 idle connections, processor seconds in a second / "),
    "bytes": ("push, bytes read and written, depth 2,000 / ",),
    "--parent HEAD beanstalk": ("put, reserve, delete, synced / beanstalkd -b -f0",
        "put, reserve, delete, synced / flatq at HEAD"),
}


def run(place, *words, **env):
    return subprocess.run(
        [sys.executable, ROOT / "tests/bench/bench.py", "--quick", "--out", place, *words],
        stdin=subprocess.DEVNULL, env={**os.environ, **env}, capture_output=True, text=True,
        timeout=600)


@pytest.mark.slow
@pytest.mark.parametrize("words", PARTS)
def test_it_measures_and_writes(tmp_path, words):
    need("ncat", "redis-cli", "sqlite3", "strace", "beanstalkd")
    module("dirq")
    module("matplotlib")
    done = run(tmp_path, "--python", sys.executable, *words.split())
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines()
        if not line.startswith("bench: ")] == [], "no program has failed"
    [path] = tmp_path.glob("*.json")
    found = json.loads(path.read_text())
    assert [text for text in PARTS[words] if text not in done.stdout] == []
    assert found["machine"]["versions"]["base64"] and found["machine"]["cpu"] in done.stdout
    for one in found["ratios"]:
        assert f"{one['row']} / {one['other']}" in done.stdout
        # a door that only waits may use no hundredth of a second
        assert one["low"] is None or one["ratio"] > 0 or "processor seconds" in one["row"]
    assert [name for name in os.listdir(tmp_path) if name.startswith("work.")] == []
    assert path.with_name(f"{path.stem}-ratios.png").stat().st_size > 0


def test_without_what_is_missing(tmp_path):
    """The bench names what is missing, and goes on."""
    path = userlands.without(tmp_path / "bin", "redis", "sqlite3")
    done = run(tmp_path / "out", "--python", "/nowhere", "push", PATH=path)
    assert done.returncode == 0, done.stderr
    for name in ("redis-cli", "sqlite3", "dirq"):
        assert f"bench: {name} is not installed: what needs it is left out\n" in done.stderr
    assert "push, unsynced / the article's" in done.stdout
    assert "No picture: .venv has no matplotlib" in done.stdout
    assert len(list((tmp_path / "out").glob("*.json"))) == 1
    done = run(tmp_path, "nonsense")
    assert done.returncode == 2 and "no row nonsense: push, pop," in done.stderr


def test_where_we_lose_the_table_says_so():
    for other, ratio, aim, low, said in (
            ("redis-cli", 0.8, 0.9, 0.7, ""), ("redis-cli", 0.95, 0.9, 0.7, "over the aim"),
            ("redis-cli", 1.45, 0.9, 1.2, "LOSES by 45%, over the aim"),
            ("redis-cli", 1.1, None, 0.9, "loses, within the spread, by 10%"),
            ("redis-cli", 7.04, None, 6.0, "LOSES: 7.0 times the time"),
            ("ncat (the floor)", 1.45, None, 1.2, "over by 45%"),
            ("depth 10", 1.02, 1.1, None, ""), ("depth 10", 1.2, 1.1, None, "over the aim")):
        assert bench.verdict(other, ratio, aim, low) == said


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
    assert ended.value.code == 1 and "bench: bad FAILED: no such luck\n" in said.err
    assert "a row / another" in said.out
    [path] = tmp_path.glob("*.json")
    assert json.loads(path.read_text())["failed"] == ["bad"]
