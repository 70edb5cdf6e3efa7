"""What users expect of a queue for jobs on one machine, as localjob had it: `flatq work` runs
commands, and flatq.Worker runs Python functions."""

import asyncio
import functools
import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from conftest import ROOT, Result, left, need, wait_for
from engine import alive, carriers, children, lies, push, refused, runs, stopped_by
from servers import here_too

from flatq import Invalid, Queue
from flatq.worker import Worker

NOTE = 'printf "%s " "$(cat)" >>"$0"'


@pytest.fixture
def flatq(flatq, shell, monkeypatch):
    flatq.env |= {"PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    return here_too(flatq, monkeypatch)


# ---- flatq work


def started(flatq, *words):
    """`work --daemon`. It must return, although its worker could keep the test's pipes open."""
    done = subprocess.run(flatq.command("work", "--daemon", *map(str, words)), env=flatq.env,
        cwd=flatq.home, stdin=subprocess.DEVNULL, capture_output=True, timeout=100)
    return Result(done.returncode, done.stdout, done.stderr)


def gone(pid, file):
    wait_for(lambda: not alive(pid), "it has stopped")
    assert not file.exists()


def test_detached_with_a_pid_file(shell, flatq, spool, tmp_path):
    """The worker is in a session of its own, and holds no file of its starter. QUIT and TERM reach
    it by its pid file. A second start is refused."""
    file, done, hold = tmp_path / "a pid", tmp_path / "done", tmp_path / "hold"
    words = ["--pid-file", file, "-d", "0", "--", "sh", "-c",
        f'while [ -e "{hold}" ]; do sleep 0.02; done; echo said; {NOTE}', done]
    # if setsid does not fork, the shell starts it in the background, and the worker ignores QUIT
    forks = subprocess.run([shell, "-c", "setsid --fork true"], env=flatq.env, capture_output=True)
    numbers = (signal.SIGTERM,) if forks.returncode else (signal.SIGQUIT, signal.SIGTERM)
    for number in numbers:
        assert started(flatq, *words) == Result(0, b"", b"")
        pid = int(file.read_text())
        try:
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            assert int(stat[3]) == pid != os.getsid(0), "a session of its own"
            hold.touch()
            push(flatq, b"%d" % number)
            wait_for(lambda: not Queue().qsize(), "it works")
            # 0 is the helper's pipe while the worker waits for the job
            wait_for(lambda: {os.readlink(f"/proc/{pid}/fd/{one}") for one in (1, 2, 5)}
                     == {"/dev/null"}, "its descriptors")
            refused(started(flatq, *words), 75, "work", text=b"a running worker")
            refused(flatq("work", *words), 75, "work")
            assert int(file.read_text()) == pid
            os.kill(pid, number)
            push(flatq, b"next")
            hold.unlink()
            gone(pid, file)
            assert flatq("pop", check=0).out == b"next"
        finally:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
    assert done.read_text() == "".join(f"{int(number)} " for number in numbers)


@pytest.mark.shells
def test_a_pid_file_that_is_stale(flatq, tmp_path):
    """It names a killed worker, another process, or nothing sensible: each new worker replaces
    it."""
    file = tmp_path / "pid"
    assert started(flatq, "--pid-file", file, "-j", "2", "--", "true") == Result(0, b"", b"")
    pid = int(file.read_text())
    workers = [pid, *children(pid)]  # each could still take a message
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(map(alive, workers)))
    for text in (None, f"{os.getpid()}\n", "", "1", "nonsense\n", "99999999999999999999\n"):
        if text is not None:
            file.write_text(text)
        push(flatq, b"job")
        done = flatq("work", "-j", "2", f"--pid-file={file}", "--until-empty", "--", "cat",
            str(file), check=0)
        assert re.fullmatch(rb"[0-9]+\n", done.out) and not file.exists()
    process = flatq.start("work", "--pid-file", str(file), "--", "true")
    wait_for(lambda: file.exists() and file.read_text(), "its pid file")
    assert int(file.read_text()) == process.pid
    runs(process.pid, "sleep")
    process.send_signal(signal.SIGHUP)
    stopped_by(process, signal.SIGHUP)
    assert not file.exists()


def test_a_pid_file_that_names_the_worker_of_another(shell, flatq, tmp_path):
    """Only the worker with this very file is in the way, however its path was written."""
    for name in "ab":
        (tmp_path / name).mkdir()
    process = flatq.start("work", "--pid-file", "b/pid", "--", "true", cwd=tmp_path)
    wait_for((tmp_path / "b/pid").exists, "the worker has its pid file")
    (tmp_path / "a/pid").write_text(f"{process.pid}\n")
    refused(flatq("work", f"--pid-file={tmp_path}/b/pid", "-w", "0", "--", "true"), 75, "work")
    flatq("work", "--pid-file", "a/pid", "-w", "0", "--", "true", cwd=tmp_path, check=0)


def test_a_pid_file_that_cannot_be(flatq, tmp_path, stub):
    """A directory, a device, no right or room. No part of the try stays."""
    place = tmp_path / "place"
    place.mkdir()
    for start in (flatq, lambda verb, *words: started(flatq, *words)):
        for file in (place, "/dev/full", place / "none/pid"):
            refused(start("work", "--pid-file", str(file), "-w", "0", "--", "true"), 74, "work",
                text=b"cannot write")
        assert list(place.iterdir()) == [] and os.path.exists("/dev/full")
    push(flatq, b"x")
    assert flatq("work", "--pid-file=-x", "--until-empty", "--", "cat", "./-x", cwd=place,
        check=0).out.strip().isdigit()
    words = ["--pid-file", place / "pid", "-w", "0", "--", "true"]
    stub("mkfifo", "exit 1")
    for jobs in "12":
        refused(started(flatq, "-j", jobs, *words), 74, "work")
        assert not (place / "pid").exists()


def test_two_starts_at_once(flatq, tmp_path):
    """One works, and the others are refused."""
    file = tmp_path / "pid"
    file.write_text("99999999\n")
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: started(flatq, "--pid-file", file, "--", "true"), range(4)))
    pid = int(file.read_text())
    os.kill(pid, signal.SIGTERM)
    assert sorted(one.status for one in done) == [0, 75, 75, 75], done
    gone(pid, file)


def test_what_a_detached_worker_refuses_and_says(flatq, tmp_path):
    """A worker reports errors at its start to its caller, and later ones to a file."""
    refused(started(flatq, "--", "no-such-command"), 69, "work", text=b"no command")
    refused(started(flatq, "--pid-file", tmp_path / "none/pid", "--", "true"), 74, "work",
        text=b"cannot write")
    refused(started(flatq, "-q", "../x", "--", "true"), 65, "work")
    push(flatq, b"x", "a")
    push(flatq, b"y", "b")
    script = 'printf "%s %s <%s>\n" "$(cat)" "$(umask)" "$1"; false'
    with open(tmp_path / "log", "wb") as log:
        done = subprocess.run(flatq.command("work", "--daemon", "-q", "b", "-q", "a",
            *"-n 2 -d 7,9 -x 50 -t 20 -w 5 -m 3 --".split(), "sh", "-c", script, "sh",
            "two  words"), env=flatq.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            timeout=100, umask=0o027)
    assert done.returncode == 0
    wait_for(lambda: (tmp_path / "log").read_bytes().count(b"\n") == 4)
    said = (tmp_path / "log").read_text().splitlines()
    assert said[::2] == ["y 0027 <two  words>", "x 0027 <two  words>"]
    assert said[1].endswith("try 1: exit-1, again in 7 s")


# ---- flatq.Worker

MODULE = '''
import functools, os, sys, time
from pathlib import Path

HERE = Path(__file__).parent

def note(body):
    with open(HERE / "done", "a") as file:
        words = (os.environ.get(name, "-") for name in ("FLATQ_QUEUE", "FLATQ_TRIES"))
        file.write(":".join([body.decode(), *words]) + " ")

def fail(body):
    if body == b"bad":
        raise KeyError("what was wrong")
    note(body)

def hold(body):
    (HERE / "begun").touch()
    end = time.monotonic() + 100
    while not (HERE / "go").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    note(body)

async def later(body):
    note(body)

def plain(job):
    return functools.wraps(job)(lambda body: job(body))

awaited = plain(later)

@plain
async def each(body):
    yield note(body)

@plain
def behind(body):
    yield note(body)

def several(body):
    yield note(body)

class Shop:
    @staticmethod
    def sell(body):
        note(body)

    def own(self, body):
        note(body)

if __name__ == "__main__":
    from flatq.worker import Worker
    Worker(globals()[sys.argv[1]], in_process=len(sys.argv) > 2).run()
    print("stopped")
'''


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A module with job functions."""
    (tmp_path / "flatq_shop.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "flatq_shop", raising=False)
    return tmp_path


def noted(shop):
    return (shop / "done").read_text().split() if (shop / "done").exists() else []


def test_a_function_or_its_path(flatq, shop):
    import flatq_shop

    for job in (flatq_shop.note, "flatq_shop:note", "flatq_shop.note", f"{shop}/flatq_shop.py:note",
            flatq_shop.Shop.sell, flatq_shop.later):
        push(flatq, b"job", "a")
        Worker(job, ["b", "a"], until_empty=True).run()
    assert noted(shop) == ["job:a:1"] * 6


def test_what_is_no_job(flatq, shop):
    import flatq_shop

    for job in (lambda body: None, alive.__get__, flatq_shop.Shop().own):
        with pytest.raises(ValueError, match="unless in_process=True"):
            Worker(job)
    push(flatq, b"x")
    for path in ("flatq_no_such:job", "flatq_shop:no_such", "nothing", "os:environ",
            "/not/there.py:x", "flatq_shop:several"):
        for threads in (False, True):
            with pytest.raises(Invalid, match="cannot be imported: .*(No|no|has|called)"):
                Worker(path, in_process=threads)
    assert Queue().qsize() + Queue().stats()["delayed"] == 1


@pytest.mark.parametrize("fault", ["1 / 0", "def job(:", "raise SystemExit(3)",
    "raise KeyboardInterrupt", "import flatq_no_such"])
def test_a_module_that_cannot_be_imported(flatq, shop, capfd, fault):
    """No Worker is made of it. `work` stops, says why, and buries no message: none is at fault."""
    (shop / "flatq_broken.py").write_text(fault + "\ndef job(body):\n    pass\n")
    push(flatq, b"x")
    with pytest.raises(Invalid, match="cannot be imported: .*") as raised:
        Worker("flatq_broken:job")
    done = flatq("work", "-m", "1", "-w", "0", "--", sys.executable, "-m", "flatq.worker",
        "flatq_broken:job", cwd=shop)
    stats = Queue().stats()
    assert (done.status, stats["ready"] + stats["delayed"], stats["buried"]) == (69, 1, 0)
    assert b"worker: " in done.err and fault.split()[-1] in str(raised.value)


def test_a_script_without_its_guard(shop):
    """It would make a Worker in each process that imports it, and so on."""
    (shop / "bare.py").write_text("import flatq\ndef job(body): pass\nflatq.Worker(job)\n")
    done = subprocess.run([sys.executable, shop / "bare.py"], capture_output=True, timeout=60,
        text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    assert 'put it behind `if __name__ == "__main__":`' in done.stderr


@pytest.mark.parametrize("kind, words, given", [
    (TypeError, "jobs is an int, not str", {"jobs": "4"}),
    (TypeError, "lease is a number of seconds, or a timedelta, not str", {"lease": "1m"}),
    (TypeError, "queues is a str, or several, not int", {"queues": 5}),
    (TypeError, "timeout needs in_process=False", {"timeout": 5, "in_process": True}),
    (ValueError, "work: jobs takes a number from 1 to 1000", {"jobs": 0}),
    (ValueError, "work: delay takes seconds", {"delay": timedelta(days=99999)}),
    (ValueError, "work: max_tries takes a number from 0", {"max_tries": -1}),
    (ValueError, "bad queue name", {"queues": ["good", "a b"]})])
def test_a_wrong_argument(kind, words, given):
    """It is refused when the Worker is made, by its name."""
    with pytest.raises(kind, match=words):
        Worker("os:getpid", **given)


def test_former_names(shop):
    with pytest.warns(DeprecationWarning) as said:
        worker = Worker("os:getpid", limit=7, most_tries=8, most_delay=9)
    assert worker.options == Worker(
        "os:getpid", timeout=timedelta(seconds=7), max_tries=8, delay=(1, 9)).options
    assert [warning.filename for warning in said] == [__file__] * 3


@pytest.mark.parametrize("job, status", [("behind", 69), ("each", 69), ("awaited", 0)])
def test_a_function_that_does_nothing_until_it_is_awaited_or_read(flatq, shop, job, status):
    """Behind a decorator nobody sees that before it is called. The message would be deleted, and
    nothing done."""
    push(flatq, b"job")
    flatq("work", "-w", "0", "--", sys.executable, "-m", "flatq.worker", f"flatq_shop:{job}",
        cwd=shop, check=status)
    assert noted(shop) == ["job:default:1"] * (not status)
    assert (flatq("list", "default").out == b"") == (not status)


@pytest.mark.parametrize("threads", [False, True])
def test_an_exception_in_a_job(flatq, shop, spool, capfd, threads):
    """Its name is the reason, and its traceback is passed on, and kept."""
    push(flatq, b"bad")
    push(flatq, b"good")
    Worker("flatq_shop:fail", delay=0, max_tries=2, until_empty=True, in_process=threads).run()
    assert noted(shop) == ["good:-:-" if threads else "good:default:1"]
    assert [(row.reason, row.tries) for row in Queue().messages()] == [("KeyError", 2)]
    (kept,) = spool.glob("default/why/*")
    trace = kept.read_text().splitlines()
    assert trace[-1] == "KeyError: 'what was wrong'" and "in fail" in trace[1], trace
    assert capfd.readouterr().err.count("KeyError: 'what was wrong'") == 2


# ---- in_process


def worked(job, **more):
    Worker(job, in_process=True, until_empty=True, delay=0, max_tries=1, **more).run()
    return Queue().messages()


def test_threads(flatq, shop):
    """Several jobs, which may be any callable, run at once. What they raise is kept apart."""
    Queue().push_many(b"%d" % number for number in range(8))
    seen, four = [], threading.Barrier(4)
    before = set(os.listdir("/proc/self/fd"))
    assert worked(lambda body: (four.wait(60), seen.append(body)), workers=4) == []
    assert sorted(seen) == [b"%d" % number for number in range(8)]

    async def ends(body):
        raise {b"3": SystemExit(3), b"0": SystemExit, b"x": asyncio.CancelledError}[body]

    Queue().push_many([b"3", b"0", b"x"])
    assert [row.reason for row in worked(ends)] == ["exit-3", "CancelledError"]
    Queue().push_many([b""] * 5)
    Worker(seen.append, in_process=True, jobs=3, count=4).run()
    assert seen[8:] == [b""] * 4 and Queue().pop() == b""
    assert set(os.listdir("/proc/self/fd")) == before
    with pytest.raises(TypeError, match="in_process=False"):
        Worker(print, in_process=True).command()


def test_a_thread_whose_command_was_killed(flatq):
    """What comes of its job says nothing of the message that the next command asks for."""
    queue, calls = Queue(), []
    queue.push(b"x")

    def at_try(number):
        # Other tests' jobs have tries, too
        return {*carriers(flatq.spool)} & {*carriers(f"FLATQ_TRIES={number}\0")}

    def job(body):
        calls.append(body)
        if len(calls) == 1:
            for pid in at_try(1):
                os.kill(pid, signal.SIGKILL)
            wait_for(lambda: at_try(2), "the next")
        else:
            raise ValueError

    Worker(job, in_process=True, delay=0, max_tries=2, until_empty=True).run()
    assert [(row.reason, row.tries) for row in queue.messages()] == [("ValueError", 2)]


@pytest.mark.parametrize("numbers", [
    [signal.SIGKILL], [signal.SIGHUP], [signal.SIGTERM, signal.SIGHUP]])
def test_an_interpreter_that_ends(flatq, shop, numbers):
    """Its messages come back once its jobs can do nothing any more, and no other is begun."""
    need("setpriv")
    queue = Queue()
    queue.push_many([b"first", b"second"])
    script = subprocess.Popen([sys.executable, shop / "flatq_shop.py", "hold", "in_process"],
        env=flatq.env)
    wait_for((shop / "begun").exists, "it works")
    for number in numbers:
        script.send_signal(number)
    assert script.wait(60) == -numbers[-1]
    wait_for(lambda: not queue.stats()["reserved"])
    assert sum(row.tries for row in queue.messages()) <= 1 and noted(shop) == []


@pytest.mark.parametrize("number, words", [
    (signal.SIGQUIT, []), (signal.SIGTERM, []), (signal.SIGTERM, ["in_process"])])
def test_a_script_that_is_a_worker(flatq, shop, spool, number, words):
    """It passes its signals on: a waiting worker stops at once, a working one after its job."""
    start = functools.partial(subprocess.Popen, ["sh", "-c", "trap '' HUP; exec \"$@\"", "-",
        sys.executable, shop / "flatq_shop.py", "hold", *words], env=flatq.env,
        stdout=subprocess.PIPE, text=True, start_new_session=True)
    idler = start()
    wait_for(lambda: lies(spool).get("wait"), "it waits")
    idler.send_signal(number)
    assert idler.communicate(timeout=100)[0] == "stopped\n" and idler.returncode == 0
    push(flatq, b"first")
    push(flatq, b"second")
    worker = start()
    wait_for((shop / "begun").exists, "it works")
    for one in left(worker):
        os.kill(one, signal.SIGHUP)
    worker.send_signal(number)
    # the worker must not end before its job: it gets 0.2 s to do so
    with pytest.raises(subprocess.TimeoutExpired):
        worker.wait(0.2)
    (shop / "go").touch()
    assert worker.communicate(timeout=100)[0] == "stopped\n" and worker.returncode == 0
    assert noted(shop) == ["first:-:-" if words else "first:default:1"] and Queue().qsize() == 1


def test_a_worker_whose_script_is_killed(flatq, shop):
    """The command is killed and the worker stops. The message is not lost, and the next is not
    begun."""
    need("setpriv")
    push(flatq, b"first")
    script = subprocess.Popen([sys.executable, shop / "flatq_shop.py", "hold"], env=flatq.env)
    wait_for((shop / "begun").exists, "it works")
    script.kill()
    script.wait()
    push(flatq, b"second")
    (shop / "go").touch()
    wait_for(lambda: noted(shop) == ["first:default:1"])
    assert Queue().qsize() == 1
