"""Other programs than GNU's, and none: a verb keeps the whole promise, or ends with one line that says what to install, before it gives an id."""

import os
import subprocess

import pytest

from conftest import need
from engine import refused
from conftest import Result

LINES = b"a\n\xff\0b\n\n"


def closed(flatq, script, *words, **more):
    """A verb, run by a shell that has closed a descriptor."""
    done = subprocess.run(["dash", "-c", script, "-", *flatq.command(*words)], env=flatq.environment(None), cwd=flatq.home,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100, **more)
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("options", [[], ["-n", "0"], ["-e"], ["-l"], ["-0"]], ids=" ".join)
def test_a_closed_input_is_no_empty_message(shell, flatq, options):
    refused(closed(flatq, 'exec "$@" <&-', "push", *options, "q"), 74, "push", text=b"standard input is closed")
    assert flatq("pop", "q").status == 66


@pytest.mark.parametrize("verb", ["push q", "pop q", "reserve q", "drain q", "peek q", "claim -c me q"])
def test_a_closed_output_takes_nothing(shell, flatq, verb):
    flatq("push", "q", input=b"1", check=0)
    refused(closed(flatq, 'exec "$@" >&-', *verb.split(), stdin=subprocess.DEVNULL), 74, verb.split()[0], text=b"standard output is closed")
    assert flatq("drain", "q", check=0).out == b"1\n"


def test_a_perl_without_its_modules(flatq, tmp_path):
    """Debian's perl-base."""
    need("perl")
    (tmp_path / "MIME").mkdir()
    (tmp_path / "MIME/Base64.pm").write_text("0;\n")
    for hidden in (), ("python3",):
        env = {"PERL5LIB": str(tmp_path), "PATH": without(tmp_path / "-".join(("tools", *hidden)), flatq.env["PATH"], hidden)}
        assert flatq("push", "-l", "q", input=LINES, env=env, check=0).out.split()[1:]
        assert [flatq("pop", "q", check=0).out for _ in range(3)] == LINES.split(b"\n")[:3]


def without(place, path, hidden):
    """A PATH of one directory: links to all programs in `path` but those hidden."""
    place.mkdir()
    for directory in path.split(":"):
        for program in os.listdir(directory) if os.path.isdir(directory) else ():
            if program not in hidden and not (place / program).is_symlink():
                (place / program).symlink_to(os.path.join(directory, program))
    return str(place)


def test_where_a_boot_cannot_be_told_nothing_is_acknowledged(shell, flatq, tmp_path):
    """After a power cut nobody would look for slips whose bodies did not reach the disk."""
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "uptime").symlink_to("/proc/uptime")
    for words in ["push", "q"], ["push", "-l", "q"], ["pop", "q"]:
        env = {"FLATQ_SYNC": "on", "FLATQ_PROC": str(proc)}
        refused(flatq(*words, input=b"x", env=env), 70, words[0], text=b"mount /proc, or set FLATQ_SYNC=off")
    flatq("push", "q", input=b"x", env={**env, "FLATQ_SYNC": "off"}, check=0)
