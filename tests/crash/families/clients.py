"""Faulty clients of the line door, over real ncat: cut off, reset, gone before the answer. Silent
ones, slow ones, many at once and those that send too much are in tests/doors.

The scenario is what the client does, the fault how the door serves (MODES), and the point a seed,
which chooses where a client is cut off. After a trial, no acknowledged message may be lost or
altered, no message whose end or length was stated may be half stored, and the door must still
serve. A message without a stated length is stored as far as it came if the connection was closed in
good order, and not stored if it was reset.
"""
from __future__ import annotations

import contextlib
import functools
import random
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from ..gate.processes import carriers, kill, listening, wait_for
from ..judge import trees
from ..scenarios import System
from ..trials import Family, Options, Seen, Trial

#: ./launch alone, and with -k
MODES = ("one by one", "side by side")
QUEUE = "jobs"
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends RST


def free() -> int:
    """A port of 127.0.0.1 that nobody listens on: one of those below what the system gives to
    connections, so that it stays free where it is used again."""
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Door:
    """A running ./launch on a free port of 127.0.0.1, with a spool of its own below `top`."""

    def __init__(self, system: System, mode: str, top: Path) -> None:
        self.system, self.spool, self.said_to, self.port = (system, top / "spool", top / "said",
            free())
        with self.said_to.open("wb") as said:
            self.process = subprocess.Popen(["sh", str(system.lib.parent / "launch"), "-p",
                str(self.port), "-i", "4", *["-k"] * (mode == "side by side")],
                env=system.environment(self.spool), stdin=subprocess.DEVNULL, stdout=said,
                stderr=said, start_new_session=True)

    def __enter__(self) -> Door:
        wait_for(lambda: listening(self.port) or self.process.poll() is not None, "the door")
        assert self.process.poll() is None, self.said()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        kill(self.carriers())

    def said(self) -> str:
        return self.said_to.read_text(errors="replace")

    def carriers(self) -> dict[int, str]:
        """What runs with this spool, and its command."""
        return carriers(f"FLATQ_DIR={self.spool}\0".encode())

    def handlers(self) -> list[int]:
        """The processes that serve a client."""
        return [pid for pid, command in self.carriers().items() if "handler" in command
            and "ncat" not in command]

    @contextlib.contextmanager
    def served(self) -> Iterator[tuple[socket.socket, list[int]]]:
        """A client, and its handler, which is there: in the loop nobody listens between two
        connections, and one that came just when ncat stopped listening has none. Nobody else is
        served meanwhile; in the end the handler has ended."""
        def attempt() -> tuple[socket.socket, list[int]] | None:
            with contextlib.suppress(ConnectionRefusedError, ConnectionResetError):
                client = socket.create_connection(("127.0.0.1", self.port), timeout=60)
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                wait_for(lambda: refused(client) or self.handlers(), "a handler")
                if found := self.handlers():
                    return client, found
                client.close()
            return None

        client, found = wait_for(attempt, "a connection")
        with client:
            yield client, found
        wait_for(lambda: not self.handlers(), "the end of the handlers")

    def unread(self, client: socket.socket) -> bool:
        """Whether what the client has sent is still unread."""
        ports = f":{self.port:04X}", f":{client.getsockname()[1]:04X}"
        rows = (row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:])
        return any(row[1].endswith(ports[0]) and row[2].endswith(ports[1])
            and int(row[4].partition(":")[2], 16) for row in rows)

    def leave(self, request: bytes, reset: bool, when: Callable[[], bool] = lambda: True) -> None:
        """Send, wait for `when`, and disconnect."""
        with self.served() as (client, _), contextlib.suppress(ConnectionError):
            client.sendall(request)
            with contextlib.suppress(AssertionError):
                wait_for(when, "the handler", 10)
            end(client, reset)

    def vanish(self, request: bytes, reset: bool) -> None:
        """Ask, and be gone for certain before the answer: the handler is held up until its client
        is, the last byte of whose request ncat has passed on."""
        with self.served() as (client, pids):
            client.sendall(request[:-1])
            with paused(pids):
                client.sendall(request[-1:])
                wait_for(lambda: not self.unread(client), "ncat has read the request")
                end(client, reset)

    def ask(self, request: bytes) -> bytes:
        """The whole answer."""
        with self.served() as (client, _):
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
            return answer(client)


def end(client: socket.socket, reset: bool) -> None:
    if reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.close()


def refused(client: socket.socket) -> bool:
    """Whether the other end is closed already, without an answer."""
    if not select.select([client], [], [], 0)[0]:
        return False
    try:
        return client.recv(1, socket.MSG_PEEK) == b""
    except ConnectionError:
        return True


@contextlib.contextmanager
def paused(pids: list[int]) -> Iterator[None]:
    """Stop these processes for the duration of the `with`; they may end meanwhile."""
    try:
        kill(pids, signal.SIGSTOP)
        yield
    finally:
        kill(pids, signal.SIGCONT)


def answer(client: socket.socket) -> bytes:
    """Read to the end, or to a reset."""
    pieces: list[bytes] = []
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(65536):
            pieces.append(piece)
    return b"".join(pieces)


# ---- the queue, without the door


def store(door: Door, *bodies: bytes) -> list[bytes]:
    for body in bodies:
        done = door.system.verb(door.spool, "push", QUEUE, stdin=body)
        assert done.returncode == 0, done
    return list(bodies)


def content(door: Door) -> list[bytes]:
    """Take all that is ready out of the queue."""
    done = door.system.verb(door.spool, "drain", "-0", QUEUE)
    assert done.returncode in (0, 66), done
    return done.stdout.split(b"\0")[:-1]


def bytes_of(rng: random.Random, size: int) -> bytes:
    """A body without NUL and newline, of which a half can be told from the whole."""
    return bytes(rng.choices(range(33, 255), k=size))


# ---- what clients do: each returns the messages that must be in the queue, and that may be

Result = tuple[list[bytes], list[bytes]]


def cut_in_the_line(door: Door, rng: random.Random) -> Result:
    """Lines that were cut: one then names another queue, one lacks only its newline. The door must
    not carry out any of them."""
    there = store(door, b"stays")
    for line in (b"push -n 0 jobs", b"push jobs", b"pop jobs", b"drain jobs", b"drop -f jobs"):
        door.leave(line[:rng.randint(1, len(line) - 1)], rng.random() < 0.5)
        door.leave(line, rng.random() < 0.5)
    queues = door.system.verb(door.spool, "list").stdout.decode().split()
    assert not {"j", "jo", "job"} & set(queues), queues
    return there, []


def cut_in_the_body(door: Door, rng: random.Random, reset: bool) -> Result:
    there, maybe = store(door, b"stays"), []
    for size in (rng.randint(2, 60), rng.randint(2000, 60_000)):
        body = bytes_of(rng, size)
        sent = body[:rng.randint(0, size - 1)]
        door.leave(b"push -n %d jobs\n" % size + sent, reset)
        door.leave(b"push -e jobs\n" + sent, reset)
        # behind the dot, which may begin a longer line as long as its newline has not come
        door.leave(b"push -e jobs\n" + body + b"\n.", reset)
        # a reset is seen once the handler is at the body
        door.leave(b"push jobs\n" + sent, reset,
            lambda: not reset or any((door.spool / QUEUE / "body").glob("*")))
        maybe += [] if reset else [sent]
    return there, maybe


def gone_before_the_answer(door: Door, rng: random.Random) -> Result:
    there = store(door, bytes_of(rng, 30), bytes_of(rng, 90_000), bytes_of(rng, 3))
    for verb in (b"pop", b"reserve -t 1", b"@pop", b"pop -l -n 2", b"drain"):
        door.vanish(verb + b" jobs\n", rng.random() < 0.5)
    return there, []


CLIENTS: dict[str, Callable[[Door, random.Random], Result]] = {
    "cut in the line": cut_in_the_line,
    "cut in the body": functools.partial(cut_in_the_body, reset=False),
    "reset in the body": functools.partial(cut_in_the_body, reset=True),
    "gone before the answer": gone_before_the_answer}


def judge(door: Door, name: str, rng: random.Random) -> None:
    """Serve such a client. A message that was reserved and not delivered is back at once, or when
    its lease of a second is over; ten seconds later it is lost. Raises AssertionError."""
    must, may = CLIENTS[name](door, rng)
    got: list[bytes] = []

    def back() -> bool:
        got.extend(content(door))
        return not Counter(must) - Counter(got)

    with contextlib.suppress(AssertionError):
        wait_for(back, "what was acknowledged", 10)
    lost, more = Counter(must) - Counter(got), Counter(got) - Counter(must) - Counter(may)
    assert not lost, f"lost: {[body[:40] for body in lost]}"
    assert not more, f"stored, or twice: {[(len(body), body[:40]) for body in more]}"
    assert re.fullmatch(rb"\d+\n", door.ask(b"push probe\nprobe")), "the door does not serve"
    assert door.ask(b"pop probe\n") == b"probe", "the door does not hand out"


def run(trial: Trial, system: System, work: Path, every: bool) -> Seen:
    """At a door of its own."""
    with tempfile.TemporaryDirectory(prefix="clients.", dir=work) as top, Door(system, trial.fault,
            Path(top)) as door:
        wrong = []
        try:
            judge(door, trial.scenario, random.Random(f"{trial}"))
        except (AssertionError, OSError) as error:
            wrong = [f"{error!r}\n" + "\n".join(door.said().splitlines()[-8:])]
        return Seen(trial.scenario, wrong, after=trees.take(door.spool), said=door.said())


def trials(system: System, name: str, options: Options, work: Path) -> list[Trial]:
    """Without a limit, five in each mode."""
    return options.trials("clients", name, [(mode, options.seed + number) for number in range(1, 6)
        for mode in MODES if options.wants(mode)])


FAMILY = Family(MODES, lambda system: () if system.baseline else [*CLIENTS], trials, run, 60,
    lambda: "" if shutil.which("ncat") else "no clients: ncat is missing (package ncat)")
