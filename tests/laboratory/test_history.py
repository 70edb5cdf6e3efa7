"""Histories: many verbs at once, some killed or stopped, with the clock set; and hand-made
histories, in which each kind of error must be seen.

tests/laboratory/test_mutants.py shows that histories catch errors in the verbs."""

import dataclasses
import fcntl
import re

import pytest

from conftest import share
from laboratory import place, trials  # noqa: F401

from crash import campaign
from crash.families import history
from crash.judge import history_model
from crash.judge.history_events import Event, Message
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
    broken = history.History(system, "kills", 1, spool, history.Clock(),
        dict(system.environment(spool)))
    broken.perform(["create", "q"])
    broken.deadline = 2
    with open(spool / "q/lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        broken.perform(["push", "-k", "key", "q"], who="somebody")
    assert broken.broken == ["somebody: push -k key q: not over after 2 s"]
    with pytest.raises(history.Over):
        broken.perform(["wal"])


# hand-made histories: a sound one, and copies in which one operation differs or is missing

MESSAGES = {number: Message(number, b"%d:body" % number, 65536, delay, 60, key)
            for number, delay, key in ((1, 0, ""), (2, 0, "key"), (3, 100, ""))}


def event(second, words, out=b"", **more):
    """An operation that lasts half a second."""
    return Event("x", tuple(words.split()), start=second, end=second + 0.5, up_start=second,
        up_end=second + 0.5, out=out, err=b"nothing\n" if more.get("status") else b"", **more)


def claim(second, out, claimed, words="claim -c me -n 5 q", **more):
    return event(second, words, out, claimed=dict(claimed), **more)


SOUND = {
    "push 1": event(0, "push q", b"1\n", messages=(1,)),
    "push 2": event(1, "push -k key q", b"2\n", messages=(2,)),
    "push 3": event(2, "push -d 100 q", b"3\n", messages=(3,)),
    "pop 1": event(3, "pop q", b"1:body"),
    "reserve 2": event(4, "reserve -t 60 q", b"r2 2 1 6\n2:body"),
    "nothing": event(5, "pop q", status=66),
    "delete 2": event(6, "delete r2", receipt="r2"),
    "pop 3": event(200, "pop q", b"3:body"),
    "end": event(201, "pop q", status=66),
}
# messages 4 and 5 are claimed, listed again and given back; 4 is reserved and released; both are
# claimed anew, 4 by a claim that was killed, and settled
CLAIMED = {
    "push 4": event(10, "push q", b"4\n", messages=(4,)),
    "push 5": event(11, "push q", b"5\n", messages=(5,)),
    "claim": claim(12, b"0 2 /x\n", [(0, b"4:body"), (1, b"5:body")]),
    "claim again": claim(13, b"0 2 /x\n", [(0, b"4:body"), (1, b"5:body")]),
    "unclaim": event(14, "unclaim -c me q"),
    "reserve": event(15, "reserve -t 60 q", b"r4 4 1 6\n4:body"),
    "release": event(16, "release r4", receipt="r4"),
    "claim killed": claim(17, b"", [], status=-9, killed=True),
    "nothing": event(17.6, "pop q", status=66),
    # one was held already
    "claim anew": claim(18, b"2 1 /y\n3 1 /z\n", [(2, b"4:body"), (3, b"5:body")],
    words="claim -c me -n 1 q"),
    "settle": event(19, "settle -c me 4 q"),
    "claim at the end": claim(20, b"", [], status=66),
}
WRONG_CLAIMS = {
    "not listed again": ({"claim again": claim(13, b"", [], status=66)},
    "is claimed, and not listed any more"),
    "settled, and listed": ({"claim at the end": claim(20, b"3 1 /z\n", [(3, b"5:body")])},
    "offset 3 was given before"),
    "settled, and popped": ({"pop": event(21, "pop q", b"4:body")},
    "came again after it was settled"),
    "never settled": ({"settle": None, "claim at the end": None}, "was acknowledged, and is lost"),
    "settled in part": ({"settle": event(19, "settle -c me 3 q"), "claim at the end": None},
    "message 5 was acknowledged, and is lost"),
    "given back, and gone": ({name: None for name in ("claim killed", "nothing", "claim anew",
    "settle")}, "was acknowledged, and is lost"),
    "an offset twice": ({"claim anew": claim(18, b"1 2 /y\n", [(1, b"4:body"), (2, b"5:body")])},
    "offset 1 was given before"),
    "another one at its offset": ({"claim again": claim(13, b"0 2 /x\n",
    [(0, b"5:body"), (1, b"4:body")])}, "and at its offset 5 is listed"),
    "more than wanted": ({"claim": claim(12, b"0 2 /x\n", [(0, b"4:body"), (1, b"5:body")],
    words="claim -c me -n 1 q")}, "2 messages are held, and 1 were wanted"),
    "out of order": ({"claim": claim(12, b"0 1 /x\n", [(0, b"5:body")]),
    "claim again": claim(13, b"0 1 /x\n", [(0, b"5:body")])},
                     "message 5 was handed out, while 1 that come before it are there: 4"),
    "handed out as well": ({"pop": event(13.2, "pop q", b"4:body")},
    "message 4 was claimed, and handed out to another"),
    "reserved as well": ({"reserve": None, "release": None, "early": event(11.45, "reserve -t 60 q",
    b"r4 4 1 6\n4:body")}, "message 4 was popped, and reserved"),
    "passed over though given back": ({"claim killed": None, "nothing": event(17, "pop q",
    status=66)}, "nothing there, it says, while 2 messages are there"),
    "none where two are there": ({"claim": claim(12, b"", [], status=66), "claim again": None,
    "unclaim": None}, "nothing there, it says, while 2 messages are there"),
    "half of it": ({"claim": claim(12, b"0 2 /x\n", [(0, b"4:bo"), (1, b"5:body")])},
    "unknown or altered"),
    "a segment that lacks one": ({"claim again": claim(13, b"0 2 /x\n",
    [(0, b"4:body"), (1, None)])}, "unknown or altered: b'nothing' at offset 1"),
    "no list": ({"claim": claim(12, b"0 x /x\n", [])}, "claim said"),
    "no end of a segment": ({"settle": event(19, "settle -c me 4 q", status=65)},
    "settle: exit 65"),
}
WRONG = {
    "a false empty": ({"early": event(2.6, "pop q", status=66)}, "nothing there, it says"),
    "lost": ({"pop 3": None}, "was acknowledged, and is lost"),
    "reserved, and lost": ({"delete 2": None}, "was acknowledged, and is lost"),
    "altered": ({"pop 1": event(3, "pop q", b"1:bodY")}, "unknown or altered"),
    "half of it": ({"pop 1": event(3, "pop q", b"1:bo")}, "unknown or altered"),
    "never pushed": ({"other": event(7, "pop q", b"9:body")}, "unknown or altered"),
    "twice": ({"again": event(7, "pop q", b"1:body")}, "came again after it was settled"),
    "out of order": ({"pop 1": event(3, "pop q", b"2:body"), "reserve 2": event(4, "pop q",
    b"1:body"), "delete 2": None}, "that come before it are there"),
    "before its push": ({"push 1": event(3.6, "push q", b"4\n", messages=(1,))},
    "came before it was pushed"),
    "refused, and there": ({"push 1": event(0, "push q", status=75, messages=(1,))},
    "was refused, and is there"),
    "ids in another order": ({"push 1": event(0, "push q", b"5\n", messages=(1,))},
    "not in the order of their pushes"),
    "before its delay": ({"pop 3": event(20, "pop q", b"3:body")}, "before its delay"),
    "two owners": ({"other": event(5, "reserve -t 60 q", b"r3 2 2 6\n2:body"), "nothing": None},
    "two living owners"),
    "one try twice": ({"other": event(5, "reserve -t 60 q", b"r3 2 1 6\n2:body"), "nothing": None},
    "handed out twice as try 1"),
    "a receipt that was used": ({"again": event(8, "delete r2", receipt="r2")},
    "message 2 was settled 2 times"),
    "a receipt that is old": ({"other": event(100, "reserve -t 60 q", b"r3 2 2 6\n2:body"),
    "delete 2": event(110, "delete r2", receipt="r2")},
                              "after the message was handed out again"),
    "a key of two": ({"push 1": event(1.6, "push -k key q", b"4\n", messages=(4,)),
    "pop 1": event(3, "pop q", b"4:body")},
                     "have the same key at the same time"),
    "a key of nobody": ({"dup": event(7, "push -k key q", b"8 dup\n", messages=(4,))},
    "which nobody pushed"),
    "a key of what was settled": ({"dup": event(7, "push -k key q", b"2 dup\n", messages=(4,))},
    "which was settled"),
    "no clear line": ({"nothing": dataclasses.replace(SOUND["nothing"],
    err=b"sh: 1: what?\nnothing\n")}, "not one clear line"),
    "an exit code that nobody knows": ({"nothing": dataclasses.replace(SOUND["nothing"], status=2)},
    "exit 2"),
}


def said(changes, bound=0, samples=(), sound=SOUND):
    events = [one for one in {**sound, **changes}.values() if one]
    messages = {**MESSAGES, 4: Message(4, b"4:body", 65536, 0, 60, "key"),
        5: Message(5, b"5:body", 65536, 0, 60, "")}
    return history_model.check(events, {number: messages[number] for one in events
        for number in one.messages}, "leases", bound, samples)


def test_a_sound_history_is_good():
    assert said({}) == []
    assert said({}, bound=3, samples=[(2.7, 3), (3.2, 2)]) == []
    swept = b"queue 'q': what a killed push left of 000000000009 was removed\n"
    assert said({"nothing": dataclasses.replace(SOUND["nothing"], err=swept
        + SOUND["nothing"].err)}) == []


def test_a_sound_history_of_claims_is_good():
    assert said({}, sound=CLAIMED) == []


@pytest.mark.parametrize("what", WRONG_CLAIMS)
def test_a_wrong_history_of_claims_is_not(what):
    changes, text = WRONG_CLAIMS[what]
    found = said(changes, sound=CLAIMED)
    assert any(text in line for line in found), found


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_history_is_not(what):
    changes, text = WRONG[what]
    found = said(changes)
    assert any(text in line for line in found), found


def test_a_bound_that_is_exceeded_is_seen():
    assert any("4 messages at 2.7" in line for line in said({}, bound=3, samples=[(2.7, 4)]))
