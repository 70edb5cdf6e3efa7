"""list, log, stat, top and why -j: an object a line, whose names never change."""

import json
import re
import signal
import subprocess
import time

import pytest

from conftest import need
from engine import push, refused, reserve, shown_on_terminal, stopped_by

STAT = ["queue", "ready", "delayed", "reserved", "buried", "oldest", "bound", "most_tries",
    "dead", "expire", "closed", "paused"]
TOP = ["time", *STAT[:6], "pushed_per_second", "done_per_second", "failed"]
MESSAGE = ["id", "state", "priority", "tries", "size", "age", "due", "reason"]
EVENT = ["time", "queue", "event", "id", "tries", "size", "milliseconds", "count", "due",
    "reason", "text"]


WHY = [
    "id", "queue", "state", "reason", "due", "priority", "tries", "size", "pushed", "body", "said"]
# What a command said: what JSON must escape, UTF-8, and bytes that are not UTF-8
ODD = b'"q" \\u\t\xe2\x82\xac \xf0\x9f\x98\x80\xff\xed\xa0\x80|\xc0\xaf|\xe2\x82\x1b\n -\n'


def objects(flatq, *words, names):
    """What the verb prints, parsed. Each object has these names, in this order."""
    done = flatq(*words, check=0)
    found = [json.loads(line) for line in done.out.splitlines()]
    assert done.err == b"" and all(list(one) == names for one in found), done
    return found


@pytest.fixture
def filled(flatq, spool):
    """A message in each state but claimed, and a buried one that has a strange reason."""
    flatq("create", "-b", "50", "-m", "3", "-x", "60", "7", check=0)
    push(flatq, b"x" * 1300, "-p", "0", "7")
    flatq("push", "-d", "1000", "7", input=b"x", check=0)
    flatq("push", "-l", "7", input=b"a\nb\n", check=0)
    for reason in "exit-7", "odd":
        push(flatq, b"x", "-p", "0", "e")
        flatq("bury", "-r", reason, reserve(flatq, "e").receipt, check=0)
    path, = (spool / "e/buried").rglob("*.odd")
    path.rename(path.with_name(path.name.removesuffix("odd") + r'q"\u\"'))
    flatq("reserve", "-t", "500", "7", check=0)
    flatq("create", "-D", "7", "e", check=0)
    flatq("close", "e", check=0)
    flatq("pause", "e", "500", check=0)
    return spool


@pytest.mark.shells
@pytest.mark.parametrize("awk", ["mawk", "gawk", "original-awk", "busybox awk"])
def test_objects(shell, flatq, filled, stub, awk):
    need(awk.split()[0])
    stub("awk", f'exec {awk} "$@"')
    seven, e = objects(flatq, "stat", "-j", names=STAT)
    assert list(seven.values()) == ["7", 2, 1, 1, 0, seven["oldest"], 50, 3, None, 60, 0, 0]
    assert list(e.values())[3:11] == [0, 2, 0, 0, 0, "7", 0, 1] and 400 < e["paused"] <= 500
    assert objects(flatq, "stat", "--json", "e", names=STAT)[0]["queue"] == "e"
    assert [(one["queue"], one["paused"] > 400) for one in objects(flatq, "list", "-j",
        names=["queue", "paused"])] == [("7", False), ("e", True)]
    found = {one["id"]: [*one.values()][1:5] + [one["due"] and 900 <
        one["due"] - time.time() < 1001, one["reason"]]
        for one in objects(flatq, "list", "--json", "7", names=MESSAGE)}
    assert found.pop(1)[:4] == ["reserved", 0, 1, 1300]
    assert found.pop(2) == ["delayed", 65536, 0, 1, True, None]
    assert [*found.values()] == [["ready", 65536, 0, 1, None, None]] * 2
    assert {one["reason"] for one in objects(flatq, "list", "-j", "e", names=MESSAGE)
        } == {"exit-7", r'q"\u\"'}
    for body, said in (b"-", ODD), (b'a"\t' + ODD, None), (b"", ODD):
        id = push(flatq, body, "why")
        if said:
            (filled / "why/why").mkdir(exist_ok=True)
            (filled / f"why/why/{id:012}").write_bytes(said)
        [one] = objects(flatq, "why", "--json", f"why:{id}", names=WHY)
        want = body.split(b"\n")[0], said
        assert [text and re.sub("\ufffd+", "\ufffd", text) for text in (one["body"], one["said"])
            ] == [text if text is None else re.sub("\ufffd+", "\ufffd",
            text.replace(b"\x1b", b"").decode(errors="replace")) for text in want]
        assert list(one.values())[:8] == [id, "why", "ready", None, None, 65536, 0, len(body)]
        assert one["pushed"] > 1.6e9
    assert {one["said"] for one in objects(flatq, "list", "-vj", "why", names=[*MESSAGE, "said"])
        } == {None, "-"}
    events = objects(flatq, "log", "--json", names=EVENT)
    assert [(one["event"], one["id"] and one["count"]) for one in events if one["queue"] == "7"
        ] == [("push", 1), ("push", 1), ("push", 2), ("reserve", 1)]
    delayed, bulk = events[1:3]
    assert 998 < delayed["due"] - delayed["time"] < 1002
    assert delayed["reason"] is bulk["milliseconds"] is None
    assert bulk["text"] == "2 messages, 2 bytes" and bulk["time"] > 1.6e9
    [last] = objects(flatq, "log", "-j", "-n", "1", "e", names=EVENT)
    assert (last["event"], last["reason"], last["tries"]) == ("bury", "odd", 1)
    assert objects(flatq, "stat", "-j", "7", names=STAT)[0]["ready"] == 2
    # the clock was not set yet
    (filled / "7/log").write_text("0000000000.25 kick 1 0 5 0 -\n0000000007.50 kick 1 0 5 0 -\n")
    assert [one["time"] for one in objects(flatq, "log", "-j", "7", names=EVENT)] == [0.25, 7.5]


def test_top(flatq, filled):
    """A line for each queue, at each look, without a terminal."""
    process = flatq.start("top", "--json", "-n", "1", stdin=subprocess.DEVNULL)
    first = [json.loads(process.stdout.readline()) for _ in "7e"]
    assert all(list(one) == TOP for one in first)
    assert [list(one.values())[1:6] for one in first] == [["7", 2, 1, 1, 0], ["e", 0, 0, 0, 2]]
    flatq("release", reserve(flatq, "7").receipt, check=0)
    push(flatq, b"x", "7")
    pushed = 0
    for one in map(json.loads, process.stdout):
        pushed += one["pushed_per_second"]
        if one["failed"] and pushed:
            assert (one["queue"], one["failed"]) == ("7", 1)
            break
    process.send_signal(signal.SIGTERM)
    stopped_by(process, signal.SIGTERM)


def test_errors(flatq, filled, stub):
    """No part of an answer passes for the whole, and none is printed for nothing."""
    for words in ["stat", "-j", "none"], ["list", "-j", "none"], ["log", "-j", "none"]:
        refused(flatq(*words), 66, words[0], text=b"no queue 'none'")
    flatq("create", "empty", check=0)
    assert flatq("list", "-j", "empty", check=0).out == b""
    assert shown_on_terminal(flatq, "list", "-j", "empty") == ("", 0)
    assert re.match(r'{"id":', shown_on_terminal(flatq, "list", "-j", "7")[0])
    stub("awk", 'case $* in *names=*) head -n 1 | "$REAL" "$@" ;; *) exec "$REAL" "$@" ;; esac')
    for words in ["stat"], ["list", "7"], ["log", "7"], ["top"]:
        assert flatq(words[0], "-j", *words[1:]).status == 74, words


def test_through_a_door(flatq, filled):
    there, here = (re.sub(rb'"age":\d+', b"", flatq(*words, check=0, input=b"list --json 7\n").out)
        for words in (["handler"], ["list", "-j", "7"]))
    assert there == here and there.count(b"\n") == 4
    assert json.loads(flatq("handler", input=b"stat -j 7\n").out)["queue"] == "7"
