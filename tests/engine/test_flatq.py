"""The command `flatq` itself: its version, its help, and what it says to words that it does not
know."""

import re
import subprocess

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
    assert flatq("handler", input=b"pop -y\n").out == b"error 64 unknown option '-y': see flatq pop -h\n"


def test_the_queue_of_the_environment_at_a_door_and_in_a_worker(flatq):
    """To a verb in its command, `work` says which queue the message is from."""
    flatq.env["FLATQ_QUEUE"] = "mine"
    push(flatq, b"1")
    assert flatq("handler", input=b"pop\n", check=0).out == b"1"
    push(flatq, b"2")
    assert flatq("work", "-w", "0", "--", flatq.shell, LIB / "push", "-d", "1000", check=0).out
    assert flatq("list", check=0).out == b"mine\n"
    assert flatq("list", "mine", check=0).out.split()[1] == b"delayed"
