"""Real servers for tests, each on a free port of 127.0.0.1; a certificate; modules that may not be
installed."""

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
    """Python's module of that name. If it is missing, a run under CI fails and any other skips the
    test."""
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
    """A new certificate for localhost: ncat's options for it, and the context of a client that
    trusts it."""
    need("openssl")
    key, certificate = str(place / "key.pem"), str(place / "certificate.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj",
        "/CN=localhost", "-days", "2", "-keyout", key, "-out", certificate], check=True,
        capture_output=True)
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    return ("--ssl", "--ssl-cert", certificate, "--ssl-key", key), context


class Server:
    """A program that can be killed and started again, on the same port and with the same files. It
    is ready when it answers the first of `greeting` with the second."""

    greeting = b"", b""

    def __init__(self, place):
        self.place, self.port, self.process = place, free(), None
        place.mkdir()
        self.start()

    def environment(self):
        return None

    def start(self):
        self.process = subprocess.Popen(
            self.command(), env=self.environment(), cwd=self.place, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: self.ready() or self.process.poll() is not None, "the server answers", 200)
        assert self.process.poll() is None, "the server has ended"

    def ready(self):
        sent, said = self.greeting
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(sent)
                return not said or connection.recv(100).startswith(said)
        except OSError:
            return False

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
    """It writes to an append-only file before it answers. redis-tools has the server as
    redis-check-rdb, which goes by the name that it is called with."""

    greeting = b"PING\r\n", b"+PONG"

    def command(self):
        program = shutil.which("redis-server")
        if not program:
            program = self.place / "redis-server"
            if not program.exists():
                program.symlink_to(need("redis-check-rdb"))
        options = {"port": self.port, "bind": "127.0.0.1", "save": "", "appendonly": "yes",
            "appendfsync": "always", "daemonize": "no"}
        return [program, *(str(word) for name, value in options.items() for word in (f"--{name}",
            value))]


class Beanstalkd(Server):
    """A beanstalkd with a binlog."""

    def command(self):
        return [need("beanstalkd"), "-l", "127.0.0.1", "-p", str(self.port), "-b", str(self.place),
            "-f0"]


class Epmd(Server):
    """Erlang's register of nodes."""

    def command(self):
        return [need("epmd"), "-address", "127.0.0.1", "-port", str(self.port)]


class Rabbit(Server):
    """A RabbitMQ with files, a cookie and a register of its own. `place` is below a directory that
    exists."""

    greeting = b"AMQP\0\0\x09\x01", b"\1"

    def __init__(self, place):
        self.program = os.path.join(os.path.dirname(os.path.realpath(need("rabbitmq-server",
            "epmd"))), "rabbitmq-server")
        self.nodes, self.between = Epmd(place.with_name(place.name + "-nodes")), free()
        try:
            super().__init__(place)
        except BaseException:
            self.__exit__()
            raise

    def command(self):
        """The program that Debian's wrapper runs as user rabbitmq. It execs the server, so no shell
        stands between us and it."""
        (self.place / "rabbitmq.conf").write_text(
            "max_message_size = 1000000\ndisk_free_limit.absolute = 1MB\n")
        return [self.program]

    def environment(self):
        one_core = ("+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none "
            "-kernel inet_dist_use_interface {127,0,0,1}")
        return {
            "PATH": os.environ["PATH"], "HOME": str(self.place), "RUNNING_UNDER_SYSTEMD": "true",
            "ERL_EPMD_ADDRESS": "127.0.0.1", "ERL_EPMD_PORT": str(self.nodes.port),
            "RABBITMQ_NODENAME": "flatq@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1", "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.between),
            "RABBITMQ_MNESIA_BASE": str(self.place / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.place / "log"),
            "RABBITMQ_PID_FILE": str(self.place / "pid"),
            "RABBITMQ_CONF_ENV_FILE": str(self.place / "none"),
            "RABBITMQ_CONFIG_FILE": str(self.place / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.place / "plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": one_core,
        }

    def control(self, *words):
        """rabbitmqctl."""
        program = os.path.join(os.path.dirname(self.program), "rabbitmqctl")
        subprocess.run([program, *words], env=self.environment(), cwd=self.place,
            stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=200)

    def __exit__(self, *error):
        if self.process:
            super().__exit__()
        self.nodes.__exit__()


class Moto(Server):
    """Moto's SQS. Its messages end with it."""

    def command(self):
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
