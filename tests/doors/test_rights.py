"""The limits of a client of the line door: `flatq door` and `launch line` with --allow, --queues
and --bytes."""

import itertools
import re
from base64 import b64decode

import pytest

from conftest import listening, need, share, wait_for
from engine import end_launches, push, refused
from headers import documented

QUEUES = ("default", "mail/a", "other")
# what a verb uses where its request names no queue: the default one, all, or nothing
WITHOUT = {**dict.fromkeys(("push", "pop", "reserve", "kick", "peek", "create", "close", "drain"),
    {"default"}), "wal": set(QUEUES),
           **dict.fromkeys(("list", "stat", "delete", "release", "touch", "bury", "why", "drop",
        "pause", "resume", "wait"), set())}
VERBS = [*WITHOUT]
OPTIONS = {"push": "-n 0 ", "drop": "-f ", "drain": "-0 ", "pop": "-l -n 9 ", "wait": "-t 0 "}


@pytest.fixture
def door(flatq):
    """door(LIMIT ..., line=LINE): what flatq door answers to one request."""
    def ask(*limits, line, data=b"", **more):
        done = flatq("flatq", "door", "--spool", flatq.spool, *limits,
            input=line.encode() + b"\n" + data, **more)
        assert done.err == b"", done
        return done.out

    return ask


@pytest.fixture
def filled(flatq):
    """Three queues with ready, reserved and buried messages. Each body has the name of its
    queue."""
    for queue in QUEUES:
        flatq("push", "-0", queue, input=f"secret of {queue}\0".encode() * 4, check=0)
        receipts = [flatq("reserve", queue, check=0).out.split()[0].decode() for _ in range(2)]
        flatq("bury", receipts[0], check=0)
    return flatq


def files(spool, queue):
    """Every file of the queue's directory, with its size."""
    place = spool / queue.replace("/", ",")
    return {str(path.relative_to(place)): path.is_file() and path.stat().st_size
        for path in place.rglob("*")}


def requests(verb):
    """(operands, the queues that they use)."""
    yield "", WITHOUT[verb]
    for queue in QUEUES:
        yield queue, {queue}
        yield f"{queue}:1", {queue}
    for one, other in (("mail/a", "other"), ("other", "mail/a"), ("mail/a:1", "other:1")):
        # of pause, the second word is a time
        yield f"{one} {other}", {"mail/a", "other"} if verb != "pause" else {one.partition(":")[0]}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_against_every_limit(door, filled, verb):
    """A request outside them changes nothing (77); one inside touches and shows no queue
    outside."""
    others = ",".join(one for one in VERBS if one != verb)
    limits = [(("--allow", others), set()), (("--allow", verb, "--queues", "mail/*"), {"mail/a"}),
        (("--queues", "d*t"), {"default"}), (("--queues", "nothing,ma*,*/b"), {"mail/a"})]
    assert set(door(line="nothing").decode().rpartition(":")[2].split()) == set(VERBS)
    for (words, allowed), (operands, uses) in share(f"rights {verb}",
            itertools.product(limits, requests(verb)), 9):
        closed = [queue for queue in QUEUES if queue not in allowed]
        good = bool(allowed) and uses <= allowed
        before = {queue: files(filled.spool, queue) for queue in (closed if good else QUEUES)}
        answer = door(*words, line=f"@{verb} {OPTIONS.get(verb, '')}{operands}")
        what = (words, verb, operands, answer)
        assert (b"\nerror 77 " in answer) == (not good), what
        assert {queue: files(filled.spool, queue) for queue in before} == before, what
        assert not any(f"secret of {queue}".encode() in answer
            or f"queue {queue}\n".encode() in answer for queue in closed), what


HOSTILE = (
    "@n1@push other", "push -- other", "push -p 3 other", "pop -w0 other",
    "pop -n 1 -l mail/a other", "pop -x other", "push\tother", "push other\r",
    "peek -s ready -- other:1", "drop -f other", "push mail/../other", "push mail/a/../../other",
    "push mail/*", "pop mail/a;other", "delete mail/a:1:other:1", "peek other:1:mail/a",
    "delete :1", "release -p 1 other:1", "create -b 1 other", "create -g mail/a",
    "bury -r mail/a other:1", "push -k mail/a other", "kick -n", "stat mail/a other", "wal",
    "wal other", "drain -a other", "drain -l mail/a other", "pop - other", "list -h other",
    "push $FLATQ_DIR", "close", "work -q mail/a", "door", "../push other", "flatq push")


@pytest.mark.shells
def test_requests_that_would_get_around_a_limit(shell, door, filled):
    closed = ("default", "other")
    before = {queue: files(filled.spool, queue) for queue in closed}
    for line in share("hostile requests", HOSTILE, 12):
        answer = door("--queues", "mail/*", line=line, data=b"sneaked in")
        assert b"secret of o" not in answer and b"secret of d" not in answer and not re.search(
            rb"(?m)^\d+$", answer), (line, answer)
        assert {queue: files(filled.spool, queue) for queue in closed} == before, line
    assert door("--queues", "mail/*", line="list") == b"mail/a\n"
    assert door("--queues", "*r", line="stat").startswith(b"queue other\n")
    assert b64decode(door("--queues", "mail/*", line="pop -6 mail/a")) == b"secret of mail/a"


@pytest.mark.shells
def test_a_pattern_is_a_name_with_stars_in_it(shell, door, flatq):
    """With extglob, `+(x)` would be any of x, xx and so on."""
    (flatq.home / "x+y").touch()
    for name, patterns, allowed in (
        ("a+(x)", "a+(x)", True), ("axx", "a+(x)", False), ("x+y", "*", True),
        ("$HOME", "$HOME", True), (";$(", "*;*", True), ("a.b", "a.b", True),
        ("axb", "a.b", False), ("mail", "mail/*", False), ("mail/", "mail/*", True),
        ("b", "a,,b", True),
    ):
        answer = door("--queues", patterns, line=f"push -n 1 {name}", data=b"x")
        assert (re.fullmatch(rb"\d+\n", answer) if allowed
            else answer.startswith(b"error 77 ")), (name, patterns, answer)


@pytest.mark.shells
def test_bytes(shell, door, flatq):
    """Of each message, also of many, and whether or not their size is stated before."""
    def put(words, data):
        return door("--bytes", "10", line=f"push {words} q", data=data)

    assert put("", b"0123456789") == b"1\n" and put("-n 10", b"0123456789a").strip().isdigit()
    most = {"": b"", "-l": b"\n", "-0": b"\0"}
    for option, end in most.items():
        text = (b"short" + end) * bool(end) + b"0123456789a" + end
        for words in (option, f"-n {len(text)} {option}"):
            said = put(words, text)
            assert said.startswith(b"error 65 ") and b"over the limit" in said, (words, said)
        assert not end or put(option, b"short" + end + b"0123456789").count(b" ") == 1
    assert flatq("drain", "q").out == b"0123456789\n" * 2 + b"short\n0123456789\n" * 2
    assert door("--bytes", "0", line="push q", data=b"abcd",
        env={"FLATQ_MOST_BYTES": "1"}).strip().isdigit()


WRONG = {
    64: (("--allow", ""), ("--allow", ","), ("--allow",), ("--queues", ""), ("--queues", ",")),
    65: (("--allow", "work"), ("--allow", "push,popp"), ("--queues", "it's"), ("--queues", "a b"),
         ("--queues", "a\nb"), ("--queues", "[a-z]"), ("--bytes", "many"), ("--bytes", "-1")),
}


@pytest.mark.parametrize("limit, code",
    [(limit, code) for code in WRONG for limit in WRONG[code]], ids=str)
def test_a_wrong_limit_is_no_limit_less(flatq, limit, code):
    """The door does not serve, and its one line is on standard error: the client's ssh prints
    it."""
    for words in (("door", *limit), ("serve", "-p", "1", "line", *limit)):
        refused(flatq(*words, input=b"list\n"), code)
    assert flatq("door", "x", "list", input=b"list\n").status == 64
    assert flatq("serve", "http", "--queues", "a", "-p", "1").status == 64


def test_no_variable_decides_anything(door, flatq, tmp_path):
    """ssh may pass on what the client has set (SendEnv), also for perl."""
    need("perl")
    (tmp_path / "strict.pm").write_text(f"BEGIN {{ open my $ran, '>', '{tmp_path}/elsewhere' }} 1;")
    names = documented() | {"SSH_ORIGINAL_COMMAND"}
    env = dict.fromkeys(names, str(tmp_path / "elsewhere")) | {"FLATQ_SYNC": "off",
        "FLATQ_MOST_BYTES": "1", "FLATQ_RANGE": "1", "PERL5LIB": str(tmp_path)}
    assert door("--allow", "push", line="push q", data=b"body", env=env) == b"1\n"
    assert flatq("pop", "q", check=0).out == b"body"
    door(line="push -l q", data=b"body\n", env={"PERL5LIB": str(tmp_path)})
    assert not (tmp_path / "elsewhere").exists()
    assert door("--queues", "default", line="push", data=b"body",
        env={"FLATQ_QUEUE": "q"}).strip().isdigit() and flatq("pop", check=0).out == b"body"
    done = flatq("door", "--allow", "create", input=b"create\n",
        env={"FLATQ_DIR": str(tmp_path / "elsewhere")})
    assert (done.status, done.out) == (0, b"") and (flatq.home / ".local/state/flatq").is_dir(
        ) and not (tmp_path / "elsewhere").exists()


@pytest.mark.shells
def test_launch_has_the_same_limits(shell, flatq, free_port):
    """They are the door's own: those of another door beside it are different."""
    need("ncat")
    push(flatq, b"kept", "other")
    process = flatq.start("serve", "line", "--allow", "push,list", "--queues", "mail/*",
        "--bytes", "3", "-k", "-p", str(free_port), "http", "-l", f"unix:{flatq.home}/http")
    try:
        wait_for(lambda: listening(free_port), "the door")

        def far(*words, **more):
            return flatq("flatq", "-H", f"127.0.0.1:{free_port}", *words, **more)

        assert far("push", "mail/a", input=b"abc", check=0).out == b"2\n"
        refused(far("push", "mail/a", input=b"abcd"), 65, "push", text=b"over the limit")
        refused(far("push", "other", input=b"abc"), 77, "push",
            text=b"queue 'other' is not allowed")
        refused(far("pop", "mail/a"), 77, "pop", text=b"reserve is not allowed here")
        assert far("list", check=0).out == b"mail/a\n"
    finally:
        end_launches(flatq.spool, process)
