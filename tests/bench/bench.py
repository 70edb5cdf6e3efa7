"""make bench: what flatq costs, beside what a shell user would pick instead, in one run.

bench.py [--quick] [ROW ...], rows: push pop article processes doors beanstalk depth bulk (all where none is named). The table shows ratios first:
only these hold on another machine. Times, every round of them, go to .bench/TIME.json."""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import counting  # noqa: E402 (tests/ is on the path only now)
from harness import Command, Progress, interleave, machine, peak_memory, ratio, spread  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
LIB = ROOT / "lib"
ARTICLE = ROOT / "tests" / "article"
MILLION = 1_000_000


class Bench:
    def __init__(self, work, quick):
        self.work, self.quick = work, quick
        self.rounds = 20 if quick else 200
        self.million = MILLION // 100 if quick else MILLION
        self.progress = Progress()
        self.ratios, self.detail, self.notes, self.raw = [], [], [], {}
        self.message = self.file("message", b"x" * 99 + b"\n")
        self.short = self.file("short", b"x" * 49 + b"\n")

    def file(self, name, content):
        path = self.work / name
        path.write_bytes(content)
        return str(path)

    def flatq(self, name, spool, words, stdin=os.devnull, sync="off", path=None):
        env = {"FLATQ_DIR": str(self.work / spool), "FLATQ_SYNC": sync}
        if path:
            env["PATH"] = path
        return Command(name, [LIB / words[0], *words[1:]], stdin, str(self.work), env)

    def fill(self, spool, messages, size=100):
        """A spool whose queue jobs holds so many messages."""
        lines = self.work / "lines"
        with lines.open("w") as file:
            for number in range(messages):
                file.write(f"{number:0{size - 1}}\n")
        self.flatq("fill", spool, ["push", "-l", "jobs"], str(lines)).run()
        lines.unlink()

    def row(self, name, commands, bounds):
        """Run the commands side by side; the first against each of the others, with the most that its ratio may be."""
        self.progress.row = name
        seconds = interleave(commands, self.rounds, self.progress)
        self.progress.end()
        self.raw[name] = seconds
        ours = commands[0].name
        for other in commands[1:]:
            self.ratios.append((name, other.name, bounds.get(other.name), *ratio(seconds[ours], seconds[other.name])))
        self.detail += [(name, contender, *spread(values)) for contender, values in seconds.items()]

    def sqlite(self, name, sql, synchronous):
        """A database of its own with one table; the statement is what a shell user would write."""
        database = self.work / f"{name}.{synchronous}.db"
        if not database.exists():
            make = "create table jobs (id integer primary key autoincrement, body blob)"
            subprocess.run(["sqlite3", database, make], check=True)
        pragma = "" if synchronous == "full" else f"pragma synchronous={synchronous}; "
        stdin = self.message if "stdin" in sql else os.devnull
        return Command(f"sqlite3, synchronous {synchronous}", ["sqlite3", database, pragma + sql], stdin, str(self.work))

    def push(self):
        insert = "insert into jobs (body) values (readfile('/dev/stdin'))"
        for durable in (True, False):
            sync = "on" if durable else "off"
            commands = [self.flatq("flatq", "push", ["push", "jobs"], self.message, sync)]
            bounds = {}
            if there("redis-cli", "redis-check-rdb"):
                port = self.redis(durable)
                commands.append(Command(
                    "redis-cli, appendfsync always" if durable else "redis-cli, memory only",
                    ["redis-cli", "-p", port, "-x", "rpush", "jobs"], self.message, str(self.work),
                ))
                bounds[commands[-1].name] = 0.9 if durable else 0.8
            if there("sqlite3"):
                commands.append(self.sqlite("push", insert, "full" if durable else "off"))
                bounds[commands[-1].name] = 1.4 if durable else 1.0
            commands.append(self.floor("base64 >floor.$$; sync floor.$$" if durable else "base64 >floor.$$", self.message))
            self.row("push, synced" if durable else "push, unsynced", commands, bounds)

    def pop(self):
        self.fill("pop", self.rounds + 10)
        commands = [self.flatq("flatq", "pop", ["pop", "jobs"], sync="on")]
        bounds = {}
        if there("sqlite3"):
            take = "delete from jobs where id = (select min(id) from jobs) returning body"
            commands.append(self.sqlite("pop", take, "full"))
            many = f"with recursive n(i) as (select 1 union all select i + 1 from n where i < {self.rounds + 10}) "
            many += "insert into jobs (body) select randomblob(100) from n"
            subprocess.run(["sqlite3", self.work / "pop.full.db", many], check=True)
            bounds[commands[-1].name] = 1.05
        (self.work / "floor.pop").write_bytes(b"eHh4Cg==\n")
        commands.append(self.floor("mv floor.pop floor.out; base64 -d floor.out; >floor.pop", os.devnull))
        self.row("pop, synced", commands, bounds)

    def floor(self, script, stdin):
        """The programs that flatq starts, and nothing else: what no shell script can be quicker than."""
        return Command("its programs alone", ["sh", "-c", script], stdin, str(self.work))

    def article(self):
        """The article's scripts sync nothing, so neither does flatq here. A push and a pop in turn keep the depth."""
        for depth in (10, 1_000, 100_000):
            if self.quick and depth > 1_000:
                continue
            place = self.work / f"article.{depth}"
            place.mkdir()
            line = subprocess.run(["base64"], input=b"x" * 49 + b"\n", stdout=subprocess.PIPE, check=True).stdout
            (place / "jobs.queue").write_bytes(line * depth)
            self.fill(f"depth.{depth}", depth, 50)
            rounds, self.rounds = self.rounds, self.rounds // (4 if depth > 1_000 else 1)
            seconds = {"flatq": [], "article": []}
            env = {"queue": "jobs"}
            pairs = [
                [self.flatq("flatq push", f"depth.{depth}", ["push", "jobs"], self.short),
                 Command("article push", ["sh", ARTICLE / "push"], self.short, str(place), env)],
                [self.flatq("flatq pop", f"depth.{depth}", ["pop", "jobs"]),
                 Command("article pop", ["sh", ARTICLE / "pop"], os.devnull, str(place), env)],
            ]
            self.progress.row = f"article, depth {depth:,}"
            seconds = interleave_pairs(pairs, self.rounds, self.progress)
            self.progress.end()
            self.rounds = rounds
            for verb in ("push", "pop"):
                ours, theirs = seconds[f"flatq {verb}"], seconds[f"article {verb}"]
                name = f"{verb}, depth {depth:,}"
                self.raw[name] = {"flatq": ours, "article": theirs}
                self.ratios.append((name, "the article's", 0.6, *ratio(ours, theirs)))
                self.detail += [(name, "flatq", *spread(ours)), (name, "the article's", *spread(theirs))]

    def redis(self, durable):
        """The port of a server of our own. Where only redis-tools is installed, its checker is the server under another name."""
        program = shutil.which("redis-server")
        if not program:
            program = self.work / "redis-server"
            if not program.exists():
                program.symlink_to(shutil.which("redis-check-rdb"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        place = self.work / f"redis.{port}"
        place.mkdir()
        options = ["--port", port, "--bind", "127.0.0.1", "--dir", place, "--save", "", "--daemonize", "no"]
        options += ["--appendonly", "yes", "--appendfsync", "always"] if durable else ["--appendonly", "no"]
        server = subprocess.Popen([program, *map(str, options)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        SERVERS.append(server)
        end = time.monotonic() + 10
        while subprocess.run(["redis-cli", "-p", str(port), "ping"], capture_output=True).stdout != b"PONG\n":
            if server.poll() is not None or time.monotonic() > end:
                raise RuntimeError("redis-server does not answer")
            time.sleep(0.02)
        return port

    def counted(self, spool, words, stdin=b"", sync="off"):
        command = self.flatq("count", spool, words, sync=sync)
        return counting.count(["sh", *command.argv], stdin, command.env, self.work)

    def processes(self):
        if not there("strace"):
            return
        say = self.notes.append
        say("Processes started beside the shell, and the programs they ran:")
        self.counted("count", ["push", "jobs"], b"first")
        for text, words, sync in (
            ("push, unsynced", ["push", "jobs"], "off"), ("push, synced", ["push", "jobs"], "on"),
            ("pop", ["pop", "jobs"], "on"), ("reserve", ["reserve", "jobs"], "on"), ("delete", ["delete"], "on"),
            ("pop, one more", ["pop", "jobs"], "on"), ("pop, empty", ["pop", "jobs"], "on"), ("push, bad name", ["push", "../x"], "on"),
        ):
            if text == "delete":
                words = ["delete", receipt]
            count, out, _ = self.counted("count", words, b"x" * 100, sync)
            receipt = out.split(b"\n")[0].split(b" ")[0].decode() if text == "reserve" else ""
            self.raw[f"processes: {text}"] = count._asdict()
            names = " ".join(os.path.basename(program) for program in count.programs)
            say(f"  {text:16} {count.processes:2}  {names}")

    def depth(self):
        """The same operations at two depths. In turn, so that the depth stays."""
        if not there("strace"):
            return
        operations = 50 if self.quick else 1_000
        self.notes.append(f"Per operation, push and pop in turn, means of {operations:,}: processes, bytes read, written, of directories:")
        means = {}
        for depth in (10, self.million):
            spool = f"count.{depth}"
            self.fill(spool, depth)
            for verb in ("push", "pop"):  # the first pop unfolds; both depths begin behind it
                self.counted(spool, [verb, "jobs"], b"x" * 100)
            sums = {"push": [0] * 4, "pop": [0] * 4}
            self.progress.row = f"depth {depth:,}"
            for turn in range(operations):
                for verb, total in sums.items():
                    count, _, err = self.counted(spool, [verb, "jobs"], b"x" * 100)
                    if count.status:
                        raise RuntimeError(f"{verb} at depth {depth}: {err!r}")
                    took = count.processes, count.read, count.written, count.listed
                    total[:] = map(sum, zip(total, took))
                self.progress(f"{turn + 1} of {operations}")
            self.progress.end()
            for verb, total in sums.items():
                means[verb, depth] = [value / operations for value in total]
                processes, read, written, listed = means[verb, depth]
                self.notes.append(f"  {verb:5} depth {depth:>9,}  {processes:5.2f}  {read:10,.0f}  {written:8,.0f}  {listed:8,.0f}")
        for verb in ("push", "pop"):
            few, many = means[verb, 10], means[verb, self.million]
            self.raw[f"depth: {verb}"] = {"10": few, str(self.million): many}
            change = [100 * (b / a - 1) if a else 0 for a, b in zip(few, many)]
            self.notes.append(f"  {verb:5} change        {change[0]:+9.1f}% {change[1]:+10.1f}% {change[2]:+8.1f}%")
            moved = (many[1] + many[2]) / (few[1] + few[2])
            self.ratios.append((f"{verb}, bytes read and written, depth {self.million:,}", "depth 10", 1.1, moved, None, None))

    def bulk(self):
        """Fill and drain; with all programs, then without perl, then without python3 too: by awk."""
        self.notes.append("Bulk, messages of 100 bytes: a second, and the most memory of all processes together (goal: 300,000 a second):")
        for text, without in (("", ()), ("no perl", ("perl",)), ("awk", ("perl", "python3"))):
            path = path_without(self.work / f"path.{len(without)}", without) if without else None
            for messages in (self.million // 10, self.million):
                if without and messages < self.million:
                    continue
                lines = self.work / "lines"
                with lines.open("w") as file:
                    for number in range(messages):
                        file.write(f"{number:0100}\n")
                spool = f"bulk.{len(without)}.{messages}"
                self.progress.row = f"bulk {messages:,} {text}"
                self.progress("fill")
                full, memory_full = peak_memory(
                    self.flatq("push -l", spool, ["push", "-l", "jobs"], str(lines), "on", path), subprocess.DEVNULL
                )
                self.progress("drain")
                with (self.work / "out").open("wb") as out:
                    empty, memory_empty = peak_memory(self.flatq("drain -l", spool, ["drain", "-l", "jobs"], sync="on", path=path), out)
                self.progress.end()
                if subprocess.run(["cmp", "-s", lines, self.work / "out"]).returncode:
                    raise RuntimeError("drain did not give back what push -l was given")
                shutil.rmtree(self.work / spool)
                self.raw[f"bulk {messages} {text}"] = {
                    "fill": full, "drain": empty, "memory fill": memory_full, "memory drain": memory_empty
                }
                self.notes.append(
                    f"  {messages:>9,} {text:8} fill {messages / full:>9,.0f} {memory_full / 2**20:5.0f} MB"
                    f"   drain {messages / empty:>9,.0f} {memory_empty / 2**20:5.0f} MB"
                )


    def doors(self):
        """Connections a second, one after the other, against an ncat that does nothing for each: the floor."""
        many = 20 if self.quick else 200
        ports = {}
        self.fill("doors", 10)
        ports["ncat -l -k -c true"] = self.serve(["ncat", "-l", "-k", "-c", "true", "127.0.0.1", None])
        ports["flatq, line door, list"] = self.serve(["sh", ROOT / "launch", "-k", "-p", None], "doors")
        seconds = {name: [] for name in ports}
        self.progress.row = "doors"
        for turn in range(many):
            for name, port in ports.items():
                began = time.perf_counter()
                with socket.create_connection(("127.0.0.1", port)) as client:
                    client.sendall(b"list\n")
                    while client.recv(65536):
                        pass
                seconds[name].append(time.perf_counter() - began)
            self.progress(f"{turn + 1} of {many}")
        self.progress.end()
        floor, ours = seconds.values()
        self.raw["doors"] = seconds
        self.ratios.append(("connection, line door", "ncat -l -k -c true", None, *ratio(ours, floor)))
        self.detail += [("connection", name, *spread(values)) for name, values in seconds.items()]

    def beanstalk(self):
        """One client that puts, reserves and deletes over one connection; both synced, both not."""
        if not there("beanstalkd"):
            return
        many = 20 if self.quick else 300
        for durable in (True, False):
            store = self.work / f"binlog.{durable}"
            store.mkdir()
            theirs = ["beanstalkd", "-l", "127.0.0.1", "-p", None, *(["-b", str(store), "-f0"] if durable else [])]
            ports = {
                "flatq": self.serve(["sh", ROOT / "launch", "beanstalk", "-p", None], f"stalk.{durable}", "on" if durable else "off"),
                "beanstalkd -b -f0" if durable else "beanstalkd": self.serve(theirs),
            }
            name = "put, reserve, delete, synced" if durable else "put, reserve, delete, unsynced"
            seconds = {contender: [] for contender in ports}
            clients = {contender: socket.create_connection(("127.0.0.1", port)) for contender, port in ports.items()}
            self.progress.row = name
            for turn in range(many):
                for contender, client in clients.items():
                    began = time.perf_counter()
                    number = talk(client, b"put 0 0 60 100\r\n" + b"x" * 100 + b"\r\n", b"\r\n").split()[1]
                    talk(client, b"reserve\r\n", b"x\r\n")
                    talk(client, b"delete " + number + b"\r\n", b"DELETED\r\n")
                    seconds[contender].append(time.perf_counter() - began)
                self.progress(f"{turn + 1} of {many}")
            self.progress.end()
            for client in clients.values():
                client.close()
            self.raw[name] = seconds
            ours, other = seconds.values()
            self.ratios.append((name, list(ports)[1], None, *ratio(ours, other)))
            self.detail += [(name, contender, *spread(values)) for contender, values in seconds.items()]

    def serve(self, argv, spool="", sync="off"):
        """Starts a server; None among its words is the port, which is returned once somebody listens there."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        env = {**os.environ, "FLATQ_DIR": str(self.work / spool), "FLATQ_SYNC": sync} if spool else None
        words = [str(port) if word is None else str(word) for word in argv]
        server = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        SERVERS.append(server)
        end = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return port
            except OSError:
                if server.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"{words[0]} does not answer")
                time.sleep(0.02)


def talk(client, said, end):
    """What the client is answered, up to and with `end`."""
    client.sendall(said)
    heard = b""
    while not heard.endswith(end):
        more = client.recv(65536)
        if not more:
            raise RuntimeError(f"the connection ended after {heard[-99:]!r}")
        heard += more
    return heard


SERVERS = []


def interleave_pairs(pairs, rounds, progress):
    """Each pair of commands in turn, who is first changing with every round."""
    seconds = {command.name: [] for pair in pairs for command in pair}
    for turn in range(rounds):
        for pair in pairs:
            for command in pair if turn % 2 else reversed(pair):
                seconds[command.name].append(command.run())
        progress(f"{turn + 1} of {rounds} rounds")
    return seconds


def there(*programs):
    missing = [program for program in programs if not shutil.which(program)]
    for program in missing:
        print(f"bench: {program} is not installed: what needs it is left out", file=sys.stderr)
    return not missing


def path_without(place, names):
    """A PATH on which everything is found but the programs named."""
    place.mkdir()
    for directory in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(directory).glob("*"):
            if not program.name.startswith(names):
                link = place / program.name
                link.unlink(missing_ok=True)
                link.symlink_to(program)
    return str(place)


def table(bench, about):
    print(f"flatq on {about['cpu']}, {about['cores']} cores, Linux {about['kernel']}, {about['system']}, {about['filesystem']}")
    print(f"sh is {about['sh']}; {about['redis-cli']}; sqlite3 {(about['sqlite3'] or '').split(' ')[0]}; {about['base64']}")
    if about["load"] > about["cores"] / 2:
        print(f"Others were at work here (load {about['load']:.1f} at the start): the times are not to be trusted.")
    if bench.ratios:
        print(f"\n{'ratio of median times, flatq / other':62}  ratio  quartiles   at most")
        for name, other, bound, middle, low, high in bench.ratios:
            quartiles = "" if low is None else f"{low:4.2f}-{high:4.2f}"
            aim = "" if bound is None else f"   {bound:4.2f}{'  over' if middle > bound else ''}"
            print(f"  {name + ' / ' + other:60}  {middle:5.2f}  {quartiles:9}{aim}")
    for line in bench.notes:
        print(line if line.startswith(" ") else "\n" + line)
    if bench.detail:
        print(f"\n{'milliseconds, start to end':62} median  quartiles")
        for name, contender, middle, low, high in bench.detail:
            print(f"  {name + ': ' + contender:60} {1000 * middle:6.2f}  {1000 * low:.2f}-{1000 * high:.2f}")


def main():
    rows = ("push", "pop", "article", "processes", "doors", "beanstalk", "depth", "bulk")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds, a hundredth of the messages: does it run?")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(rows))
    options = parser.parse_args()
    unknown = set(options.rows) - set(rows)
    if unknown:
        parser.error(f"no row {', '.join(sorted(unknown))}: {', '.join(rows)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    place = ROOT / ".bench"
    place.mkdir(exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="work.", dir=place) as work:
            try:
                about = machine(Path(work))
                bench = Bench(Path(work), options.quick)
                for row in options.rows or rows:
                    getattr(bench, row)()
            finally:
                for server in SERVERS:
                    server.terminate()
                    server.wait()
    except KeyboardInterrupt:
        sys.exit(130)
    table(bench, about)
    result = {"machine": about, "quick": options.quick, "ratios": bench.ratios, "notes": bench.notes, "raw": bench.raw}
    path = place / time.strftime("%Y%m%d-%H%M%S.json")
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\nEvery round: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
