"""claim, settle and unclaim: a consumer holds many messages under its own name, and keeps them
through crashes."""

import base64
import signal
from pathlib import Path


from engine import empty, lies, pop, push, refused, reserve


def claim(flatq, *args, name="me", check=0):
    """[(offset, count, path)], as claim prints it."""
    done = flatq("claim", "-c", name, *args, check=check)
    return [(int(offset), int(count), path) for offset, count,
        path in (line.decode().split(" ", 2) for line in done.out.splitlines())]


def read(segments):
    """The messages of segments, in order: all that a batch consumer has to write."""
    found = []
    for _, count, path in segments:
        lines = [line for flat in sorted(Path(path).iterdir())
            for line in flat.read_bytes().split(b"\n")[:-1]]
        assert len(lines) == count
        found += [base64.b64decode(line.split(b"\t")[1], validate=True) for line in lines]
    return found


def fill(flatq, first, last, *options):
    flatq("push", "-l", *options, input=b"".join(b"%d\n" % n for n in range(first, last)), check=0)


def test_claimed_listed_again_and_settled(shell, flatq, spool):
    for n in range(5):
        push(flatq, b"%d" % n)
    fill(flatq, 5, 605)
    push(flatq, b"first", "-p", "1")
    segments = claim(flatq)
    assert read(segments) == [b"first", *(b"%d" % n for n in range(605))]
    empty(flatq)
    assert claim(flatq) == segments == claim(flatq, "-n", "0")
    # later segments get greater offsets, also when others push meanwhile
    push(flatq, b"later")
    more = claim(flatq)
    assert more[:-1] == segments and more[-1][:2] == (606, 1) and read(more[-1:]) == [b"later"]
    flatq("settle", "-c", "me", "606", check=0)
    assert claim(flatq) == more[-1:]
    # settling the same offset again, or an earlier one, is no error
    for offset in ("606", "6", "0"):
        flatq("settle", "-c", "me", offset, check=0)
    flatq("settle", "-c", "me", "607", check=0)
    refused(flatq("claim", "-c", "me"), 66, "claim", text=b"nothing there")
    refused(flatq("claim", "-c", "me", "-n", "0"), 66, "claim")
    push(flatq, b"again")
    assert [segment[:2] for segment in claim(flatq)] == [(607, 1)]
    flatq("settle", "-c", "me", "608", check=0)
    flatq("wal", check=0)
    assert lies(spool) == {"claimed": ["settled.000000000608"]}


def test_back_in_the_old_place(shell, flatq, spool):
    fill(flatq, 0, 550)
    push(flatq, b"urgent", "-p", "1")
    for n in range(550, 560):
        push(flatq, b"%d" % n)
    assert len(read(claim(flatq, "-n", "553"))) == 553
    assert pop(flatq) == b"552"
    assert b"reserved 553\n" in flatq("stat", "default", check=0).out
    flatq("unclaim", "-c", "me", check=0)
    held = reserve(flatq)
    assert (held.body, held.tries) == (b"urgent", 2)
    flatq("delete", held.receipt, check=0)
    assert flatq("drain", check=0).out.split() == [b"%d" % n for n in (*range(552),
        *range(553, 560))]
    assert claim(flatq, "-n", "0", check=66) == []
    # the offsets of messages that were given back are not given again
    push(flatq, b"x")
    assert claim(flatq)[0][0] == 553
    flatq("settle", "-c", "me", "554", check=0)
    flatq("wal", check=0)
    assert lies(spool) == {"claimed": ["settled.000000000554"]}


def test_offsets_of_a_killed_unclaim_are_not_given_again(flatq, stub):
    """It is killed when its segments are batches in out/, and settled.OFFSET does not tell yet."""
    flatq.syncs()
    push(flatq, b"1")
    assert claim(flatq)[0][:2] == (0, 1)
    stub("sync", 'case $* in */out) kill -9 $PPID ;; *) exec "$REAL" "$@" ;; esac')
    assert flatq.start("unclaim", "-c", "me").wait(60) == -signal.SIGKILL
    assert claim(flatq)[0][:2] == (1, 1)


def test_count_is_what_is_held(flatq):
    """A job that fails again and again does not take more and more."""
    fill(flatq, 0, 5000)
    for _ in range(3):
        assert read(claim(flatq, "-n", "1300")) == [b"%d" % n for n in range(1300)]
    assert len(read(claim(flatq, "-n", "1301"))) == 1301
    assert len(read(claim(flatq, "-n", "7"))) == 1301


def test_refusals(shell, flatq):
    fill(flatq, 0, 10)
    claim(flatq)
    for offset in ("5", "11", "999999999999"):
        refused(flatq("settle", "-c", "me", offset), 65, "settle", text=b"no segment ends")
    assert len(read(claim(flatq))) == 10
    flatq("close", check=0)
    flatq("settle", "-c", "me", "10", check=0)
    refused(flatq("claim", "-c", "me"), 69, "claim")


def test_nothing_gives_a_claim_back(flatq, spool):
    """Nor frees a key: no death, end of a lease, boot or checkpoint."""
    push(flatq, b"1", "-k", "key")
    fill(flatq, 2, 300)
    segments = claim(flatq)
    for mark in (spool / ".boot").iterdir():
        mark.unlink()
    flatq("wal", check=0)
    assert flatq("doctor", check=0).out == b""
    empty(flatq)
    assert claim(flatq) == segments and len(read(segments)) == 299
    assert flatq("push", "-k", "key", input=b"2", check=0).out == b"1 dup\n"
    refused(flatq("drop", "default"), 75, "drop")
    listed = [line.split() for line in flatq("list", "default", check=0).out.splitlines()]
    assert {state for _, state, *_ in listed} == {b"claimed"} and len(listed) == 299
    flatq("settle", "-c", "me", "299", check=0)
    assert b"dup" not in flatq("push", "-k", "key", input=b"2", check=0).out


def test_a_hundred_flat_files_are_one_segment(flatq):
    """They are claimed, given back and settled for the price of a small one."""
    fill(flatq, 0, 50_000)
    for turn in range(2):
        segments = claim(flatq, "-n", "50000")
        assert [(offset, count) for offset, count, _ in segments] == [(turn * 50_000, 50_000)]
        assert read(segments) == [b"%d" % n for n in range(50_000)]
        flatq("unclaim", "-c", "me", check=0)
    [(offset, _, _)] = claim(flatq, "-n", "49500")
    flatq("settle", "-c", "me", str(offset + 49_500), check=0)
    assert read(claim(flatq)) == [b"%d" % n for n in range(49_500, 50_000)]
