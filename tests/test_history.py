"""Histories: many at once, killed, stopped and with the clock set; and that each kind of wrong in one is seen.

That they see what is wrong in the verbs: tests/test_mutants.py.
"""

import dataclasses

import pytest

from laboratory import place  # noqa: F401

from flatq.crashlab import history, history_model
from flatq.crashlab.history_model import Event, Message
from flatq.crashlab.scenarios import System


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", history.KINDS)
def test_histories(place, kind):
    """Five of each kind."""
    outcomes = list(history.trials(System(), 5, 100, place, kind=kind))
    assert not [outcome for outcome in outcomes if outcome.outcome != "good"], "\n".join(map(str, outcomes))
    # it is no history if little happens in it
    assert sum(outcome.operations for outcome in outcomes) > 400 and sum(outcome.killed for outcome in outcomes) > 20


# Histories made up by hand: the sound one, and with one operation that is another or none

MESSAGES = {number: Message(number, b"%d:body" % number, 65536, delay, 60, key)
            for number, delay, key in ((1, 0, ""), (2, 0, "key"), (3, 100, ""))}


def event(second, words, out=b"", **more):
    """Lasts for half a second."""
    return Event("x", tuple(words.split()), start=second, end=second + 0.5, up_start=second, up_end=second + 0.5, out=out,
                 err=b"nothing\n" if more.get("status") else b"", **more)


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
WRONG = {
    "a false empty": ({"early": event(2.6, "pop q", status=66)}, "nothing there, it says"),
    "lost": ({"pop 3": None}, "was acknowledged, and is lost"),
    "reserved, and lost": ({"delete 2": None}, "was acknowledged, and is lost"),
    "altered": ({"pop 1": event(3, "pop q", b"1:bodY")}, "unknown or altered"),
    "half of it": ({"pop 1": event(3, "pop q", b"1:bo")}, "unknown or altered"),
    "never pushed": ({"other": event(7, "pop q", b"9:body")}, "unknown or altered"),
    "twice": ({"again": event(7, "pop q", b"1:body")}, "came again after it was settled"),
    "out of order": ({"pop 1": event(3, "pop q", b"2:body"), "reserve 2": event(4, "pop q", b"1:body"), "delete 2": None}, "that come before it are there"),
    "before its push": ({"push 1": event(3.6, "push q", b"4\n", messages=(1,))}, "came before it was pushed"),
    "refused, and there": ({"push 1": event(0, "push q", status=75, messages=(1,))}, "was refused, and is there"),
    "ids in another order": ({"push 1": event(0, "push q", b"5\n", messages=(1,))}, "not in the order of their pushes"),
    "before its delay": ({"pop 3": event(20, "pop q", b"3:body")}, "before its delay"),
    "two owners": ({"other": event(5, "reserve -t 60 q", b"r3 2 2 6\n2:body"), "nothing": None}, "two living owners"),
    "one try twice": ({"other": event(5, "reserve -t 60 q", b"r3 2 1 6\n2:body"), "nothing": None}, "handed out twice as try 1"),
    "a receipt that was used": ({"again": event(8, "delete r2", receipt="r2")}, "a receipt was honoured after it was deleted"),
    "a receipt that is old": ({"other": event(100, "reserve -t 60 q", b"r3 2 2 6\n2:body"), "delete 2": event(110, "delete r2", receipt="r2")},
                              "after the message was handed out again"),
    "a key of two": ({"push 1": event(1.6, "push -k key q", b"4\n", messages=(4,)), "pop 1": event(3, "pop q", b"4:body")},
                     "have the same key at the same time"),
    "a key of nobody": ({"dup": event(7, "push -k key q", b"8 dup\n", messages=(4,))}, "which nobody pushed"),
    "a key of what was settled": ({"dup": event(7, "push -k key q", b"2 dup\n", messages=(4,))}, "which was settled"),
    "no clear line": ({"nothing": dataclasses.replace(SOUND["nothing"], err=b"sh: 1: what?\nnothing\n")}, "not one clear line"),
    "an exit code that nobody knows": ({"nothing": dataclasses.replace(SOUND["nothing"], status=2)}, "exit 2"),
}


def said(changes, bound=0, samples=()):
    events = [one for one in {**SOUND, **changes}.values() if one]
    messages = {**MESSAGES, 4: Message(4, b"4:body", 65536, 0, 60, "key")}
    return history_model.check(events, {number: messages[number] for one in events for number in one.messages}, "leases", bound, samples)


def test_a_sound_history_is_good():
    assert said({}) == []
    assert said({}, bound=3, samples=[(2.7, 3), (3.2, 2)]) == []


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_history_is_not(what):
    changes, text = WRONG[what]
    found = said(changes)
    assert any(text in line for line in found), found


def test_a_bound_that_is_exceeded_is_seen():
    assert any("the bound is 2" in line for line in said({}, bound=2))  # by what was acknowledged
    assert any("4 messages at 2.7" in line for line in said({}, bound=3, samples=[(2.7, 4)]))
