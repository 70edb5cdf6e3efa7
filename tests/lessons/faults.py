"""Failures that happen for certain: the code of bin/crash-at, crash-each, fail-at, meanwhile,
power-each, cost and talk.

A PATTERN is a shell pattern for a call as the tools show it: its kind (open write rename unlink
mkdir sync ...) and its paths below the current directory; flatq's long names are shown as the
message's number. Writes to standard output are calls too: `write <stdout>`."""
import collections
import errno
import fnmatch
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from crash.families import states
from crash.gate import gate
from crash.judge import trees

USAGE = """\
crash-at [-t] PATTERN COMMAND ...
    run it, and kill all of it just before the first call that matches; -t: half of that write is
    done
crash-each [-o PATTERN] -j JUDGE COMMAND ...
    for each call: on a copy of this directory, kill it just before; what it said; what JUDGE, a
    script, says then. Equal rows in a row are one; pipes within the command are left out
fail-at ERRNO PATTERN COMMAND ...
    the first call that matches fails with ERRNO, and from then on whatever else needs room
meanwhile PATTERN OTHER COMMAND ...
    stop it just before the first call that matches, run OTHER, a script, to its end, and let it go
    on
power-each [-n MOST] -j JUDGE COMMAND ...
    run it to its end, cut the power: what JUDGE says of each state that the disk may be left in;
    MOST of them, where there are more
cost COMMAND ...
    run it; how many calls changed anything, and how many bytes were written to files
talk half|close|reset TEXT HANDLER ...
    a client that sends TEXT and then ends its half, closes, or resets; HANDLER has the other end as
    its standard input and output, after that
"""
_SLIP = re.compile(r"(?<=/)\d{10}\.0*(\d+)\.[0-9a-z.-]+")
_BODY = re.compile(r"(?<=body/)0+(\d+)")


def show(call):
    return " ".join((call.kind, *(_BODY.sub(r"\1", _SLIP.sub(r"\1", path)) for path in call.paths)))


@dataclass(frozen=True)
class At(gate.Fault):
    """The first call that matches the pattern; without a pattern, the call with that number.
    `errno_from` also strikes all later calls that need room.

    Writes to a pipe within the command have no number: both its sides run at once, and the
    scheduler decides on the order of their calls."""

    pattern: str = "*"
    other: str = ""
    struck: list = field(default_factory=list, compare=False)
    passed: list = field(default_factory=list, compare=False)

    def strikes(self, call, before=0, begun=False):
        if not self.pattern:
            if show(call).startswith("write <fd"):
                return False
            self.passed.append(show(call))
            if len(self.passed) == self.point:
                self.struck.append(show(call))
            return len(self.passed) == self.point
        if self.struck:
            return self.kind == "errno_from" and call.kind in gate.SPACE and "<" not in call.paths[
                0]
        if not fnmatch.fnmatchcase(show(call), self.pattern):
            return False
        self.struck.append(show(call))
        if not self.other:
            return True
        print(f"-- it stops before: {show(call)}; meanwhile:", flush=True)
        subprocess.run(["sh", "-c", self.other], stdin=subprocess.DEVNULL, timeout=20, check=False)
        print("-- and goes on:", flush=True)
        return False


def words(command):
    return ["sh", "-c", command[0]] if len(command) == 1 and " " in command[0] else command


def run(command, at, fault=None, stdin=b""):
    environment = {**os.environ, "FLATQ_DIR": str(at / "spool"), "PWD": str(at)}
    return gate.run(words(command), at, env=environment, cwd=at, fault=fault, stdin=stdin)


def given():
    return b"" if sys.stdin.isatty() else sys.stdin.buffer.read()


def one(fault, command):
    result = run(command, Path.cwd(), fault, given())
    sys.stdout.buffer.write(result.stdout)
    sys.stdout.flush()
    if not fault.other:
        sys.stderr.buffer.write(result.stderr)
    if not fault.struck:
        print(f"no call matched '{fault.pattern}':", *(show(call) for call in result.calls),
            sep="\n  ")
        return 66
    if fault.kind in ("kill_tree", "torn") and not fault.other:
        print("-- killed {}: {}".format("in the middle of" if fault.kind == "torn" else "before",
            fault.struck[0]))
        return 137
    if fault.kind == "errno_from":
        print(f"-- {errno.errorcode[fault.errno or 0]} at: {fault.struck[0]}")
    return result.status


def text(said):
    return " ".join(said.decode(errors="replace").split()) or "-"


def judged(judge, at):
    done = subprocess.run(["sh", "-c", judge], cwd=at,
        env={**os.environ, "FLATQ_DIR": str(at / "spool")}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False)
    return text(done.stdout)


def booted(at):
    """The system starts after a power cut: flatq's first verb finds no mark of this boot, and looks
    at each file."""
    for mark in (at / "spool/.boot").glob("*"):
        mark.unlink()


def each(judge, only, command):
    stdin = given()
    rows = []
    with tempfile.TemporaryDirectory() as top:
        copy, point = Path(top) / "copy", 0
        while True:
            point += 1
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(Path.cwd(), copy)
            fault = At("kill_tree", point, pattern="")
            result = run(command, copy, fault, stdin)
            call = fault.struck[0] if fault.struck else "(not killed)"
            if not fault.struck or fnmatch.fnmatchcase(call, only):
                row = (call, text(result.stdout), judged(judge, copy))
                # one row for equal ones: mv tries a rename twice, and cat writes in pieces
                if rows[-1:] != [row]:
                    rows.append(row)
            if not fault.struck:
                break
    wide = [max(map(len, column)) for column in zip(*rows, ("killed before", "it said", ""))]
    print(f"    {'killed before':{wide[0]}}  {'it said':{wide[1]}}  then")
    for number, (call, said, then) in enumerate(rows, 1):
        print(f"{number:2}  {call:{wide[0]}}  {said:{wide[1]}}  {then}")
    return 0


def power(judge, most, command):
    stdin, found = given(), collections.Counter()
    with tempfile.TemporaryDirectory() as top:
        copy, state = Path(top) / "copy", Path(top) / "state"
        shutil.copytree(Path.cwd(), copy)
        history = states.History(copy)
        result = run(command, copy, stdin=stdin)
        history.add([replace(call) for call in result.calls])
        choices = history.choices(history.last, frozenset(), 100, 0)
        possible = (history.tree(history.last, outcomes) for outcomes in choices)
        different = list({tree.entries: tree for tree in possible}.values())
        shown = min(most, len(different))
        for tree in [different[number * (len(different) - 1) // max(1, shown - 1)]
                for number in range(shown)]:
            trees.put(tree, state)
            for path in state.iterdir():  # the states have no modes
                path.chmod(0o755)
            booted(state)
            found[judged(judge, state)] += 1
            shutil.rmtree(state)
    print(f"it said: {text(result.stdout)}; then the power goes. {sum(found.values())} states the "
        "disk may be in:")
    for then, count in sorted(found.items(), key=lambda pair: (-pair[1], pair[0])):
        print(f"{count:5}  {then}")
    return 0


def written(result):
    """Bytes that were written to files."""
    return sum(call.size for call in result.calls if call.kind == "write"
        and not call.paths[0].startswith("<"))


def cost(command):
    result = run(command, Path.cwd(), stdin=given())
    changes = sum(not call.paths[0].startswith("<") for call in result.calls)
    print(f"{changes} changes, {written(result)} bytes written")
    return result.status


def talk(how, said, handler):
    """A client and the handler of its connection, in a fixed order: the client does its part, and
    then the handler is started."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(
            listener.getsockname()) as client:
        near = listener.accept()[0]
        client.sendall(said.encode().decode("unicode_escape").encode())
        if how == "half":
            client.shutdown(socket.SHUT_WR)
        elif how == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how != "half":
            client.close()
        subprocess.run(words(handler), stdin=near, stdout=near, stderr=subprocess.DEVNULL,
            timeout=20, check=False)
        near.close()
        while how == "half" and (answer := client.recv(65536)):
            sys.stdout.buffer.write(answer)
    return 0


def main(name, args):
    if name == "talk" and len(args) > 2 and args[0] in ("half", "close", "reset"):
        return talk(args[0], args[1], args[2:])
    reason = gate.available()[1]
    if reason:
        print(f"{name}: {reason}", file=sys.stderr)
        return 77
    options = {}
    while args and re.fullmatch("-[tjon]", args[0]):
        option = args.pop(0)
        options[option] = "yes" if option == "-t" else args.pop(0)
    if name == "crash-at" and len(args) > 1:
        return one(At("torn" if "-t" in options else "kill_tree", 1, pattern=args[0]), args[1:])
    if name == "fail-at" and len(args) > 2 and hasattr(errno, args[0]):
        return one(At("errno_from", 1, errno=getattr(errno, args[0]), pattern=args[1]), args[2:])
    if name == "meanwhile" and len(args) > 2:
        return one(At("kill_tree", 1, pattern=args[0], other=args[1]), args[2:])
    if name == "crash-each" and args and "-j" in options:
        return each(options["-j"], options.get("-o", "*"), args)
    if name == "power-each" and args and "-j" in options:
        return power(options["-j"], int(options.get("-n", 1000)), args)
    if name == "cost" and args:
        return cost(args)
    print(USAGE, end="", file=sys.stderr)
    return 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
