"""The command `flatq` itself: its version, its help, and what it says to words that it does not
know."""

import os
import pty
import re
import shlex
import subprocess
import sys

import pytest

import headers
from conftest import LIB, ROOT
from engine import push, refused


def test_version(shell, flatq):
    """lib/flatq has the number; the man page, make and Python's package take it from there."""
    import flatq as package

    version = re.search(r"^flatq_version=([0-9]+\.[0-9]+\.[0-9]+)$", (LIB / "flatq").read_text(),
        re.M)[1]
    assert flatq("flatq", "--version", check=0).out.decode() == f"flatq {version}\n"
    assert package.__version__ == version
    assert re.search(r"^## (\S+)$", (ROOT / "python/CHANGELOG.md").read_text(), re.M)[1] == version
    assert subprocess.run(["make", "-s", "-C", ROOT], capture_output=True,
        text=True).stdout.startswith(f"flatq {version}\n")


def test_help_by_every_name(shell, flatq):
    usual = flatq("flatq", "-h", check=0)
    assert usual.out.startswith(b"flatq [OPTION") and b"\n  push " in usual.out
    assert flatq("flatq", "--help") == usual
    for verb in ("pop", "stat", "work", "mqueue"):
        usual = flatq("flatq", verb, "-h", check=0)
        for words in ([verb, "--help"], ["-H", "localhost:1", verb, "--help"]):
            assert words[0] == "-H" and verb != "pop" or flatq("flatq", *words) == usual, words
    refused(flatq("flatq", "help", "nothing"), 64, "flatq",
        text=b"no verb 'nothing': see flatq -h\n")


def test_alone_it_lists_the_verbs(flatq):
    """In groups, each in a line of 80 columns."""
    done = flatq("flatq")
    lines = done.err.decode().splitlines()
    assert (done.status, done.out) == (64, b"") and max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line.startswith("  ")] == headers.verbs()
    assert sum(line.endswith(":") for line in lines) == 6
    text = flatq("flatq", "-h", check=0).out
    assert text.endswith(b"\n\n" + done.err) and max(map(len, text.splitlines())) <= 80


# what is wrong with the words, and what is said of it
CULPRITS = {
    "push --dealy 5 q": "unknown option '--dealy'; did you mean --delay?",
    "push --line q": "unknown option '--line'; did you mean --lines?",
    "push --nonsense q": "unknown option '--nonsense': see flatq push -h",
    "push -y q": "unknown option '-y': see flatq push -h",
    "push -ly q": "unknown option '-y': see flatq push -h",
    "push -d": "-d needs a value: see flatq push -h",
    "push --delay": "--delay needs a value: see flatq push -h",
    "push --lines=1 q": "--lines takes no value: see flatq push -h",
    "push --lines -p 1 --priority x q": "--priority takes a number from 0 to 4294967295",
    "push -p x q": "-p takes a number from 0 to 4294967295",
    "push q text": "one queue at most; a TEXT is given as QUEUE -- TEXT",
    "push -l q -- text": "a TEXT goes with none of -n, -e, -l and -0",
    "push --key= q": "--key takes a key of at least one byte",
    "log --since no-time": "--since takes a time as date -d does",
    "claim q": "-c NAME is missing: see flatq claim -h",
    "settle 5 q": "-c NAME is missing: see flatq settle -h",
    "work jobs -- cat": "a queue is named by -q: see flatq work -h",
    "door --queues ' '": "--queues takes names with commas between them",
    "serve --prot 1": "unknown option '--prot'; did you mean --port?",
    "mqueue in --onec /a": "unknown option '--onec'; did you mean --once?",
    "mqueue": "in, out, create, stat or drop comes first: see flatq mqueue -h",
    "shovel a a": "FROM and TO are the same",
    "--hots x": "unknown option '--hots'; did you mean --host?",
    "-H localhost": "no verb: see flatq -h",
}


@pytest.mark.shells
def test_an_error_names_the_culprit(flatq):
    flatq.env["FLATQ_PYTHON"] = sys.executable
    for words, said in CULPRITS.items():
        verb = "flatq" if words[0] == "-" else f"flatq {words.split()[0]}"
        done = flatq("flatq", *shlex.split(words), input=b"x\n")
        assert done.err.decode() == f"{verb}: {said}\n" and done.status in (64, 65), words


@pytest.mark.shells
def test_text_on_the_command_line(flatq):
    """Its bytes as they are; more than a pipe holds; none. Options end at the first `--`."""
    for words in (["a  b", "c"], ["h\xe9llo '\"$x `y` \\\n"], ["x" * 100_000], [""], ["--", "-d"]):
        push(flatq, b"not this", "-p", "1", "q", "--", *words)
        assert flatq("pop", "q").out == " ".join(words).encode()
    push(flatq, b"stdin", "--", "q")
    assert flatq("pop", "q").out == b"stdin"
    assert flatq("handler", input=b"push q -- text\n").out.startswith(b"error 64 ")


def test_a_push_says_what_it_waits_for(flatq):
    """On a terminal, once; else nothing, nor with a TEXT."""
    far, near = pty.openpty()
    for words, said in (([], b"flatq push: the message is what you type, up to ^D\n"),
            (["--", "text"], b"")):
        process = flatq.start("flatq", "push", "q", *words, stdin=near)
        os.write(far, b"typed\n\4" if said else b"")
        assert (process.stderr.read(), process.wait(60)) == (said, 0)
    assert [flatq("pop", "q").out for _ in range(2)] == [b"typed\n", b"text"]
    os.close(near)
    os.close(far)


NEAR = {"puhs": "push", "psh": "push", "pussh": "push", "pash": "push", "upsh": "push",
    "pus": "push", "push-": "push", "xpush": "push", "pip": "pop",
        "Stat": "stat", "wrok": "work", "dorp": "drop", "lists": "list", "shovle": "shovel",
        "ettle": "settle"}
FAR = ["", "x", "p", "pu", "hsup", "pusshh", "*", "????", "pu*", "[p]ush", "-", "listss",
    "delete messages"]


def test_a_near_miss_is_named(shell, flatq):
    for word, verb in NEAR.items():
        refused(flatq("flatq", word), 64, "flatq",
            text=f"no verb '{word}'; did you mean {verb}?\n".encode())
    for word in FAR:
        refused(flatq("flatq", word), 64, "flatq", text=b"" if word.startswith("-")
            else b"': see flatq -h\n")


def test_the_usage_line_names_the_command_that_is_there(shell, flatq):
    """`make install` makes a command of flatq alone; who runs lib/pop has that."""
    for verb, *words in (["pop", "-y"], ["stat", "-y"], ["log", "-y"], ["work", "-y"], ["work"],
            ["mqueue"], ["shovel"]):
        refused(flatq("flatq", verb, *words), 64, f"flatq {verb}",
            text=f": see flatq {verb} -h\n".encode())
        refused(flatq(verb, *words), 64, verb, text=f": see {verb} -h\n".encode())
    refused(flatq("flatq", "-y"), 64, "flatq", text=b": see flatq -h\n")
    said = flatq("handler", input=b"pop -y\n").out
    assert said == b"error 64 unknown option '-y': see flatq pop -h\n"


def test_the_queue_of_the_environment_at_a_door_and_in_a_worker(flatq):
    """To a verb in its command, `work` says which queue the message is from."""
    flatq.env["FLATQ_QUEUE"] = "mine"
    push(flatq, b"1")
    assert flatq("handler", input=b"pop\n", check=0).out == b"1"
    push(flatq, b"2")
    assert flatq("work", "-w", "0", "--", flatq.shell, LIB / "push", "-d", "1000", check=0).out
    assert flatq("list", check=0).out == b"mine\n"
    assert flatq("list", "mine", check=0).out.split()[1] == b"delayed"
