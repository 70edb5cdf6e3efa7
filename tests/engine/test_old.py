"""A spool with things from a crash, an older version or another program: no message is lost."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from engine import pop, push, refused, reserve


PLACES = ["body", "wal", "fold", "queue", "unfold", "head", "out", "done", "delayed", "buried",
    "keys", "wait", "room", "tmp"]
SLIP = "0000065536.000000000900.0.0.60.0.176000000000.1.-.0-0-0-0"

# names like nothing, like a message's, like a flat file's, and with characters that a shell treats
# specially
STRANGE = [
    "junk", "0", "!first", "~last", "a b", "new\nline", "*", "?", "[a]", "-n", "$(touch x)",
    ".hidden", "0000000000", "0000000000.000000000001",
    "0000065536.000000000000.0.0.60.0.000000000000.0.-", SLIP + ".extra",
    SLIP.replace("65536", "x5536"), SLIP[:40], "x" * 250,
    "0000000000.000000000001.000000000002.2.0.abc", "1.2.3.4.5.6", "1.2.3.4.5.6.7.8.9.10.11.12",
    "....", "a.b.c.d.e.f.g.h.i.j",
    "000000000000.0000000000.000000000001", "\xe4",
]
# to a shell, 08 is octal, and bash runs the code in a[$(x)]
for field, text in [(2, "08"), (4, "08"), (5, "09"), (7, "08"), (7, "a[$(touch x)]"), (3, ""),
        (8, "k12"), (9, "08-0-0-0"), (9, "a-b-c-d"), (9, "1-2-3")]:
    parts = SLIP.split(".")
    STRANGE.append(".".join([*parts[:field], text, *parts[field + 1:]]))


def strange_files(q, place):
    for number, name in enumerate(STRANGE):
        path = q / place / name
        if path.exists():
            continue
        if number % 2:
            path.write_bytes(b"strange\n")
        else:
            path.mkdir()
            (path / "inside").touch()


def three(flatq):
    """Push the messages 1, 2 and 3, of which the last has a key. Return its id."""
    push(flatq, b"1", "q")
    push(flatq, b"2", "q")
    return push(flatq, b"3", "-k", "key", "q")


def every_verb(flatq, queue="q"):
    """Run the verbs of a usual day. The queue must have held exactly the messages of three()
    before."""
    assert reserve(flatq, queue).body == b"1"
    push(flatq, b"5", "-k", "another key", queue)
    assert b"dup" in flatq("push", "-k", "key", queue, check=0).out
    for _ in range(2):
        done = flatq("wal", queue)
        assert (done.status, done.out) == (0, b""), done
    assert flatq("wal").status == 0
    assert pop(flatq, queue) == b"2"
    got = reserve(flatq, queue)
    assert got.body == b"3"
    flatq("bury", got.receipt, check=0)
    push(flatq, b"6", queue)
    assert pop(flatq, queue) == b"5"
    assert flatq("peek", queue, check=0).out == b"6"


def test_a_strange_file_that_cannot_be_set_aside(flatq, spool, stub):
    """doctor says no more than what was done, and shows a terminal no name that it might obey."""
    push(flatq, b"kept", "q")
    (spool / "q/wal/x\x1b[31m\nqueue 'q': all is well").touch()
    done = flatq("doctor", "q", check=0)
    assert b"\x1b" not in done.out + done.err and b"? is no slip: set aside" in done.out, done
    assert b"all is well" not in done.out, done
    (spool / "q/wal/strange").touch()
    stub("mv", 'case $* in *strange*) exit 1 ;; esac; exec "$REAL" "$@"')
    done = flatq("doctor", "q")
    assert done.status == 74 and b"cannot set aside wal/strange" in done.err, done
    assert b"set aside in" not in done.out, done
    assert (spool / "q/wal/strange").exists()


def test_strange_files_in_every_shell(shell, flatq, spool):
    three(flatq)
    for place in PLACES:
        strange_files(spool / "q", place)
    every_verb(flatq)
    assert pop(flatq, "q") == b"6"
    assert not list(flatq.home.iterdir())


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_strange_files_in_the_spool_itself(flatq, spool, kind):
    number = three(flatq)
    for place in ("", ".ids", ".boot", ".wait"):
        for name in [*STRANGE, "lost+found", ".drop.1", ".ids.old.1", "zzz", "zzzzzzzzz", "999-1.x",
                "999-000000000001.abcdef012345"]:
            path = spool / place / name
            if path.exists() or path.is_symlink():
                continue
            if kind == "file":
                path.write_text("strange\n")
            else:
                (path / "inside").mkdir(parents=True)
    every_verb(flatq)
    assert push(flatq, b"7", "q") > number
    assert push(flatq, b"7", "new") > number
    refused(flatq("pop", "-w", "1", "empty"), 66, "pop")
    assert [pop(flatq, "q"), pop(flatq, "q")] == [b"6", b"7"]
    assert not list(flatq.home.iterdir())


CONTENTS = ["", "garbage\n", "a[$(touch x)]\n", "-1\n", "\0\0\0\0", "99999999999999999999 1\n",
    "08\n"]


@pytest.mark.parametrize("name, content", [
    *((name, content) for name in ("tended", "keys/*", "conf") for content in CONTENTS),
    *((name, "garbage\n") for name in ("log", "closed", "lock"))])
def test_strange_contents(flatq, spool, name, content):
    """The file is damaged, as after a power cut. A verb goes on without it, or says what is
    damaged."""
    three(flatq)
    path = spool / "q" / name if name != "keys/*" else next((spool / "q/keys").iterdir())
    path.write_text(content)
    if name == "keys/*":
        # a verb cannot know whether the key is taken, but all else works
        assert flatq("push", "-k", "key", "q").status in (0, 65, 74)
        assert [pop(flatq, "q") for _ in range(3)] == [b"1", b"2", b"3"]
    elif name in ("closed", "conf"):
        refused(flatq("push", "q"), 69 if name == "closed" else 65, "push")
        path.unlink()
    if name != "keys/*":
        every_verb(flatq)
    assert not list(flatq.home.iterdir())


def test_doctor_syncs_a_flat_file_before_the_old_one_goes(flatq, spool, stub):
    """The new one and the bad lines, before each rename."""
    flatq("push", "-l", "q", input=b"m\n" * 120, check=0)
    [old] = spool.glob("q/queue/*/*")
    old.write_bytes(old.read_bytes().replace(b"\t", b"\t!", 1))
    stub("sync", '{ for path; do [ "$path" = -f ] || printf "%s " "${path##*/}"; done; '
        'ls "$FLATQ_DIR"/q/queue/* | tr "\\n" " "; echo; } >>"$HOME/synced"')
    flatq.syncs()
    assert b"1 of 120 lines" in flatq("doctor", "q", check=0).out
    [new] = spool.glob("q/queue/*/*")
    said = [line.split() for line in (flatq.home / "synced").read_text().splitlines()]
    block = new.parent.name
    nonce = said[-2][0].removeprefix("flat.")
    assert [[f"flat.{nonce}", f"strange.{nonce}.{old.name}", "tmp", old.name],
        [block, new.name]] == said[-2:]


def test_a_queue_by_a_link(shell, flatq, spool, tmp_path):
    """The directory of a queue, and that of the spool, may be a link."""
    push(flatq, b"1", "q")
    shutil.move(spool / "q", tmp_path / "elsewhere")
    (spool / "q").symlink_to(tmp_path / "elsewhere")
    push(flatq, b"2", "-k", "k", "q")
    flatq("wal", check=0)
    shutil.move(spool, tmp_path / "moved")
    spool.symlink_to(tmp_path / "moved")
    assert pop(flatq, "q") + pop(flatq, "q") == b"12"
    push(flatq, b"3", "q")
    assert pop(flatq, "q") == b"3"


OLD_SPOOL = json.loads((Path(__file__).parent / "old_spool.json").read_text())


@pytest.mark.new
@pytest.mark.parametrize("booted", [False, True])
def test_a_spool_of_an_older_version(shell, flatq, spool, clock, booted):
    """Made by commit d959435, with messages in every state. What is reserved stays so, unless the
    system was started anew."""
    for pattern, text in OLD_SPOOL.items():
        boot = "boot-before" if booted else "boot-first"
        before, _, rest = pattern.replace("BOOT", boot).partition("{")
        words, _, after = rest.rpartition("}")
        for word in words.split(","):
            path = spool / f"{before}{word}{after}"
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                path.mkdir()
            else:
                path.write_text(text)
    assert pop(flatq, "q") == (b"reserved" if booted else b"ready1")
    assert [path.name for path in (spool / ".boot").iterdir()][0].startswith("boot-first.")
    assert flatq("push", "-k", "key", "q", check=0).out == b"12 dup\n"
    assert flatq("peek", "-s", "delayed", "q", check=0).out == b"delayed"
    assert flatq("peek", "-s", "buried", "q", check=0).out == b"buried"
    assert flatq("drain", "q", check=0).out.split() == [b"ready1"] * booted + [b"keyed"]
    assert flatq("drain", "flat", check=0).out.split() == [b"flat%d" % n for n in range(1, 7)]
    flatq("unclaim", "-c", "me", "claim", check=0)
    assert flatq("drain", "claim", check=0).out.split() == [b"claimed%d" % n for n in range(1, 5)]
    assert pop(flatq, "bounded") == b"bounded"
    refused(flatq("push", "bounded", input=b"x"), 69, "push")
    assert push(flatq, b"new", "q") > 17
    done = flatq("doctor", check=0)
    assert (done.out, done.err) == (b"", b"")


def test_a_spool_of_a_group(flatq, spool, clock):
    """Older versions made it by `create -g`. The line says how its owner goes on."""
    push(flatq, b"kept", "q")
    for path in (spool, *spool.rglob("*")):
        path.chmod(0o2770 if path.is_dir() else 0o660)
    clock.reboot("second")
    done = refused(flatq("pop", "q"), 77, "pop", text=b"chmod -R g-s,go= ")
    command = done.err.decode().partition("root '")[2].partition("'")[0].replace("USER", "root")
    subprocess.run(command, shell=True, check=True)
    assert pop(flatq, "q") == b"kept"
    assert spool.stat().st_mode & 0o7777 == 0o700
