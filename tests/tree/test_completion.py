"""Completion in bash, zsh and fish, with what `make install` gives to them."""

import os
import pty
import re
import subprocess

import pytest

from conftest import ROOT, need
from engine import on_terminal, push, reserve

# What stands in front of the cursor, and what the last word can become
LINES = {
    "flatq pu": ["push"], "flatq sh": ["shovel"], "flatq nothing": [], "flatq nothing ": [],
    "flatq --v": ["--version"], "flatq help wa": ["wait", "wal"],
    "flatq -H host:1 po": ["pop"], "flatq -H ": [], "flatq -H host:1 pop j": [],
    "flatq pop ": ["a$b;(c)", "jobs", "jolt"], "flatq pop -w 5 jo": ["jobs", "jolt"],
    "flatq pop -w ": [], "flatq stat jobs jol": ["jolt"],
    "flatq pop -": ["--base64", "--count", "--lines", "--null", "--wait", "-0", "-6", "-l", "-n",
        "-w"], "flatq work --m": ["--max-tries"], "flatq pop --wait ": [],
    "flatq work -q job": ["jobs"], "flatq work --queues job": ["jobs"],
    "flatq peek --state re": ["ready", "reserved"], "flatq ser": ["serve"],
    "flatq serve --ke": ["--keep-open"], "flatq --host h:1 drai": ["drain"],
    "flatq work -q jobs -- tru": [],
    "flatq peek -s re": ["ready", "reserved"], "flatq delete jol": ["jolt:"],
    "flatq delete jolt:": ["jolt:4"], "flatq peek jolt:": ["jolt:2", "jolt:4"],
    "flatq mqueue c": ["create"], "flatq mqueue in ": [], "flatq shovel --once jol": ["jolt"],
}

ASK = {
    "bash": """. "$0/share/bash-completion/completions/flatq"; COMP_WORDBREAKS=' '
        for COMP_LINE do
            COMP_POINT=${#COMP_LINE}; _flatq
            echo "? $COMP_LINE"; eval "printf '%s\\n' ${COMPREPLY[*]}"
        done""",
    "zsh": """fpath=("$0/share/zsh/site-functions"); autoload -Uz _flatq; IPREFIX=
        compadd() { print -l -- "${(P@)@[-1]}" }
        for line; do
            words=("${(@s: :)line}"); CURRENT=$#words PREFIX=$words[-1]
            print -r "? $line"; _flatq
        done""",
    "fish": """for line in $argv; echo "? $line"; complete -C $line; end""",
}


@pytest.fixture
def installed(tmp_path, flatq):
    """The place of `make install`, whose flatq comes first in PATH, and a spool with three
    queues."""
    place = tmp_path / "in stalled"
    subprocess.run([need("make"), "-s", "-C", ROOT, "install", f"PREFIX={place}"], check=True,
        capture_output=True)
    flatq.env.update(PATH=f"{place}/bin:{os.environ['PATH']}",
        XDG_DATA_DIRS=f"{place}/share:/usr/share")
    for queue in ("jobs", "jolt", "a$b;(c)"):
        push(flatq, b"x", queue)
    reserve(flatq, "jolt")
    push(flatq, b"x", "jolt")
    return place


@pytest.mark.parametrize("shell_name", ASK)
def test_each_shell_completes(installed, flatq, shell_name):
    words = [need(shell_name), "-c", ASK[shell_name],
        *([] if shell_name == "fish" else [installed]), *LINES]
    done = subprocess.run(words, env=flatq.env, cwd=flatq.home, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=100)
    said = {line: sorted(row.partition("\t")[0] for row in rest.splitlines() if row)
        for line, rest in re.findall(r"(?ms)^\? (.*?)$(.*?)(?=^\? |\Z)", done.stdout)}
    assert said == LINES, done.stderr


TAB = {"bash --norc": ". {}/share/bash-completion/completions/flatq",
    "zsh -f": "fpath=({}/share/zsh/site-functions $fpath)\nautoload -Uz compinit; compinit -u -D"}


@pytest.mark.parametrize("words", TAB)
def test_tab(installed, flatq, words):
    """In a terminal, TAB writes the rest of the word. bash takes the colon for the end of a
    word."""
    program, option = words.split()
    far, near = pty.openpty()
    process = subprocess.Popen([need(program), option, "-i"], cwd=flatq.home, stdin=near,
        env={**flatq.env, "PS1": "> ", "TERM": "dumb"}, stdout=near, stderr=near,
        start_new_session=True)
    flatq.started.append(process)
    os.close(near)
    begin = TAB[words].format(str(installed).replace(" ", "\\ "))
    for line, answer in ((f"{begin}; echo rea''dy\n", b"ready\r\n"),
            ("flatq delete jol\t", b"jolt:"), ("\t", b"4"), ("\n", b"\n"),
            ("flatq list jolt; echo en''d\n", b"end\r\n")):
        os.write(far, line.encode())
        assert answer in on_terminal(far, answer)
    assert flatq("list", "jolt").out.split()[1] == b"reserved"
    os.close(far)


def test_completion_creates_nothing(flatq, tmp_path, installed):
    for words in (["pop", ""], ["delete", "q:"], ["work", "-q", ""]):
        done = subprocess.run([installed / "bin/flatq", "--complete", *words],
            env={**flatq.env, "FLATQ_DIR": str(tmp_path / "none")}, capture_output=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert not (tmp_path / "none").exists()
