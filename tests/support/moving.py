"""Messages to move, and a shovel that stops at chosen moments, where it can be killed."""

import subprocess
import sys

import pytest

from conftest import ROOT, chance

from flatq import shovel
from flatq.shovel import Shovel, ends, local, redis, source, sqs, target

ANY = bytes(range(256)) * 40 + b"\r\n.\r\n"
#: The lease of a message in hand, in seconds, here
LEASE = 2


def filled(flatq, count, queue="here"):
    bodies = [b"%d" % number for number in range(count)]
    flatq("push", "-0", queue, input=b"".join(body + b"\0" for body in bodies), check=0)
    return bodies


def move(*places, **more):
    return Shovel(source(places[0]), target(places[1]), once=True, **more).run()


#: A shovel that stops at each of these moments until it is told to go on. A moment is a call or a
#: return of a function of the package, named by its number
STOPPING = """
import os, sys
from flatq import shovel
from flatq.shovel import __main__ as main, ends, local, redis, sqs
moments, now = set(map(int, sys.argv[1].split(","))), 0
package = os.path.dirname(os.path.dirname(shovel.__file__))
def look(frame, event, arg):
    global now
    if frame.f_code.co_filename.startswith(package):
        now += 1
        if now in moments:
            os.write(1, b"%d\\n" % now)
            os.read(0, 1)
run = shovel.Shovel.run
def watched(self):
    sys.setprofile(look)
    return run(self)
shovel.Shovel.run = watched
for module in (ends, local, redis, shovel, sqs):
    module.LEASE = int(sys.argv[2])
sys.exit(main.command("shovel", sys.argv[3:]))
"""
#: Moments of the start and of some messages
MOMENTS = 600


class Stopping:
    """`flatq shovel` with these words, in a process that can be killed at each of the moments."""

    def __init__(self, flatq, moments, *words):
        self.flatq = flatq
        self.process = subprocess.Popen(
            [sys.executable, "-c", STOPPING, ",".join(map(str, moments)), str(LEASE), *words],
            env=flatq.environment({"PYTHONPATH": str(ROOT / "python")}), cwd=flatq.home,
            start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL)
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
    for having in (ends, local, redis, shovel, sqs):
        monkeypatch.setattr(having, "LEASE", LEASE)


@pytest.fixture
def moments(request, short_leases):
    """moments(COUNT) chooses so many."""
    by_seed = chance(request.node.nodeid)
    return lambda count: by_seed.sample(range(1, MOMENTS), count)
