"""A line door on another machine, by ssh: one connection, which all requests share.

A process of ours, `ssh -M -N`, keeps the connection. Each request is a session in it:
`ssh -S SOCKET` runs `flatq door` there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from typing import Any

from ..errors import Denied, Error, Invalid, Unreachable, of_system, printable

# Nothing else may become an option of ssh, or a word for a shell. lib/doors/ssh.sh has the same
# rule, and the same command
_URL = re.compile(r"ssh://(?:([A-Za-z0-9._+][A-Za-z0-9@._+-]*)@)?"
                  r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._][A-Za-z0-9._-]*))(?::([0-9]{1,5}))?")
_DOOR = ("sh -c 'exec flatq door --spool"
         " \"${FLATQ_DIR:-${XDG_STATE_HOME:+$XDG_STATE_HOME/flatq}}\"'")
_REFUSED = re.compile(r"Host key verification failed\.|\S+: Permission denied \(.*\)\."
                      r"|.*: Too many authentication failures")
#: Seconds until a connection must have been made
PATIENCE = 30


class Ssh:
    """The door at ssh://[USER@]HOST[:PORT]. Connects at its first use, and after a failure."""

    def __init__(self, place: str) -> None:
        parts = _URL.fullmatch(place)
        if not parts or (parts[4] and not 0 < int(parts[4]) < 65536):
            raise Invalid(f"'{place}': ssh://[USER@]HOST[:PORT]/QUEUE", 65)
        self.place = place
        port, user = ("-p", parts[4]) if parts[4] else (), ("-l", parts[1]) if parts[1] else ()
        self.words = [*port, *user, parts[2] or parts[3]]
        self.directory = ""
        self.keeper: subprocess.Popen[bytes] | None = None

    def exchange(self, request: bytes, wait: float) -> tuple[bytes, Error]:
        """Return as much of the door's answer as came, and the error to raise if that is not all.

        Raises Unreachable, Denied, Busy or Disk if nothing was sent.
        """
        try:
            self._connect()
            pipe = subprocess.PIPE
            process = self._start("-o", "ControlMaster=no", command=[_DOOR], stdin=pipe,
                                  stdout=pipe, stderr=pipe)
        except Error:
            # Some are an OSError, too
            raise
        except OSError as error:
            raise of_system(self.place, error) from None
        with process:
            try:
                out, err = process.communicate(request, wait + 30)
            except subprocess.TimeoutExpired:
                out, err = b"", b"no answer"
                self.close()
            finally:
                process.kill()
        return out, self._failure(err)

    def _start(self, *options: str, command: list[str], **how: Any) -> subprocess.Popen[bytes]:
        # If we are killed, it ends too
        words = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
        program = (os.environ.get("FLATQ_SSH") or "ssh -o BatchMode=yes").split()
        words += [*program, "-T", "-S", os.path.join(self.directory, "s"), *options]
        # In a session of its own: a terminal's ^C is for us, who may wait for an acknowledgement
        return subprocess.Popen([*words, *self.words, *command], start_new_session=True, **how)

    def _connect(self) -> None:
        if self.keeper and self.keeper.poll() is None:
            return
        self.close()
        self.directory = tempfile.mkdtemp(prefix="flatq.")
        try:
            with tempfile.TemporaryFile() as errors:
                null = subprocess.DEVNULL
                self.keeper = self._start("-M", "-N", "-o", "ControlPersist=no", command=[],
                                          stdin=null, stdout=null, stderr=errors)
                end = time.monotonic() + PATIENCE
                # The socket is there once we are let in
                while not os.path.exists(os.path.join(self.directory, "s")):
                    if self.keeper.poll() is not None or time.monotonic() > end:
                        errors.seek(0)
                        raise self._failure(errors.read(), 68)
                    time.sleep(0.01)
        except BaseException:
            self.close()
            raise

    def _failure(self, said: bytes, code: int = 69) -> Error:
        lines = [text for line in said.splitlines() if (text := printable(line).strip())]
        refused = [line for line in lines if _REFUSED.fullmatch(line)]
        if refused:
            return Denied(f"{self.place}: {refused[-1]}", 77)
        return Unreachable(f"{self.place}: {lines[-1] if lines else 'no whole answer'}", code)

    def close(self) -> None:
        """End the connection."""
        keeper, self.keeper = self.keeper, None
        if keeper:
            keeper.terminate()
            try:
                # OpenSSH may see a TERM only at the next packet
                keeper.wait(2)
            except subprocess.TimeoutExpired:
                keeper.kill()
                keeper.wait()
        if self.directory:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = ""
