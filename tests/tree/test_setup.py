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
    env = {key: value for key, value in os.environ.items()
        if not re.match("MAKE(FLAGS|LEVEL|OVERRIDES)|MFLAGS", key)}
    return subprocess.run([need("make"), "-C", ROOT, "--no-print-directory", *words],
        env={**env, **more}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)


def executable(path, script):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_make_alone_says_what_there_is():
    done = make()
    assert (done.returncode, done.stderr) == (0, "")
    listed = re.findall(r"^make ([\w-]+) ", done.stdout, re.M)
    rules = [name for names in re.findall(r"^([\w-][\w -]*):", MAKEFILE, re.M)
        for name in names.split()]
    assert listed and set(rules) - {"help", "venv"} == set(listed)


INSTALL = """PATH=/bin:/usr/bin
case " $* " in
*" install "*) for name in ncat flock base64; do ln -sf "$0" "${0%/*}/$name"; done ;;
esac"""
APT = "apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends"
THREE = "ncat util-linux coreutils"
NEEDS = {
    "sudo asks for a password": (
        "run", {"id": "echo 1000", "apt-get": "exit 0", "sudo": "exit 1"}, 69, "",
        f"apt:  sudo apt-get install --no-install-recommends {THREE}\n", ["sudo -n true"]),
    "no apt-get": ("run", {}, 69, "", f"""missing: ncat flock base64. To get it:
  apt:  sudo apt-get install --no-install-recommends {THREE}
  dnf:  sudo dnf install nmap-ncat util-linux coreutils
  apk:  sudo apk add nmap-ncat util-linux coreutils\n""", []),
    "as root": (
        "run", {"apt-get": f'[ "$DEBIAN_FRONTEND" = noninteractive ] || exit 1\n{INSTALL}'}, 0,
        f"flatq: installing {THREE}\n", "", [f"{APT} {THREE}"]),
    "the tests go on without": (
        "test", {}, 0, "", "what needs them is left out", []),
    "the pipeline needs Java": ("pipeline", {}, 69, "", "java", []),
}


@pytest.mark.parametrize("case", NEEDS)
def test_need(tmp_path, case):
    """tests/bin/need where only these stubs are installed. Each stub writes down its words."""
    what, stubs, status, out, err, called = NEEDS[case]
    calls = tmp_path / "calls"
    calls.touch()
    (tmp_path / "env").symlink_to(shutil.which("env"))
    for name, script in {"id": "echo 0", **stubs}.items():
        executable(tmp_path / name, f'[ {name} = id ] || echo "{name} $*" >>{calls}\n{script}')
    done = subprocess.run(["/bin/sh", ROOT / "tests/bin/need", what], cwd=tmp_path,
        env={"PATH": str(tmp_path), "PYTHON": sys.executable}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, bool(done.stderr)) == (status, out, bool(err))
    assert err in done.stderr and calls.read_text().splitlines() == called


def test_pipeline_removes_only_its_own_files(tmp_path):
    """It stops there, with a Java that is new enough."""
    executable(tmp_path / "java", "echo 'openjdk version \"21.0.1\"' >&2")
    (tmp_path / "out/spool").mkdir(parents=True)
    done = subprocess.run([ROOT / "tests/bin/pipeline", tmp_path / "out"], timeout=60,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, capture_output=True, text=True)
    said = f"pipeline: {tmp_path}/out holds other things: say a new directory\n"
    assert (done.returncode, done.stdout, done.stderr) == (65, "", said)
    assert (tmp_path / "out/spool").is_dir()


def test_install_and_uninstall(tmp_path, spool):
    """The installed command works, by a link too, and the man page has each verb and door."""
    place = tmp_path / "a prefix"
    assert make("install", f"PREFIX={place}").returncode == 0
    assert sorted(path.name for path in (place / "bin").iterdir()) == ["flatq"]
    kept = {str(path.relative_to(place / "libexec/flatq"))
        for path in (place / "libexec/flatq").rglob("*")}
    assert {*headers.verbs(), "flatq", "engine/common.sh", "handler"} <= kept
    assert not [name for name in kept if name.endswith(".md")]
    page = (place / "share/man/man1/flatq.1").read_text()
    for name in [*headers.verbs(), "handler", "beanstalk", r"small\-stalk", "http"]:
        assert len(re.findall(rf"^\.SS {re.escape(name)}( |$)", page, re.M)) == 1, name
    # the page's lines hold the long path of this prefix
    done = subprocess.run([need("groff"), "-man", "-ww", "-Tascii", "-rLL=300n"],
        input=page.encode(), capture_output=True, timeout=100)
    assert done.stderr == b""
    env = {"PATH": os.environ["PATH"], "FLATQ_DIR": str(spool), "FLATQ_SYNC": "off"}
    (tmp_path / "link").symlink_to(place / "bin/flatq")
    for words_of_flatq, text, status, said in (
        (["push", "jobs"], b"text\0", 0, b"1\n"), (["pop", "jobs"], b"", 0, b"text\0"),
        (["pop", "jobs"], b"", 66, b""),
    ):
        done = subprocess.run([tmp_path / "link", *words_of_flatq], input=text, env=env,
            cwd=tmp_path, stdout=subprocess.PIPE, timeout=100)
        assert (done.returncode, done.stdout) == (status, said)
    make("uninstall", f"PREFIX={place}")
    assert not [path for path in place.rglob("*") if path.is_file()]


def test_make_run(tmp_path, free_port):
    """make run serves, and prints commands to try, which work. ^C ends all its processes."""
    need("ncat")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    server = subprocess.Popen(
        ["make", "-C", ROOT, "--no-print-directory", "run", f"PORT={free_port}"], env=env,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
    try:
        wait_for(lambda: listening(free_port) or server.poll() is not None, "the line door")
        said = [server.stdout.readline().decode().strip() for _ in range(5)]
        assert f"{tmp_path}/.local/state/flatq" in said[0]
        tried = [subprocess.run(["sh", "-c", line], cwd=ROOT, env=env, capture_output=True,
            timeout=100) for line in said[2:]]
        assert [(done.returncode, done.stderr) for done in tried] == [(0, b"")] * 3
        assert re.fullmatch(rb"\d+\n", tried[0].stdout) and tried[1].stdout == b"hello\n"
        again = make("run", f"PORT={free_port}", HOME=str(tmp_path))
        assert again.returncode != 0 and again.stdout == ""
        assert again.stderr.startswith(
            f"serve: bind to 127.0.0.1:{free_port}: Address already in use.\n")
        os.killpg(server.pid, signal.SIGINT)
        server.wait(60)
        wait_for(lambda: not left(server), "an end of all that it started")
        assert not listening(free_port)
    finally:
        kill(left(server))
        server.wait()
        server.stdout.close()
