"""A real sshd on a free port of 127.0.0.1, with keys and configuration in a directory of its
own."""

import os
import pwd
import subprocess
from pathlib import Path

from conftest import free, listening, need, wait_for
from engine import children, command_of

from crash.gate.processes import kill

CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {place}/host
PidFile none
AuthorizedKeysFile {place}/authorized
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AcceptEnv *
# bash takes itself for another shell's child, so it leaves ~/.bashrc alone: that may print, or wait
SetEnv SHLVL=1
# the newest exchange of keys, which is the default, takes a third of a connection's processor time
KexAlgorithms curve25519-sha256
"""
CLIENT = """\
BatchMode yes
IdentityFile {place}/{key}
IdentitiesOnly yes
IdentityAgent none
StrictHostKeyChecking yes
UserKnownHostsFile {place}/known
GlobalKnownHostsFile none
LogLevel ERROR
"""


class Sshd:
    """`ssh(KEY)` is a value of $FLATQ_SSH that uses the key, and `url` leads here. A key made by
    key(NAME, COMMAND) may only run the command."""

    def __init__(self, place):
        # sshd wants the path of its own file
        self.program = os.path.realpath(need("sshd", "ssh", "ssh-keygen", "setpriv"))
        self.place, self.port = Path(place), free()
        self.place.mkdir()
        self.user = pwd.getpwuid(os.getuid()).pw_name
        self.url = f"ssh://{self.user}@127.0.0.1:{self.port}"
        self.make("host")
        kind, text = (self.place / "host.pub").read_text().split()[:2]
        (self.place / "known").write_text(f"[127.0.0.1]:{self.port} {kind} {text}\n")
        (self.place / "config").write_text(CONFIG.format(place=self.place, port=self.port))
        (self.place / "authorized").touch(0o600)
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(0o755, exist_ok=True)  # as the service's own script does
        self.start()

    def start(self):
        with (self.place / "log").open("ab") as log:
            # A run of tests that is interrupted kills its processes before their fixtures end
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", self.program, "-D",
                "-e", "-f", self.place / "config"], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log)
        wait_for(lambda: listening(self.port) or self.process.poll() is not None, "sshd")
        assert self.process.poll() is None, self.said()

    def said(self):
        return (self.place / "log").read_text()

    def logins(self):
        """How many connections were let in."""
        return self.said().count("Accepted publickey ")

    def make(self, name):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f",
            self.place / name], check=True, stdin=subprocess.DEVNULL)
        (self.place / f"{name}.client").write_text(CLIENT.format(place=self.place, key=name))

    def key(self, name, *words):
        """A key that may only run these words."""
        self.make(name)
        command = " ".join("'" + str(word).replace("'", "'\\''") + "'"
            for word in words).replace('"', '\\"')
        with (self.place / "authorized").open("a") as file:
            file.write(f'restrict,command="{command}" ' + (self.place / f"{name}.pub").read_text())
        return self.ssh(name)

    def ssh(self, name):
        return f"ssh -F {self.place}/{name}.client"

    def connections(self):
        """The processes of sshd that serve a connection."""
        return children(self.process.pid)

    def cut(self):
        """Kill all connections, as if the network were gone."""
        for pid in self.connections():
            kill([pid, *(other for other in children(pid) if "sshd" in command_of(other))])

    def end(self):
        self.cut()
        self.process.terminate()
        self.process.wait()
