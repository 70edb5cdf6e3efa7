"""python -I -S spawner.py FILTER - fork for gate.py: a process of few pages, where a fork of the worker itself costs the most of a run.

Its standard input is a socket. Each message is marshalled (argv, env, cwd), with four descriptors: standard input, output and error,
and the line to the gate; the answer is the child's number, or minus the error. The child is the *worker's* (CLONE_PARENT), which alone
reaps it, and ends with it (PDEATHSIG). On the line it says "." with the filter's listener, just before it becomes the command; "ERRNO TEXT" if something fails.
"""
import _signal  # type: ignore[import-not-found,unused-ignore]  # the plain ones: fewer pages
import _socket
import ctypes
import errno
import marshal
import os
import struct
import sys

ARM = os.uname().machine == "aarch64"
CLONE, SECCOMP, CLOSE_RANGE = 220 if ARM else 56, 277 if ARM else 317, 436
CLONE_PARENT, PDEATHSIG, NO_NEW_PRIVS = 0x8000, 1, 38
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.argtypes, LIBC.syscall.restype = [ctypes.c_long] * 6, ctypes.c_long
LIBC.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
WORKER = os.getppid()


def become(argv: list[str], env: dict[str, str], cwd: str, ends: tuple[int, ...], line: _socket.socket, program: int) -> None:
    """The child."""
    try:
        os.setsid()
        LIBC.prctl(PDEATHSIG, _signal.SIGKILL, 0, 0, 0)
        if os.getppid() != WORKER:
            os._exit(127)
        for target, fd in enumerate(ends):  # all of them are above 2
            os.dup2(fd, target)
        LIBC.syscall(CLOSE_RANGE, 3, 0xFFFFFFFF, 4, 0, 0)  # close on exec (Linux 5.11)
        for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # which Python ignores
            _signal.signal(number, _signal.SIG_DFL)
        os.chdir(cwd)
        LIBC.prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
        for flags in (8 | 32, 8):  # NEW_LISTENER; WAIT_KILLABLE_RECV (Linux 5.19)
            listener = LIBC.syscall(SECCOMP, 1, flags, program, 0, 0)
            if listener >= 0:
                break
        else:
            raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")
        line.sendmsg([b"."], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", listener))])
        os.execvpe(argv[0], argv, env)
    except (OSError, ValueError) as error:
        code, text = getattr(error, "errno", errno.EINVAL), getattr(error, "strerror", error)
        line.send(os.fsencode(f"{code} {text}: {getattr(error, 'filename', None) or argv[0]!r}"))
    finally:
        os._exit(127)


def main() -> None:
    LIBC.prctl(PDEATHSIG, _signal.SIGKILL, 0, 0, 0)
    code = ctypes.create_string_buffer(bytes.fromhex(sys.argv[1]))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(code)))
    jobs = _socket.socket(fileno=0)
    while os.getppid() == WORKER:
        data, rights, _, _ = jobs.recvmsg(1 << 20, _socket.CMSG_SPACE(16), _socket.MSG_CMSG_CLOEXEC)
        if not data:
            return
        files = struct.unpack("4i", rights[0][2])
        child = LIBC.syscall(CLONE, CLONE_PARENT | _signal.SIGCHLD, 0, 0, 0, 0)
        if not child:
            argv, env, cwd = marshal.loads(data)
            become(argv, env, cwd, files[:3], _socket.socket(fileno=files[3]), ctypes.addressof(program))
        answer = child if child > 0 else -ctypes.get_errno()
        for fd in files:
            os.close(fd)
        jobs.send(struct.pack("i", answer))


if __name__ == "__main__":
    main()
