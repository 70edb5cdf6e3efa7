"""The lessons as data: what a NN-title.md consists of, and a place in which its commands are run,
one after the other, in one shell.

A lesson is Markdown; three kinds of its code blocks are executed, in their order:
    ```sh NAME        a file that the reader types; it is written, and executable
    ```console        `$ ` begins a command, `> ` continues it; what follows is what it prints,
                      `[N]` an exit code that is not 0
    ```sh answer      the answer to an exercise: a script that must end with 0 (under set -eu)
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LESSONS = sorted(HERE.glob("[0-9][0-9]-*.md"))
#: the tools that need the gate of the crash laboratory
TOOLS = ("crash-at", "crash-each", "fail-at", "meanwhile", "power-each", "cost")
_LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")
_DONE = "\x1elesson "


@dataclass
class Part:
    kind: str  # text file console answer
    text: str  # the text as it stands; of a block, what is in it
    name: str = ""  # of a file
    # of a console: each command and its output
    steps: list = field(default_factory=list)


def parts(path):
    found = []
    for place, piece in enumerate(re.split(r"^```([^\n]*)\n(.*?)^```\n", path.read_text(),
            flags=re.M | re.S)):
        if place % 3 == 0 and piece:
            found.append(Part("text", piece))
        elif place % 3 == 1:
            info = piece
        elif place % 3 == 2:
            word, _, name = info.partition(" ")
            if word == "console":
                found.append(Part("console", piece, steps=_steps(piece)))
            elif word == "sh" and name:
                found.append(Part("answer" if name == "answer" else "file", piece, name))
            else:
                found.append(Part("text", f"```{info}\n{piece}```\n"))
    return found


def _steps(text):
    steps = []
    for line in text.splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], ""))
        elif line.startswith("> ") and not steps[-1][1]:
            steps[-1] = (steps[-1][0] + "\n" + line[2:], "")
        else:
            steps[-1] = (steps[-1][0], steps[-1][1] + line + "\n")
    return steps


def shown(command):
    return "$ " + command.replace("\n", "\n> ") + "\n"


def resolved(path, text):
    """The text, with the target of each link behind it: FILE, or FILE:LINE of the function that the
    link names. LookupError if there is none."""
    return _LINK.sub(lambda link: f"{link[1]} ({_target(path, link[1], link[2])})", text)


def _target(path, words, target):
    if target.startswith("http"):
        return target
    file = (path.parent / target).resolve()
    if not file.exists():
        raise LookupError(f"{path.name}: there is no {target}")
    place = str(file.relative_to(ROOT))
    name = re.fullmatch(r"`(\w+)`", words)
    if not name:
        return place
    found = re.search(rf"^{name[1]}\(\)|\bdef {name[1]}\b", (content := file.read_text()), re.M)
    if not found:
        raise LookupError(f"{path.name}: {name[1]} is not in {target}")
    return f"{place}:{content.count(chr(10), 0, found.start()) + 1}"


def uses_the_gate(path):
    return any(re.search(rf"^(\$ |> )?(.*[|;({{&] ?)?{tool} ", part.text, re.M)
        for part in parts(path) if part.kind != "text" for tool in TOOLS)


def gate():
    """Why the laboratory cannot run here, or nothing if it can."""
    sys.path.insert(0, str(ROOT / "tests"))
    from crash.gate import gate as laboratory

    return laboratory.available()[1]


class Place:
    """A fresh directory with $FLATQ_DIR in it, and a shell there that runs commands."""

    def __enter__(self):
        self.top = Path(tempfile.mkdtemp(prefix="lesson."))
        self.path = self.top / "lesson"
        self.path.mkdir()
        self.shell = subprocess.Popen(
            ["sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            cwd=self.path, start_new_session=True,
            env={"PATH": f"{HERE / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}",
            "HOME": str(self.top), "TMPDIR": str(self.top), "LC_ALL": "C",
                 "FLATQ_DIR": str(self.path / "spool"), "FLATQ_SYNC": "off",
                 "PYTHONDONTWRITEBYTECODE": "1"})
        return self

    def __exit__(self, *_):
        # with the background processes of a lesson that was broken off
        os.killpg(self.shell.pid, signal.SIGKILL)
        self.shell.wait()
        shutil.rmtree(self.top, ignore_errors=True)

    def write(self, part):
        target = self.path / part.name
        target.write_text(part.text)
        target.chmod(0o755)

    def run(self, command):
        """What the command prints, standard error included, and its exit code."""
        self.shell.stdin.write(
            f"{{ {command}\n}} </dev/null\nprintf '\\036lesson %s\\n' $?\n".encode())
        self.shell.stdin.flush()
        said = b""
        while True:
            line = self.shell.stdout.readline()
            before, mark, code = line.partition(_DONE.encode())
            said += before
            if mark:
                break
            if not line:
                return said.decode(errors="replace") + "(the shell has ended)\n", 70
        text = said.decode(errors="replace")
        return (text + "\n" if text and not text.endswith("\n") else text), int(code)

    def step(self, command):
        """What a console shows below the command."""
        text, code = self.run(command)
        return text + (f"[{code}]\n" if code else "")

    def answer(self, part):
        return self.run(f"(set -eu\n{part.text})")

    def files(self):
        """Every file and its content, in a form for people."""
        found = {}
        for path in filter(Path.is_file, sorted(self.path.rglob("*"))):
            with suppress(OSError):
                text = path.read_bytes()[:200].decode(errors="replace").replace("\n", "\\n")
                found[str(path.relative_to(self.path))] = (
                    text if len(text) <= 70 else text[:67] + "...")
        return found
