"""Of the variables that a caller has exported, only those that the man page names change what a verb
does. Other shells are refused."""

import re
import shutil
import subprocess
import sys

import pytest

from conftest import LIB, ROOT, need
from engine import push, refused

SCRIPTS = [ROOT / "launch", *sorted(path for path in LIB.rglob("*") if path.is_file()
    and path.suffix in ("", ".sh"))]


def unset():
    """What engine/common.sh unsets."""
    return re.search(r"\n  unset ([^\n]*)\n", (LIB / "engine/common.sh").read_text())[1].split()


def test_what_is_read_with_a_default_is_not_inherited():
    """`set -u` ends a verb that reads a variable without a value. So only a variable that is read
    with a default can come from outside. Those whose name says a part of flatq do not."""
    defaults = {name for path in SCRIPTS for name in re.findall(r"\$\{([a-z]+):?[-+=]",
        path.read_text())}
    assert sorted(defaults | {"FLATQ_DOOR", "OPTARG"}) == sorted(unset())


# variables that change what the shell, ls, awk and perl do
TOOLS = {
    "IFS": "0123456789.-/", "CDPATH": "/:/tmp", "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8",
    "POSIXLY_CORRECT": "1", "TMOUT": "1", "GAWK_READ_TIMEOUT": "1",
    "SHELLOPTS": "noclobber:errexit:noglob", "MAWK_OPTIONS": "-W version",
    "QUOTING_STYLE": "c", "TIME_STYLE": "+%s", "BLOCK_SIZE": "1K", "LS_BLOCK_SIZE": "1K",
    "PERLIO": ":crlf", "PERL_UNICODE": "SDA",
}


def said(text):
    """The text without what differs at each run: nonces, receipts and times."""
    text = re.sub(rb"\d{4}-\d\d-\d\dT[\d:.]+Z", b"DATE", text)
    text = re.sub(rb"(?m)^((?:DATE|-) \S+ \S+ .*) \d+$", rb"\1 MS", text)
    text = re.sub(rb"\b[0-9a-f]{12}\b", b"NONCE", text)
    text = re.sub(rb"(Receipt-Id: |Message-Id: |receipt-id=)\S+", rb"\1R", text)
    text = re.sub(rb"(Timestamp: |Date: ).*", rb"\1T", text)
    text = re.sub(rb"(?m)^(oldest|pid|uptime|id|age|hostname|time-left|rusage\S*|delay)(:?) .*$",
        rb"\1\2 N", text)
    text = re.sub(rb'("oldest_seconds":|"time":|_last_minute":|Content-Length: )[\d.]+', rb"\1N",
        text)
    # of the status page
    text = re.sub(rb'points="[^"]*"|<td>\d+ (?:s|min)</td>|\b\d?\d:\d\d:\d\d\b', b"N", text)
    return re.sub(rb"\b1[6-9]\d{8}(\.\d+)?\b", b"TIME", text)


def outcomes(flatq, env):
    """What each verb and each door prints, and what is left, in a spool of its own."""
    seen = []

    def run(verb, *args, data=b"", receipt=False):
        done = flatq(verb, *args, input=data, env=env)
        seen.append((verb, args if not receipt else "R", done.status, said(done.out),
            said(done.err)))
        return done.out

    def reserve(queue):
        return run("reserve", "-t", "60", queue).split(b" ")[0].decode()

    run("create", "-b", "500", "-m", "9", "q")
    for options in ([], ["-p", "7"], ["-k", "key"], ["-k", "key"], ["-n", "2"], ["-e"], ["-d", "0"],
            ["-l"], ["-n", "9"]):
        run("push", *options, "q", data=b"ab\xff\xfe\r\n.\n")
    run("push", "-d", "1000", "q", data=b"late")
    run("pop", "q")
    run("pop", "-l", "-n", "2", "q")
    for verb, *options in (["release"], ["release", "-p", "9", "-d", "0"], ["touch"],
            ["bury", "-r", "why"]):
        run(verb, *options, reserve("q"), receipt=True)
    run("delete", reserve("q"), receipt=True)
    for verb, *options in (["kick", "-n", "5"], ["peek"], ["peek", "-s", "delayed"], ["list"],
            ["log"], ["doctor"], ["wal"], ["claim", "-c", "me", "-n", "1"],
                           ["settle", "-c", "me", "1"], ["unclaim", "-c", "me"]):
        out = run(verb, *options, "q")
        if verb == "claim":
            seen[-1] = (*seen[-1][:3], out.split(b" ")[:2], seen[-1][4])
        if verb == "log":
            seen[-1] = (*seen[-1][:3], [line.split()[2:5] for line in out.splitlines()],
                seen[-1][4])
        if verb == "list":
            seen[-1] = (*seen[-1][:3], [line.split()[:3] for line in out.splitlines()], seen[-1][4])
    run("list")
    run("stat", "q")
    run("push", "w", data=b"for the worker")
    run("work", "-q", "w", "-n", "1", "--", "cat")
    run("push", "w", data=b"")
    run("flatq", "work", "-q", "w", "--until-empty", "-m", "1", "--", "false")
    run("push", "from", data=b"moved")
    run("shovel", "--once", "from", "to")
    run("pop", "to")
    run("close", "w")
    run("push", "w", data=b"too late")
    run("drop", "w")
    run("drop", "-f", "w")
    run("flatq", "push", "f", data=b"by flatq")
    run("flatq", "pop", "f")
    for line in (b"push f\nx", b"@push -e f\ny\n.\n", b"@pop f\n", b"pop f\n", b"@n1@list\n",
            b"pop nowhere\n", b"nothing\n", b"@push -n 4 f\nab"):
        run("handler", data=line)
    run("beanstalk",
        data=b"use t\r\nput 1 0 9 5\r\nhello\r\nput 1 0 9 3\r\nhel\rl\r\nreserve-with-timeout "
        b"0\r\nwatch t\r\nreserve\r\nstats-job 1\r\nlist-tubes\r\nquit\r\n")
    run("small-stalk", data=b"put 5 60\r\njob\r\nreserve\r\nquit\r\n")
    for request in (b"POST /queue?group-id=g", b"POST /queue?group-id=g", b"GET /queue?group-id=g",
            b"GET /queue/stats", b"GET /"):
        run("http", data=request + b" HTTP/1.1\r\nHost: q\r\nContent-Length: 2\r\n\r\nhi")
    run("./launch", "-x")
    run("./launch", "-h")
    run("drain", "-l", "q")
    run("drain", "-l", "t", "g", "default")
    return seen


@pytest.mark.slow
@pytest.mark.shells
def test_inherited_variables_decide_nothing(shell, flatq, tmp_path):
    # else a script finds Python, and bash runs that script
    flatq.env["FLATQ_PYTHON"] = sys.executable
    usual = outcomes(flatq, {})
    flatq.env["FLATQ_DIR"] = str(tmp_path / "another")
    other = outcomes(flatq, TOOLS | dict.fromkeys(unset(), f"a[$(touch {tmp_path}/ran)]"))
    assert [pair for pair in zip(usual, other, strict=True) if pair[0] != pair[1]] == []
    assert not (tmp_path / "ran").exists()


@pytest.mark.shells
@pytest.mark.parametrize("variable", ["FLATQ_DIR", "XDG_STATE_HOME"])
def test_a_place_with_bytes_that_are_no_characters(shell, flatq, tmp_path, variable):
    place = tmp_path / b"jos\xc3\xa9\xff".decode(errors="surrogateescape")
    flatq.env.pop("FLATQ_DIR")
    done = flatq("push", "q", input=b"m", env={variable: str(place), "LC_ALL": "C"})
    assert done.out == b"1\n" and (place / ("q" if variable == "FLATQ_DIR" else "flatq/q")).is_dir()


@pytest.mark.parametrize("name", ["dash", "bash"])
def test_a_shell_by_its_own_name(flatq, name):
    """bash is another shell, unless it is called sh."""
    for number in (b"1\n", b"2\n"):
        done = subprocess.run([need(name), LIB / "push"], input=b"x y", env=flatq.env,
            capture_output=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, number, b"")
    assert subprocess.run([need(name), LIB / "pop"], env=flatq.env,
        capture_output=True).stdout == b"x y"


@pytest.mark.slow
def test_the_working_directory_decides_nothing(flatq, tmp_path):
    """It holds a file for every word of the scripts. Some of these mark the end of a list, and no
    verb takes one for a path."""
    usual = outcomes(flatq, {})
    words = {word for path in SCRIPTS for word in re.findall(r"[\w~.*-]+", path.read_text())} - {
        ".", ".."}
    assert {"end", "end.", "lock", "done", "none", "*", "-n"} <= words
    flatq.home = tmp_path / "words"
    flatq.home.mkdir()
    for word in words:
        (flatq.home / word[:255]).touch()
    flatq.env["FLATQ_DIR"] = str(tmp_path / "another")
    assert [pair for pair in zip(usual, outcomes(flatq, {}), strict=True)
        if pair[0] != pair[1]] == []


def test_what_is_stored_is_private(flatq, tmp_path):
    flatq.env["FLATQ_DIR"] = str(tmp_path / "new")
    tmp_path.chmod(0o2777)
    push(flatq, b"secret", "q", env={"FLATQ_FOLD": "1"})
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "new").rglob("*")} == {0}


@pytest.mark.parametrize("name", ["KSH_VERSION", "YASH_VERSION", "ZSH_VERSION"])
def test_another_shell_is_refused(flatq, name):
    """mksh, ksh, yash and zsh say by such a variable what they are."""
    for words in ("push", "q"), ("work", "-q", "q", "--", "cat"), ("./launch",):
        refused(flatq(*words, env={name: "1"}), 70, words[0].removeprefix("./"),
            text=b"dash, busybox")
    assert flatq("handler", input=b"push q\nx", env={name: "1"}).out.startswith(b"error 70 ")
    assert not list(flatq.spool.glob("q"))


@pytest.mark.parametrize("name", ["mksh", "ksh", "yash", "zsh"])
def test_another_shell_that_is_here_is_refused(flatq, name):
    """With one line, before it makes anything."""
    if not shutil.which(name):
        pytest.skip(f"no {name} here")
    for shell, verb in (([name], "push"), ([name], "handler"), (["sh"], "push")):
        done = subprocess.run([*shell, LIB / verb], executable=shutil.which(name),
            input=b"push q\nx", env=flatq.env, capture_output=True)
        assert done.returncode in (0, 70) and b"70" in done.stdout or done.returncode == 70, done
        assert (done.stdout + done.stderr).count(
            b"\n") == 1 and b"dash, busybox" in done.stdout + done.stderr, done
    assert not list(flatq.spool.glob("default"))


def test_the_verbs_first_in_path(shell, flatq):
    """As the article has it: PATH=$PWD/lib:$PATH. No verb or door may run a verb of that name for a
    program that it needs."""
    def day():
        seen = []

        def run(*words, **more):
            done = flatq(*words, **more)
            seen.append((words, done.status, done.out, done.err))
            return done.out.split()

        for word in ("a", "b"):
            run("push", "-k", word, "q", input=b"body")
        run("push", "-l", "many", input=b"1\n2\n3\n")
        run("create", "-b", "9", "-m", "2", "q")
        receipt = flatq("reserve", "q", check=0).out.split()[0].decode()
        run("touch", receipt)
        run("release", receipt)
        flatq("bury", flatq("reserve", "q", check=0).out.split()[0].decode(), check=0)
        for words in ("kick q", "peek q", "stat q", "pop q", "claim -c me -n 1 many",
                "unclaim -c me many", "drain many",
                      "close q", "work -q q -w 0 -- cat", "wal", "doctor", "drop -f q", "list"):
            run(*words.split())
        run("delete", receipt)
        run("handler", input=b"push q\nbody")
        run("http", input=b"GET /q HTTP/1.0\r\n\r\n")
        run("beanstalk", input=b"put 0 0 9 1\r\nx\r\nreserve\r\nquit\r\n")
        for record in (flatq.spool / ".boot").iterdir():
            record.unlink()
        run("stat")
        flatq("drop", "-f", "q")
        flatq("drop", "-f", "default")
        return [(words[0], status) for words, status, *_ in seen]

    usual = day()
    flatq.env["PATH"] = f"{LIB}:{flatq.env['PATH']}"
    assert day() == usual
