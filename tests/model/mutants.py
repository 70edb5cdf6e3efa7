"""The model with a part that is broken on purpose: each patch in mutants/ breaks protocol.py. Its
first line says what it breaks, `Config:` names the configuration that shows it."""

import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from crash.mutant import apply

NAMES = sorted(path.stem for path in (HERE / "mutants").glob("*.patch"))


def read(name):
    """The configuration, and the patch."""
    head, patch = (HERE / f"mutants/{name}.patch").read_text().split("\n--- ", 1)
    return head.split("\nConfig: ")[1], "--- " + patch


def protocol(name):
    """The class Protocol, broken. Raises crash.mutant.Stale if the patch does not apply."""
    with tempfile.TemporaryDirectory() as top:
        path = Path(shutil.copy(HERE / "protocol.py", top))
        apply(read(name)[1], Path(top))
        spec = importlib.util.spec_from_file_location("broken", path)
        sys.modules["broken"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module.Protocol
