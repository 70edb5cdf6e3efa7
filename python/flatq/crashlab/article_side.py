"""The two that article.py compares: how each pushes, pops and recovers, what it has said, and what it has left."""
from __future__ import annotations

import base64
import binascii
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import gate, layout, restart, trees
from .scenarios import ROOT, System

BODIES = tuple(b"message number %d, %s" % (n, word) for n, word in enumerate((b"the first", b"the second", b"the third"), 1))
AFTER = b"pushed after the crash"
@dataclass(frozen=True)
class Side:
    """One of the two. `functions`: shell, in the spool's parent, with $LIB and $FLATQ_DIR: push TEXT, pop, recover."""

    system: System
    functions: str
    door: tuple[str, ...]

    def environment(self, spool: Path, sync: str = "off") -> dict[str, str]:
        return {**self.system.environment(spool, sync), "LIB": str(self.system.lib)}

    def run(self, script: str, spool: Path, root: Path, sync: str = "off", **more: Any) -> gate.Result:
        return gate.run(["sh", "-c", self.functions + script], root, env=self.environment(spool, sync), timeout=60, **more)

    def shell(self, script: str, spool: Path, sync: str = "off") -> bytes:
        return subprocess.run(["sh", "-c", self.functions + script], env=self.environment(spool, sync), capture_output=True, timeout=60).stdout


_OURS = 'push() { printf %s "$1" | sh "$LIB/push" q >/dev/null; }\npop() { sh "$LIB/pop" q; }\nrecover() { sh "$LIB/wal"; }\n'
# as its handler has it, which ends with 0 whatever has happened; and its launch, which recovers
_ITS = '''cd "$FLATQ_DIR" || exit
push() { printf %s "$1" | (queue=q; . "$LIB/push"; exit 0); }
pop() { (queue=q; . "$LIB/pop"; exit 0); }
recover() { for queue in *.queue; do queue=$(basename "$queue" .queue); (. "$LIB/wal"); done; }
'''
SIDES = {"article": Side(System(ROOT / "tests/article", "article"), _ITS, ("launch", "{port}")),
         "flatq": Side(System(), _OURS, ("../launch", "-p", "{port}"))}


def steps() -> list[str]:
    """The scenario in shell; says +N or -N of each push, and <TEXT STATUS> of each pop."""
    pushes = [f"if push {shlex.quote(body.decode())}; then printf '+{n}\\n'; else printf -- '-{n}\\n'; fi\n" for n, body in enumerate(BODIES)]
    return pushes + 3 * ["printf '<'; pop; printf ' %s>\\n' $?\n"]


AGAIN = f"recover; if push {shlex.quote(AFTER.decode())}; then printf '+9\\n'; fi; printf '<'; pop; printf ' %s>\\n' $?\n"


@dataclass
class Said:
    """What the runs have told their caller."""

    stored: list[bytes] = field(default_factory=list)
    handed: list[bytes] = field(default_factory=list)  # whole, by a pop that ended well
    written: set[bytes] = field(default_factory=set)  # whole, by any pop
    wrong: list[str] = field(default_factory=list)

    def read(self, text: bytes) -> None:
        for stored, number, shown, status in re.findall(rb"([+-])(\d)\n|<([^<>]*?)(?: (\d+)>\n|\Z)", text):
            if stored == b"+":
                self.stored.append(AFTER if number == b"9" else BODIES[int(number)])
            elif not stored:
                self._popped(shown, status)

    def _popped(self, shown: bytes, status: bytes) -> None:
        known = shown in (*BODIES, AFTER)
        waiting = [body for body in self.stored if body not in self.written]
        if status == b"0" and shown and not known:
            self.wrong.append(f"handed out {shown!r}")
        if status in (b"0", b"66") and not shown and waiting:
            self.wrong.append(f"nothing was handed out, though {waiting[0]!r} is there")
        if known:
            if status == b"0":
                self.handed.append(shown)
            self.written.add(shown)


def dump(side: str, spool: Path) -> list[bytes | None]:
    """What can still be taken, in order; None: what is not whole."""
    if side == "flatq":
        return layout.dump(spool).bodies("q", "ready", "reserved")
    cut = (spool / "q.cut").exists()
    first = [(spool / "q.out").read_bytes() if (spool / "q.out").exists() else None] if cut else []
    queue = spool / ("q.cut" if cut else "q.queue")
    return first + [_decoded(line) for line in (queue.read_bytes().splitlines() if queue.exists() else [])]


def _decoded(line: bytes) -> bytes | None:
    try:
        return base64.b64decode(line, validate=True)
    except binascii.Error:
        return None


_SEEN: dict[tuple[object, ...], list[bytes | None]] = {}


def recovered(side: str, spool: Path, then_push: bool, boot: bool = False) -> list[bytes | None]:
    """What can be taken after a recovery; `then_push`: one more was pushed before it. The same wreck is recovered once."""
    if side == "flatq":
        layout.age(spool)
        if boot:
            restart.reboot(spool)
    tree = trees.take(spool)
    key = (side, then_push, boot, trees.digest(tree) if side == "flatq" else tree.entries)
    if key not in _SEEN:
        SIDES[side].shell((f"push {shlex.quote(AFTER.decode())}\n" if then_push else "") + "recover", spool)
        _SEEN[key] = dump(side, spool)
    return _SEEN[key]


def judge(said: Said, left: Sequence[bytes | None], *, power: bool = False, pushed: bool = False) -> list[str]:
    """What is wrong, one line each. `power`: what was popped may come again; `pushed`: AFTER was, before the recovery."""
    order = [*BODIES, AFTER]
    wrong = list(said.wrong)
    must = [body for body in [*said.stored, *([AFTER] if pushed else [])] if body not in said.written]
    wrong += [f"lost: {body!r}" for body in must if body not in left]
    wrong += [f"left, and no message: {body!r}" for body in left if body not in order]
    known = [body for body in left if body in order]
    wrong += [f"twice: {body!r}" for body in order if known.count(body) + (0 if power else said.handed.count(body)) > 1]
    for some in (said.handed, known):
        places = [order.index(body) for body in some]
        if places != sorted(places):
            wrong.append(f"out of order: {some}")
    return wrong
