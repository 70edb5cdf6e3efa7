"""The crash laboratory: `PYTHONPATH=tests python3 -m crash -h`. README.md has the rest."""

import sys
from pathlib import Path

# what the names of slips and flat files say
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
