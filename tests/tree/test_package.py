"""What `make install` gives to systemd, and `make deb` to Debian. No systemd runs here: these tests
start each unit's command as its file says."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import listening, need, share, wait_for
from engine import push
from test_setup import make

#: As systemd names the connections of flatq@PORT.socket (%i)
CONNECTION = "7-127.0.0.1:{}-127.0.0.1:1234"
INSTANCES = ("flatq@1234.socket", "flatq@7.service", "flatq-work@jobs.service")


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """PREFIX of a `make install`."""
    place = tmp_path_factory.mktemp("units") / "a prefix"
    done = make("install", f"PREFIX={place}")
    assert done.returncode == 0, done.stderr
    return place


class Unit:
    """An installed unit: its settings, several values of one name in a list, and its command as
    systemd would start it."""

    def __init__(self, prefix, name):
        self.path = prefix / "lib/systemd/system" / name
        self.text = self.path.read_text()
        self.settings = {}
        for line in self.text.replace("\\\n", " ").splitlines():
            key, equals, value = line.partition("=")
            if equals and not key.startswith("#"):
                self.settings.setdefault(key, []).append(value)

    def environment(self, instance, **more):
        words = shlex.split(" ".join(self.settings["Environment"]).replace("%I", instance))
        return {**dict(word.split("=", 1) for word in words), **more}

    def command(self, instance, **variables):
        """ExecStart: `$NAME` becomes the words of that variable, `$$` a dollar."""
        words = shlex.split(self.settings["ExecStart"][0].removeprefix("-").replace("%i", instance))
        split = [shlex.split(variables.get(word[1:], "")) if re.fullmatch(r"\$\w+", word)
            else [word.replace("$$", "$")] for word in words]
        return [word for some in split for word in some]


def analyze(*words):
    done = subprocess.run([need("systemd-analyze"), "--no-pager", "--man=no", *words],
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"}, capture_output=True, text=True,
        timeout=300)
    assert done.returncode == 0, done
    return done


def test_systemd_reads_the_units(prefix, tmp_path):
    """systemd-analyze finds nothing to say of them, and of their confinement less than 3 of 10."""
    place = prefix / "lib/systemd/system"
    assert sorted(path.name for path in place.iterdir()) == ["flatq-work@.service",
        "flatq@.service", "flatq@.socket"]
    text = (place / "flatq-work@.service").read_text()
    added = "".join(re.findall(r"^#   (.*\n)", text, re.M))
    assert added.startswith("[Service]\nEnvironment=")
    more = tmp_path / "flatq-work@more.service"
    more.write_text(text + added)
    said = analyze("verify", *(place / name for name in INSTANCES), more).stderr
    assert "flatq" not in said
    for name in ("flatq@.service", "flatq-work@.service"):
        said = analyze("security", "--offline=true", place / name).stdout
        assert float(re.search(r"Overall exposure level .*: ([\d.]+)", said)[1]) < 3, said


def allowed(unit):
    """The names of the system calls that the unit's SystemCallFilter= allows."""
    sets = {name: re.findall(r"^ +([@\w-]+)$", rest, re.M) for name, rest in re.findall(
        r"(?ms)^(@[\w-]+)$(.*?)(?=^@|\Z)", analyze("syscall-filter").stdout)}

    def members(name):
        return set().union(*map(members, sets[name])) if name in sets else {name}

    calls = set()
    for value in unit.settings["SystemCallFilter"]:
        named = set().union(*map(members, value.lstrip("~").split()))
        calls = calls - named if value.startswith("~") else calls | named
    return calls


def no_call_is_forbidden(unit, path):
    """Of those that strace wrote to this file, nor a family of sockets."""
    text = path.read_text(errors="replace")
    calls = set(re.findall(r"^\d+ +(\w+)\(", text, re.M))
    assert "execve" in calls and not calls - allowed(unit)
    assert set(re.findall(r"^\d+ +socket\((\w+)", text, re.M)) <= set(
        unit.settings["RestrictAddressFamilies"][0].split())


POST = b"POST /queue?group-id=jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
DOORS = {
    1234: (b"push jobs\nhello", b"1\n"),
    11300: (b"use jobs\r\nput 9 0 60 5\r\nhello\r\nquit\r\n", b"USING jobs\r\nINSERTED 1\r\n"),
    6969: (b"put 9 60\r\nhello\r\nquit\r\n", b"INSERTED 1\r\n"),
    5000: (POST + b"hello", b"HTTP/1.1 200 "),
}


def ask(port, request):
    """All that a door answers to this request, after which the client sends nothing more."""
    with socket.create_connection(("127.0.0.1", port),
            timeout=100) as client, client.makefile("rb") as answer:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        return answer.read()


@pytest.mark.parametrize("port", share("units", DOORS, 1))
def test_the_door_of_each_port(prefix, flatq, free_port, tmp_path, port):
    """A client stores a message through it, and the line door hands it out. They make no call that
    the unit forbids."""
    need("systemd-socket-activate", "strace")
    unit, listener = Unit(prefix, "flatq@.service"), Unit(prefix, "flatq@.socket")
    assert (listener.settings["Accept"], unit.settings["StandardInput"],
        listener.settings["ListenStream"]) == (["yes"], ["socket"], ["127.0.0.1:%i"])
    env = {**unit.environment(""), **flatq.env}

    def served(at, trace):
        words = ["strace", "-f", "-qq", "-o", trace, *unit.command(CONNECTION.format(at))]
        variables = [word for key, value in env.items() for word in ("-E", f"{key}={value}")]
        server = subprocess.Popen(["systemd-socket-activate", "--accept", "--inetd", "-l",
            f"127.0.0.1:{free_port}", *variables, *words], env=env, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        flatq.started.append(server)
        wait_for(lambda: listening(free_port), "the socket")
        return server

    request, answer = DOORS[port]
    server = served(port, tmp_path / "push")
    assert ask(free_port, request).startswith(answer)
    flatq.end(server)
    queue, = flatq("list", check=0).out.decode().split()
    served(99, tmp_path / "pop")
    assert ask(free_port, f"pop {queue}\n".encode()) == b"hello"
    assert ask(free_port, f"pop {queue}\n".encode()) == b""
    no_call_is_forbidden(unit, tmp_path / "push")
    no_call_is_forbidden(unit, tmp_path / "pop")


def test_the_worker(prefix, flatq, tmp_path):
    """On TERM, which KillMode=mixed sends to the worker alone, it finishes its job and exits with
    0. The codes of what the next start would meet again prevent a restart."""
    need("strace")
    unit = Unit(prefix, "flatq-work@.service")
    assert (unit.settings["KillMode"], unit.settings["Restart"]) == (["mixed"], ["on-failure"])

    def start(work, *before):
        env = {**flatq.env, **unit.environment("jobs", **flatq.env), "WORK": work}
        process = subprocess.Popen([*before, *unit.command("jobs", WORK=work)], env=env, cwd="/",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True)
        flatq.started.append(process)
        return process

    prevented = set(unit.settings["RestartPreventExitStatus"][0].split())
    for work, code in (("", 64), ("-q ../x -- true", 65), ("-- no-such-command", 69),
            ("-- /etc/passwd", 77)):
        process = start(work)
        assert process.wait(100) == code and str(code) in prevented
    for text in (b"one", b"two"):
        push(flatq, text, "jobs")
    script = tmp_path / "resize one"
    script.write_text(f"""#!/bin/sh
cd {tmp_path}; cat >>done; touch begun
until [ -e go ]; do sleep 0.1; done; echo " $FLATQ_QUEUE" >>done\n""")
    script.chmod(0o755)
    process = start(f"-x 300 -- '{script}'", "strace", "-f", "-qq", "-o", str(tmp_path / "trace"))
    wait_for((tmp_path / "begun").exists, "the job")
    worker, = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(worker), signal.SIGTERM)
    (tmp_path / "go").touch()
    assert process.wait(100) == 0, process.stderr.read()
    assert (tmp_path / "done").read_text() == "one jobs\n"
    assert flatq("pop", "jobs", check=0).out == b"two"
    no_call_is_forbidden(unit, tmp_path / "trace")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The path of a package that `make deb` has built."""
    need("dpkg-deb")
    place = tmp_path_factory.mktemp("deb")
    done = make("deb", f"DEB={place}")
    assert done.returncode == 0, done.stderr
    built, = place.iterdir()
    return built


def test_the_package(package, flatq, tmp_path):
    """What `make install` installs, for /usr, pages, examples that run, the Python package, the
    units' user, and sums."""
    version = flatq("flatq", "--version", check=0).out.decode().split()[1]
    assert package.name == f"flatq_{version}_all.deb"
    root = tmp_path / "root"
    subprocess.run(["dpkg-deb", "--raw-extract", package, root], check=True)
    assert {path.name for path in (root / "DEBIAN").iterdir()} == {"control", "md5sums",
        "postinst", "prerm"}
    subprocess.run(["md5sum", "--quiet", "-c", "DEBIAN/md5sums"], cwd=root, check=True)
    summed = {line.split(None, 1)[1]
        for line in (root / "DEBIAN/md5sums").read_text().splitlines()}
    assert summed == {str(path.relative_to(root)) for path in root.rglob("usr/**/*")
        if path.is_file()}
    assert {f"usr/{name}" for name in (
        "bin/flatq", "libexec/flatq/push", "lib/systemd/system/flatq@.socket",
        "share/man/man1/flatq.1.gz", "share/doc/flatq/copyright", "share/doc/flatq/changelog.gz",
        "share/bash-completion/completions/flatq", "share/zsh/vendor-completions/_flatq",
        "share/doc/flatq/README.md.gz", "share/doc/flatq/COMING-FROM.md.gz",
    )} <= summed
    libexec, doc = root / "usr/libexec/flatq", root / "usr/share/doc/flatq"
    env = {**flatq.env, "PYTHONPATH": str(root / "usr/lib/python3/dist-packages"),
        "FLATQ_LIB": str(libexec), "PATH": f"{libexec}:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, "-c", "import flatq; flatq.Queue('q').push(b'x')"],
        env=env, capture_output=True)
    assert (done.returncode, flatq("pop", "q").out) == (0, b"x"), done
    done = subprocess.run(["sh", doc / "examples/session.sh"], env=env, cwd=tmp_path,
        capture_output=True, text=True)
    assert "resize 7.png (try 2)" in done.stdout and "not found" not in done.stderr, done
    users = tmp_path / "users"
    (users / "etc").mkdir(parents=True)
    subprocess.run([need("systemd-sysusers"), "--root", users,
        root / "usr/lib/sysusers.d/flatq.conf"], check=True)
    assert (users / "etc/passwd").read_text().startswith("flatq:")
    command = root / "usr/bin/flatq"
    assert command.read_text() == "#!/bin/sh\nexec '/usr/libexec/flatq/flatq' \"$@\"\n"
    assert os.access(command, os.X_OK)
    assert "\nExecStart=\"/usr/bin/flatq\" work" in (
        root / "usr/lib/systemd/system/flatq-work@.service").read_text()


@pytest.mark.slow
def test_the_package_is_the_same_elsewhere(package, tmp_path):
    shutil.rmtree(tmp_path)
    done = make("deb", f"DEB={tmp_path}/another place", TZ="Asia/Tokyo", LC_ALL="C.UTF-8")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "another place" / package.name).read_bytes() == package.read_bytes()


@pytest.mark.slow
def test_lintian_finds_nothing(package, tmp_path):
    """Neither an error (E) nor a warning (W)."""
    done = subprocess.run([need("lintian"), "--allow-root", package], capture_output=True,
        text=True, env={**os.environ, "TMPDIR": str(tmp_path)}, timeout=800)
    assert done.returncode == 0 and not re.search("^[EW]: ", done.stdout, re.M), done
