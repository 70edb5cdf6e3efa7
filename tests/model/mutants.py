"""The model with a part that is broken on purpose. Each paragraph of mutants.patch names a mutant,
the configuration that shows it, and what is broken. `@@ and` is one more piece of it."""

import sys
import tempfile
from pathlib import Path
from runpy import run_path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from crash.mutant import apply

PATCHES = {each.split(" ")[1]: each
    for each in (HERE / "mutants.patch").read_text().split("\n\n")}


def config(name):
    """The name of the configuration."""
    return PATCHES[name].partition(" (")[2].partition("): ")[0]


def protocol(name):
    """The class Protocol, broken. Raises crash.mutant.Stale if the patch does not apply."""
    with tempfile.TemporaryDirectory() as top:
        path = Path(top) / "protocol.py"
        path.write_text((HERE / path.name).read_text())
        apply(f"--- a/{path.name}\n{PATCHES[name]}", path.parent)
        return run_path(str(path))["Protocol"]
