"""How strong is the laboratory: each patch of mutants/ breaks a copy of lib, and the family that
its header names has to notice. `python3 -m crash --mutants` prints the table.

A header says what the patch breaks, then which fault of lib/PROMISE.md a user would meet it by,
which family has to catch it, and with which trials, in the words of the command line. A patch has
no line numbers, and only as many lines around a change as it takes to find the place."""
from __future__ import annotations

import re
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import campaign
from .scenarios import ROOT, System
from .trials import Options, Seen

PLACE = Path(__file__).with_name("mutants")
#: Trials after which a mutant is not caught. A history notices by chance: 3 to 8 of 12 do.
MOST = 100


class Stale(Exception):
    """A patch does not apply: lib has changed, and the patch has to change with it."""


@dataclass(frozen=True)
class Mutant:
    name: str
    breaks: str
    promise: str  # the name of a fault in lib/PROMISE.md
    family: str
    trials: tuple[str, ...]  # options of the command line
    patch: str


def read(name: str) -> Mutant:
    breaks, promise, family, trials, patch = re.split(r"\n(?:Promise: |Family: |Trials: |(?=---))",
        (PLACE / f"{name}.patch").read_text(), maxsplit=4)
    return Mutant(name, " ".join(breaks.split()), promise, family, tuple(shlex.split(trials)),
        patch)


def names() -> list[str]:
    return sorted(path.stem for path in PLACE.glob("*.patch"))


def apply(patch: str, top: Path) -> None:
    """Change the files below `top`, each piece wherever it stands. Raises Stale where it is not
    there once."""
    for part in patch.split("\n--- a/"):
        path = top / part.removeprefix("--- a/").split("\n", 1)[0]
        text = path.read_text()
        for piece in part.split("\n@@")[1:]:
            lines = piece.rstrip("\n").split("\n")[1:]
            old, new = ("".join(line[1:] + "\n" for line in lines if line[:1] in (" ", sign))
                for sign in "-+")
            if text.count("\n" + old) != 1:
                raise Stale(f"{text.count(old)} times, not once, in {path.name}:\n{old}")
            text = text.replace("\n" + old, "\n" + new)
        path.write_text(text)


def make(mutant: Mutant, top: Path) -> System:
    """A copy of lib and launch below `top`, with the patch applied."""
    shutil.copytree(ROOT / "lib", top / "lib")
    shutil.copy(ROOT / "launch", top)
    try:
        apply(mutant.patch, top)
    except Stale as error:
        raise Stale(f"{mutant.name}: {error}") from None
    return System(top / "lib", mutant.name)


def command(work: Path) -> int:
    """Print the table of those that were caught; 1: some were not, or a patch is stale."""
    wrong = []
    print("| mutant | what it breaks | fault of the promise | caught by |\n" + "| --- " * 4 + "|")
    for mutant in map(read, names()):
        try:
            lacks = campaign.FAMILIES[mutant.family].lacks()
            if not lacks and (caught := run(mutant, work)):
                print(f"{caught.trial}: {caught.detail[:120]}", file=sys.stderr)
                print(f"| `{mutant.name}` | {mutant.breaks} | {mutant.promise} | {mutant.family} |")
            else:
                wrong.append(f"{mutant.name}: {lacks or f'not caught by {mutant.family}'}")
        except Stale as error:
            wrong.append(f"{error}")
    sys.stderr.writelines(f"{text}\n" for text in wrong)
    return int(bool(wrong))


def run(mutant: Mutant, work: Path) -> Seen | None:
    """The trial of its family that notices the mutant. Raises Stale."""
    given = dict(zip(mutant.trials[::2], mutant.trials[1::2]))
    fault = given.get("--fault")
    options = Options((fault,) if fault else (), given.get("--at", ""), MOST, every=True)
    with tempfile.TemporaryDirectory(prefix="mutant.", dir=work) as own:
        system = make(mutant, Path(own))
        return next((seen for seen in campaign.explore(mutant.family, given["--scenario"], system,
            options, Path(own)) if seen.outcome == "bad"), None)
