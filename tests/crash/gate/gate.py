"""Run a process tree behind a gate that counts its changes to one directory, and break one of them.

Mechanism
    A forked child installs a seccomp filter, hands its listener over (SCM_RIGHTS) and execs the
    command. Every call of _TABLE that is of the `kinds` wanted, by any process of the tree, stops
    *before* it happens, until `_Gate.watch`, the one loop, has answered. The loop reads the
    caller's memory and /proc/PID to learn which file is meant. Calls on the watched root or below
    it, and writes to the standard output, are counted over the whole tree (1, 2, 3 ...) and
    recorded; all others go on. A `Fault` strikes one count. Calls that copy without a write are
    refused, so that cat and mv fall back to calls that are seen. This process is the subreaper of
    its descendants, so a run ends only when all of them are dead and reaped.

Limits
    - Needs Linux 5.19 and x86-64, no privilege: see `available`.
    - A call is recorded as asked for; whether it succeeded is not seen. Links, modes, owners and
      stores through mmap are not seen either.
    - Processes that run side by side reach the gate in the order that the scheduler chooses.
    - A signal that comes just when a call reaches the gate makes it fail with EINTR, where it would
      have gone through without the gate. So the gate gives SIGCHLD's handlers SA_RESTART.
    - setuid programs have no effect, and gates do not nest.
    - Reaping is a matter of the whole process: use it side by side in processes, not in threads.

    >>> with tempfile.TemporaryDirectory() as root:
    ...     result = run(["sh", "-c", ": >a; mv a b"], root, cwd=root, fault=Fault("kill_tree", 2))
    >>> [(call.seq, call.kind, call.paths, call.fate) for call in result.calls]
    [(1, 'open', ('a',), 'run'), (2, 'rename', ('a', 'b'), 'killed')]
"""
from __future__ import annotations

import contextlib
import ctypes
import errno as errnos
import fcntl
import functools
import os
import re
import select
import signal
import socket
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .processes import children, with_children

#: Kinds of call that need room, which ENOSPC and EDQUOT strike (on some file systems "rename" too).
SPACE: frozenset[str] = frozenset({"open", "write", "mkdir", "mknod"})
#: Kinds of call that change anything, which EROFS strikes.
CHANGES: frozenset[str] = SPACE | {"rename", "unlink", "rmdir", "truncate"}
#: Calls that only look; that end a process; that begin one. Counted only if a run asks for them
#: (`kinds`), and then instead of the changes.
READS, ENDS = frozenset({"look", "list", "read"}), frozenset({"exit"})
FORKS, EXECS = frozenset({"fork"}), frozenset({"exec"})


@dataclass(frozen=True)
class Fault:
    """The fault that strikes the counted call number `point` (from 1), which then does not happen,
    or only in part.

    kind: "kill_tree": SIGKILL to every process. "kill_one": only to the caller; the rest goes on.
        "errno": the call fails with `errno`. "errno_from": so does every later one. "errno_file":
        so does every later one on that path. "torn": `size` bytes of a write are carried
        out, then as kill_tree.
    size: bytes; negative: all but so many; None: half. What is no write, or too small to be cut so,
        is left alone.
    only: the kinds of call (`Call.kind`) that it may strike, as in SPACE; None: all.
    where: a pattern: count only the calls that it is found in. So the fault strikes the same call
        whatever its number is in this run.
    output: an error strikes writes of the answer; else only calls on files.
    """

    kind: str
    point: int
    errno: int | None = None
    size: int | None = None
    only: frozenset[str] | None = None
    where: str = ""
    output: bool = False

    def part(self, size: int) -> int:
        """The number of bytes of a write of `size` that are carried out."""
        return size // 2 if self.size is None else self.size if self.size >= 0 else size + self.size

    def means(self, call: Call) -> bool:
        return re.search(self.where, str(call)) is not None

    def strikes(self, call: Call, before: int, struck: tuple[str, ...] | None = None) -> bool:
        """Whether it strikes this call. `before`: the number of counted calls before it that are
        meant; `struck`: the paths of the first that was struck."""
        here = self.means(call) and self.point == 1 + before
        if struck is not None:
            here = here or self.kind == "errno_from" or (self.kind == "errno_file"
                and call.paths == struck)
        if self.kind == "torn":
            here = here and call.kind == "write" and 0 < self.part(call.size) < call.size
        elif self.errno:
            answer = call.paths == ("<stdout>",)
            here = here and self.output == answer and call.paths != ("<fd1>",)
        return here and (self.only is None or call.kind in self.only)


@dataclass(frozen=True)
class Call:
    """One counted call, as it was asked for."""

    seq: int
    pid: int
    comm: str
    name: str  # of the system call
    kind: str  # as in _TABLE; of an open that makes nothing, look; of unlinkat, also rmdir
    # below the root ("." is itself), else absolute; "<stdout>"; "<fd1>": a pipe in its place
    paths: tuple[str, ...]
    size: int = 0  # bytes, of write and truncate
    flags: int = 0  # flags or mode
    offset: int | None = None  # of a write
    data: bytes | None = None  # of a write
    fate: str = "run"  # or "killed", "torn", "ENOSPC" ...

    def __str__(self) -> str:
        return " ".join((self.comm + ":", self.kind, *self.paths))


@dataclass
class Result:
    """How a run ended."""

    status: int = 0  # exit code, or minus the signal
    stdout: bytes = b""
    stderr: bytes = b""
    calls: list[Call] = field(default_factory=list)
    timed_out: bool = False  # the command itself was still there after `timeout`

    @property
    def fired(self) -> int:
        """How many calls the fault struck."""
        return sum(call.fate != "run" for call in self.calls)


Each = Callable[[Call, bytes, bytes], None]

# Name, number, kind, arguments: pN path at N; aN directory at N, path at N+1; tN text; fN a file's
# descriptor; bN buffer, length; vN iovec, count; oN offset; zN size; xN flags or mode. An errno:
# refused with it.
_TABLE = """
open 2 open p0 x1 | openat 257 open a0 x2 | write 1 write f0 b1 | pwrite64 18 write f0 b1 o3
writev 20 write f0 v1 | truncate 76 truncate p0 z1 | ftruncate 77 truncate f0 z1 | sync 162 sync
fsync 74 sync f0 | fdatasync 75 sync f0 | syncfs 306 sync f0 | rename 82 rename p0 p1
renameat 264 rename a0 a2 | renameat2 316 rename a0 a2 x4 | unlink 87 unlink p0
unlinkat 263 unlink a0 x2 | rmdir 84 rmdir p0 | mkdir 83 mkdir p0 x1 | mkdirat 258 mkdir a0 x2
mknod 133 mknod p0 x1 | mknodat 259 mknod a0 x2 | copy_file_range 326 EXDEV | sendfile 40 EINVAL
splice 275 EINVAL | stat 4 look p0 | lstat 6 look p0 | newfstatat 262 look a0 | statx 332 look a0
access 21 look p0 | faccessat 269 look a0 | faccessat2 439 look a0 | readlink 89 look p0
readlinkat 267 look a0 | chdir 80 look p0 | getdents64 217 list f0 | read 0 read f0
pread64 17 read f0 | readv 19 read f0 | clone 56 fork | clone3 435 fork | fork 57 fork
vfork 58 fork | execve 59 exec t0 | exit_group 231 exit
"""
#: A shell asks to hear of its children's ends: see Limits.
_SIGACTION = 13
_SECCOMP, _CLOSE_RANGE, _SETPIPE_SZ = 317, 436, 1031
_PDEATHSIG, _NO_NEW_PRIVS = 1, 38
_RECV, _SEND, _VALID, _SET_FLAGS, _CONTINUE = 0xC0502100, 0xC0182101, 0x40082102, 0x40082104, 1
_SET_SUBREAPER, _GET_SUBREAPER = 36, 37
_SA_RESTART = 0x10000000
_MAKES = os.O_CREAT | os.O_TRUNC | 0o20000000  # O_TMPFILE without O_DIRECTORY's bit
_AT_FDCWD, _AT_REMOVEDIR = -100, 0x200


_CALLS = {int(row[1]): (row[0], row[2], [(word[0], int(word[1:])) for word in row[3:]])
    for row in map(str.split, _TABLE.strip().replace("\n", "|").split("|"))}


def _filter(kinds: frozenset[str]) -> bytes:
    """The filter as BPF; calls that it lets pass by their number alone, the kernel remembers in a
    bitmap."""
    load, equal, bits, end = 0x20, 0x15, 0x45, 0x06
    allow, notify, refuse = 0x7FFF0000, 0x7FC00000, 0x00050000
    code = [(load, 0, 0, 0)]
    # The kernel begins a fork anew if SIGCHLD comes meanwhile, and would count it twice: so forks
    # stop only where they are counted, and then with all that only look, which makes that rare
    stop = READS | ENDS | FORKS | EXECS if kinds >= FORKS else kinds
    for number, (_, kind, where) in _CALLS.items():
        if kind == "open" and "look" not in stop:
            code += [(equal, 0, 4, number), (load, 0, 0, 16 + 8 * where[1][1]),
                (bits, 0, 1, _MAKES), (end, 0, 0, notify), (end, 0, 0, allow)]
        elif kind[0] == "E":
            code += [(equal, 0, 1, number), (end, 0, 0, refuse | getattr(errnos, kind))]
        elif kind in stop or kind == "open":
            code += [(equal, 0, 1, number), (end, 0, 0, notify)]
    code += [(equal, 0, 3, _SIGACTION), (load, 0, 0, 16), (equal, 0, 1, signal.SIGCHLD),
        (end, 0, 0, notify), (end, 0, 0, allow)]
    return b"".join(struct.pack("=HBBI", *step) for step in code)


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.argtypes, _LIBC.syscall.restype = [ctypes.c_long] * 4, ctypes.c_long
_LIBC.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4


def _syscall(name: str, number: int, *args: int) -> int:
    value: int = _LIBC.syscall(number, *args)
    if value < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return value


def _read(path: str, size: int = 65536, offset: int = 0) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, size, offset)
    finally:
        os.close(fd)


def _status(pid: int | str, name: bytes) -> int:
    """A number from /proc/PID/status; -1 if there is none."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return int(_read(f"/proc/{pid}/status").partition(b"\n" + name + b":")[2].split(b"\n",
            1)[0] or -1)
    return -1


class _Gate:
    """One run: `start` makes the child, `watch` is the loop, `finish` ends and reaps whatever is
    left."""

    def __init__(self, root: Path | str, fault: Fault | None, each: Each | None,
                 kinds: frozenset[str]) -> None:
        self.root = os.path.realpath(os.fsencode(root))
        self.below = os.path.join(self.root, b"")
        self.fault, self.each, self.kinds = fault, each, kinds
        self.result, self.over = Result(), False
        self.met = 0  # the number of counted calls that the fault means
        self.struck: tuple[str, ...] | None = None  # the paths of the first call that it struck
        self.child = 0  # 0 before the fork, and again when it has been reaped
        self.before, self.filters = set(children("self")), _status("self", b"Seccomp_filters")
        self.files = contextlib.ExitStack()
        self.line, self.far = map(self.files.enter_context, socket.socketpair(socket.AF_UNIX,
            socket.SOCK_SEQPACKET))
        pipes = [[open(end, mode, 0) for end, mode in zip(os.pipe(), ("rb", "wb"))]
            for _ in range(3)]
        # standard input, output, error
        self.near = [pipes[0].pop(1), pipes[1].pop(0), pipes[2].pop(0)]
        self.ends = [pipe[0] for pipe in pipes]
        for file in (*self.near, *self.ends):
            self.files.enter_context(file)
        self.output = os.readlink(b"/proc/self/fd/%d" % self.near[1].fileno())
        self.collected: list[list[bytes]] = [[], [], []]

    def start(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path | str,
            stdin: bytes) -> None:
        """Fork the child, and receive its listener. OSError: there is none, with what it said."""
        fcntl.fcntl(self.near[0], _SETPIPE_SZ, max(len(stdin), 4096))  # it holds all of it
        self.near[0].write(stdin)
        code = ctypes.create_string_buffer(_filter(self.kinds))
        program = struct.pack("@HP", (len(code) - 1) // 8, ctypes.addressof(code))
        self.child = os.fork()
        if not self.child:
            self._become([os.fspath(word) for word in argv], dict(env), cwd, program)
        self.pidfd = os.pidfd_open(self.child)
        self.files.callback(os.close, self.pidfd)
        self.far.close()
        for end in (*self.ends, self.near[0]):
            end.close()
        listeners = socket.recv_fds(self.line, 1, 1)[1]
        if not listeners:
            raise OSError(errnos.ECHILD, os.fsdecode(self.near[2].read() or b"the child died"))
        self.listener = listeners[0]
        self.files.callback(os.close, self.listener)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self.listener, _SET_FLAGS, 1)  # wake callers on this processor (Linux 6.6)

    def _become(self, argv: list[str], env: dict[str, str], cwd: Any, program: bytes) -> None:
        """The child: hand the filter's listener over and become the command, which ends with the
        worker. What fails is said on the standard error."""
        try:
            os.setsid()
            _LIBC.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            for target, end in enumerate(self.ends):  # all of them are above 2
                os.dup2(end.fileno(), target)
            _syscall("close_range", _CLOSE_RANGE, 3, 0xFFFFFFFF, 4)  # close on exec
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
                signal.signal(number, signal.SIG_DFL)
            os.chdir(cwd)
            _LIBC.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
            held = ctypes.create_string_buffer(program)
            # NEW_LISTENER, WAIT_KILLABLE_RECV: a signal does not call away a call that was received
            listener = _syscall("seccomp", _SECCOMP, 1, 8 | 32, ctypes.addressof(held))
            socket.send_fds(self.far, [b"."], [listener])
            os.execvpe(argv[0], argv, env)
        except (OSError, ValueError) as error:
            os.write(2, f"{argv[0]}: {error}\n".encode())
        finally:
            os._exit(127)

    def watch(self, timeout: float, linger: float) -> None:
        """The loop: answer calls and read the output, until the tree is gone, the fault has ended
        it or time is up."""
        end, look, poll = time.monotonic() + timeout, 0.0, select.poll()
        streams = {self.near[index].fileno(): index for index in (1, 2)}
        for fd in streams:
            os.set_blocking(fd, False)
        for fd in (self.listener, self.pidfd, *streams):
            poll.register(fd, select.POLLIN)
        while not self.over:
            now = time.monotonic()
            # As init would: a dead orphan must not stay in /proc for long
            if now >= min(look, end):
                look = now + 0.005
                if now < end and self.child and not os.waitid(os.P_ALL, 0,
                        os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    continue
                if not self._left():
                    return
                if now >= end:
                    self.result.timed_out = bool(self.child)
                    return
            for fd, event in poll.poll(1000 * min(end - now, 0.05 if self.child else 0.005)):
                if fd == self.listener:
                    if event & select.POLLIN:
                        self._answer()
                    else:  # POLLHUP: the last that carried the filter is just going
                        self.finish(kill=False)
                    break  # it may have ended the run
                elif fd == self.pidfd:
                    poll.unregister(fd)
                    look, end = 0, min(end, now + linger)
                elif not self.collect(streams[fd]):
                    poll.unregister(fd)

    def collect(self, index: int) -> bool:
        """Read what an output pipe holds now; False at its end."""
        data: bytes | None = b"."
        while data:
            data = self.near[index].read(65536)
            self.collected[index].append(data or b"")
        return data is None

    def _left(self) -> list[int]:
        """Reap the dead processes of the run; return what is left of the command and its orphans,
        which we adopted."""
        left = []
        for pid in children("self"):
            if pid == self.child or pid not in self.before and _status(pid,
                    b"Seccomp_filters") > self.filters:
                done, status = os.waitpid(pid, os.WNOHANG)
                if not done:
                    left.append(pid)
                elif pid == self.child:
                    self.child, self.result.status = 0, os.waitstatus_to_exitcode(status)
        return left

    def finish(self, kill: bool = True) -> None:
        """Reap the whole tree; kill it first, unless it is known to be going."""
        bound = time.monotonic() + 60
        with contextlib.suppress(ProcessLookupError):
            if kill and self.child:
                # All at once; then processes that left the group
                os.killpg(self.child, signal.SIGKILL)
        while True:
            left = self._left()
            if not left and not self._left():  # one just reaped may have left us its own
                self.over = True
                return
            if time.monotonic() > bound:
                raise TimeoutError(errnos.ETIMEDOUT, f"processes that do not die: {left}")
            for pid in (pid for top in left for pid in with_children(top) if kill):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.0002)

    def _ioctl(self, request: int, data: bytes | bytearray) -> bool:
        """False: that caller has died, or a signal called it away; its call did not happen."""
        with contextlib.suppress(FileNotFoundError, InterruptedError):
            fcntl.ioctl(self.listener, request, data)
            return True
        return False

    def _reply(self, token: int, value: int = 0, error: int = 0, flags: int = 0) -> bool:
        return self._ioctl(_SEND, struct.pack("=QqiI", token, value, error, flags))

    def _answer(self) -> None:
        note = bytearray(80)
        if not self._ioctl(_RECV, note):
            return
        token, pid, _, number, _, _, *args = struct.unpack("=QIIiIQ6Q", note)
        if number == _SIGACTION:
            self._restart(pid, args[1])
            self._reply(token, flags=_CONTINUE)
            return
        lasts = self.fault and self.fault.kind in ("errno_from", "errno_file")
        if "open" not in self.kinds and self.struck is not None and not lasts:
            # No call after the strike counts, and of reads there are thousands
            self._reply(token, flags=_CONTINUE)
            return
        call: Call | None = None
        try:
            call = self._decode(pid, number, args)
            if call and self.each:
                for stream in (1, 2):
                    self.collect(stream)
                self.each(call, b"".join(self.collected[1]), b"".join(self.collected[2]))
            if call and self.fault and self.fault.strikes(call, self.met, self.struck):
                call = self._strike(self.fault, call, token, args)
            elif not self._reply(token, flags=_CONTINUE):
                return
        # the caller is gone, or its descriptor or address is bad: the kernel will say so
        except OSError as error:
            if error.errno not in (errnos.ENOENT, errnos.ESRCH, errnos.EIO):
                raise
            call = None
            self._reply(token, flags=_CONTINUE)
        if call:
            self.result.calls.append(call)
            if call.fate != "run" and self.struck is None:
                self.struck = call.paths
            self.met += bool(self.fault and self.fault.means(call))

    def _restart(self, pid: int, action: int) -> None:
        """Add SA_RESTART to the flags of a struct sigaction of the kernel's, in the caller's
        memory; at 0 there is none."""
        if action:
            with contextlib.suppress(OSError), open(f"/proc/{pid}/mem", "r+b", 0) as memory:
                memory.seek(action + 8)
                flags = int.from_bytes(memory.read(8), sys.byteorder)
                memory.seek(action + 8)
                memory.write((flags | _SA_RESTART).to_bytes(8, sys.byteorder))

    def _strike(self, fault: Fault, call: Call, token: int, args: list[int]) -> Call | None:
        """Apply the fault; the call with its fate. None if the caller is dead already: nothing was
        done then, the call never happened, and the next one, which gets its number, is struck in
        its place."""
        part = (call.data or b"")[:fault.part(call.size)] if fault.kind == "torn" else b""
        if not self._ioctl(_VALID, struct.pack("=Q", token)):
            return None
        if fault.errno:
            alive = self._reply(token, error=-fault.errno)
            return replace(call, fate=errnos.errorcode[fault.errno]) if alive else None
        if part and call.paths == ("<stdout>",):  # which we read ourselves: there may be no room
            self.collect(1)
            self.collected[1].append(part)
        elif part:
            with open(f"/proc/{call.pid}/fd/{args[0] & 0x7FFFFFFF}", "r+b", 0) as file:
                os.pwrite(file.fileno(), part, call.offset or 0)
        if fault.kind == "kill_one":
            os.kill(call.pid, signal.SIGKILL)  # one that is gone is no strike either: see _answer
        else:
            self.finish()
        return replace(call, fate="torn" if part else "killed")

    def _decode(self, pid: int, number: int, args: list[int]) -> Call | None:
        """The call, if it counts."""
        name, kind, where = _CALLS[number]
        at = {letter: args[index] for letter, index in where}
        flags = at.get("x", 0) & 0xFFFFFFFF
        if kind == "open" and not flags & _MAKES:
            kind = "look"
        # How the command itself begins and ends is no fault that it could see
        if kind not in self.kinds or pid == self.child and kind in EXECS | ENDS:
            return None
        counts, paths = name == "sync" or kind in FORKS | EXECS | ENDS, []
        for letter, index in where:
            if letter == "f":
                link = b"/proc/%d/fd/%d" % (pid, args[index] & 0xFFFFFFFF)
                path = os.readlink(link)
                stdout = args[index] == 1 or path == self.output
                if name == "syncfs":
                    counts = os.stat(link).st_dev == os.stat(self.root).st_dev
                elif kind == "write" and not (self._inside(path)
                        and stat.S_ISREG(os.stat(link).st_mode)):
                    counts, path = stdout, b"<stdout>" if path == self.output else b"<fd1>"
                else:
                    counts = self._inside(path)
                paths.append(path)
            elif letter in "pat":
                text = _read(f"/proc/{pid}/mem", 4096, args[index + (letter == "a")]).partition(
                    b"\0")[0]
                if letter != "t":
                    directory = args[index] if letter == "a" else _AT_FDCWD
                    text = self._path(pid, ctypes.c_int(directory & 0xFFFFFFFF).value, text)
                    counts = counts or self._inside(text)
                paths.append(text)
        if not counts:
            return None
        size, offset, data = at.get("z", 0), at.get("o"), None
        if kind == "write":
            pieces = [(at["b"], args[2])] if "b" in at else struct.iter_unpack("@QQ",
                _read(f"/proc/{pid}/mem", 16 * min(args[2], 1024), at["v"]))
            data = b"".join(_read(f"/proc/{pid}/mem", length, start) for start, length in pieces)
            size = len(data)
            offset = self._offset(pid, args[0]) if offset is None else offset
        if name == "unlinkat" and flags & _AT_REMOVEDIR:
            kind = "rmdir"
        comm = os.fsdecode(_read(f"/proc/{pid}/comm").rstrip(b"\n"))
        names = tuple(os.fsdecode(b"." if path == self.root else path.removeprefix(self.below))
            for path in paths)
        return Call(len(self.result.calls) + 1, pid, comm, name, kind, names, size, flags, offset,
            data)

    def _inside(self, path: bytes) -> bool:
        return path == self.root or path.startswith(self.below)

    def _offset(self, pid: int, fd: int) -> int:
        _, at, _, flags, *_ = _read(f"/proc/{pid}/fdinfo/{fd}").split()
        append = int(flags, 8) & os.O_APPEND
        return os.stat(f"/proc/{pid}/fd/{fd}").st_size if append else int(at)

    def _path(self, pid: int, directory: int, text: bytes) -> bytes:
        """The absolute name of what a path argument means, with all links resolved but a last one;
        "?" and the argument, if its directory cannot be reached, so that the call can only fail."""
        if text == b"/dev/null":
            return text
        given = text
        if text.startswith(b"/proc/self/"):  # it means the caller, not us
            text = b"/proc/%d" % pid + text[10:]
        if not text.startswith(b"/"):
            base = b"/proc/%d/cwd" % pid if directory == _AT_FDCWD else b"/proc/%d/fd/%d" % (pid,
                directory)
            if not text:  # AT_EMPTY_PATH: a look at an open file, which cannot fail
                return b"?"
            text = base + b"/" + text
        head, tail = os.path.split(text.rstrip(b"/"))
        with contextlib.suppress(OSError):
            if tail in (b".", b"..", b""):
                return self._resolve(text)
            return os.path.join(self._resolve(head), tail)
        return b"?" + given

    def _resolve(self, path: bytes) -> bytes:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            return os.readlink(b"/proc/self/fd/%d" % fd)
        finally:
            os.close(fd)


def run(argv: Sequence[str], root: Path | str, *, env: Mapping[str, str] | None = None,
        stdin: bytes = b"", cwd: Path | str | None = None, fault: Fault | None = None,
        timeout: float = 30, linger: float = 1, each: Each | None = None,
        kinds: frozenset[str] | None = None) -> Result:
    """Run `argv` behind a gate on the directory `root`; nothing of it is left when this returns.

    env, cwd, stdin: as in subprocess. timeout: seconds for all. linger: seconds that the rest of
    the tree may go on after the command itself has ended. each(call, stdout, stderr) is called
    before each counted call, which waits meanwhile: what lies below the root then is what a kill
    of the whole tree at that call leaves; the streams are what has come so far. kinds: count only
    calls of these kinds, of READS, ENDS, FORKS and EXECS, and no changes; once a fault has struck
    that does not last, later calls pass uncounted. Raises OSError if the gate cannot be set up."""
    before = ctypes.c_int()
    _LIBC.prctl(_GET_SUBREAPER, ctypes.addressof(before), 0, 0, 0)
    with contextlib.ExitStack() as stack:  # undone from the last to the first
        stack.callback(_LIBC.prctl, _SET_SUBREAPER, before.value, 0, 0, 0)
        _LIBC.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
        gate = _Gate(os.fspath(root), fault, each, kinds or CHANGES | {"sync"})
        stack.enter_context(gate.files)
        stack.callback(gate.finish)
        gate.start(argv, os.environ if env is None else env, cwd or ".", stdin)
        gate.watch(timeout, linger)
        gate.finish()
        for index in (1, 2):
            gate.collect(index)
        gate.result.stdout, gate.result.stderr = map(b"".join, gate.collected[1:])
        return gate.result


@functools.cache
def available() -> tuple[bool, str]:
    """Whether faults can be injected here, tried on a small script; and if not, why."""
    if (machine := os.uname().machine) != "x86_64":
        return False, f"no seccomp gate: not written for {machine}"
    with tempfile.TemporaryDirectory() as root:
        try:
            result = run(["/bin/sh", "-c", "printf abcd >x"], root, cwd=root,
                fault=Fault("torn", 2), timeout=60)
        except OSError as error:
            return False, f"no seccomp gate: {error.strerror} (it needs Linux 5.19)"
    ended = result.fired, result.status
    return (True, "") if ended == (1, -9) else (False, "no seccomp gate: calls are not seen")
