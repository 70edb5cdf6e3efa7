"""What the tests of the shovel share: messages to move, and a shovel that stops at chosen moments, where it can be killed."""

import subprocess
import sys

import pytest

from conftest import ROOT, chance

import flatq.shovel
from flatq.shovel import Shovel, amqp, door, ends, redis, source, sqs, target, tube

ANY = bytes(range(256)) * 40 + b"\r\n.\r\n"


def filled(flatq, count, queue="here"):
    bodies = [b"%d" % number for number in range(count)]
    flatq("push", "-0", queue, input=b"".join(body + b"\0" for body in bodies), check=0)
    return bodies


def move(*places, **more):
    there = target(places[1])
    return Shovel(source(places[0], there.name), there, once=True, **more).run()


def once(found):
    """The first of each, in order."""
    return list(dict.fromkeys(found))


def killed(source):
    """Leave a source as this process leaves it when it is killed."""
    source.note.close()


#: a shovel that stops at each of these moments until it is told to go on. A moment is a call or a return of a function of the package, or of one
#: that it calls; it is named by its number or by `NAME EVENT COUNT`, as in `give return 2`
STOPPING = """
import os, sys
from collections import Counter
from flatq import shovel
from flatq.shovel import __main__ as main, amqp, door, ends, redis, sqs, tube
moments, package, now, seen = set(sys.argv[1].split(",")), os.path.dirname(os.path.dirname(shovel.__file__)), 0, Counter()
def look(frame, event, arg):
    global now
    if frame.f_code.co_filename.startswith(package):
        now += 1
        name = f"{frame.f_code.co_name} {event}"
        seen[name] += 1
        if str(now) in moments or f"{name} {seen[name]}" in moments:
            os.write(1, b"%d\\n" % now)
            os.read(0, 1)
run = shovel.Shovel.run
def watched(self):
    sys.setprofile(look)
    return run(self)
shovel.Shovel.run = watched
for module in (amqp, door, ends, redis, shovel, sqs, tube):
    module.LEASE = int(sys.argv[2])
sys.exit(main.command("shovel", sys.argv[3:]))
"""
#: the number of moments of the start and of 2 to 10 messages
MOMENTS = 1500
LEASE = 2


class Stopping:
    """`flatq shovel` with these words, in a process that can be killed at each of the moments."""

    def __init__(self, flatq, moments, *words):
        self.flatq = flatq
        self.process = subprocess.Popen(
            [sys.executable, "-c", STOPPING, ",".join(map(str, moments)), str(LEASE), *words], env=flatq.environment({"PYTHONPATH": str(ROOT / "python")}),
            cwd=flatq.home, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        flatq.started.append(self.process)

    def stops(self):
        """Whether it has come to the next moment; False if it has ended with 0."""
        if self.process.stdout.readline():
            return True
        assert self.process.wait(60) == 0
        return False

    def go_on(self):
        self.process.stdin.write(b".")
        self.process.stdin.flush()

    def kill(self):
        self.flatq.end(self.process)


@pytest.fixture
def short_leases(monkeypatch):
    """Moves of the test's own process have short leases, too."""
    for having in (amqp, door, ends, flatq.shovel, redis, sqs, tube):
        monkeypatch.setattr(having, "LEASE", LEASE)


@pytest.fixture
def moments(request, short_leases):
    """moments(COUNT) chooses so many."""
    by_seed = chance(request.node.nodeid)

    def choose(count):
        return by_seed.sample(range(1, count * MOMENTS), count)

    choose.shuffled = lambda *items: by_seed.sample(items, len(items))
    return choose
