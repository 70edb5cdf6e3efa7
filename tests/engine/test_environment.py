"""Of all variables that a caller has exported, only those that the man page names change what a verb does; of all functions, none."""

import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from conftest import LIB, ROOT, chance, everything, need, share, wait_for
from engine import lies, push
from headers import documented

SCRIPTS = [ROOT / "launch", *sorted(path for path in LIB.rglob("*") if path.is_file() and path.suffix in ("", ".sh"))]
# HOME, PATH and the like, by which every program goes; then those by which the shell says what it is, and those that the shell sets itself
SYSTEM = {"PATH", "HOME", "PYTHONPATH", "LC_ALL"}
SHELLS_OWN = {"BASH_VERSION", "KSH_VERSION", "YASH_VERSION", "ZSH_VERSION", "OPTIND"}


def read_names():
    """Every variable that a script reads: $name, ${name}, and the words in $(( ))."""
    names = set()
    for path in SCRIPTS:
        text = path.read_text()
        names.update(re.findall(r"\$\{?#?([A-Za-z_]\w*)", text))
        for sum_ in re.findall(r"\$\(\((.*?)\)\)", text, re.S):
            names.update(re.findall(r"(?<![\w$.{])[A-Za-z_]\w*", sum_))
    return names


def test_what_is_read_with_a_default_is_not_inherited():
    """`set -u` ends a verb that reads a variable without a value. So only a variable that is read with a default can come from outside, and
    engine/common.sh unsets each of these."""
    first = re.search(r"\n  unset ((?:[^\n]*\\\n)*[^\n]*)\n", (LIB / "engine/common.sh").read_text())[1].replace("\\\n", " ").split()
    assert first == sorted(first)
    defaults = {name for path in SCRIPTS for name in re.findall(r"\$\{([A-Za-z_]\w*):?[-+=]", path.read_text())}
    assert defaults - SYSTEM - SHELLS_OWN - documented() == set(first)


# variables that change what the shell, ls, awk and perl do
TOOLS = {
    "IFS": "0123456789.-/", "CDPATH": "/:/tmp", "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8", "POSIXLY_CORRECT": "1",
    "BASHOPTS": "nullglob:dotglob:failglob", "SHELLOPTS": "noclobber:errexit:pipefail:keyword:monitor:noglob", "GLOBIGNORE": "*",
    "QUOTING_STYLE": "c", "TIME_STYLE": "+%s", "BLOCK_SIZE": "1K", "LS_BLOCK_SIZE": "1K", "PERLIO": ":crlf", "PERL_UNICODE": "SDA",
}


def hostile(names, value, place):
    """All the names with that value. If a verb runs the value, a file appears at `place`."""
    return {name: value.replace("X", str(place)) for name in names - SYSTEM - SHELLS_OWN - documented()} | TOOLS


def said(text):
    """The text without what differs at each run: nonces, receipts and times."""
    text = re.sub(rb"\d{4}-\d\d-\d\dT[\d:.]+Z", b"DATE", text)
    text = re.sub(rb"(?m)^((?:DATE|-) \S+ \S+ .*) \d+$", rb"\1 MS", text)
    text = re.sub(rb"\b[0-9a-f]{12}\b", b"NONCE", text)
    text = re.sub(rb"(Receipt-Id: |Message-Id: |receipt-id=)\S+", rb"\1R", text)
    text = re.sub(rb"(Timestamp: |Date: ).*", rb"\1T", text)
    text = re.sub(rb"(?m)^(oldest|pid|uptime|id|age|hostname|time-left|rusage\S*|delay)(:?) .*$", rb"\1\2 N", text)
    text = re.sub(rb'("oldest_seconds":|"time":|_last_minute":|Content-Length: )[\d.]+', rb"\1N", text)
    text = re.sub(rb'points="[^"]*"|<td>\d+ (?:s|min)</td>|\b\d?\d:\d\d:\d\d\b', b"N", text)  # of the status page
    return re.sub(rb"\b1[6-9]\d{8}(\.\d+)?\b", b"TIME", text)


def outcomes(flatq, env):
    """What each verb and each door prints, and what is left, in a spool of its own."""
    seen = []

    def run(verb, *args, data=b"", receipt=False):
        done = flatq(verb, *args, input=data, env=env)
        seen.append((verb, args if not receipt else "R", done.status, said(done.out), said(done.err)))
        return done.out

    def reserve(queue):
        return run("reserve", "-t", "60", queue).split(b" ")[0].decode()

    run("create", "-b", "500", "-m", "9", "q")
    for options in ([], ["-p", "7"], ["-k", "key"], ["-k", "key"], ["-n", "2"], ["-e"], ["-d", "0"], ["-l"], ["-n", "9"]):
        run("push", *options, "q", data=b"ab\xff\xfe\r\n.\n")
    run("push", "-d", "1000", "q", data=b"late")
    run("pop", "q")
    run("pop", "-l", "-n", "2", "q")
    for verb, *options in (["release"], ["release", "-p", "9", "-d", "0"], ["touch"], ["bury", "-r", "why"]):
        run(verb, *options, reserve("q"), receipt=True)
    run("delete", reserve("q"), receipt=True)
    for verb, *options in (["kick", "-n", "5"], ["peek"], ["peek", "-s", "delayed"], ["list"], ["log"], ["doctor"], ["wal"], ["claim", "-c", "me", "-n", "1"],
                           ["settle", "-c", "me", "1"], ["unclaim", "-c", "me"]):
        out = run(verb, *options, "q")
        if verb == "claim":
            seen[-1] = (*seen[-1][:3], out.split(b" ")[:2], seen[-1][4])
        if verb == "log":
            seen[-1] = (*seen[-1][:3], [line.split()[2:5] for line in out.splitlines()], seen[-1][4])
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
    for line in (b"push f\nx", b"@push -e f\ny\n.\n", b"@pop f\n", b"pop f\n", b"@n1@list\n", b"pop nowhere\n", b"nothing\n", b"@push -n 4 f\nab"):
        run("handler", data=line)
    run("beanstalk", data=b"use t\r\nput 1 0 9 5\r\nhello\r\nput 1 0 9 3\r\nhel\rl\r\nreserve-with-timeout 0\r\nwatch t\r\nreserve\r\nstats-job 1\r\nlist-tubes\r\nquit\r\n")
    run("small-stalk", data=b"put 5 60\r\njob\r\nreserve\r\nquit\r\n")
    for request in (b"POST /queue?group-id=g", b"POST /queue?group-id=g", b"GET /queue?group-id=g", b"GET /queue/stats", b"GET /"):
        run("http", data=request + b" HTTP/1.1\r\nHost: q\r\nContent-Length: 2\r\n\r\nhi")
    run("./launch", "-x")
    run("./launch", "-h")
    run("drain", "-l", "q")
    run("drain", "-l", "t", "g", "default")
    return seen


VALUES = ["$(touch X)", "a[$(touch X)]", "1", "/etc/passwd", "-n"]


@pytest.mark.costly
@pytest.mark.shells
def test_inherited_variables_decide_nothing(shell, flatq, tmp_path):
    names = read_names()
    assert len(names) > 500 and {"take_stop", "remote_mark", "FLATQ_DOOR", "ids_high"} <= names
    flatq.env["FLATQ_PYTHON"] = sys.executable  # else a script finds Python, and bash runs that script
    usual = outcomes(flatq, {})
    name = os.path.realpath(shell)
    values = share(f"hostile {name}", VALUES, 1)
    if everything() and not name.endswith("dash"):
        values = chance(f"hostile {name}").sample(values, 3)
    for number, value in enumerate(values):
        flatq.env["FLATQ_DIR"] = str(tmp_path / f"spool-{number}")
        place = tmp_path / "ran"
        other = outcomes(flatq, hostile(names, value, place))
        assert [pair for pair in zip(usual, other, strict=True) if pair[0] != pair[1]] == [], value
        assert not place.exists(), value


@pytest.mark.parametrize("shell", ["bash"], indirect=True)
def test_inherited_functions_decide_nothing(flatq, tmp_path):
    """bash takes functions from its environment. Here it gets one for each word of the scripts: for all programs, all commands of the shell and all
    functions of flatq. It cannot take one for a reserved word."""
    words = {word for path in SCRIPTS for word in re.findall(r"\b[A-Za-z_]\w*", path.read_text())}
    words -= set("case do done elif else esac fi for function if in select then time until while".split())
    assert {"ls", "mv", "sh", "set", "unset", "command", "read", "shell_reset", "shell_forget", "door_turn"} <= words
    ran = tmp_path / "ran"
    flatq.env.update({f"BASH_FUNC_{word}%%": f"() {{ echo {word} >>'{ran}'; }}" for word in words})
    done = [flatq(*args, input=text) for text, *args in (
        (b"m1", "push"), (b"m2", "flatq", "push"), (b"push\nm3", "handler"), (b"", "flatq", "pop"), (b"", "work", "-n", "1", "--", "cat"), (b"pop\n", "handler"),
        (b"", "doctor"))]
    assert not ran.exists(), ran.read_text()[:200]
    assert [(one.status, one.out) for one in done] == [(0, out) for out in (b"1\n", b"2\n", b"3\n", b"m1", b"m2", b"m3", b"")]


@pytest.mark.shells
def test_a_caller_that_has_become_the_verb(shell, flatq):
    """Its process has the number that a variable of its names."""
    for name in ("push", "flatq"):
        words = [*flatq.command(name)[1:], *(["push"] if name == "flatq" else []), "q"]
        script = 'export shell_own=$$ needed=" " part=engine/common; exec "$0" "$@"'
        done = subprocess.run([flatq.shell, "-c", script, flatq.shell, *words], env=flatq.env, input=b"m", capture_output=True)
        assert (done.returncode, done.stderr) == (0, b""), done


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
        done = subprocess.run([need(name), LIB / "push"], input=b"x y", env=flatq.env, capture_output=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, number, b"")
    assert subprocess.run([need(name), LIB / "pop"], env=flatq.env, capture_output=True).stdout == b"x y"


def test_the_working_directory_decides_nothing(flatq, tmp_path):
    """It holds a directory, then a file, for every word of the scripts. Some of these mark the end of a list, and no verb takes one for a path."""
    usual = outcomes(flatq, {})
    words = {word for path in SCRIPTS for word in re.findall(r"[\w~.*-]+", path.read_text())} - {".", ".."}
    assert {"end", "end.", "lock", "done", "none", "*", "-n"} <= words
    for make in os.mkdir, lambda path: open(path, "w").close():
        flatq.home = tmp_path / make.__name__
        flatq.home.mkdir()
        for word in words:
            make(flatq.home / word[:255])
        flatq.env["FLATQ_DIR"] = str(tmp_path / f"spool {make.__name__}")
        other = outcomes(flatq, {})
        assert [pair for pair in zip(usual, other, strict=True) if pair[0] != pair[1]] == [], make


# bash keeps what it took over before it read a line of lib/, so FUNCNEST is higher here than flatq needs
UNSET = {"TMOUT": "1", "GLOBSORT": "-name", "GLOBIGNORE": "*", "EXECIGNORE": "*/nothing", "FUNCNEST": "999", "BASH_COMPAT": "4.4", "GAWK_READ_TIMEOUT": "1",
         "MAWK_OPTIONS": "-W version"}


@pytest.mark.parametrize("shell", ["bash"], indirect=True)
def test_what_bash_and_awk_go_by_is_unset(flatq):
    script = 'lib=$0; . "$lib/engine/common.sh"; shell_reset; set -o | grep -E "^(keyword|monitor|allexport|pipefail)"; env'
    done = subprocess.run([flatq.shell, "-c", script, str(LIB)], env={**flatq.env, **UNSET, "SHELLOPTS": TOOLS["SHELLOPTS"]}, capture_output=True, text=True, check=True)
    assert re.findall(r"(?m)^(\w+)\s+(on|off)$", done.stdout) == [(name, "off") for name in ("allexport", "keyword", "monitor", "pipefail")]
    assert not {line.partition("=")[0] for line in done.stdout.splitlines()} & set(UNSET), done.stdout


@pytest.mark.parametrize("shell", ["bash"], indirect=True)
def test_a_queue_whose_name_bash_could_expand(flatq, spool):
    """With extglob, `+(x)` means any file x, xx and so on in the working directory."""
    (flatq.home / "x").touch()
    push(flatq, b"other", "x")
    process = flatq.start("pop", "-w", "60", "+(x)", env={"BASHOPTS": "extglob"})
    wait_for(lambda: list(spool.glob("+(x)/wait/*")) or process.poll() is not None, "it waits")
    push(flatq, b"right", "+(x)")
    assert process.communicate(timeout=60)[0] == b"right"


@pytest.mark.parametrize("shell", ["bash"], indirect=True)
def test_a_watchdog_waits_as_long_as_its_worker_lives(flatq):
    """bash ends each `read` after TMOUT seconds. The command runs longer than that, and the watchdog must still not end it."""
    push(flatq, b"whole ")
    done = flatq("work", "-w", "0", "--", "sh", "-c", "cat; sleep 1.3; echo done", env={"TMOUT": "1"}, check=0)
    assert (done.out, done.err) == (b"whole done\n", b"")


@pytest.mark.shells
def test_doors_that_wait_or_stay(shell, flatq, launched, tmp_path):
    env = hostile(read_names(), "1", tmp_path)
    process = flatq.start("handler", env=env)
    process.stdin.write(b"pop -w 60 jobs\n")
    process.stdin.flush()
    wait_for(lambda: lies(flatq.spool, "jobs").get("wait"), "it waits")
    push(flatq, b"y", "jobs")
    assert process.communicate(timeout=60)[0] == b"y"
    flatq.env.update(env)
    door = launched()
    client = door.connect()
    assert client.ask(b"list-tube-used") == b"USING default\r\n"
    connection, = flatq.spool.glob(".doors/[1-9]*-*/*-*")
    door.process.send_signal(signal.SIGUSR1)
    wait_for((connection.parent / "draining").exists, "it drains")


@pytest.mark.parametrize("text", [None, b"", b"# cut"])
@pytest.mark.parametrize("shell", ["bash"], indirect=True)
def test_bashs_own_part_cannot_be_read(flatq, tmp_path, text):
    lib = tmp_path / "lib"
    shutil.copytree(LIB, lib)
    (lib / "engine/bash.sh").unlink()
    if text is not None:
        (lib / "engine/bash.sh").write_bytes(text)
    done = subprocess.run([flatq.shell, lib / "push", "q"], env=flatq.environment(None), input=b"x", capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (74, b"") and done.stderr == b"push: cannot read %s/engine/bash.sh\n" % bytes(lib), done
