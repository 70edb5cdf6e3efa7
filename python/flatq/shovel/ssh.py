"""A line door on another machine, by ssh: one connection, which all requests share.

A process of ours, `ssh -M -N`, keeps the connection. Each request is a session in it: `ssh -S SOCKET` runs `flatq door` there."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

from .. import verbs
from ..errors import Denied, Error, Invalid, Unreachable, of_system, printable

# Nothing else may become an option of ssh, or a word for a shell; lib/doors/ssh.sh has the same rule, and the same command
_URL = re.compile(r"ssh://(?:([A-Za-z0-9._+][A-Za-z0-9@._+-]*)@)?(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._][A-Za-z0-9._-]*))(?::([0-9]{1,5}))?")
_DOOR = "sh -c 'exec flatq door --spool \"${FLATQ_DIR:-${XDG_STATE_HOME:+$XDG_STATE_HOME/flatq}}\"'"
_REFUSED = re.compile(r"Host key verification failed\.|\S+: Permission denied \(.*\)\.|.*: Too many authentication failures")
#: Seconds until a connection must have been made
PATIENCE = 30


class Ssh:
    """The door at ssh://[USER@]HOST[:PORT]. Connects at its first use, and again after a failure."""

    def __init__(self, place: str) -> None:
        parts = _URL.fullmatch(place)
        if not parts or (parts[4] and not 0 < int(parts[4]) < 65536):
            raise Invalid(f"'{place}': ssh://[USER@]HOST[:PORT]/QUEUE", 65)
        self.place = place
        self.words = [*(("-p", parts[4]) if parts[4] else ()), *(("-l", parts[1]) if parts[1] else ()), parts[2] or parts[3]]
        self.directory = ""
        self.keeper: verbs.Process | None = None

    def exchange(self, request: bytes, wait: float) -> tuple[bytes, Error]:
        """The door's answer, as much of it as came, and the error to raise if that is not all. Raises Unreachable, Denied, Busy or Disk if nothing
        was sent."""
        process: verbs.Process | None = None
        try:
            self._connect()
            with verbs.source(request) as stdin:
                process = self._start(["-o", "ControlMaster=no"], [_DOOR], stdin, subprocess.PIPE, subprocess.PIPE)
                try:
                    out, err = process.communicate(timeout=wait + 30)
                except subprocess.TimeoutExpired:
                    self.close()
                    out, err = b"", b"no answer"
                finally:
                    if process.returncode is None:
                        process.kill()
                        process.communicate()
        except Error:
            # Some are an OSError, too
            raise
        except OSError as error:
            if process is None:
                raise of_system(self.place, error) from None
            out, err = b"", (error.strerror or str(error)).encode()
        return out, self._failure(err)

    def _start(self, options: list[str], command: list[str], stdin: object, stdout: int, stderr: object) -> verbs.Process:
        words = [*(os.environ.get("FLATQ_SSH") or "ssh -o BatchMode=yes").split(), "-T", "-S", os.path.join(self.directory, "s"), *options]
        try:
            # In a session of its own: a terminal's ^C is for us, who may still wait for an acknowledgement
            return verbs.Process([*verbs.with_us(), *words, *self.words, *command], stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True)
        except OSError as error:
            raise Unreachable(f"{self.place}: {words[0]}: {error.strerror}", 69) from None

    def _connect(self) -> None:
        if self.keeper and self.keeper.poll() is None:
            return
        self.close()
        self.directory = tempfile.mkdtemp(prefix="flatq.")
        try:
            with tempfile.TemporaryFile() as errors:
                self.keeper = self._start(["-M", "-N", "-o", "ControlPersist=no"], [], subprocess.DEVNULL, subprocess.DEVNULL, errors)
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
            with contextlib.suppress(ProcessLookupError):
                keeper.send_signal(signal.SIGTERM)
                # One that was stopped would not hear it
                keeper.send_signal(signal.SIGCONT)
            # RACE: OpenSSH's handler sets a flag, which is looked at before a poll(): a TERM that comes between them is seen at the next packet
            end = time.monotonic() + 2
            while keeper.poll() is None and time.monotonic() < end:
                time.sleep(0.01)
            keeper.kill()
            keeper.wait()
        if self.directory:
            shutil.rmtree(self.directory, ignore_errors=True)
            with contextlib.suppress(OSError):  # without free descriptors, rmtree cannot open the directory, which is empty by now
                os.rmdir(self.directory)
            self.directory = ""
