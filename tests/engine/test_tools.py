"""Other programs than GNU's, or none: a verb keeps the whole promise, or ends with one line that
says what to install."""

import itertools
import os
import re
import shutil
import subprocess

import pytest

import machine
import newest
import userlands
from conftest import LIB, SHELLS, Result, need, share
from engine import flats_of, refused
from test_rules import boots_again, drained, faulty, stub
from test_talks import talks

LINES = b"a\n\xff\0b\n\n"


def closed(flatq, script, *words, **more):
    """Run a verb in a shell that has closed a descriptor."""
    done = subprocess.run([need("dash"), "-c", script, "-", *flatq.command(*words)],
        env=flatq.environment(None), cwd=flatq.home,
                          capture_output=True, timeout=100, **more)
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("options", [[], ["-n", "0"], ["-e"], ["-l"], ["-0"]], ids=" ".join)
def test_a_closed_input_is_no_empty_message(shell, flatq, options):
    refused(closed(flatq, 'exec "$@" <&-', "push", *options, "q"), 74, "push",
        text=b"descriptor 0, of standard input or output, is closed")
    assert flatq("pop", "q").status == 66


@pytest.mark.parametrize("output, words", [
    *((">&-", words) for words in ("push q", "pop q", "reserve q", "drain q", "peek q",
    "claim -c me q")),
    *((">/dev/full", words) for words in ("reserve q", "drain q", "list", "list q", "stat q",
    "log q", "doctor q", "doctor -v q", "flatq -h", "flatq kick -h", "handler -h", "./launch -h",
    "push q", "push -k key q", "push -l q")),
])
def test_an_output_that_is_closed_or_full(shell, flatq, output, words):
    """Nothing is taken. What is stored, or set aside, stays so."""
    flatq("push", "q", input=b"1", check=0)
    (flatq.spool / "q/wal/strange").touch()
    verb, full = words.split()[0], output == ">/dev/full"
    done = closed(flatq, f'exec "$@" {output}', *words.split(), input=b"1\n")
    said = (b"descriptor 1, of standard input or output, is closed" if not full
        else b"push: message" if verb == "push" else b"" if verb in ("reserve", "drain")
        else b"could not be printed")
    refused(done, 74, text=said)
    aside = full and words in ("doctor q", "drain q")
    assert (flatq.spool / "q/wal/strange").exists() != aside
    assert drained(flatq) == [1] * (1 + (full and verb == "push"))


def test_a_perl_without_its_modules(flatq, tmp_path):
    """As Debian's perl-base is."""
    need("perl")
    (tmp_path / "MIME").mkdir()
    (tmp_path / "MIME/Base64.pm").write_text("0;\n")
    for hidden in (), ("python3",):
        env = {"PERL5LIB": str(tmp_path), "PATH": userlands.without(
            tmp_path / "-".join(("tools", *hidden)), *hidden, path=flatq.env["PATH"])}
        assert flatq("push", "-l", "q", input=LINES, env=env, check=0).out.split()[1:]
        assert [flatq("pop", "q", check=0).out for _ in range(3)] == LINES.split(b"\n")[:3]


# some awks do not notice a failed read, so a verb compares the length of what awk read with what
# the slips say

AWKS = {"gawk": "gawk", "mawk": "mawk", "busybox": "busybox", "onetrue-awk": "original-awk"}


@pytest.fixture
def awk(request, flatq):
    """flatq with that awk; `faulty` says which of its system calls fails."""
    with_awk(AWKS[request.param])(flatq)
    return flatq


# the base64 has no newline within the first 4096 bytes


@pytest.mark.whole
@pytest.mark.parametrize("awk, verb, when", share("awk flat", itertools.product(AWKS,
    ("pop", "drain", "doctor"), ("1", "2", "3+")), 2), indirect=["awk"])
def test_a_flat_file_that_awk_cannot_read(awk, verb, when):
    texts = [b"%d " % n + b"x" * 150 for n in range(120)]
    awk("push", "-l", "q", input=b"".join(text + b"\n" for text in texts), check=0)
    flat, = flats_of(awk.spool, "q", "queue")
    done = faulty(awk, "read", flat, verb, "q", when=when)
    assert done.returncode in (0, 74), done
    got = done.stdout if verb != "doctor" else b""
    got += b"\n" if verb == "pop" and got else b""
    # doctor sets aside what it cannot read, whole
    for aside in (awk.spool / "q/tmp").glob("strange.*"):
        assert b"120 messages from" in done.stdout
        aside.rename(flat)
    assert (got + awk("drain", "q").out).split(b"\n")[:-1] == texts, done
    assert not list((awk.spool / "q/tmp").iterdir())


def test_an_unfold_that_wrote_less_than_it_read(flatq):
    """This awk does not notice that the disk is full in the middle of its output."""
    flatq("push", "-l", "q", input=b"".join(b"%d\n" % n for n in range(120)), check=0)
    script = ('"$real" "$@"; code=$?; [ -z "${FLATQ_STAGE:-}" ] || for f in "$FLATQ_BODY"/*7; do '
        'printf M >"$f"; break; done; exit $code')
    assert flatq("pop", "q", env=stub(flatq, "awk", script)).status == 74
    assert drained(flatq) == list(range(120))


# each tool lacks one thing that flatq relies on: a verb names the tool before it gives an id

DECODES = 'case $1 in -d | --version) exec "$real" "$@" ;; esac\n'
ENCODES = 'case $1 in -d) ;; *) exec "$real" "$@" ;; esac\n'
FILE = '[ $# -ne 2 ] || exec "$real" "$@"\n'  # base64 -d FILE
BUSYBOX = 'case $1 in --version) echo "BusyBox v1.38.0" >&2; exit 1 ;; esac\nexec "$real" "$@"'
BROKEN = {
    ("base64",
    "cannot write one long line"): 'case $1 in -w0 | --) exec "$real" -w 76 ;; esac\nexec "$real" '
    '"$@"',
    ("base64", "hides a read error"): DECODES + 'cat 2>/dev/null | "$real" "$@"',
    ("base64", "hides a write error"): DECODES
    + '"$real" "$@" >"$HOME/out" || exit\ncat "$HOME/out" 2>/dev/null; exit 0',
    ("base64", "hides a write error but the last"): BUSYBOX,
    ("base64", "hides a read error when it decodes"): ENCODES
    + '[ $# -eq 2 ] || exec "$real" "$@"\ncat "$2" 2>/dev/null | "$real" -d',
    ("base64", "hides a write error when it decodes"): ENCODES + FILE
    + '"$real" "$@" >"$HOME/out" || exit\ncat "$HOME/out" 2>/dev/null; exit 0',
    ("base64", "decodes damaged text"): ENCODES + FILE
    + '"$real" "$@" 2>"$HOME/said"; code=$?\n! grep -q invalid "$HOME/said" || exit 0\nexit $code',
    ("base64", "decodes no more than the first of several pieces"): ENCODES + FILE
    + 'read -r line; printf "%s" "$line" | "$real" -d',
    ("mv", "copies when a rename fails"): '"$real" "$@" 2>/dev/null && exit\nwhile [ $# -gt 2 ]; '
    'do shift; done; cp -R "$1" "$2"',
    ("sync", "cannot sync a directory"): '[ ! -d "$1" ] || exit 1\nexec "$real" "$@"',
    ("sync", "hides that a file could not be synced"): '"$real" "$@" 2>/dev/null; exit 0',
    ("sync", "cannot sync one file system"): 'case $1 in -f) exit 1 ;; esac\nexec "$real" "$@"',
    ("sync", "hides that a file system could not be synced"): '[ "$*" != /dev/null ] || exit 1\n'
    + BUSYBOX,
    ("ls", "does not show nine columns"): 'case $* in *-*ln*) "$real" "$@" | cut -d " " -f 1-7,9- '
    ';; *) exec "$real" "$@" ;; esac',
    ("find", "hides a failed look"): '"$real" "$@"; exit 0',
    ("flock", "does not lock"): "exit 0",
    ("dd", "reads more than it is asked to"): '"$real" "$@"; code=$?; cat >/dev/null; exit $code',
    ("head", "hides a write error"): '"$real" "$@" 2>/dev/null; exit 0',
    ("sed", "changes NUL bytes"): 'tr "\\000" "\\n" | "$real" "$@"',
    ("sed", "adds a newline to the last line"): '"$real" "$@" && echo',
    ("awk", "does not know what flatq uses"): "exit 0",
}


def broken(flatq, tool, script):
    """flatq with that script in place of the tool, and without the programs that a shell may have
    built in."""
    place = flatq.home / "broken"
    place.mkdir(exist_ok=True)
    (place / tool).write_text(f"#!/bin/sh\nreal={shutil.which(tool)}\n{script}\n")
    (place / tool).chmod(0o755)
    return {"PATH": f"{place}:{flatq.env['PATH']}"}


@pytest.mark.parametrize("tool, symptom", BROKEN, ids=str)
def test_a_tool_that_does_less_is_refused(flatq, tool, symptom):
    """By the first verb after a boot, and by each that follows; afterwards the tools are not looked
    at."""
    flatq.syncs()
    env = broken(flatq, tool, BROKEN[tool, symptom])
    flatq("push", "q", input=b"1", check=0)
    boots_again(flatq)
    for words in ["push", "q"], ["pop", "q"]:
        done = refused(flatq(*words, input=b"2", env=env), 70, words[0],
            text=f" {symptom}: install GNU's (apk add ".encode())
        assert f"{tool} ({flatq.home}/broken/{tool})".encode() in done.err
    assert not list((flatq.spool).glob(".try.moved"))
    assert drained(flatq) == [1]


def test_the_tools_are_tried_once_a_boot(flatq):
    env = broken(flatq, "dd", "exit 1")
    flatq("push", "q", input=b"1", env=env, check=0)
    boots_again(flatq)
    refused(flatq("push", "q", input=b"2", env=env), 70, "push", text=b"dd ")
    flatq("push", "q", input=b"2", check=0)
    flatq("push", "q", input=b"3", env=env, check=0)
    assert drained(flatq) == [1, 2, 3]


@pytest.mark.new
def test_a_spool_that_does_not_sync_needs_no_sync(flatq):
    env = {**flatq.env, **broken(flatq, "sync", BROKEN["sync", "cannot sync a directory"])}
    refused(flatq("push", "q", input=b"1", env={**env, "FLATQ_SYNC": "on"}), 70, "push",
        text=b"cannot sync a directory")
    shutil.rmtree(flatq.spool)
    flatq("push", "q", input=b"1", env=env, check=0)


@pytest.mark.new
def test_no_proc(shell, flatq, tmp_path):
    """Without the boot's id, no verb after a power cut would look for slips whose bodies did not
    reach the disk."""
    for words in ["push", "q"], ["push", "-l", "q"], ["pop", "q"]:
        refused(flatq(*words, input=b"x", env={"FLATQ_PROC": str(tmp_path)}), 70, words[0],
            text=b"mount /proc")
    assert not list(flatq.spool.glob("q"))


def test_each_thing_that_is_tried_has_a_broken_tool(flatq):
    """And doctor -v and --version -v print each of them."""
    flatq.syncs()
    said = flatq("doctor", "-v", check=0).out.decode().splitlines()
    assert said == [f"{tool}: no sign that it {symptom}" for tool, symptom in BROKEN]
    version, *also = flatq("flatq", "--version", "-v", check=0).out.decode().splitlines()
    assert version.startswith("flatq ") and also == said


# userlands: the same day's work in each, or a refusal

def busybox(flatq):
    return userlands.applets(flatq.home / "bin", need("busybox"), ["--list"])


def alpine(flatq):
    """Without perl and python3, too."""
    flatq.env["PATH"] = f"{flatq.home}:{userlands.alpine(flatq.home / 'bin')}"


def with_awk(program):
    def userland(flatq):
        place = flatq.home / "bin"
        place.mkdir()
        for name in ("awk", "mawk"):
            (place / name).write_text(
                f"#!/bin/sh\nexec {need(program)}{' awk' * (program == 'busybox')} \"$@\"\n")
            (place / name).chmod(0o755)
        flatq.env["PATH"] = f"{place}:{flatq.env['PATH']}"
    return userland


def hidden(*programs):
    def userland(flatq):
        flatq.env["PATH"] = userlands.without(flatq.home / "bin", *programs, path=flatq.env["PATH"])
    return userland


USERLANDS = {
    "GNU": lambda flatq: None, "busybox with GNU coreutils and sed": alpine,
    **{f"GNU with {name}": with_awk(program) for name, program in AWKS.items()},
    "GNU without perl": hidden("perl"), "GNU without perl and python3": hidden("perl",
    "python3"),
}
ANY = bytes(range(256)) * 5 + b"\n"
MANY = [b"", b"\xff\xfe", b"a b\tc", *(b"%d " % n + b"x" * 100 for n in range(117))]


@pytest.mark.whole
@pytest.mark.parametrize("name, userland", share("userlands", itertools.product(SHELLS, USERLANDS),
    2, first=2))
@pytest.mark.costly
def test_a_day(flatq, name, userland):
    flatq.shell = str(flatq.home / "sh")
    os.symlink(os.path.realpath(need(name)), flatq.shell)
    flatq.env["PATH"] = f"{flatq.home}:{flatq.env['PATH']}"
    USERLANDS[userland](flatq)
    a_day(flatq)


@pytest.mark.slow
@pytest.mark.shells
def test_a_day_with_debians_newest_uutils(shell, flatq):
    """Their `sync FILE` reports no error, so flatq calls `sync -f`, which does."""
    place = newest.applets("rust-coreutils", flatq.home / "newest")
    flatq.env["PATH"] = f"{place}:{flatq.env['PATH']}"
    a_day(flatq)
    # the verb notices a failed sync
    done = faulty(flatq, "syncfs", flatq.spool / "q/wal", "push", "q", input=b"x")
    assert done.returncode == 74 and b"cannot sync" in done.stderr, done


def a_day(flatq):
    """Any bytes, a megabyte, full and closed outputs, bulk, a worker, the line door; and talks."""
    flatq.syncs()
    boots_again(flatq)
    for body in b"", ANY, os.urandom(1 << 20):
        flatq("push", "q", input=body, check=0)
        for script in 'exec "$@" >&-', 'exec "$@" >/dev/full':
            assert closed(flatq, script, "pop", "q").status == (74 if body or script.endswith("&-")
                else 0), script
        if not body:  # an empty message is not written, so no write fails
            continue
        path, = (flatq.spool / "q/wal").iterdir()
        path = flatq.spool / "q/body" / path.name.split(".")[1]
        done = faulty(flatq, "read", path, "pop", "q")
        assert done.returncode == 74 or done.stdout == body
        if done.returncode:
            # At its third try, what cannot be read is buried
            flatq("kick", "q", check=0)
            assert flatq("pop", "q", check=0).out == body
    with open(flatq.home / "empty", "w") as nowhere:
        assert flatq.start("push", "q", stdin=os.open(flatq.home, os.O_RDONLY),
            stdout=nowhere).wait(60) == 74
    flatq("push", "-e", "q", input=b"a\0b\n\0\n.\nrest", check=0)
    assert flatq("pop", "q", check=0).out == b"a\0b\n\0\n"
    for option, end in ("-l", b"\n"), ("-0", b"\0"):
        flatq("push", option, "q", input=b"".join(body + end for body in MANY), check=0)
        assert flatq("pop", "q", check=0).out == MANY[0]  # this pop unfolds
        done = flatq("drain", option, "q", check=0)
        assert done.out == b"".join(body + end for body in MANY[1:])
    flatq("push", "-l", "q", input=b"2\n3\n4\n5\n", check=0)
    assert flatq("work", "-q", "q", "-n", "2", "--", "cat", check=0).out == b"23"
    assert flatq("handler", input=b"pop q\n", check=0).out == b"4"
    assert b"ready 1\n" in flatq("stat", "q", check=0).out
    assert flatq("doctor", "q", check=0).out == b""
    talks(("push: a key is", "fold and"), flatq)


def toybox(flatq):
    return userlands.applets(flatq.home / "bin", need("toybox"), [])


def uutils(flatq):
    """Debian's rust-coreutils, which has a directory of links beside its one program."""
    need("coreutils")
    return "/usr/lib/cargo/bin/coreutils"


REFUSED = {"busybox": busybox, "toybox": toybox, "uutils": uutils,
    "newest busybox": lambda flatq: newest.applets("busybox-static", flatq.home / "newest")}


@pytest.mark.slow
@pytest.mark.new
def test_a_shell_of_its_own_programs_is_refused(flatq):
    """busybox-static's, of Debian's newest: beside the busybox of `make test` it cannot be
    installed."""
    flatq.shell = str(flatq.home / "sh")
    os.symlink(newest.program("busybox-static"), flatq.shell)
    assert not machine.looks_into_path(flatq.shell)
    refuses(flatq, lambda flatq: flatq.home)


@pytest.mark.new
@pytest.mark.shells
@pytest.mark.parametrize("userland", REFUSED)
def test_a_userland_that_loses_messages_is_refused(shell, flatq, userland):
    refuses(flatq, REFUSED[userland])


def refuses(flatq, userland):
    flatq.env.update(PATH=f"{userland(flatq)}:{flatq.env['PATH']}", FLATQ_SYNC="on")
    for words in ["push", "q"], ["push", "-l", "q"], ["pop", "q"], ["work", "-q", "q", "-w", "0",
            "--", "cat"]:
        refused(flatq(*words, input=b"x\n"), 70, words[0], text=b"(apk add ")
    assert flatq("handler", input=b"push q\nx").out.startswith(b"error 70 ")
    assert not list(flatq.spool.glob("q")) and not list(flatq.spool.glob(".ids/*"))


def test_what_the_page_names_is_what_is_tried():
    text = (LIB / "TOOLS.md").read_text()
    tools = text.partition("<!-- tools -->")[2]
    assert re.findall(r"^\| `(\w+)` \| (.*?) \|", tools, re.M) == list(BROKEN)
    found = dict(re.findall(r"^- (\w+): (.*(?:\n  .*)*)", text, re.M))
    assert {answer: " ".join(names.split()).split("; ") for answer, names in found.items()} == {
        "yes": [*USERLANDS, "newest uutils"], "70": [*REFUSED]}
