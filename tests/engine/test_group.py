"""create -g: several users share one spool. The tests need root, to run verbs as these users."""

import base64
import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from conftest import LIB, chance, everything, need, share, wait_for

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


def everything_done(flatq, log=None, doors=True):
    """Run every verb once, and two doors. Each may fail, but it must end."""
    for verb, *args in (["push", "q"], ["push", "-k", "key", "q"], ["push", "-d", "1", "q"], ["stat"], ["list", "q"], ["peek", "q"], ["pop", "q"],
                        ["reserve", "q"], ["kick", "q"], ["claim", "-c", "me", "q"], ["settle", "-c", "me", "1", "q"], ["unclaim", "-c", "me", "q"],
                        ["work", "-q", "q", "--until-empty", "--", "true"], ["close", "q"], ["create", "-b", "9", "-m", "3", "q"], ["doctor"], ["wal"],
                        ["drain", "q"], ["drop", "q"]):
        done = flatq(verb, *args, input=b"x")
        if log is not None:
            log.append((verb, done.status, done.err))
    if not doors:
        return
    flatq("beanstalk", input=b"use q\r\nput 1 0 9 1\r\nx\r\npause-tube q 1\r\nstats-tube q\r\nstats\r\nwatch q\r\nreserve-with-timeout 0\r\npeek 1\r\nquit\r\n")
    flatq("http", input=b"GET /queue/stats HTTP/1.1\r\nHost: q\r\n\r\n" + b"POST /queue?group-id=q HTTP/1.1\r\nHost: q\r\nContent-Length: 1\r\n\r\nx")


def used(flatq):
    """A spool with something in each place."""
    flatq("create", "-b", "100", "q", check=0)
    for number in range(3):
        flatq("push", "-k", str(number), "q", input=b"%d" % number, check=0)
    flatq("push", "-d", "1000", "q", input=b"late", check=0)
    receipt = flatq("reserve", "-t", "1000", "q", check=0).out.split()[0].decode()
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
    name = os.path.realpath(shell)
    deal = chance(f"member {name}")
    for text in share(f"member {name}", HOSTILE, 1):
        places = share(f"member {name} {text}", ("boot", "conf", "tended paused", "keys tally", "journal", "slips", "shared"), 3)
        if everything() and text != HOSTILE[0]:
            places = deal.sample(places, 1)  # every shell gets in each place what its arithmetic might run
        text = text.replace("X", str(ran))
        for what in places:
            shutil.rmtree(flatq.spool)
            shutil.copytree(saved, flatq.spool)
            boot, = (flatq.spool / ".boot").iterdir()
            files = {"boot": [boot], "keys": list((q / "keys").iterdir()), "journal": list(flatq.spool.glob(".ids/*/1*")),
                     "tally": [flatq.spool / ".doors/0/gone", flatq.spool / ".doors/0/1-000000000001"], "slips": []}
            for file in (file for one in what.split() for file in files.get(one, [q / one])):
                file.write_text(f"{text} {text} {text}\n{text}\n{text}\n" if file.name != "tended" else f"{text}\n")
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


@pytest.mark.whole
@pytest.mark.parametrize("name", share("link", NAMES, 1, first=2) + share("deeper link", DEEPER, 1))
@pytest.mark.costly
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


@pytest.mark.parametrize("name", ["0", "0/gone", "0/lock", "0/99999-000000000001", "secret", "wait"])
def test_a_link_below_doors_is_not_followed(shell, flatq, tmp_path, name):
    """A door writes its counters there, adds up those of killed connections, and removes what killed waiters have left."""
    flatq("create", "-g", "q", check=0)
    victim = tmp_path / "victim"
    if name in ("0", "wait"):
        victim.mkdir()
        for file in ("gone", "1-000000000001.a"):
            (victim / file).write_text("precious\n")
    else:
        victim.write_text("precious\n" * 3)
    path = flatq.spool / ".doors" / name
    path.parent.mkdir(parents=True)
    path.symlink_to(victim)
    if name == "0/gone":
        (path.parent / "99999-000000000001").write_text("a\nb\n;touch pwned;\n")
    for _ in range(3):
        flatq("beanstalk", input=b"use new\r\nput 1 0 9 1\r\nx\r\nstats\r\nquit\r\n")
    flatq("http", input=b"POST /queue?group-id=q HTTP/1.1\r\nHost: q\r\nContent-Length: 1\r\n\r\nx")
    flatq("http", input=b"GET /queue HTTP/1.1\r\nHost: q\r\n\r\n")
    files = [victim] if victim.is_file() else list(victim.iterdir())
    assert len(files) == (2 if victim.is_dir() else 1) and {line for file in files for line in file.read_text().splitlines()} == {"precious"}
    told = [file for file in (flatq.spool / ".doors").rglob("*") if file.is_file() and not file.is_symlink() and "precious" in file.read_text()]
    assert victim.is_dir() or told == []


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


# ---- a member who holds a lock lets others wait, and so has all the time he needs to put links where they looked before. Here, a program that the
# verb starts puts them there: its `flock`, say

@pytest.fixture
def shared(flatq, stub, tmp_path):
    """A group's queue `q` with a message, and `victim`, a directory of the user with two files. shared.when(PROGRAM, SCRIPT) lets the member do SCRIPT
    when the verb starts PROGRAM the next time; shared.unharmed() checks that the directory has not changed."""
    class Shared:
        victim, q = tmp_path / "victim", flatq.spool / "q"

        def when(self, program, script):
            stub(program, f'[ -e "$ONCE" ] || {{ : >"$ONCE"; cd {self.q} && victim={self.victim} && pid=$PPID && {script}; }} >&2\nexec "$REAL" "$@"')

        def unharmed(self):
            assert {path.name: path.read_text() for path in self.victim.iterdir()} == {"letter": "precious\n", "1": "cHJlY2lvdXM=\n"}

    flatq("create", "-g", "q", check=0)
    flatq("push", "q", input=b"x", check=0)
    Shared.victim.mkdir()
    (Shared.victim / "letter").write_text("precious\n")
    (Shared.victim / "1").write_text("cHJlY2lvdXM=\n")
    return Shared()


def refused(done):
    """A verb that has met a link: one line says so, and its code is 74."""
    assert done.status == 74 and b" is a link" in done.err and done.err.count(b"\n") == 1, done


@pytest.mark.shells
def test_links_that_come_while_a_verb_waits_for_the_lock(flatq, shared):
    shared.when("flock", "mkdir tmp/0000000000.000000000001.a && : >'tmp/0000000000.000000000001.a/a.*.b' && mv body away && ln -s $victim body")
    refused(flatq("wal", "q", cwd=shared.victim))
    shared.unharmed()


@pytest.mark.shells
def test_a_stage_with_a_name_that_is_a_pattern(flatq, shared):
    """Neither what the pattern matches in body/ nor what it matches where the verb was started is removed."""
    stage = shared.q / "tmp/0000000000.000000000001.a"
    stage.mkdir()
    for name in ("a.*.b", "a.?.b", "a.[0-9]*.b", "a.1 letter.b", "a.-.b", "a...b"):
        (stage / name).touch()
    flatq("wal", "q", cwd=shared.victim, check=0)
    shared.unharmed()
    assert not stage.exists() and flatq("pop", "q", check=0).out == b"x"


@pytest.mark.shells
def test_a_link_that_comes_while_a_drop_waits(flatq, shared):
    """It moves the queue to a name that nobody can tell, so no link can lead it elsewhere."""
    shared.when("flock", "ln -s $victim ../.drop.$pid")
    flatq("drop", "-f", "q", check=0)
    shared.unharmed()
    assert not shared.q.exists()


@pytest.mark.shells
def test_a_link_that_comes_while_a_verb_waits_for_the_lock_of_the_spool(flatq, shared):
    (flatq.spool / ".ids/999999999").mkdir()
    (flatq.spool / ".ids/999999999/open").touch()
    shared.when("flock", "ln -s $victim ../.ids.old.$pid")
    flatq.env["PATH"], path = flatq.env["PATH"].partition(":")[2], flatq.env["PATH"]
    flatq("drop", "-f", "q", check=0)  # so that the checkpoint takes no lock but that of the spool
    flatq.env["PATH"] = path
    shared.q.mkdir()  # where the script goes
    refused(flatq("wal"))
    shared.unharmed()


@pytest.mark.shells
def test_a_link_where_a_failed_write_is_tried_again(flatq, shared):
    """To find out why a write failed, a verb writes a file of zeros."""
    shared.when("base64", "ln -s $victim/letter body/probe.$pid && exit 1")
    assert flatq("push", "q", input=b"y").status == 74
    shared.unharmed()
    assert [path.name for path in (shared.q / "body").glob("probe*") if not path.is_symlink()] == []


@pytest.mark.shells
@pytest.mark.parametrize("verb", ["release", "kick", "putback"])
def test_a_link_under_the_name_that_a_slip_gets(flatq, shared, verb):
    """A slip's next name can be told from its name. If that is a link to a directory, mv would move the slip into the directory."""
    receipt = flatq("reserve", "-t", "0" if verb == "putback" else "1000", "q", check=0).out.split()[0].decode()
    slip, = (shared.q / "out").iterdir()
    if verb == "kick":
        flatq("bury", receipt, check=0)
    counts = {"release": "0-1-0-0", "kick": "0-0-1-1", "putback": "1-0-0-0"}[verb]
    slip = ".".join([*slip.name.split(".")[:9], counts])
    (shared.q / "wal" / slip).symlink_to(shared.victim)
    refused({"release": lambda: flatq("release", receipt), "kick": lambda: flatq("kick", "q"), "putback": lambda: flatq("wal", "q")}[verb]())
    shared.unharmed()
    (shared.q / "wal" / slip).unlink()
    {"release": lambda: flatq("release", receipt, check=0), "kick": lambda: flatq("kick", "q", check=0), "putback": lambda: None}[verb]()
    assert flatq("pop", "q", check=0).out == b"x"


@pytest.mark.shells
@pytest.mark.parametrize("level", ["$last", "${last%/*}"])
@pytest.mark.parametrize("verb", ["bury", "push"])
def test_a_link_in_the_place_of_a_directory_of_messages_by_time(flatq, shared, verb, level):
    receipt = flatq("reserve", "-t", "1000", "q", check=0).out.split()[0].decode()
    shared.when("mkdir", f'for last; do :; done && at={level} && {{ [ "$at" != "$last" ] || mkdir "${{at%/*}}"; }} && ln -s $victim "$at"')
    refused(flatq("bury", receipt) if verb == "bury" else flatq("push", "-d", "1000", "q", input=b"y"))
    assert not [path for path in shared.victim.rglob("*") if path.name.count(".") > 5]


SECRET = "machine h login me password s"
SECRET_BODY = base64.b64encode(b"password").decode() + "\n"


@pytest.mark.shells
def test_no_verb_hands_out_a_file_that_a_link_names(flatq, shared):
    """The verbs may serve another member, through a door. The file has the form of a body, or any other."""
    (shared.victim / "letter").write_text(SECRET_BODY)
    flatq("push", "q", input=b"12345678", check=0)
    body = shared.q / "body/000000000002"
    body.unlink()
    body.symlink_to(shared.victim / "letter")
    flatq("pop", "q", check=0)
    for verb, *args in (["pop", "q"], ["pop", "-l", "q"], ["pop", "-0", "-n", "5", "q"], ["drain", "q"], ["peek", "q"], ["peek", "q:2"], ["reserve", "-t", "0", "q"]):
        done = flatq(verb, *args)
        assert b"password" not in done.out, (verb, args, done)
        refused(done)
    said = flatq("handler", input=b"pop q\n").out + flatq("handler", input=b"reserve -t 0 q\n").out
    assert b"password" not in said


@pytest.mark.shells
def test_a_fold_takes_no_body_from_a_link(flatq, shared):
    """Another member has put the run there, so that the fold is finished by whoever takes the lock next."""
    (shared.victim / "letter").write_text(SECRET_BODY)
    (shared.q / "body/000000000002").symlink_to(shared.victim / "letter")
    run = shared.q / "fold/0000000000.000000000002.abcabcabcabc"
    run.mkdir()
    (run / "0000000000.000000000002.0.0.60.0.000000000001.8.-.0-0-0-0").touch()
    flatq("wal", "q", check=0)
    done = flatq("pop", "q")
    assert done.status == 74 and b"password" not in done.out and not list((shared.q / "queue").glob("*/*"))


@pytest.mark.shells
def test_a_list_reads_no_link(flatq, shared):
    (shared.victim / "letter").write_text(SECRET + "\n")
    for place in (f"queue/{FLAT[:10]}.0000009/x", "claimed/n/000000000000.1/x", "out/batch.999999-000000000000.abcabcabcabc.000000000000/x"):
        (shared.q / place).parent.mkdir(parents=True, exist_ok=True)
        (shared.q / place).symlink_to(shared.victim / "letter")
    done = flatq("list", "q", check=0)
    assert len(done.out.splitlines()) == 1 and done.out.startswith(b"1 ready "), done.out


FIFOS = ["q/conf", "q/log", "q/tended", "q/body/000000000001", "q/keys/*", ".lock", ".boot/*", ".ids/*/1001", "q/lock",
         f"q/queue/0000065536.0000009/{FLAT}", f"q/claimed/n/000000000000.1/{FLAT}"]


def fifo_there(flatq, name):
    """A group's spool with something in each place, and a FIFO in the place of this file."""
    flatq("create", "-g", "q", check=0)
    used(flatq)
    path = next(flatq.spool.glob(name), flatq.spool / name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)


@pytest.mark.whole
@pytest.mark.shells
@pytest.mark.parametrize("name", share("fifo", FIFOS, 2))
@pytest.mark.costly
def test_no_verb_waits_at_a_fifo(shell, flatq, name):
    """In the place of a file of the spool. Each verb ends, whatever it says (a verb that hangs is ended by the runner, and fails the test)."""
    fifo_there(flatq, name)
    log = []
    everything_done(flatq, log, doors=False)
    assert all(status < 80 for _, status, _ in log)


@pytest.mark.whole
@pytest.mark.shells
@pytest.mark.parametrize("name", share("door's fifo", FIFOS, 1))
@pytest.mark.costly
def test_no_door_waits_at_a_fifo(shell, flatq, name):
    """Nor its pages and statistics, which look at every queue."""
    fifo_there(flatq, name)
    for url in ("/", "/?queue=q", "/queue/stats", "/metrics"):
        assert flatq("http", input=f"GET {url} HTTP/1.1\r\nHost: q\r\nConnection: close\r\n\r\n".encode()).out.startswith(b"HTTP/1.1 ")
    assert b"\r\n" in flatq("beanstalk", input=b"stats\r\nstats-tube q\r\nwatch q\r\nreserve-with-timeout 0\r\nquit\r\n").out


@pytest.mark.shells
@pytest.mark.parametrize("how", ["full", "woken"])
def test_no_push_waits_for_a_waiter_s_fifo(shell, flatq, how):
    """Another member has filled it, or has put a FIFO where the mark of the wake goes."""
    flatq("create", "-g", "q", check=0)
    waiter = f"{os.getpid()}-999999999999.0123456789ab"
    fifo = flatq.spool / ".wait" / waiter
    (flatq.spool / "q/wait" / waiter).touch()
    os.mkfifo(fifo)
    number = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    if how == "woken":
        os.mkfifo(f"{fifo}.woken")
    else:
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(number, b"x" * 4096)
    flatq("push", "q", input=b"x", check=0)
    os.close(number)


@pytest.mark.shells
def test_no_push_waits_at_a_fifo_in_the_place_of_its_body(shell, flatq, shared):
    os.mkfifo(shared.q / "body/000000000002")
    done = flatq("push", "q", input=b"y")
    assert done.status == 74 and b"is a FIFO" in done.err, done
    assert flatq("push", "q", input=b"z", check=0).out == b"3\n" and (shared.q / "body/000000000002").exists()


@pytest.mark.shells
def test_a_link_where_doctor_writes_a_flat_file(flatq, shared):
    flatq("push", "-l", "q", input=b"".join(b"%d\n" % number for number in range(200)), check=0)
    flat, = (shared.q / "queue").glob("*/*")
    flat.write_text(flat.read_text().replace("\tNQ==\n", "\t!Q==\n"))
    shared.when("awk", f"ln -s $victim/letter tmp/flat && ln -s $victim/1 tmp/strange.{flat.name}")
    assert b"1 of 200 lines" in flatq("doctor", "q", check=0).out
    shared.unharmed()


@pytest.mark.shells
def test_a_directory_where_create_puts_its_settings(flatq, stub, shared):
    stub("sync", f'case $* in *.conf) mkdir {shared.q}/conf ;; esac\nexec "$REAL" "$@"')
    assert flatq("create", "-b", "5", "q", env={"FLATQ_SYNC": "on"}).status == 74
    assert not list((shared.q / "conf").iterdir())


def test_no_file_is_moved_into_a_directory_by_mistake():
    """mv moves into a directory of the new name, or one that a link leads to: rename_path looks for that. These lines mean a directory, or look themselves,
    or have a name that nobody can tell."""
    lines = {f"{path.relative_to(LIB)}: {line.strip()}" for path in LIB.rglob("*") if path.is_file() and path.suffix != ".md"
             for line in path.read_text().splitlines() if re.search(r"^[^#]*\bmv -f\b", line)}
    meant = {line for line in lines if re.search(r'mv -f .*/\.?"( |$)', line)}
    known = ("engine/slip.sh", "engine/take.sh: { mv -f \"$q/$scan_place/$scan_name\" \"$q/out/$taken\"", "engine/probe.sh", "engine/boot.sh: [ ! -d ", "engine/lock.sh: [ ! -d ", "engine/checkpoint.sh: mv -f \"$range\"",
             "worker/daemon.sh", "doors/beanstalk/tally.sh", "drop: mv -f \"$q\" \"$drop_away\"")
    assert not [line for line in lines - meant if not line.startswith(known)]
