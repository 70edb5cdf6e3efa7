"""Histories: many verbs at once, some killed or stopped; and hand-made ones with each kind of
error."""

import fcntl
import re
import subprocess

import pytest

from conftest import share
from laboratory import place, trials  # noqa: F401

from crash import campaign
from crash.families import history
from crash.judge import history_model
from crash.judge.history_model import Event, Message
from crash.scenarios import System
from crash.trials import Trial

HISTORIES = [(kind, seed) for kind in history.KINDS for seed in share(f"histories, {kind}",
    range(100, 103), 2)]


@pytest.mark.parametrize("kind, seed", HISTORIES)
def test_history(place, kind, seed, trials):
    one = Trial("history", kind, "killed or stopped", str(seed))
    outcome = campaign.run(one, System(), place)
    trials("history", [outcome])
    assert outcome.outcome == "good", f"{one}\n{outcome.detail}"
    # A run with few operations would show nothing. Some twenty are killed; of a machine that wakes
    # us late, fewer, since the verb has ended before
    operations, killed, _ = map(int, re.findall(r"\d+", outcome.call))
    assert operations > 80 and killed, outcome.call


def test_an_operation_that_hangs_ends_the_history(place):
    system, spool = System(), place / "spool"
    broken = history.History(system, "kills", 1, spool)
    broken.perform(["create", "q"])
    broken.deadline = 2
    with open(spool / "q/lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(subprocess.TimeoutExpired, match="/push', .* 2 seconds"):
            broken.perform(["push", "-k", "key", "q"], who="somebody")


# hand-made histories: a sound one, and copies in which one operation differs or is missing

MESSAGES = {number: Message(number, b"%d:body" % number, 65536, 60,
    "key" if number in (2, 6) else "") for number in range(1, 7)}


def event(second, words, out=b"", **more):
    """An operation that lasts half a second."""
    more.setdefault("err", b"nothing\n" if more.get("status") else b"")
    return Event("x", tuple(words.split()), start=second, end=second + 0.5, out=out, **more)


def claim(second, *claimed):
    return event(second, "claim -c me q", claimed=claimed, receipt=f"c{second}")


SOUND = {
    "push 1": event(0, "push q", b"1\n", messages=(1,)),
    "push 2": event(1, "push -k key q", b"2\n", messages=(2,)),
    "pop 1": event(3, "pop q", b"1:body"),
    "reserve 2": event(4, "reserve -t 60 q", b"r2 2 1 6\n2:body"),
    "nothing": event(5, "pop q", status=66),
    "delete 2": event(6, "delete r2", receipt="r2"),
    "push 3": event(199, "push q", b"3\n", messages=(3,)),
    "pop 3": event(200, "pop q", b"3:body"),
    "end": event(201, "pop q", status=66),
    # two are claimed and given back; the first is reserved, and released by one that is killed;
    # both are claimed anew, the first once more after a settle that was killed
    "push 4": event(210, "push q", b"4\n", messages=(4,)),
    "push 5": event(211, "push q", b"5\n", messages=(5,)),
    "claim": claim(212, b"4:body", b"5:body"),
    "unclaim": event(214, "unclaim -c me q", receipt="c212"),
    "reserve": event(215, "reserve -t 60 q", b"r4 4 1 6\n4:body"),
    "release": event(216, "release r4", receipt="r4", status=-9, killed=True),
    "reserve killed": event(217, "reserve -t 1 q", status=-9, killed=True),
    "nothing now": event(218, "pop q", status=66),
    "claim anew": claim(290, b"4:body", b"5:body"),
    "settle": event(291, "settle -c me 4 q", receipt="c290"),
    "claim at the end": event(292, "claim -c me q", status=66),
}
WRONG = {
    "a false empty": ({"early": event(2.6, "pop q", status=66)}, "nothing there, it says"),
    "lost": ({"pop 3": None}, "was acknowledged, and is lost"),
    "half of it": ({"pop 1": event(3, "pop q", b"1:bo")}, "unknown or altered"),
    "half announced": ({"reserve 2": event(4, "reserve -t 60 q", b"r2 2 1 5\n2:body")},
        "said b'r2"),
    "never pushed": ({"other": event(7, "pop q", b"9:body")}, "unknown or altered"),
    "out of order": ({"pop 1": event(3, "pop q", b"2:body"), "delete 2": None,
        "reserve 2": event(4, "pop q", b"1:body")}, "message 2 was handed out, while 1 that come"),
    "before its push": ({"push 1": event(3.6, "push q", b"6\n", messages=(1,))},
        "came before it was pushed"),
    "refused, and there": ({"push 1": event(0, "push q", status=75, messages=(1,))},
        "was refused, and is there"),
    "ids in another order": ({"push 1": event(0, "push q", b"7\n", messages=(1,))},
        "not in the order of their pushes"),
    "two owners": ({"other": event(5, "reserve -t 60 q", b"r3 2 2 6\n2:body")},
        "two living owners"),
    "one try twice": ({"other": event(5, "reserve -t 60 q", b"r3 2 1 6\n2:body")},
        "handed out twice as try 1"),
    "a receipt that was used": ({"again": event(8, "delete r2", receipt="r2")},
        "message 2 was settled 2 times"),
    "a receipt that is old": ({"other": event(100, "reserve -t 60 q", b"r3 2 2 6\n2:body"),
        "delete 2": event(110, "delete r2", receipt="r2")},
        "after the message was handed out again"),
    "a key of two": ({"push 4": event(1.6, "push -k key q", b"4\n", messages=(6,)),
        "claim": claim(212, b"6:body")}, "have the same key at the same time"),
    "a key of nobody": ({"dup": event(7, "push -k key q", b"8 dup\n", messages=(6,))},
        "message 8 cannot have its key"),
    "a key of what was settled": ({"dup": event(7, "push -k key q", b"2 dup\n", messages=(6,))},
        "message 2 cannot have its key"),
    "no clear line": ({"nothing": event(5, "pop q", status=66, err=b"sh: 1: what?\nnothing\n")},
        "not one clear line"),
    "an exit code that nobody knows": ({"nothing": event(5, "pop q", status=2)}, "exit 2"),
    "claimed and settled, and popped": ({"pop": event(299, "pop q", b"4:body")},
        "came again after it was settled"),
    "claimed, and popped": ({"pop": event(213.2, "pop q", b"4:body")}, "two living owners"),
    "reserved, and claimed": ({"reserve": event(211.45, "reserve -t 60 q", b"r4 4 1 6\n4:body")},
        "two living owners"),
    "claimed out of order": ({"claim": claim(212, b"5:body")}, "that come first are there: 4"),
    "a claim that lacks one": ({"claim": claim(212, b"4:body", None)}, "unknown or altered"),
    "given back, and not there": ({"early": event(214.6, "pop q", status=66)},
        "nothing there, it says, while 1"),
    # one of the two may be with the reserve that was killed
    "not there, though its lease is over": ({"late": event(289, "pop q", status=66)},
        "nothing there, it says, while 2"),
}


def said(changes, bound=0, samples=()):
    events = [one for one in {**SOUND, **changes}.values() if one]
    return history_model.check(events, {number: MESSAGES[number] for one in events
        for number in one.messages}, bound, samples)


def test_a_sound_history_is_good():
    assert said({}, bound=3, samples=[(2.7, 3), (3.2, 2)]) == []
    swept = b"queue 'q': what a killed push left of 000000000009 was removed\nnothing\n"
    assert said({"nothing": event(5, "pop q", status=66, err=swept)}) == []


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_history_is_not(what):
    changes, text = WRONG[what]
    found = said(changes)
    assert any(text in line for line in found), found


def test_a_bound_that_is_exceeded_is_seen():
    assert any("4 messages at 2.7" in line for line in said({}, bound=3, samples=[(2.7, 4)]))
