"""Other programs than GNU's, and none: a verb keeps the whole promise, or ends with one line that says what to install, before it gives an id."""

import itertools
import os
import shutil
import subprocess

import pytest

from conftest import Result, need, runs_stubs, share
from engine import flats_of, refused
from test_rules import drained, faulty, fill, stub

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


# read errors that an awk does not notice: what it has not read, or read in part, is compared with what the slips say

AWKS = {"gawk": "gawk", "mawk": "mawk", "busybox": "busybox", "onetrue-awk": "original-awk"}


@pytest.fixture
def awk(request, flatq):
    """flatq with that awk, of which a system call fails where `faulty` says so."""
    need(AWKS[request.param])
    place = flatq.home / "awk"
    place.mkdir()
    for name in ("awk", "mawk"):
        (place / name).write_text(f"#!/bin/sh\nexec {shutil.which(AWKS[request.param])}{' awk' * (request.param == 'busybox')} \"$@\"\n")
        (place / name).chmod(0o755)
    flatq.env["PATH"] = f"{place}:{flatq.env['PATH']}"
    return flatq


# no newline within the first 4096 bytes, and a whole number of fours
LONG = b"x" * 20000


@pytest.mark.parametrize("awk, when", share("awk body", itertools.product(AWKS, ("1", "2", "3+")), 3), indirect=["awk"])
def test_a_body_that_awk_cannot_read(awk, when):
    for _ in range(6):
        awk("push", "q", input=LONG, check=0)
    body = sorted((awk.spool / "q/body").iterdir())[3]
    faulty(awk, "read", body, "wal", "q", env={"FLATQ_FOLD": "5"}, when=when)
    for words in ["drain", "q"], ["pop", "-l", "-n", "9", "q"]:
        done = faulty(awk, "read", body, *words, when=when)
        assert done.returncode == 74 or done.stdout == (LONG + b"\n") * 6, (words, done.returncode, len(done.stdout))
        if not done.returncode:
            break
    else:
        assert awk("drain", "q", check=0).out == (LONG + b"\n") * 6


@pytest.mark.parametrize("awk, verb, when", share("awk flat", itertools.product(AWKS, ("pop", "drain", "doctor"), ("1", "2", "3+")), 6), indirect=["awk"])
def test_a_flat_file_that_awk_cannot_read(awk, verb, when):
    texts = [b"%d " % n + b"x" * 150 for n in range(120)]
    awk("push", "-l", "q", input=b"".join(text + b"\n" for text in texts), check=0)
    flat, = flats_of(awk.spool, "q", "queue")
    done = faulty(awk, "read", flat, verb, "q", when=when)
    assert done.returncode in (0, 74), done
    got = done.stdout if verb != "doctor" else b""
    got += b"\n" if verb == "pop" and got else b""
    assert (got + awk("drain", "q").out).split(b"\n")[:-1] == texts, done
    assert not list((awk.spool / "q/tmp").iterdir())


def test_a_listing_with_fewer_columns_buries_nothing(flatq):
    """toybox has no time of its own column: every body looked as if it was not there."""
    fill(flatq, 3)
    env = stub(flatq, "ls", 'case $* in *-ln*) "$real" "$@" | cut -d " " -f 1-7,9- ;; *) exec "$real" "$@" ;; esac')
    done = flatq("doctor", "q", env=env)
    assert (done.status, done.out) == (74, b""), done
    assert drained(flatq) == [1, 2, 3]


def test_an_unfold_that_wrote_less_than_it_read(flatq):
    """An awk that does not notice a full disk, in the middle."""
    flatq("push", "-l", "q", input=b"".join(b"%d\n" % n for n in range(120)), check=0)
    script = '"$real" "$@"; code=$?; [ -z "${FLATQ_STAGE:-}" ] || for f in "$FLATQ_BODY"/*7; do printf M >"$f"; break; done; exit $code'
    assert flatq("pop", "q", env=stub(flatq, "awk", script)).status == 74
    assert drained(flatq) == list(range(120))


# a program that does all but one thing that is relied on: it is named before an id is given

DECODES = 'case $1 in -d | --version) exec "$real" "$@" ;; esac\n'
ENCODES = 'case $1 in -d) ;; *) exec "$real" "$@" ;; esac\n'
FILE = '[ $# -ne 2 ] || exec "$real" "$@"\n'  # base64 -d FILE
BUSYBOX = 'case $1 in --version) echo "BusyBox v1.38.0" >&2; exit 1 ;; esac\nexec "$real" "$@"'
BROKEN = {
    ("base64", "cannot write one long line"): 'case $1 in -w0 | --) exec "$real" -w 76 ;; esac\nexec "$real" "$@"',
    ("base64", "hides a read error"): DECODES + 'cat 2>/dev/null | "$real" "$@"',
    ("base64", "hides a write error"): DECODES + '"$real" "$@" >"$HOME/out" || exit\ncat "$HOME/out" 2>/dev/null; exit 0',
    ("base64", "hides a write error but the last"): BUSYBOX,
    ("base64", "hides a read error when it decodes"): ENCODES + '[ $# -eq 2 ] || exec "$real" "$@"\ncat "$2" 2>/dev/null | "$real" -d',
    ("base64", "hides a write error when it decodes"): ENCODES + FILE + '"$real" "$@" >"$HOME/out" || exit\ncat "$HOME/out" 2>/dev/null; exit 0',
    ("base64", "decodes damaged text"): ENCODES + FILE + '"$real" "$@" 2>"$HOME/said"; code=$?\n! grep -q invalid "$HOME/said" || exit 0\nexit $code',
    ("base64", "decodes no more than the first of several pieces"): ENCODES + FILE + 'read -r line; printf "%s" "$line" | "$real" -d',
    ("mv", "copies when a rename fails"): '"$real" "$@" 2>/dev/null && exit\nwhile [ $# -gt 2 ]; do shift; done; cp -R "$1" "$2"',
    ("sync", "cannot sync a directory"): '[ ! -d "$1" ] || exit 1\nexec "$real" "$@"',
    ("sync", "hides that a file could not be synced"): '"$real" "$@" 2>/dev/null; exit 0',
    ("sync", "cannot sync one file system"): 'case $1 in -f) exit 1 ;; esac\nexec "$real" "$@"',
    ("sync", "hides that a file system could not be synced"): BUSYBOX,
    ("ls", "does not show nine columns"): 'case $* in *-*ln*) "$real" "$@" | cut -d " " -f 1-7,9- ;; *) exec "$real" "$@" ;; esac',
    ("find", "hides a failed look"): '"$real" "$@"; exit 0',
    ("flock", "does not lock"): "exit 0",
    ("dd", "reads more than it is asked to"): '"$real" "$@"; code=$?; cat >/dev/null; exit $code',
    ("head", "hides a write error"): '"$real" "$@" 2>/dev/null; exit 0',
    ("sed", "changes NUL bytes"): 'tr "\\000" "\\n" | "$real" "$@"',
    ("awk", "does not know what flatq uses"): "exit 0",
}


def broken(flatq, tool, script):
    """flatq with that script in place of the tool, and without the programs that a shell may have of its own."""
    place = flatq.home / "broken"
    place.mkdir(exist_ok=True)
    (place / tool).write_text(f"#!/bin/sh\nreal={shutil.which(tool)}\n{script}\n")
    (place / tool).chmod(0o755)
    return {"PATH": f"{place}:{flatq.env['PATH']}", "FLATQ_SYNC": "on"}


@pytest.mark.parametrize("tool, symptom", BROKEN, ids=str)
def test_a_tool_that_does_less_is_refused(flatq, tool, symptom):
    env = broken(flatq, tool, BROKEN[tool, symptom])
    flatq("push", "q", input=b"1", check=0)
    (flatq.spool / ".boot" / boot(flatq)).unlink()
    for words in ["push", "q"], ["pop", "q"]:
        done = refused(flatq(*words, input=b"2", env=env), 70, words[0], text=f" {symptom}: install GNU's (apk add ".encode())
        assert f"{tool} ({flatq.home}/broken/{tool})".encode() in done.err
    assert not list((flatq.spool).glob(".try.moved"))
    assert drained(flatq) == [1]


def boot(flatq):
    """The one file in .boot/."""
    path, = (flatq.spool / ".boot").iterdir()
    return path.name


def test_each_thing_that_is_tried_has_a_broken_tool(flatq):
    """And doctor -v shows it."""
    said = flatq("doctor", "-v", env={"FLATQ_SYNC": "on"}, check=0).out.decode().splitlines()
    assert said == [f"{tool}: no sign that it {symptom}" for tool, symptom in BROKEN]


@pytest.mark.shells
def test_a_tool_that_changes_is_tried_again(shell, flatq):
    flatq("push", "q", input=b"1", check=0)
    mark = flatq.spool / ".boot" / boot(flatq)
    first = mark.stat()
    # the usual case: no process, nothing written
    flatq("push", "q", input=b"2", check=0)
    assert mark.stat().st_ino == first.st_ino
    # another one comes before it in PATH
    env = {**broken(flatq, "mv", 'exec "$real" "$@"'), "FLATQ_SYNC": "off"}
    if not runs_stubs(os.path.realpath(shell), "mv"):
        pytest.skip("this shell runs a mv of its own, whatever PATH says")
    flatq("push", "q", input=b"3", env=env, check=0)
    assert mark.stat().st_ino != first.st_ino
    # the one that was tried is another
    path = flatq.home / "broken/mv"
    path.write_text(path.read_text().replace('exec "$real" "$@"', BROKEN["mv", "copies when a rename fails"]))
    os.utime(path, (path.stat().st_mtime + 100,) * 2)
    refused(flatq("push", "q", input=b"4", env=env), 70, "push", text=b"mv ")
    assert drained(flatq) == [1, 2, 3]


def test_another_shell_tries_the_tools_again(flatq):
    """Another container may use the spool, with the same boot and the same PATH."""
    flatq("push", "q", input=b"1", check=0)
    mark = flatq.spool / ".boot" / boot(flatq)
    first = mark.stat()
    assert first.st_mtime_ns == os.stat(os.path.realpath(flatq.shell)).st_mtime_ns
    flatq.shell = need("bash")
    flatq("push", "q", input=b"2", check=0)
    assert mark.stat().st_ino != first.st_ino and mark.stat().st_mtime_ns == os.stat(os.path.realpath(flatq.shell)).st_mtime_ns
    assert drained(flatq) == [1, 2]
