"""Real servers for tests, each on a free port of 127.0.0.1 and ended by its pid; a certificate; and Python modules that may not be installed."""

import importlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys

import pytest

from conftest import free, need, wait_for


def module(name):
    """The Python module of that name. `make test` installs it: where it is missing, a run under CI fails and any other skips the test."""
    try:
        return importlib.import_module(name)
    except ImportError:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"not installed: Python's {name}", allow_module_level=True)


def here_too(flatq, monkeypatch):
    """This process gets the spool of `flatq`, and verbs that need Python run under this Python."""
    flatq.env["FLATQ_PYTHON"] = sys.executable
    for name in ("FLATQ_DIR", "FLATQ_SYNC"):
        monkeypatch.setenv(name, flatq.env[name])
    return flatq


def certified(place):
    """A new certificate for localhost: ncat's options, by which it shows that, and the context of a client that trusts it."""
    need("openssl")
    key, certificate = str(place / "key.pem"), str(place / "certificate.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2",
                    "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    return ("--ssl", "--ssl-cert", certificate, "--ssl-key", key), context


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


class Server:
    """A program that can be killed and started again, on the same port and with the same files."""

    def __init__(self, place):
        self.place, self.port, self.process = place, free(), None
        place.mkdir()
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            self.command(), cwd=self.place, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: self.ready() or self.process.poll() is not None, "the server answers")
        assert self.process.poll() is None, "the server has ended"

    def ready(self):
        return answers(self.port)

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        if number != signal.SIGSTOP:
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Redis(Server):
    """A Redis that writes to an append-only file before it answers. With everysec, the default, a kill loses what is not yet written, which no
    client can prevent. redis-tools has the server as redis-check-rdb, which goes by the name that it is called with."""

    def command(self):
        program = shutil.which("redis-server")
        if not program:
            program = self.place / "redis-server"
            if not program.exists():
                program.symlink_to(need("redis-check-rdb"))
        options = {"port": self.port, "bind": "127.0.0.1", "save": "", "appendonly": "yes", "appendfsync": "always", "daemonize": "no"}
        return [program, *(str(word) for name, value in options.items() for word in (f"--{name}", value))]

    def ready(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(100).startswith(b"+PONG")
        except OSError:
            return False


class Beanstalkd(Server):
    """A beanstalkd with a binlog."""

    def command(self):
        return [need("beanstalkd"), "-l", "127.0.0.1", "-p", str(self.port), "-b", str(self.place), "-f0"]
