"""What the Makefile can make, on a system that lacks programs; and flatq as it is installed."""

import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

import headers
from conftest import ROOT, left, listening, need, wait_for

from crash.gate.processes import kill

MAKEFILE = (ROOT / "Makefile").read_text()


def make(*words, **more):
    """Run make, without what an outer make has put into the environment."""
    env = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS",
        "MAKELEVEL", "MAKEOVERRIDES")}
    return subprocess.run(
        [need("make"), "-C", ROOT, "--no-print-directory", *words],
        env={**env, **more}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100,
    )


def test_make_alone_says_what_there_is():
    done = make()
    assert (done.returncode, done.stderr) == (0, "")
    listed = re.findall(r"^make ([\w-]+) ", done.stdout, re.M)
    rules = [name for names in re.findall(r"^([\w-][\w -]*):", MAKEFILE, re.M)
        for name in names.split()]
    assert listed and set(rules) - {"help", "venv"} == set(listed)


@pytest.fixture
def bare(tmp_path):
    """bare(NAME=SCRIPT, ...) runs tests/bin/need where only these stubs are installed. Each stub
    writes its words to `calls`."""
    place = tmp_path / "bare"
    place.mkdir()
    calls = place / "calls"

    def run(what, uid=0, **stubs):
        calls.write_text("")
        (place / "env").symlink_to(shutil.which("env"))
        for name, script in {"id": f"echo {uid}", **stubs}.items():
            stub = place / name.replace("_", "-")
            stub.write_text(
                f'#!/bin/sh\n[ {name} = id ] || echo "{stub.name} $*" >>{calls}\n{script}\n')
            stub.chmod(0o755)
        done = subprocess.run(
            ["/bin/sh", ROOT / "tests/bin/need", what],
            env={"PATH": str(place), "PYTHON": sys.executable}, cwd=place,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100,
        )
        return done.returncode, done.stdout, done.stderr, calls.read_text().splitlines()

    return run


def test_need_says_how_where_it_must_not_install(bare):
    status, out, err, calls = bare("run", uid=1000, apt_get="exit 0", sudo="exit 1")
    assert (status, out, calls) == (69, "", ["sudo -n true"])
    for command in (
        "apt:  sudo apt-get install --no-install-recommends ncat util-linux coreutils\n",
        "dnf:  sudo dnf install nmap-ncat util-linux coreutils\n",
        "apk:  sudo apk add nmap-ncat util-linux coreutils\n",
        "brew: brew install nmap flock coreutils\n",
    ):
        assert command in err


def test_need_says_how_without_apt(bare):
    status, _, err, _ = bare("run")
    assert status == 69
    assert "missing: ncat flock base64" in err


INSTALL = 'case " $* " in *" install "*) for name in ncat flock base64; do ln -sf "$0" "${0%/*}/$name"; done ;; esac'


def test_need_installs_as_root(bare):
    status, out, err, calls = bare("run",
        apt_get=f'[ "$DEBIAN_FRONTEND" = noninteractive ] || exit 1\nPATH=/bin:/usr/bin\n{INSTALL}')
    assert (status, err) == (0, "")
    assert out == "flatq: installing ncat util-linux coreutils\n"
    assert calls == [
        "apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends ncat util-linux coreutils"]


def test_need_installs_by_sudo_that_asks_nothing(bare):
    sudo = 'shift\nexec "$@"'
    status, _, err, calls = bare("run", uid=1000, sudo=sudo, true="",
        apt_get=f"PATH=/bin:/usr/bin\n{INSTALL}")
    assert (status, err) == (0, "")
    assert [call for call in calls if call.startswith("sudo")][1].startswith(
        "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get ")


def test_need_fetches_lists_where_there_are_none(bare):
    apt_get = f'PATH=/bin:/usr/bin\ncase " $* " in *" update "*) exec touch "${{0%/*}}/lists" ;; esac\n[ -e "${{0%/*}}/lists" ] || exit 100\n{INSTALL}'
    status, _, err, calls = bare("run", apt_get=apt_get)
    assert (status, err) == (0, "")
    assert [re.search(r"install|update", call)[0] for call in calls] == ["install", "update",
        "install"]


def test_need_of_tests_goes_on_without(bare):
    status, _, err, _ = bare("test", apt_get="exit 100")
    assert status == 0
    assert "missing: ncat flock base64 dash" in err and "what needs them is left out" in err


def test_need_finds_this_system_complete():
    need("ncat", "dash", "busybox", "bash", "nc.openbsd", "socat", "setpriv", "strace", "perl",
        "ps")
    done = subprocess.run([ROOT / "tests/bin/need", "test"], capture_output=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.fixture
def pipeline(tmp_path):
    """pipeline(PYTHON, NAME=SCRIPT, ...) runs tests/bin/pipeline in a tree of its own, where stubs
    replace .venv's Python and the verbs. PATH has the programs that it needs and these stubs. Each
    stub writes its words to `calls`."""
    tree, place = tmp_path / "tree", tmp_path / "bin"
    for path in (tree / "tests/bin", tree / "lib", tree / ".venv/bin", place):
        path.mkdir(parents=True)
    for name in ("bin/pipeline", "requirements.txt"):
        shutil.copy(ROOT / "tests" / name, tree / "tests" / name)
    for name in ("sh", "env", "cmp", "cp", "rm", "rmdir", "mkdir", "awk", "sed", "cat"):
        (place / name).symlink_to(shutil.which(name))
    calls = tmp_path / "calls"

    def stub(path, script):
        path.write_text(f'#!/bin/sh\necho "{path.name} $*" >>{calls}\n{script}\n')
        path.chmod(0o755)

    def run(python, verbs='case $1 in reserve) echo "a-receipt 1" ;; push) cat >/dev/null ;; esac',
            **stubs):
        calls.write_text("")
        stub(tree / ".venv/bin/python", python)
        stub(tree / "lib/flatq", verbs)
        for name, script in {"id": "echo 0", "sleep": ":", **stubs}.items():
            stub(place / name.replace("_", "-"), script)
        done = subprocess.run(
            ["/bin/sh", tree / "tests/bin/pipeline", tree / "out"], env={"PATH": str(place)},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        )
        return done.returncode, done.stdout, done.stderr, calls.read_text().splitlines()

    run.tree = tree
    return run


# a Python that has all packages once they were asked for, and a Java whose version is in a file
PACKAGED = '[ "$1 $2" != "-m pip" ]'
JAVA = 'cat "${0%/*}/version" >&2'


def test_pipeline_without_java_says_so_in_one_line(pipeline):
    shutil.copy(ROOT / "tests/requirements.txt", pipeline.tree / ".venv/made")
    version = pipeline.tree.parent / "bin/version"
    version.write_text('openjdk version "11.0.1"\n')
    for more in ({}, {"java": JAVA}):
        status, out, err, calls = pipeline(PACKAGED, **more)
        assert (status, out) == (69, "")
        assert err.startswith(
            "pipeline: no Java: apt-get install openjdk-17-jre-headless") and err.count("\n") == 1
        assert not (pipeline.tree / "out").exists()
    # where apt works, Debian's Java is installed
    apt_get = f"""case " $* " in *" openjdk-17"*) echo 'openjdk version "17"' >{version} ;; esac"""
    status, out, err, calls = pipeline(PACKAGED, verbs="exit 75", apt_get=apt_get, java=JAVA)
    assert (status, out, err) == (75, "pipeline: installing Java\npipeline: queues at work\n", "")


def test_pipeline_installs_packages_and_runs_the_jobs_in_turn(pipeline):
    (pipeline.tree.parent / "bin/version").write_text('openjdk version "21.0.1"\n')
    status, out, err, _ = pipeline(PACKAGED, java=JAVA)
    assert (status, out) == (69, "pipeline: installing PySpark, some 500 MB\n")
    assert err == "pipeline: cannot install what tests/requirements.txt names: see above\n"
    out = pipeline.tree / "out"
    for name in ("spool/old", "report/old", "mine"):
        (out / name).mkdir(parents=True)
    # without its mark, the directory may hold anybody's files
    assert pipeline("")[:3] == (65, "",
        f"pipeline: {out} holds other things: say a new directory\n") and (
        out / "spool/old").is_dir()
    (out / ".made-by-pipeline").touch()
    # a job that fails ends the pipeline with its exit code
    status, said, err, calls = pipeline("case $* in *' report '*) exit 74 ;; esac")
    assert (status, err) == (74, "") and said.endswith(
        "pipeline: queues at work\n\nThe report: "), err
    assert [call.partition("flatq.pipeline ")[2] for call in calls if "flatq.pipeline" in call] == [
        f"events --to {out}/events", f"drain readings --to {out}/tables/readings",
        f"stats --from {out}/events",
        f"report --from {out}/events --to {out}/report --title flatq: a busy little spool"]
    assert calls.index("flatq push -l readings") < calls.index(
        "flatq kick -n 2 thumbnails") < calls.index(
        f"python -m flatq.pipeline events --to {out}/events")
    # the pipeline replaces only its own files
    assert (out / "mine").is_dir() and not (out / "spool/old").exists() and not (
        out / "report/old").exists()


@pytest.mark.parametrize("prefix", ["prefix", "a prefix"])
def test_install_and_uninstall(tmp_path, prefix):
    words = [f"PREFIX=/{prefix}", f"DESTDIR={tmp_path}"]
    assert make("install", *words).returncode == 0
    place = tmp_path / prefix
    assert sorted(path.name for path in (place / "bin").iterdir()) == ["flatq"]
    kept = {str(path.relative_to(place / "libexec/flatq"))
        for path in (place / "libexec/flatq").rglob("*")}
    assert {*headers.verbs(), "flatq", "engine/common.sh", "handler", "launch"} <= kept
    assert not [name for name in kept if name.endswith(".md")]
    page = (place / "share/man/man1/flatq.1").read_text()
    for name in [*headers.verbs(), "launch", "handler", "beanstalk", r"small\-stalk", "http"]:
        assert len(re.findall(rf"^\.SS {re.escape(name)}( |$)", page, re.M)) == 1, name
    done = subprocess.run([need("groff"), "-man", "-ww", "-Tascii"], input=page.encode(),
        capture_output=True, timeout=100)
    assert done.stderr == b""
    make("uninstall", *words)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_installed_command_works(tmp_path, spool):
    assert make("install", f"PREFIX={tmp_path}/p q").returncode == 0
    env = {"PATH": os.environ["PATH"], "FLATQ_DIR": str(spool), "FLATQ_SYNC": "off"}
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "p q/bin/flatq")

    def flatq(*words, input=b""):
        done = subprocess.run([link, *words], input=input, env=env, cwd=tmp_path,
            capture_output=True, timeout=100)
        return done.returncode, done.stdout, done.stderr

    assert flatq("push", "jobs", input=b"text\0") == (0, b"1\n", b"")
    assert flatq("pop", "jobs") == (0, b"text\0", b"")
    assert flatq("pop", "jobs")[0] == 66
    assert flatq("-h")[0] == 0


def test_make_run(tmp_path, free_port):
    """make run serves, prints where the spool is, and prints commands to try, which work. ^C ends
    it and all its processes."""
    need("ncat")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    server = subprocess.Popen(
        ["make", "-C", ROOT, "--no-print-directory", "run", f"PORT={free_port}"],
        env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        wait_for(lambda: listening(free_port) or server.poll() is not None, "the line door")
        said = [server.stdout.readline().decode().strip() for _ in range(5)]
        assert f"{tmp_path}/.local/state/flatq" in said[0]
        push, pop, stat = said[2:]
        tried = [
            subprocess.run(["sh", "-c", line], cwd=ROOT, env=env, capture_output=True, timeout=100)
            for line in (push, pop, stat)
        ]
        assert [(done.returncode, done.stderr) for done in tried] == [(0, b"")] * 3
        assert re.fullmatch(rb"\d+\n", tried[0].stdout)
        assert tried[1].stdout == b"hello\n"
        again = make("run", f"PORT={free_port}", HOME=str(tmp_path))
        assert again.returncode != 0 and again.stdout == ""
        assert again.stderr.splitlines()[
            0] == f"launch: bind to 127.0.0.1:{free_port}: Address already in use."
        assert again.stderr.count("\n") <= 2  # make adds one
        os.killpg(server.pid, signal.SIGINT)
        server.wait(60)
        wait_for(lambda: not left(server), "an end of all that it started")
        assert not listening(free_port)
    finally:
        kill(left(server))
        server.wait()
        server.stdout.close()
        server.stderr.close()
