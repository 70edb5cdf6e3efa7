"""pressure on a real Redis, beside a client that follows only the specification; killed clients."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import share, wait_for
from engine import refused
from servers import Redis, free, module

from flatq import Busy, Closed, Empty, Full, Missing, Unreachable
from flatq import pressure

KEYS = {"", ":bound", ":producer", ":consumer", ":producer_free", ":consumer_free", ":not_full",
    ":closed", ":stats:produced_messages", ":stats:produced_bytes", ":stats:consumed_messages",
    ":stats:consumed_bytes"}
ANY = bytes(range(256)) * 40 + b"\n\n"


class Spec:
    """A client that follows the prose of the specification step by step, with one command for each
    step."""

    def __init__(self, redis, name="q"):
        self.redis, self.k = redis, lambda suffix="": f"__pressure__:{name}{suffix}"

    def create(self, bound):
        assert self.redis.setnx(self.k(":bound"), bound)
        for key in (":producer_free", ":consumer_free", ":not_full"):
            self.redis.lpush(self.k(key), 1)

    def take(self, role, timeout):
        assert self.redis.exists(self.k(":bound"))
        assert self.redis.brpop(self.k(f":{role}_free"), timeout), "in use"
        self.redis.set(self.k(f":{role}"), "another:1:1")

    def give(self, role):
        self.redis.lpush(self.k(f":{role}_free"), 0)

    def room(self):
        self.redis.lpush(self.k(":not_full"), 0)
        self.redis.ltrim(self.k(":not_full"), 0, 0)

    def count(self, what, body):
        self.redis.incr(self.k(f":stats:{what}_messages"))
        self.redis.incrby(self.k(f":stats:{what}_bytes"), len(body))

    def put(self, body, timeout=100):
        assert not self.redis.exists(self.k(":closed"))
        self.take("producer", timeout)
        if not self.redis.brpop(self.k(":not_full"), timeout):
            self.give("producer")
            raise Full
        length = self.redis.lpush(self.k(), body)
        self.count("produced", body)
        bound = int(self.redis.get(self.k(":bound")) or 0)
        if bound == 0 or length < bound:
            self.room()
        self.give("producer")

    def get(self, timeout=100):
        self.take("consumer", timeout)
        if self.redis.exists(self.k(":closed")):
            found = ("", self.redis.rpop(self.k()))
        else:
            found = self.redis.brpop([self.k(), self.k(":closed")], timeout) or ("", None)
        body = None if found[0] == self.k(":closed").encode() else found[1]
        if body is not None:
            self.room()
            self.count("consumed", body)
        self.give("consumer")
        return body

    def close(self):
        self.take("producer", 10)
        assert not self.redis.exists(self.k(":closed"))
        self.redis.lpush(self.k(":closed"), 0, 0)
        self.give("producer")

    def delete(self):
        assert self.redis.delete(self.k(":bound"))
        self.redis.lpush(self.k(":not_full"), 0)
        self.redis.lpush(self.k(":closed"), 0, 0)
        for role in ("producer", "consumer"):
            assert self.redis.brpop(self.k(f":{role}_free"), 10)
        self.redis.delete(*map(self.k, KEYS))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    module("redis")
    with Redis(tmp_path_factory.mktemp("servers") / "redis") as running:
        yield running


@pytest.fixture
def redis(server):
    """redis-py, with an empty database."""
    client = module("redis").Redis(port=server.port)
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def spec(redis):
    return Spec(redis)


@pytest.fixture
def q(server, redis):
    return pressure.Queue("q", port=server.port, lease=2)


@pytest.fixture
def flatq(flatq, shell, server):
    flatq.env |= {"REDIS_PORT": str(server.port), "FLATQ_PYTHON": sys.executable}
    return flatq


def key(suffix):
    return f"__pressure__:q:{suffix}"


def keys(redis):
    return {key.decode().removeprefix("__pressure__:q") for key in redis.keys("*")}


def run(flatq, *words, **more):
    return flatq("pressure", *words, **more)


def has_role(redis, role, who=None):
    """Some client has the role, and has written its name."""
    return not redis.exists(key(f"{role}_free")) and (redis.get(key(f"{role}"))
        or b"").decode().find(who or "") >= 0


def waits(redis, role):
    wait_for(lambda: has_role(redis, role) and redis.exists(key(f"{role}_lease")),
        f"it is the {role}")


# ---- the verbs


def test_every_verb(flatq, redis, q):
    run(flatq, "create", "-b", "2", "q", check=0)
    assert keys(redis) == {":bound", ":producer_free", ":consumer_free", ":not_full",
        ":flatq_created"} and redis.get(key("bound")) == b"2"
    run(flatq, "put", "q", input=ANY, check=0)
    q.put(b"", 0)
    refused(run(flatq, "put", "-w", "0", "q", input=b"x"), 75, "pressure", text=b"full")
    assert run(flatq, "length", "q", check=0).out == b"2\n"
    assert not redis.exists(key("not_full"))
    # the identifying value is there, and while no client is at work only keys of the specification
    # and one of ours
    assert redis.get(key("producer")).decode().split(":")[0] == socket.gethostname()
    assert keys(redis) <= KEYS | {":flatq_created"}
    assert run(flatq, "get", "q", check=0).out == ANY
    assert q.get(0) == b""
    assert run(flatq, "stats", "q", check=0).out.decode().split() == [
        "produced_messages", "2", "produced_bytes", str(len(ANY)),
        "consumed_messages", "2", "consumed_bytes", str(len(ANY))]
    assert run(flatq, "exists", "q", check=0).out == b"yes\n"
    assert run(flatq, "closed", "q", check=66).out == b"no\n"
    q.put(b"last")
    run(flatq, "close", "q", check=0)
    assert redis.llen(key("closed")) == 2 and q.closed()
    assert keys(redis) == KEYS | {":flatq_created"}
    assert q.get() == b"last"
    run(flatq, "delete", "q", check=0)
    assert keys(redis) == set() and not q.exists()
    with pytest.raises(TypeError):
        q.put("text")


def test_every_error(flatq, redis, q):
    """That the specification names, by verb and exit code. As its prose says, and not its listings,
    a client that has failed has given its role back."""

    def fails(code, text, *calls):
        for call in share(f"every error: {text} {calls}", calls, 1):
            refused(run(flatq, *call.split()), code, "pressure", text=text)
        if redis.exists(key("bound")):
            assert [redis.llen(key(f"{role}_free"))
                for role in ("producer", "consumer")] == [1, 1], calls
            assert not redis.exists(key("producer_lease"), key("consumer_lease"))

    fails(66, b"does not exist", "put q", "put -w 0 q", "get q", "get -w 0 q", "close q",
        "delete q", "length q", "closed q", "stats q")
    assert run(flatq, "exists", "q", check=66).out == b"no\n" and keys(redis) == set()
    q.create(1)
    fails(65, b"exists already", "create q", "create -b 5 q")
    fails(65, b"another queue", *(f"create a{suffix}" for suffix in pressure.SUFFIXES[1:]))
    assert redis.get(key("bound")) == b"1"
    fails(66, b"nothing there", "get -w 0 q", "get -w 1 q")
    q.put(b"1")
    fails(75, b"full", "put -w 0 q", "put -w 1 q")
    for role, calls in {"producer": ("put -w 0 q", "put -w 1 q", "close -w 0 q"),
            "consumer": ("get -w 0 q", "get -w 1 q")}.items():
        redis.rpop(key(f"{role}_free"))
        redis.set(key(f"{role}"), "another:1:1")
        for call in share(f"every error: in use, {role}", calls, 1):
            refused(run(flatq, *call.split()), 73, "pressure",
                text=f"in use: its {role} is another:1:1".encode())
        assert redis.get(key(f"{role}")) == b"another:1:1"
        redis.lpush(key(f"{role}_free"), 0)
    q.close()
    fails(69, b"closed", "put q", "put -w 0 q", "close q")
    assert run(flatq, "closed", "q", check=0).out == b"yes\n" and q.length() == 1
    assert q.get(0) == b"1"
    fails(69, b"closed", "get q", "get -w 0 q")
    assert redis.llen(key("closed")) == 2 and q.stats() == {
        "produced_messages": 1, "produced_bytes": 1, "consumed_messages": 1, "consumed_bytes": 1}
    flatq.env["REDIS_PORT"] = str(free())
    fails(68, b"refused", "create q", "put q", "get q", "close q", "delete q", "length q",
        "exists q", "closed q", "stats q", "doctor q")


@pytest.mark.shells
def test_in_each_shell(flatq, redis, q, tmp_path):
    q.create()
    run(flatq, "put", "-w", "5", "q", input=ANY, check=0)
    assert q.get(0) == ANY
    (tmp_path / "redis.py").write_text("raise ImportError")
    for env, text in (({"FLATQ_PYTHON": "python-none"}, b"apt install python3"),
            ({"PYTHONPATH": str(tmp_path)}, b"pip install redis")):
        refused(run(flatq, "put", "q", env=env), 69, "pressure", text=text)


def test_where(flatq, redis, server):
    """The four environment variables, any name, and a database of its own."""
    name = b"a queue: \xff*[x]\n"
    env = {"REDIS_SERVER": "localhost", "REDIS_DB": "3", "PRESSURE_PREFIX": "pre*fix"}
    run(flatq, "create", os.fsdecode(name), env=env, check=0)
    with module("redis").Redis(port=server.port, db=3) as other:
        assert b"pre*fix:" + name + b":bound" in other.keys("*")
    here = pressure.Queue.at(f"redis://127.0.0.1:{server.port}/3/a%20queue%3A%20%FF*[x]%0A",
        prefix="pre*fix")
    assert here.exists() and here.raw == name
    refused(run(flatq, "length", "q", env={"REDIS_PORT": "x"}), 65, "pressure", text=b"REDIS_PORT")


def test_a_queue_that_is_over_full_has_no_room(q, spec, redis):
    """As others can make it. A get that leaves it full must not tell producers that there is
    room."""
    q.create(2)
    spec.put(b"0")
    spec.put(b"1")
    redis.lpush("__pressure__:q", b"2")
    assert q.get(0) == b"0"
    assert redis.llen(key("not_full")) == 0
    with pytest.raises(Full):
        q.put(b"3", 0)
    assert q.get(0) == b"1"
    assert redis.llen(key("not_full")) == 1
    q.put(b"3", 0)
    assert [q.get(0), q.get(0)] == [b"2", b"3"]


@pytest.mark.parametrize("role", ["producer", "consumer"])
def test_a_deletion_waits_so_long(flatq, q, redis, role):
    """It waits for a client that does not leave. After that, doctor removes what is left."""
    for wait in ("0", "1"):
        q.create(1)
        assert redis.rpop(key(f"{role}_free"))
        redis.set(key(f"{role}"), "another:1:1")
        began = time.monotonic()
        refused(run(flatq, "delete", "-w", wait, "q"), 75, "pressure",
            text=f"its {role} another:1:1 has not left".encode())
        assert time.monotonic() - began >= int(wait)
        assert not q.exists() and keys(redis)
        run(flatq, "doctor", "-f", "q", check=0)
        assert keys(redis) == set()


def test_a_lease_is_of_who_is_named(flatq, q, redis):
    """A lease of one of flatq's clients that has ended says nothing of another client that has the
    role by now."""
    q.create(1)
    assert redis.rpop(key("producer_free"))
    redis.set(key("producer_lease"), "1 0123456789abcdef ours:1:1")
    redis.set(key("producer"), "another:1:1")
    refused(run(flatq, "put", "-w", "0", "q", input=b"1"), 73, "pressure",
        text=b"its producer is another:1:1")
    assert run(flatq, "doctor", "q",
        check=75).out == b"q open producer another:1:1 has the role, without a lease\n"
    # if the role is its own, the lease counts
    redis.set(key("producer"), "ours:1:1")
    assert b"mended" in run(flatq, "doctor", "q", check=0).out
    q.put(b"1", 0)


# ---- beside another client


@pytest.mark.parametrize("ours", ["put", "get", "both"])
def test_bound_one_alternates(q, spec, redis, server, ours):
    (spec if ours == "put" else q).create(1)
    put = (spec if ours == "get" else q).put
    get = (Spec(module("redis").Redis(port=server.port)) if ours == "put" else q).get
    numbers, stop, seen = [b"%d" % number + ANY for number in range(40)], threading.Event(), set()

    def look():
        while not stop.is_set():
            seen.add(redis.llen("__pressure__:q"))

    with ThreadPoolExecutor(3) as pool:
        looking = pool.submit(look)
        try:
            putting = pool.submit(lambda: [put(body) for body in numbers])
            assert [get() for _ in numbers] == numbers
            putting.result(60)
        finally:
            stop.set()
        looking.result(60)
    assert seen <= {0, 1}
    assert q.stats()["produced_messages"] == q.stats()["consumed_messages"] == 40



@pytest.mark.parametrize("what", ["close", "put", "delete"])
def test_a_getter_that_waits_takes_nothing(q, spec, redis, what):
    """The server holds its question for a second. It leaves no blocked connection behind."""
    q.lease = 1000
    q.create()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(q.get)
        wait_for(lambda: redis.info()["blocked_clients"] == 1, "it waits")
        getattr(spec, what)(*[b"1"] * (what == "put"))
        began = time.monotonic()
        if what == "put":
            assert waiting.result(60) == b"1"
        else:
            with pytest.raises(Closed, match=f"{what}d"):
                waiting.result(60)
        assert time.monotonic() - began < 20
    wait_for(lambda: redis.info()["blocked_clients"] == 0)
    if what == "delete":
        assert keys(redis) == {":flatq_created"} and q.doctor() == []
    else:
        assert redis.llen(key("consumer_free")) == 1
        assert redis.llen(key("closed")) == (2 if what == "close" else 0)


def test_close_wakes_another_getter(q, redis, server):
    q.create()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(Spec(module("redis").Redis(port=server.port)).get)
        wait_for(lambda: has_role(redis, "consumer", "another"))
        q.close()
        assert waiting.result(60) is None


@pytest.mark.parametrize("deletes", ["ours", "theirs"])
def test_delete_wakes_both(q, spec, redis, deletes):
    q.create(1)
    q.put(b"1")
    with ThreadPoolExecutor(3) as pool:
        putting = pool.submit(q.put, b"2")
        waits(redis, "producer")
        # the getter waits although there is a message, since the test itself holds the consumer's
        # role
        assert redis.rpop(key("consumer_free"))
        getting = pool.submit(q.get)
        deleting = pool.submit((q if deletes == "ours" else spec).delete)
        with pytest.raises(Closed, match="deleted"):
            putting.result(60)
        redis.lpush(key("consumer_free"), 0)
        with pytest.raises((Missing, Closed)):
            getting.result(60)
        deleting.result(60)
    assert keys(redis) == (set() if deletes == "ours" else {":flatq_created"})


def test_a_queue_called_as_another_one_and_a_word(q, redis):
    """Other programs may have both: no key of the one is a queue of the other."""
    other = Spec(redis, "q:created")
    other.create(0)
    other.put(b"1")
    q.create()
    assert q.created() and other.get() == b"1"
    other.put(b"2")
    q.delete()
    assert other.get() == b"2"


def test_many_at_once(q, redis):
    q.create(5)
    bodies = [b"%d" % number for number in range(60)]
    with ThreadPoolExecutor(8) as pool:
        putting = [pool.submit(lambda some: [q.put(body) for body in some], bodies[one::4])
            for one in range(4)]
        getting = [pool.submit(lambda: [q.get() for _ in range(15)]) for _ in range(4)]
        got = [body for task in getting for body in task.result(60)]
        for task in putting:
            task.result(60)
    assert sorted(got) == sorted(bodies)
    assert q.doctor() == []


# ---- clients that die


def lease_ends_in(redis, role, milliseconds):
    """Set the lease to end so soon, by the server's clock."""
    seconds, micro = redis.time()
    name = key(f"{role}_lease")
    redis.set(name, b"%d " % (seconds * 1000 + micro // 1000
        + milliseconds) + redis.get(name).split(b" ", 1)[1])


@pytest.mark.parametrize("cure", ["wait", "doctor"])
@pytest.mark.parametrize("role", ["consumer", "producer"])
def test_a_killed_client_wedges_nobody(flatq, q, spec, redis, role, cure):
    """Its lease ends. Then the next client of flatq's takes the role, or doctor frees it for other
    clients."""
    q.create(1)
    if role == "producer":
        q.put(b"1")
    verb, act = ("get", q.get) if role == "consumer" else ("put", lambda wait: q.put(b"2", wait))
    victim = flatq.start("pressure", verb, "-t", "1000", "q", stdin=subprocess.DEVNULL)
    waits(redis, role)
    victim.kill()
    victim.wait()
    assert has_role(redis, role)
    with pytest.raises(Busy):
        act(0)
    lease_ends_in(redis, role, 0)
    if cure == "doctor":
        wait_for(lambda: b"mended" in run(flatq, "doctor", "q", check=0).out, "the lease is over")
        assert redis.llen(key(f"{role}_free")) == 1
    elif role == "consumer":
        q.put(b"1")
        assert act(60) == b"1"
    else:
        with pytest.raises(Full):
            act(2)
    # no lease is left, and other clients go on
    assert not redis.exists(key(f"{role}_lease"))
    if role == "consumer":
        spec.put(b"2")
    else:
        assert spec.get() == b"1"


def test_a_slow_client_does_no_harm(flatq, q, redis):
    q.create()
    slow = flatq.start("pressure", "get", "-t", "1000", "q", stdin=subprocess.DEVNULL)
    waits(redis, "consumer")
    slow.send_signal(signal.SIGSTOP)
    lease_ends_in(redis, "consumer", 200)
    q.put(b"1")
    assert q.get(60) == b"1"
    q.put(b"2")
    slow.send_signal(signal.SIGCONT)
    out, err = slow.communicate(timeout=100)
    assert (slow.returncode, out) == (73, b"") and b"taken over" in err
    assert q.get(0) == b"2" and redis.llen(key("consumer_free")) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_gives_the_role_back(flatq, q, redis, number):
    q.create()
    process = flatq.start("pressure", "get", "q", stdin=subprocess.DEVNULL)
    waits(redis, "consumer")
    process.send_signal(number)
    assert process.wait(60) == -number
    assert redis.llen(key("consumer_free")) == 1
    assert not redis.exists(key("consumer_lease"))


def test_deprecated_names(q, redis):
    """They work as they did, and say what to use."""
    q.create()
    redis.set(key("consumer"), "a dead client")
    redis.delete(key("consumer_free"))
    with pytest.warns(DeprecationWarning, match="doctor"):
        q.leave()
    with pytest.warns(DeprecationWarning, match="names"):
        assert [other.name for other in q.every()] == [q.name]
    q.put(b"x")
    assert q.get(wait=0) == b"x"


def test_of_others_doctor_knows_nothing(flatq, q, redis):
    q.create(2)
    redis.rpop(key("producer_free"))
    redis.set(key("producer"), "somebody")
    done = run(flatq, "doctor", "q", check=75)
    assert done.out == b"q open producer somebody has the role, without a lease\n"
    assert b"-f" in done.err
    done = run(flatq, "doctor", "-f", "q", check=0)
    assert done.out == b"q mended producer somebody has lost the role\n"
    # it died between taking the token of room and putting its message
    redis.rpop(key("not_full"))
    redis.lpush(key("producer_free"), 0)
    assert run(flatq, "doctor", "q", check=0).out == b"q mended was taken for full\n"
    assert q.doctor() == [] and redis.llen(key("producer_free")) == 1
    q.put(b"1", 0)
    redis.delete(key("bound"))
    with pytest.raises(Busy, match="deleted"):
        q.create()
    run(flatq, "doctor", "q", check=75)
    run(flatq, "doctor", "-f", "q", check=0)
    assert keys(redis) == set()


def test_a_message_that_is_not_written_out_stays(flatq, q):
    q.create()
    q.put(ANY)
    with open("/dev/full", "wb") as full:
        process = flatq.start("pressure", "get", "q", stdin=subprocess.DEVNULL, stdout=full)
        err = process.communicate(timeout=100)[1]
    assert process.returncode == 74 and err.count(b"\n") == 1, err
    assert q.get(0) == ANY


def test_a_slow_reader_keeps_the_role(flatq, q, redis):
    """The lease is renewed while the message is written; a second client does not get it."""
    def renewed(lease):
        now = redis.get(key("consumer_lease"))
        return now != lease and now

    q.create()
    body = b"m" * 1_000_000  # more than a pipe holds
    q.put(body)
    process = flatq.start("pressure", "get", "-t", "3", "q", stdin=subprocess.DEVNULL)
    lease = wait_for(lambda: redis.get(key("consumer_lease")), "it has the role")
    for _ in range(4):  # more than a lease
        lease = wait_for(lambda: renewed(lease), "it keeps the role")
        refused(run(flatq, "get", "-w", "0", "q"), 73, "pressure")
    assert process.communicate(timeout=100) == (body, b"")
    assert process.returncode == 0 and q.length() == 0


@pytest.mark.parametrize("action, closed", [("get", ">&-"), ("put", "<&-"), ("length", ">&-")])
def test_a_closed_stream(flatq, q, redis, action, closed):
    q.create()
    q.put(ANY)
    script = f'exec "$0" "$@" {closed}'
    done = subprocess.run(["sh", "-c", script, *flatq.command("pressure", action, "q")],
        env=flatq.env, capture_output=True, timeout=100)
    assert (done.returncode, done.stdout) == (74,
        b"") and b"is closed" in done.stderr and done.stderr.count(b"\n") == 1, done
    assert q.get(0) == ANY and q.length() == 0


def test_held(q, redis):
    q.create()
    with pytest.raises(Empty):
        q.hold(0.4)
    q.put(b"1")
    with pytest.raises(KeyError):
        with q.hold() as message:
            assert (message.body, q.length()) == (b"1", 1)
            raise KeyError
    with q.hold(0) as message:
        message.keep()
    assert q.length() == 0 and redis.llen(key("consumer_free")) == 1 and q.stats()[
        "consumed_messages"] == 1




# ---- no server, no module


def test_a_server_that_dies(tmp_path):
    module("redis")
    with Redis(tmp_path / "redis") as dying:
        here = pressure.Queue("q", port=dying.port)
        here.create()
        with ThreadPoolExecutor(1) as pool:
            getting = pool.submit(here.get)
            wait_for(lambda: here.ask(lambda redis: redis.exists(here.key(":consumer_lease"))))
            dying.kill()
            with pytest.raises(Unreachable):
                getting.result(60)


def test_a_server_without_memory(flatq, q, redis):
    """It refuses messages, and its queues can be drained."""
    q.create()
    q.put(b"m")
    redis.config_set("maxmemory", 1)
    try:
        refused(run(flatq, "put", "q", input=b"n"), 74, "pressure", text=b"maxmemory")
        assert (q.length(), q.get(0), q.length(), q.closed()) == (1, b"m", 0, False)
    finally:
        redis.config_set("maxmemory", 0)
    q.put(b"n", 0)
    assert q.get(0) == b"n"



def test_a_message_that_is_larger_than_the_memory(flatq):
    words = ["sh", "-c", 'ulimit -v 300000; head -c 400M /dev/zero | exec "$@"', "sh",
        *flatq.command("pressure", "put", "-w", "0", "nope")]
    done = subprocess.run(words, env=flatq.environment(None), capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (74,
        b"pressure: the message does not fit into the memory\n")


@pytest.mark.parametrize("named, value, fail", [
    ("stats:produced_messages", "abc", "put"), ("stats:consumed_bytes", 2**63 - 1, "get"),
    ("not_full", "abc", "put get"), ("bound", "abc", "put get")])
def test_a_step_that_fails_has_changed_nothing(q, redis, named, value, fail):
    """Redis does not undo what a script did before the call that failed."""
    q.create(5)
    q.put(b"1")
    redis.set(key(named), value)
    left = [b"1"]
    for verb, act in {"put": lambda: q.put(b"2", 0), "get": lambda: q.get(0)}.items():
        if verb in fail:
            with pytest.raises(pressure.Invalid):
                act()
        else:
            act()
            left = left[:-1] if verb == "get" else [b"2", *left]
    assert redis.lrange("__pressure__:q", 0, -1) == left
    assert not has_role(redis, "consumer") and not has_role(redis, "producer")


def test_what_others_have_written_there(flatq, q, redis):
    """Names of clients and counters, in one line, and harmless to a terminal."""
    q.create()
    redis.set(key("stats:consumed_bytes"), "abc")
    refused(run(flatq, "stats", "q"), 65, "pressure", text=b"a counter is no number")
    redis.set("__pressure__:q", "no list")
    refused(run(flatq, "put", "-w", "0", "q", input=b"1"), 65, "pressure")
    redis.rpop(key("producer_free"))
    redis.set(key("producer"), "x\x1b[31mred\nq mended fake")
    done = run(flatq, "put", "-w", "0", "q", input=b"m")
    assert done.status == 73 and b"\x1b" not in done.err and done.err.count(b"\n") == 1, done
    found = run(flatq, "doctor", "q")
    assert b"\x1b" not in found.out and found.out.count(b"\n") == 1, found
