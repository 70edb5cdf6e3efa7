"""flatq -H ssh://..., Python's Queue and the shovel through a real sshd, with a `flatq door` for
each key."""

import os
import shutil
import signal
import subprocess

import pytest

from conftest import LIB, SHELLS, everything, share, wait_for
from engine import lies, push, refused, words_of
from headers import documented
from sshd import Sshd
from test_remote import ANY, Far, there_and_back

from crash.gate.processes import kill


@pytest.fixture
def sshd(flatq, tmp_path):
    """The sshd of a machine with a spool of its own, `there`. The key of key() runs lib/door with
    these limits."""
    one = Sshd(tmp_path / "sshd")
    one.there = tmp_path / "there"

    def limited(name, *limits, before=()):
        return one.key(name, *before, flatq.shell, LIB / "door", "--spool", one.there, *limits)

    one.limited = limited
    yield one
    one.end()
    # a door that a failed test has left held up
    kill(of_place(tmp_path))


def of_place(place):
    """The processes whose command line has this directory, but for pytest's."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
        if str(place).encode() in words_of(pid) and pid != os.getpid()]


@pytest.fixture
def far(flatq, sshd):
    """With a key that may do everything."""
    flatq.env["FLATQ_SSH"] = sshd.limited("all")
    return Far(flatq, sshd.url)


def there(flatq, sshd, *words, **more):
    """A verb on the other machine itself."""
    return flatq(*words, env={"FLATQ_DIR": str(sshd.there), "FLATQ_SYNC": "on"}, **more)


@pytest.mark.whole
@pytest.mark.parametrize("shell", share("there and back, ssh", SHELLS, 1), indirect=True)
def test_there_and_back(far):
    """test_remote.py has the same over TCP."""
    there_and_back(far)


def test_a_login_that_prints_something(flatq, sshd):
    """What it prints is not a part of the answer."""
    words = " ".join(map(str, (flatq.shell, LIB / "door", "--spool", sshd.there)))
    flatq.env["FLATQ_SSH"] = sshd.key("noisy", "sh", "-c",
        f"echo 5; printf 'Welcome to '; exec {words}")
    there_and_back(Far(flatq, sshd.url))
    push(flatq, ANY, "here")
    for way in (("here", f"{sshd.url}/there"), (f"{sshd.url}/there", "back")):
        flatq("shovel", "--once", *way, check=0)
    assert flatq("pop", "back", check=0).out == ANY


def test_two_keys_with_different_rights(flatq, sshd):
    producer, consumer = sshd.limited("producer", "--allow", "push", "--queues", "mail/*",
        "--bytes", "9"), sshd.limited("consumer", "--allow", "reserve,delete,release")

    def by(key, *words, **more):
        return flatq("flatq", "-H", sshd.url, *words, env={"FLATQ_SSH": key}, **more)

    assert by(producer, "push", "mail/in", input=b"a letter", check=0).out == b"1\n"
    refused(by(producer, "push", "mail/in", input=b"0123456789"), 65, text=b"over the limit")
    for key, *words in ((producer, "push", "other"), (producer, "pop", "mail/in"),
            (consumer, "push", "mail/in"), (consumer, "list")):
        refused(by(key, *words, input=b"x"), 77, words[0], text=b"not allowed here")
    assert by(consumer, "pop", "mail/in", check=0).out == b"a letter"


def test_neither_the_clients_command_nor_its_variables_get_further(flatq, sshd, tmp_path):
    """The key runs its own command. sshd here takes over every variable (AcceptEnv *)."""
    words = sshd.limited("producer", "--allow", "push").split()
    sent = " ".join(f"{name}={tmp_path}/elsewhere" for name in documented() - {"FLATQ_SYNC"})
    sent = f"-oSetEnv={sent} FLATQ_SYNC=off FLATQ_DOOR=1 rights_verbs=list rights_queues=x"
    to = ("-p", str(sshd.port), "-l", sshd.user, "127.0.0.1")
    for command in (f"touch {tmp_path}/ran", "flatq door", "", f"$(touch {tmp_path}/ran)"):
        done = subprocess.run([*words, sent, *to, command], input=b"push jobs\nbody",
            capture_output=True, timeout=100)
        assert (done.returncode, done.stderr) == (0, b"") and done.stdout.strip().isdigit(), done
    assert not (tmp_path / "ran").exists() and not (tmp_path / "elsewhere").exists()
    assert there(flatq, sshd, "drain", "jobs", check=0).out == b"body\n" * 4


def test_who_is_not_let_in(flatq, sshd, free_port):
    """One line, 77, and nothing was asked; 68 where nobody answers, 69 where there is no flatq."""
    sshd.make("stranger")
    known = sshd.place / "known"
    good = sshd.limited("good")
    other = [known.read_text().split()[0], *(sshd.place / "good.pub").read_text().split()[:2]]

    def asks(url=sshd.url, key=good):
        done = flatq("flatq", "-H", url, "push", "jobs", input=b"x", env={"FLATQ_SSH": key})
        assert b"stored" not in done.err and not sshd.there.exists(), done
        return done

    refused(asks(key=sshd.ssh("stranger")), 77, "push", text=b"Permission denied (publickey).\n")
    refused(asks(url=f"ssh://nobody-here@127.0.0.1:{sshd.port}"), 77, text=b"Permission denied")
    refused(asks(url=f"ssh://127.0.0.1:{free_port}"), 68, text=b"Connection refused\n")
    refused(asks(key="no-such-program -x"), 69, text=b"no-such-program is needed\n")
    saved = known.read_text()
    for line in ("", " ".join(other) + "\n"):
        known.write_text(line)
        refused(asks(), 77, text=b"Host key verification failed.\n")
    known.write_text(saved)
    done = flatq("flatq", "-H", sshd.url, "push", "jobs", input=b"x",
        env={"FLATQ_SSH": sshd.key("bare", "sh", "-c", "exec no-flatq-there door")})
    refused(done, 69, "push", text=b"not found")
    refused(flatq("flatq", "-H", sshd.url, "list", env={"FLATQ_SSH": sshd.limited("wrong",
        "--allow", "work")}), 69, text=b"'work' is none")


def starts(flatq, sshd, *words, data=b"", key="slow"):
    process = flatq.start("flatq", "-H", sshd.url, *words, env={"FLATQ_SSH": sshd.ssh(key)})
    process.stdin.write(data)
    process.stdin.close()
    process.stdin = None
    return process


@pytest.fixture
def slow(sshd, tmp_path):
    """A key whose door is held up `before` it reads the request, or `after` half of its answer."""
    def make(when):
        mark, door = tmp_path / "held", sshd.place / "door"
        hold = f"touch {mark}; while [ -e {mark} ]; do sleep 0.01; done"
        door.write_text(f'{hold}; exec "$@"\n' if when == "before"
            else f'"$@" >{mark}.out; head -c $(($(wc -c <{mark}.out) / 2)) {mark}.out; {hold}\n')
        sshd.limited("slow", before=("sh", door))
        return mark

    return make


CUTS = {
    # the verb, its input, when it is cut, and what it says
    "in a push": ("push", b"x" * 30_000_000, "before", b"; nothing is stored\n"),
    "after a push": ("push", b"stored", "after", b"; it may be stored, or not\n"),
    "in a pop": ("pop", b"", "after", b"is back when its lease ends\n"),
    "before a drain": ("drain", b"", "before", b"may come again\n"),
}


@pytest.mark.parametrize("what", CUTS)
@pytest.mark.shells
def test_a_cut(shell, flatq, sshd, slow, what):
    """Of the message or of the answer: the client writes no part of that, and the message is still
    there."""
    verb, data, when, says = CUTS[what]
    if verb != "push":
        there(flatq, sshd, "push", "jobs", input=b"y" * 1000, check=0)
    mark = slow(when)
    process = starts(flatq, sshd, verb, "jobs", data=data)
    wait_for(mark.exists, "the door there")
    sshd.cut()
    out, err = process.communicate(timeout=100)
    mark.unlink()
    assert (process.returncode, out, err.count(b"\n")) == (69, b"", 1), err
    assert err.startswith(b"flatq %s: ssh://" % verb.encode()) and err.endswith(says), err
    if what == "in a push":
        wait_for(lambda: not any(b"lib/door" in words_of(pid) for pid in of_place(sshd.there)),
            "the door there has ended")
        assert there(flatq, sshd, "pop", "jobs").status == 66
    elif what == "in a pop":
        assert b" reserved " in there(flatq, sshd, "list", "jobs", check=0).out
    else:
        left = there(flatq, sshd, "pop", "-w", "60", "jobs", check=0).out
        assert left == (data or b"y" * 1000)


def test_a_pop_whose_client_is_gone_waits_no_longer(flatq, sshd, far):
    """Else it would take the next message, an hour long, and nobody would have asked for that."""
    there(flatq, sshd, "create", "jobs", check=0)
    process = starts(flatq, sshd, "pop", "-w", "3000", "jobs", key="all")
    wait_for(lambda: lies(sshd.there, "jobs").get("wait"), "it waits")
    sshd.cut()
    assert process.wait(100) == 69
    wait_for(lambda: not lies(sshd.there, "jobs").get("wait"), "it waits no longer")
    there(flatq, sshd, "push", "jobs", input=b"kept", check=0)
    assert there(flatq, sshd, "pop", "jobs", check=0).out == b"kept"


# ---- what is no URL of a host

WORDS = ["-oProxyCommand=touch X", "-F/X", "a b", "a\tb", "a;touch X", "a`touch X`", "$(touch X)",
    "a|b", "a'b", 'a"b', "a\\b", "a*b", "é", "a\nb", "%h", "", "a&b", "a/b", "[a", "a]", "[g]",
    "[]"]
URLS = [f"ssh://{word}" for word in WORDS] + [f"ssh://{word}@host" for word in WORDS
    if "/" not in word] + [f"ssh://host:{word}" for word in (*WORDS, "0", "65536", "22x", "-p")]


def test_nothing_of_the_url_is_an_option_or_a_word_for_a_shell(flatq, tmp_path):
    program = tmp_path / "ssh"
    program.write_text(f'#!/bin/sh\nprintf "[%s]" "$@" >>{tmp_path}/ran\n')
    program.chmod(0o755)
    env = {"FLATQ_SSH": f"{program} -o *"}
    for url in URLS:
        url = url.replace("X", str(tmp_path / "ran"))
        refused(flatq("flatq", "-H", url, "list", env=env), 64, "list",
            text=b"-H takes HOST:PORT, unix:PATH or ssh://")
    assert not (tmp_path / "ran").exists()
    there = (r"""[sh -c 'exec flatq door --spool """
        r""""${FLATQ_DIR:-${XDG_STATE_HOME:+$XDG_STATE_HOME/flatq}}"']""")
    for url, words in (("host", "[host]"), ("me@host-1.example:0022",
            "[-p][22][-l][me][host-1.example]"), ("[::1]:2222", "[-p][2222][::1]"),
            ("a.b@c@[fe80::1]", "[-l][a.b@c][fe80::1]")):
        assert flatq("flatq", "-H", f"ssh://{url}", "list", env=env).status == 69
        assert (tmp_path / "ran").read_text() == "[-o][*][-T]" + words + there
        (tmp_path / "ran").unlink()


# ---- the shovel


def shovels(flatq, *words, **more):
    return flatq("shovel", "--once", "-w", "60", *words, **more)


def test_a_shovel_has_one_connection(far, flatq, sshd):
    numbers = [b"%d" % number for number in range(20 if everything() else 6)]
    flatq("push", "-l", "here", input=b"".join(number + b"\n" for number in numbers), check=0)
    shovels(flatq, "here", f"{sshd.url}/there", check=0)
    assert sshd.logins() == 1
    shovels(flatq, f"{sshd.url}/there", "back", check=0)
    assert sshd.logins() == 2
    assert flatq("drain", "back", check=0).out.split() == numbers
    assert there(flatq, sshd, "stat", "there", check=0).out.count(b" 0\n") >= 4
    wait_for(lambda: not sshd.connections(), "its connections have ended")


def test_a_shovel_that_is_not_let_in(far, flatq, sshd):
    """It does not try again: that passes only when somebody changes something."""
    push(flatq, b"x", "here")
    (sshd.place / "known").write_text("")
    refused(shovels(flatq, "here", f"{sshd.url}/there"), 77, "shovel",
        text=b"Host key verification failed")
    assert flatq("pop", "here", check=0).out == b"x"


@pytest.mark.slow
def test_a_killed_shovel_leaves_no_connection(far, flatq, sshd):
    """It ends when nobody has used it for the time of a lease."""
    there(flatq, sshd, "create", "there", check=0)
    process = flatq.start("shovel", f"{sshd.url}/there", "here")
    wait_for(lambda: lies(sshd.there, "there").get("wait"), "it waits there")
    shared, = {word[12:] for pid in of_place(sshd.place) for word in words_of(pid).split(b"\0")
        if word.startswith(b"ControlPath=")}
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not sshd.connections(), "its connections have ended", seconds=90)
    # Only the empty directory of its socket is left
    shutil.rmtree(os.path.dirname(os.fsdecode(shared)))
