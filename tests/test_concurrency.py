"""Everybody at once: nothing lost, nothing doubled, nothing changed."""

import hashlib
import subprocess
import threading

from conftest import LIB, everything, wait_for
from engine import drain, empty, lies, loop, pop, push


class Beside:
    """A verb that runs again and again beside the test, until it ends; each must succeed."""

    def __init__(self, flatq, *command):
        self.flatq, self.command, self.turns, self.bad, self.over = flatq, command, 0, [], threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over.is_set():
            done = subprocess.run(self.flatq.command(*self.command), env=self.flatq.environment(None), stdin=subprocess.DEVNULL, capture_output=True)
            self.turns += 1
            if done.returncode or done.stderr or done.stdout:
                self.bad.append(done)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        assert not self.bad, self.bad[:3]


def body(k):
    """Bytes of their own for each number, of very different lengths, some of them large."""
    return hashlib.sha256(b"%d" % k).digest() * (1, 40, 3, 9000)[k % 4]


def feed(process, data):
    process.stdin.write(data)
    process.stdin.close()
    process.stdin = None


def collect(process):
    """The output of a process, read in a thread: a pipe that is full must not hold it up."""
    result = []
    thread = threading.Thread(target=lambda: result.append(process.communicate()))
    thread.start()
    return thread, result


def all_at_once(flatq, count):
    pops = [flatq.start("pop", "-w", "600", "q", stdin=subprocess.DEVNULL) for _ in range(count // 2)]
    pushes = [flatq.start("push", "q") for _ in range(count)]
    pops += [flatq.start("pop", "-w", "600", "q", stdin=subprocess.DEVNULL) for _ in range(count - count // 2)]
    reading = [collect(process) for process in pops]
    for k, process in enumerate(pushes):
        feed(process, body(k))
    ids = [int(process.communicate(timeout=100)[0]) for process in pushes]
    for thread, _ in reading:
        thread.join(600)
    assert {process.returncode for process in pushes + pops} == {0}, [result[0][1] for _, result in reading if result[0][1]]
    assert len(set(ids)) == count
    got = [result[0][0] for _, result in reading]
    assert sorted(got) == sorted(body(k) for k in range(count))
    empty(flatq, "q")


def test_many_pushes_and_pops_beside_checkpoints(flatq, spool):
    with Beside(flatq, "wal") as beside:
        all_at_once(flatq, 64 if everything() else 24)
        wait_for(lambda: beside.turns > 2, "checkpoints beside it")
    flatq("wal", check=0)
    assert lies(spool, "q") == {}
    assert not [path for path in (spool / ".wait").iterdir() if not path.is_file()]


def test_8_pushes_and_8_pops(shell, flatq):
    flatq("create", "q", check=0)
    with Beside(flatq, "wal", "q"):
        all_at_once(flatq, 8)


def test_the_first_verbs_of_a_new_spool_at_once(shell, flatq):
    """All of them find nothing there, and each makes it."""
    started = [flatq.start("push", f"q{k % 3}", stdin=subprocess.DEVNULL) for k in range(12)]
    ids = [process.communicate(timeout=100) + (process.returncode,) for process in started]
    assert all(status == 0 and err == b"" for _, err, status in ids), ids
    assert len({out for out, _, _ in ids}) == 12
    assert [drain(flatq, f"q{k}") for k in range(3)] == [b""] * 3


def test_two_checkpoints_at_once(flatq, spool):
    loop(flatq, 'i=1000; while [ $i -lt 1215 ]; do printf "$i\\n" | "$sh" "$lib/push" q >/dev/null || exit; i=$((i + 1)); done')
    with Beside(flatq, "wal", "q"), Beside(flatq, "wal"):
        got = drain(flatq, "q")
    assert got == b"".join(b"%d\n" % k for k in range(1000, 1215))


def test_order_of_each_producer(flatq):
    """Whatever is pushed after another was acknowledged comes out after it, with checkpoints and other producers beside."""
    flatq("create", "q", check=0)
    producers = [
        subprocess.Popen(["dash", "-c", 'i=100; while [ $i -lt 160 ]; do printf "%s-%s\\n" "$1" $i | "$sh" "$lib/push" q || exit; i=$((i + 1)); done', "-", str(k)],
                         env=flatq.environment({"sh": flatq.shell, "lib": str(LIB)}), stdout=subprocess.PIPE, start_new_session=True)
        for k in range(4)
    ]
    flatq.started += producers
    got = []
    with Beside(flatq, "wal", "q"):
        while len(got) < 240:
            got.append(pop(flatq, "-w", "30", "q").decode().strip())
    for k in range(4):
        assert [text for text in got if text.startswith(f"{k}-")] == [f"{k}-{i}" for i in range(100, 160)]
    for process in producers:
        ids = [int(line) for line in process.communicate(timeout=100)[0].split()]
        assert ids == sorted(ids)
    empty(flatq, "q")


def test_consumers_that_give_back(flatq):
    """Reserve, release, bury and kick beside each other: each message is settled exactly once."""
    total = 12
    for k in range(total):
        push(flatq, b"%d" % k, "q")
    settled, lock = [], threading.Lock()

    def consume(seed):
        turn = seed
        while True:
            done = flatq("reserve", "-w", "1", "q")
            if done.status == 66:
                flatq("kick", "-n", "50", "q")
                with lock:
                    if len(settled) >= total:
                        return
                continue
            assert done.status == 0, done
            head, text = done.out.split(b"\n", 1)
            receipt = head.split()[0].decode()
            turn += 1
            verb = ("delete", "release", "bury", "delete")[turn % 4]
            assert flatq(verb, receipt).status == 0
            if verb == "delete":
                with lock:
                    settled.append(int(text))

    failed = []

    def guarded(seed):
        try:
            consume(seed)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(seed,)) for seed in range(4)]
    with Beside(flatq, "wal", "q"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(100)
    assert not failed, failed[:1]
    assert sorted(settled) == list(range(total))
