"""One run of the bench: its directory, its servers, and what it has measured. A row is a function
that gets the run."""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from harness import Command, interleave, packages, ratio, spread

ROOT = Path(__file__).resolve().parent.parent.parent
LIB = ROOT / "lib"
MILLION = 1_000_000


class Run:
    """ratios: (row, other, the most that it may be or None, median, quartiles or None).
    detail: (row, contender, median, quartiles), in seconds.
    notes: lines.
    raw: everything that was measured, by row."""

    def __init__(self, work, python, quick, parent=None):
        self.work, self.python, self.quick = work, str(python), quick
        #: name: root, of this tree and of the commit that it is compared with
        self.trees = {"flatq": ROOT}
        if parent:
            self.trees[f"flatq at {parent}"] = self.checkout(parent)
        self.rounds = 3 if quick else 200
        self.million = MILLION // 500 if quick else MILLION
        self.packages = packages(python)
        self.ratios, self.detail, self.notes, self.raw = [], [], [], {}
        self.servers, self.missing, self.failed = [], set(), []
        self.message = self.file("message", b"x" * 99 + b"\n")

    def checkout(self, commit):
        """A directory with the files of the commit."""
        place = self.work / "parent"
        place.mkdir()
        files = subprocess.run(["git", "-C", ROOT, "archive", commit, "launch", "lib"],
            stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x", "-C", place], input=files, check=True)
        return place

    def file(self, name, content):
        path = self.work / name
        path.write_bytes(content)
        return str(path)

    def lines(self, count, size=100):
        """A file of so many lines, each of so many bytes."""
        path = self.work / "lines"
        with path.open("w") as file:
            for number in range(count):
                file.write(f"{number:0{size - 1}}\n")
        return str(path)

    def there(self, *programs, package=None):
        """Whether all of these programs are installed. Each that is missing is named once."""
        missing = [program for program in programs if not shutil.which(program)]
        missing += [package] if package and package not in self.packages else []
        for name in sorted(set(missing) - self.missing):
            print(f"bench: {name} is not installed: what needs it is left out", file=sys.stderr)
        self.missing.update(missing)
        return not missing

    def place(self, name, spool):
        """The spool of that name of the tree of that name: each tree has its own."""
        return self.work / (spool if self.trees[name] == ROOT else f"{spool}.parent")

    def flatq(self, spool, words, stdin=os.devnull, sync="off", name="flatq"):
        return Command(name, [self.trees[name] / "lib" / words[0], *words[1:]], stdin,
            str(self.work),
            {"FLATQ_DIR": str(self.place(name, spool)), "FLATQ_SYNC": sync})

    def fill(self, spool, messages, size=100, sync="off", names=None):
        """So many messages in queue jobs, in that spool of these trees, or of each."""
        lines = self.lines(messages, size)
        for name in names or self.trees:
            self.flatq(spool, ["push", "-l", "jobs"], lines, sync, name).run()

    def row(self, name, commands, bounds, rounds=None):
        """Run the commands side by side. The first is flatq's."""
        seconds = interleave([commands], rounds or self.rounds)
        self.compare(name, seconds, bounds)

    def compare(self, name, seconds, bounds=()):
        """Note what each contender took, round by round: the first against each of the others, with
        the bound of its ratio."""
        bounds = dict(bounds)
        (_, ours), *others = seconds.items()
        self.raw[name] = seconds
        self.ratios += [(name, other, bounds.get(other), *ratio(ours, values)) for other,
            values in others]
        self.detail += [(name, contender, *spread(values)) for contender, values in seconds.items()]

    def serve(self, argv, env=None):
        """Start a server. If one of its words is None, that is replaced by a port, which is
        returned once the server listens there."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        words = [str(port) if word is None else str(word) for word in argv]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL}
        server = subprocess.Popen(words, env={**os.environ, **(env or {})}, **quiet)
        self.servers.append(server)
        end = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return port
            except OSError:
                if server.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"{words[0]} does not answer") from None
                time.sleep(0.001)

    def door(self, words, spool, sync="off", name="flatq"):
        """The port of a door of flatq."""
        return self.serve(["sh", self.trees[name] / "launch", *words, "-p", None],
            {"FLATQ_DIR": str(self.place(name, spool)), "FLATQ_SYNC": sync})

    def doors(self, words, spool, sync="off"):
        """The ports of such a door of each tree, by the tree's name."""
        return {name: self.door(words, spool, sync, name) for name in self.trees}

    def end(self):
        """End the servers of a row."""
        while self.servers:
            server = self.servers.pop()
            server.terminate()
            server.wait()
