"""The contenders of the rows of one-shot commands. `bounds`: how many times its own time flatq's
may be at most. One that is named durable has the message on the disk when it answers."""

import os
import shutil
import subprocess
import tempfile

from harness import Command
from run import ROOT

ARTICLE = ROOT / "tests" / "article"


class Flatq:
    bounds = {}

    def __init__(self, run, place, durable, name="flatq"):
        self.run, self.name = run, name
        self.spool, self.sync = f"{place}.flatq.{durable}", "on" if durable else "off"

    def push(self, stdin):
        return self.run.flatq(self.spool, ["push", "jobs"], stdin, self.sync, self.name)

    def pop(self):
        return self.run.flatq(self.spool, ["pop", "jobs"], sync=self.sync, name=self.name)

    def fill(self, count):
        self.run.fill(self.spool, count, sync=self.sync, names=[self.name])


class Redis:
    def __init__(self, run, place, durable):
        self.run = run
        self.name = "redis-cli, appendfsync always" if durable else "redis-cli, memory only"
        self.bounds = dict.fromkeys(("push", "pop"), 0.9 if durable else 0.8)
        self.port = server(run, durable)

    def command(self, name, words, stdin=os.devnull):
        return Command(name, ["redis-cli", "-p", self.port, *words], stdin, str(self.run.work))

    def push(self, stdin):
        return self.command(self.name, ["-x", "rpush", "jobs"], stdin)

    def pop(self):
        return self.command(self.name, ["lpop", "jobs"])

    def load(self, name, lines):
        """Load a file of lines by Redis's own protocol, which awk writes."""
        script = """awk '{
            printf "*3\\r\\n$5\\r\\nRPUSH\\r\\n$4\\r\\njobs\\r\\n$%d\\r\\n%s\\r\\n", length($0), $0
        }' | redis-cli -p "$0" --pipe"""
        return Command(name, ["sh", "-c", script, self.port], lines, str(self.run.work))

    def unload(self, name, count):
        return self.command(name, ["lpop", "jobs", str(count)])

    def fill(self, count):
        self.load("fill", self.run.lines(count)).run()


def server(run, durable):
    """The port of a Redis that the bench starts."""
    program = shutil.which("redis-server")
    if not program:
        program = run.work / "redis-server"
        if not program.exists():
            program.symlink_to(shutil.which("redis-check-rdb"))
    place = tempfile.mkdtemp(prefix="redis.", dir=run.work)
    log = ["--appendonly", "yes", "--appendfsync", "always"] if durable else ["--appendonly", "no"]
    return run.serve([program, "--bind", "127.0.0.1", "--dir", place, "--save", "", "--daemonize",
        "no", *log, "--port", None])


class Sqlite:
    """A table of its own. A shell user would write the same statements."""

    PUSH = "insert into jobs (body) values (readfile('/dev/stdin'))"
    POP = "delete from jobs where id = (select min(id) from jobs) returning body"

    def __init__(self, run, place, durable):
        self.run, self.database = run, run.work / f"{place}.{durable}.db"
        self.name = "sqlite3, synchronous FULL" if durable else "sqlite3, synchronous OFF"
        self.pragma = "" if durable else "pragma synchronous=off; "
        self.bounds = {"push": 1.4 if durable else 1.0, "pop": 1.05}
        self.sql("create table jobs (id integer primary key autoincrement, body blob)")

    def sql(self, statement):
        subprocess.run(["sqlite3", self.database, statement], check=True)

    def push(self, stdin):
        return Command(self.name, ["sqlite3", self.database, self.pragma + self.PUSH], stdin,
            str(self.run.work))

    def pop(self):
        return Command(self.name, ["sqlite3", self.database, self.pragma + self.POP],
            cwd=str(self.run.work))

    def fill(self, count):
        self.sql(
            f"with recursive n(i) as (select 1 union all select i + 1 from n where i < {count})"
            " insert into jobs (body) select randomblob(100) from n")


class Dirq:
    """Through its Python, since it has no command. It syncs nothing."""

    name, bounds = "dirq, python3 -c", {}
    TAKE = "from dirq.QueueSimple import QueueSimple\nimport sys\nq = QueueSimple(sys.argv[1])\n"
    PUSH = TAKE + "q.add(sys.stdin.buffer.read())"
    POP = TAKE + """name = next(name for name in q if q.lock(name))
sys.stdout.buffer.write(q.get(name))
q.remove(name)"""
    FILL = TAKE + "for n in range(int(sys.argv[2])): q.add(b'%099d\\n' % n)"

    def __init__(self, run, place, durable):
        self.run, self.place = run, run.work / f"{place}.dirq"

    def python(self, script, *words, stdin=os.devnull):
        return Command(self.name, [self.run.python, "-c", script, self.place, *words], stdin,
            str(self.run.work))

    def push(self, stdin):
        return self.python(self.PUSH, stdin=stdin)

    def pop(self):
        return self.python(self.POP)

    def fill(self, count):
        self.python(self.FILL, str(count)).run()


class Article:
    """The article's scripts, which sync nothing. Their messages have 49 bytes: they make several of
    a longer one."""

    name, bounds = "the article's", {"push": 0.6, "pop": 0.6}

    def __init__(self, run, place, durable):
        self.run, self.place = run, run.work / f"{place}.article"
        self.place.mkdir()
        self.short = run.file("short", b"x" * 49 + b"\n")
        self.fill(0)

    def push(self, stdin):
        return Command(self.name, ["sh", ARTICLE / "push"], self.short, str(self.place),
            {"queue": "jobs"})

    def pop(self):
        return Command(self.name, ["sh", ARTICLE / "pop"], cwd=str(self.place),
            env={"queue": "jobs"})

    def fill(self, count):
        line = subprocess.run(["base64"], input=b"x" * 49 + b"\n", stdout=subprocess.PIPE,
            check=True).stdout
        (self.place / "jobs.queue").write_bytes(line * count)


def contenders(run, place, durable):
    """flatq of each tree, and then each rival that is installed and is as durable."""
    found = [Redis] if run.there("redis-cli", "redis-check-rdb") else []
    found += [Sqlite] if run.there("sqlite3") else []
    if not durable:
        found += [Dirq] * run.there(package="dirq") + [Article]
    return [*(Flatq(run, place, durable, name) for name in run.trees),
        *(kind(run, place, durable) for kind in found)]
