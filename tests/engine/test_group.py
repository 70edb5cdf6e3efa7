"""create -g: several users share one spool. The tests need root, to run verbs as these users."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from conftest import LIB, need, share, wait_for

GROUP, ALICE, BOB, EVE = 65501, 65502, 65503, 65504


@pytest.fixture
def as_user():
    """as_user(USER, VERB, ...) runs a copy of lib/VERB as that user. The copy lies beside pytest's own directories, since every pytest that begins
    closes those to others."""
    if os.geteuid():
        pytest.skip("only root can act as several users")
    need("setpriv")
    place = Path(tempfile.mkdtemp(prefix="flatq-users."))
    place.chmod(0o755)
    shared, lib = place / "shared", place / "lib"
    shared.mkdir()
    os.chown(shared, ALICE, GROUP)
    shared.chmod(0o2770)
    shutil.copytree(LIB, lib)

    def command(user, verb, *words, group=GROUP):
        return ["setpriv", "--reuid", str(user), "--regid", str(group), "--clear-groups", "sh", str(lib / verb), *words]

    def run(user, verb, *words, input=b"", group=GROUP):
        return subprocess.run(command(user, verb, *words, group=group), input=input, capture_output=True, timeout=100, env=run.env)

    run.command, run.spool = command, shared / "spool"
    run.env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "FLATQ_DIR": str(run.spool), "FLATQ_SYNC": "off"}
    yield run
    shutil.rmtree(place)


def test_a_spool_that_cannot_be_looked_at_once_is_not_private(as_user):
    """In turn, every look at the spool fails once. The push must not take the spool for a private one then: Bob can take what Alice stored."""
    assert as_user(ALICE, "create", "-g", "q").returncode == 0
    looks = "newfstatat,stat,faccessat2,access"
    for when in range(1, 4):
        done = subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(as_user.spool), "-e", f"trace={looks}", "-e", f"inject={looks}:error=ENOMEM:when={when}",
                               *as_user.command(ALICE, "push", "q")], input=b"x", env=as_user.env, capture_output=True, timeout=100)
        assert done.returncode in (0, 74), done
        assert done.returncode or as_user(BOB, "pop", "q").stdout == b"x", when


def test_two_users(as_user):
    assert as_user(ALICE, "create", "-g", "jobs").returncode == 0
    assert as_user(ALICE, "push", "jobs", input=b"of alice").stdout == b"1\n"
    assert as_user(BOB, "push", "jobs", input=b"of bob").stdout == b"2\n"
    assert as_user(BOB, "push", "new", input=b"more").stdout == b"3\n"
    assert as_user(BOB, "pop", "jobs").stdout == b"of alice"
    assert as_user(ALICE, "pop", "jobs").stdout == b"of bob"
    assert as_user(ALICE, "pop", "new").stdout == b"more"
    for user in (ALICE, BOB):
        assert as_user(user, "push", "-l", "jobs", input=b"1\n2\n3\n").returncode == 0
    assert as_user(BOB, "wal").returncode == 0
    assert as_user(ALICE, "wal").returncode == 0
    assert as_user(BOB, "drain", "jobs").stdout == b"1\n2\n3\n" * 2


def test_a_worker_of_another_user(flatq, as_user):
    """A user who may not signal the worker still sees that it lives, and so does not take its pid file."""
    file = as_user.spool.parent / "pid"
    process = flatq.start("work", "--pid-file", file, "--", "true")
    wait_for(lambda: file.exists() and file.read_text(), "it works")
    file.chmod(0o644)
    second = as_user(ALICE, "work", "--pid-file", str(file), "-w", "0", "--", "true")
    assert (second.returncode, second.stdout) == (75, b"") and b"a running worker" in second.stderr
    assert int(file.read_text()) == process.pid
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0 and not file.exists()


def test_nobody_else(as_user):
    as_user(ALICE, "create", "-g", "jobs")
    as_user(ALICE, "push", "jobs", input=b"secret")
    away = as_user(EVE, "pop", "jobs", group=EVE)
    assert away.returncode in (66, 77) and away.stdout == b"" and away.stderr.count(b"\n") == 1


def test_private_by_default(as_user):
    as_user(ALICE, "push", "jobs", input=b"secret")
    modes = {path.stat().st_mode & 0o077 for path in as_user.spool.rglob("*")}
    # the set-gid bit of the directory above gives the spool to the group; without the bit, only the owner has rights
    assert modes <= {0o060, 0o070, 0o000}
    private = subprocess.run(["sh", str(LIB / "push"), "jobs"], input=b"x", capture_output=True, timeout=100,
                             env={"PATH": os.environ["PATH"], "HOME": "/", "FLATQ_DIR": str(as_user.spool.parent.parent / "mine"), "FLATQ_SYNC": "off"})
    assert private.returncode == 0
    assert {path.stat().st_mode & 0o077 for path in (as_user.spool.parent.parent / "mine").rglob("*")} == {0}


# ---- a verb reads what another member wrote: it must not run it, nor use it as the name of a file elsewhere

HOSTILE = ["a[$(touch X)]", "$(touch X)", "`touch X`", "1 -o -n", "../../victim", "-rf", "00x"]


def everything_done(flatq, log=None):
    """Run every verb once. Each may fail, but it must end."""
    for verb, *args in (["push", "q"], ["push", "-k", "key", "q"], ["push", "-d", "1", "q"], ["stat"], ["list", "q"], ["peek", "q"], ["pop", "q"],
                        ["reserve", "q"], ["kick", "q"], ["claim", "-c", "me", "q"], ["settle", "-c", "me", "1", "q"], ["unclaim", "-c", "me", "q"],
                        ["work", "-q", "q", "--until-empty", "--", "true"], ["close", "q"], ["create", "-b", "9", "-m", "3", "q"], ["doctor"], ["wal"],
                        ["drain", "q"], ["drop", "q"]):
        done = flatq(verb, *args, input=b"x")
        if log is not None:
            log.append((verb, done.status, done.err))
    flatq("beanstalk", input=b"use q\r\nput 1 0 9 1\r\nx\r\npause-tube q 1\r\nstats-tube q\r\nstats\r\nwatch q\r\nreserve-with-timeout 0\r\npeek 1\r\nquit\r\n")
    flatq("http", input=b"GET /queue/stats HTTP/1.1\r\nHost: q\r\n\r\n" + b"POST /queue?group-id=q HTTP/1.1\r\nHost: q\r\nContent-Length: 1\r\n\r\nx")


def used(flatq):
    """A spool with something in each place."""
    flatq("create", "-b", "100", "q", check=0)
    for number in range(3):
        flatq("push", "-k", str(number), "q", input=b"%d" % number, check=0)
    flatq("push", "-d", "1000", "q", input=b"late", check=0)
    receipt = flatq("reserve", "-t", "1", "q", check=0).out.split()[0].decode()
    flatq("bury", receipt, check=0)
    flatq("reserve", "-t", "1000", "q", check=0)
    flatq("beanstalk", input=b"use q\r\npause-tube q 1\r\nquit\r\n")


@pytest.mark.shells
def test_nothing_that_a_member_writes_is_run(shell, flatq, tmp_path):
    ran, victim = tmp_path / "ran", tmp_path / "victim"
    victim.write_text("precious")
    used(flatq)
    q = flatq.spool / "q"
    saved = tmp_path / "saved"
    shutil.copytree(flatq.spool, saved)
    for text in share(f"member {shell}", HOSTILE, 1):
        text = text.replace("X", str(ran))
        for what in share(f"member {shell} {text}", ("boot", "conf", "tended", "paused", "keys", "journal", "tally", "slips", "shared"), 4):
            shutil.rmtree(flatq.spool)
            shutil.copytree(saved, flatq.spool)
            boot, = (flatq.spool / ".boot").iterdir()
            files = {"boot": [boot], "keys": list((q / "keys").iterdir()), "journal": list(flatq.spool.glob(".ids/*/1*")),
                     "tally": [flatq.spool / ".doors/0/gone", flatq.spool / ".doors/0/1-000000000001"], "slips": []}.get(what, [q / what])
            for file in files:
                file.write_text(f"{text} {text} {text}\n{text}\n{text}\n" if what != "tended" else f"{text}\n")
            if what == "slips":
                for path in [*(q / "wal").iterdir(), *(q / "out").iterdir(), *(q / "buried").glob("*/*/*")]:
                    for field in range(path.name.count(".") + 1):
                        words = path.name.split(".")
                        words[field] = text.replace("/", ",")
                        (path.parent / ".".join(words)).touch()
            everything_done(flatq)
            assert not ran.exists() and victim.read_text() == "precious", (what, text)


@pytest.mark.parametrize("what", ["segment", "range", "pause"])
@pytest.mark.shells
def test_nothing_in_a_name_is_run(shell, flatq, tmp_path, what):
    """A name holds no slash, so a shell that ran it would run a program `xy` in PATH."""
    flatq("create", "-g", "-b", "5", "q", check=0)
    flatq("push", "q", input=b"x", check=0)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/xy").write_text(f"#!/bin/sh\n: >{tmp_path}/ran\n")
    (tmp_path / "bin/xy").chmod(0o755)
    flatq.env["PATH"] = f"{tmp_path}/bin:{flatq.env['PATH']}"
    text = "a[$(xy)]"
    if what == "segment":
        (flatq.spool / "q/claimed/x").mkdir()
        (flatq.spool / f"q/claimed/x/000000000000.1+{text}").touch()
    elif what == "range":
        (flatq.spool / f".ids/0{text}").mkdir()
        (flatq.spool / f".ids/0{text}/open").touch()
    else:
        boot, = (flatq.spool / ".boot").iterdir()
        (flatq.spool / "q/paused").write_text(f"00{text}00 {boot.name} 1\n")
    for verb, *args in (["stat"], ["push", "q"], ["push", "-l", "q"], ["wal"]):
        flatq(verb, *args, input=b"1\n2\n", check=0)
    flatq("beanstalk", input=b"stats-tube q\r\nwatch q\r\nreserve-with-timeout 0\r\nquit\r\n")
    assert not (tmp_path / "ran").exists()
    assert flatq("drain", "q", check=0).out


def test_the_journal_leads_nowhere_else(flatq, tmp_path):
    """The push journal names the queue of a killed push. A member may have made the queue's body/, or a range of ids, a link to elsewhere: then no
    file elsewhere changes."""
    flatq("create", "-g", "q", check=0)
    boot, = (flatq.spool / ".boot").iterdir()
    ids, evil, home = flatq.spool / ".ids", flatq.spool / "evil", tmp_path / "elsewhere"
    home.mkdir()
    before = {"20261122-diary.txt": "dear diary\n", "000000000777": "precious\n", "1777": f"99999999 000000000001 q\n{boot.name}\n"}
    for name, text in before.items():
        (home / name).write_text(text)
    shutil.copytree(flatq.spool / "q", evil)
    for name in ("body", "wal"):
        (evil / name).rmdir()
    # a file, so that the checkpoint does not refuse the queue before it comes to the journal
    (evil / "wal").touch()
    (evil / "body").symlink_to(home)
    (ids / "000000000").rename(ids / "999999999")
    for name, file in (("20261122-", "1diary.txt"), ("000000000", "1777")):
        (ids / name).mkdir()
        (ids / name / file).write_text(f"99999999 000000000001 evil\n{boot.name}\n")
    (ids / "000000001").symlink_to(home)
    flatq("wal")
    assert {path.name: path.read_text() for path in home.iterdir()} == before


# ---- links: a verb writes only where the spool is

NAMES = ["log", "tended", "conf", "closed", "paused", "dropping", "tmp", "wal", "body", "out", "wait", "room", "done", "keys", "head", "buried", "delayed",
         "queue", "fold", "unfold", "claimed"]
FLAT = "0000065536.000000900000.000000900000.1.0.abcabcabcabc"
DEEPER = [f"tmp/{FLAT}", f"tmp/strange.{FLAT}", "fold/0000065536.000000900000.abcabcabcabc", f"unfold/{FLAT}", f"queue/0000065536.0000009/{FLAT}",
          "out/batch.999999-000000000000.abcabcabcabc.000000000000", "delayed/0000000/000000000001", "buried/0000000/0000000", "claimed/x/000000000000.1",
          "head/0000065536.000000900000.000000900000.1.0.abcabcabcabc"]


@pytest.mark.parametrize("name", share("link", NAMES, 3, first=2) + share("deeper link", DEEPER, 3))
def test_a_link_in_a_group_spool_is_not_followed(flatq, tmp_path, name):
    """Whatever name the link has, and whether it leads to a file, a directory with files, or nothing: no verb writes through it."""
    flatq("create", "-g", "q", check=0)
    used(flatq)
    saved = tmp_path / "saved"
    shutil.copytree(flatq.spool, saved, symlinks=True)
    for kind in ("file", "directory", "nothing"):
        shutil.rmtree(flatq.spool)
        shutil.copytree(saved, flatq.spool)
        victim = tmp_path / f"victim-{kind}"
        if kind == "file":
            victim.write_text("precious")
        elif kind == "directory":
            victim.mkdir()
            for file in ("letter", "000000000001", "1-000000000001.a", "0000065536.000000000001.0.0.60.0.0.1.-.0-0-0-0"):
                (victim / file).write_text("precious")
        path = flatq.spool / "q" / name
        path.parent.mkdir(exist_ok=True)
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        path.symlink_to(victim)
        log = []
        everything_done(flatq, log)
        assert any(status == 74 and b"is a link" in err for _, status, err in log), (kind, [row for row in log if row[1] or row[2]])
        if kind == "file":
            assert victim.read_text() == "precious"
        elif kind == "directory":
            assert sorted(file.read_text() for file in victim.iterdir()) == ["precious"] * 4
        else:
            assert not os.path.lexists(victim)


def test_a_link_that_comes_between_look_and_write(flatq, stub, tmp_path):
    """A program that the verb starts creates the link, as another member could at that moment. The file that the link leads to must not change."""
    flatq("create", "-g", "q", check=0)
    flatq("push", "q", input=b"x", check=0)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    stub("flock", f'ln -s "{victim}" {flatq.spool}/q/closed\nexec "$REAL" "$@"')
    flatq("close", "q")
    assert (flatq.spool / "q/closed").is_symlink() and victim.read_text() == "precious"
    for file in (flatq.spool / ".boot").iterdir():
        file.unlink()
    (flatq.spool / "q/closed").unlink()
    stub("flock", 'exec "$REAL" "$@"')
    # the first verb after a boot writes new.PID, and a member who sees its process can create that name before
    stub("base64", f'for n in $(seq $((PPID - 20)) $((PPID + 5))); do ln -s "{victim}" {flatq.spool}/.boot/new.$n; done 2>/dev/null\nexec "$REAL" "$@"')
    flatq("stat", check=0)
    assert len(list((flatq.spool / ".boot").iterdir())) == 1 and victim.read_text() == "precious"


def test_no_file_is_emptied_by_name():
    """`>|` writes through a link that came after the last look. Only two places may use it: a spool that belongs to one user, and the statistics of
    a door."""
    lines = {f"{path.relative_to(LIB)}: {line.strip()}" for path in LIB.rglob("*") if path.is_file() for line in path.read_text().splitlines() if re.search(r">\| ?\S", line)}
    assert {line.partition(":")[0] for line in lines} == {"engine/take.sh", "doors/beanstalk/tally.sh"} and len(lines) == 2, lines
