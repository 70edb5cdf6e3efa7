"""The command `flatq` itself: its version, its help, and what it says to words that it does not
know."""

import re
import subprocess

from conftest import LIB, ROOT
from engine import empty, pop, push, refused, reserve


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
    assert usual.out.startswith(b"flatq [-H") and b"\n  push " in usual.out
    for words in (["--help"], ["help"]):
        assert flatq("flatq", *words) == usual
    for verb in ("pop", "stat", "work", "mqueue"):
        usual = flatq("flatq", verb, "-h", check=0)
        for words in ([verb, "--help"], ["help", verb],
                ["-H", "localhost:1", verb, "--help"] if verb == "pop" else ["help", verb, "-x"]):
            assert flatq("flatq", *words) == usual, words
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
        refused(flatq("flatq", verb, *words), 64, verb, text=f": see flatq {verb} -h\n".encode())
        refused(flatq(verb, *words), 64, verb, text=f": see {verb} -h\n".encode())
    refused(flatq("flatq", "-y"), 64, "flatq", text=b": see flatq -h\n")
    assert flatq("handler", input=b"pop -y\n").out == b"error 64 usage: see flatq pop -h\n"


def test_options_behind_the_queue_are_named(shell, flatq):
    push(flatq, b"x", "q")
    receipt = reserve(flatq, "q").receipt
    push(flatq, b"y", "q")
    for verb, *words in (["push", "-p", "1"], ["pop", "-w", "1"], ["reserve", "-t", "1"],
            ["peek", "-s", "buried"], ["kick", "-n", "1"], ["create", "-g"], ["close", "-h"],
                         ["drain", "-0"], ["drop", "-f"], ["stat", "-h"], ["list", "--plain"],
                         ["wal", "-x"], ["doctor", "-v"], ["claim", "-c", "me"],
                         ["unclaim", "-c", "me"], ["shovel", "-n", "1"],
                         ["shovel", "q", "-w", "1"]):
        refused(flatq("flatq", verb, "q", *words, input=b"x"), 64, verb,
            text=b": options come before the queue\n")
    for verb, *words in (["delete", "-h"], ["release", "-d", "5"], ["touch", "-t", "5"],
            ["bury", "-r", "why"]):
        refused(flatq(verb, receipt, *words), 64, verb, text=b": options come before the receipt\n")
    refused(flatq("pressure", "get", "q", "-w", "0"), 64, "pressure",
        text=b"options come before the queue")
    refused(flatq("mqueue", "in", "/n", "q", "--once"), 64, "mqueue",
        text=b"options come before the queue")
    assert pop(flatq, "q") == b"y"
    flatq("delete", receipt, check=0)
    empty(flatq, "q")


def test_the_queue_of_the_environment(shell, flatq):
    flatq.env["FLATQ_QUEUE"] = "mine"
    push(flatq, b"1")
    flatq("push", "-l", input=b"2\n3\n", check=0)
    assert flatq("list", check=0).out == b"mine\n" and flatq("peek", check=0).out == b"1"
    assert pop(flatq, "mine") == b"1" and pop(flatq, "-l") == b"2\n"
    flatq("bury", reserve(flatq).receipt, check=0)
    assert flatq("kick", check=0).out == b"1\n" and flatq("claim", "-c", "me", "-n", "1",
        check=0).out.startswith(b"0 1 ")
    flatq("unclaim", "-c", "me", check=0)
    flatq("claim", "-c", "me", check=0)
    flatq("settle", "-c", "me", "2", check=0)
    push(flatq, b"4")
    assert flatq("drain", check=0).out == b"4\n"
    push(flatq, b"5")
    assert flatq("handler", input=b"pop\n").out == b"5"
    push(flatq, b"6")
    # to a verb in its command, `work` says which queue that is
    assert flatq("work", "-w", "0", "--", flatq.shell, LIB / "push", "-d", "1000", check=0).out
    assert flatq("create", check=0) and flatq("close", check=0) and flatq("push").status == 69
    assert flatq("list", check=0).out == b"mine\n" and flatq("list", "mine",
        check=0).out.split()[1] == b"delayed"
    assert push(flatq, b"7", "other") and pop(flatq, "other") == b"7"
    for verb, *words in (["push"], ["pop"], ["drain"], ["work", "-w", "0", "true"]):
        refused(flatq(verb, *words, env={"FLATQ_QUEUE": "a,b"}), 65, verb, text=b"bad queue name")
    assert flatq("pop", env={"FLATQ_QUEUE": ""}).status == 66
