"""What jobs share: failures as one line and an exit code, tables of text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .. import errors
from .. import spark as flatq_spark
from ..errors import Busy, Denied, Disk, Error, Internal, Invalid, Missing, Unreachable

#: Patterns of an error's text, and the error for each; the first that is found counts
KINDS = (
    (r"No space left on device|Disk quota exceeded|File too large|ENOSPC|\bLost: ", Disk),
    (r"[Pp]ermission denied|PermissionError|AccessControlException", Denied),
    (r"another query reads as|\bTimeoutError: |was not done after", Busy),
    (r"could not connect|Connection refused|All masters are unresponsive"
    r"|Master removed our application", Unreachable),
    (r"no queue |\bLookupError: |PATH_NOT_FOUND|FileNotFound", Missing),
    (r"\bDamaged: |\bValueError: |AnalysisException|MALFORMED|PARSE_|NumberFormat"
    r"|SQLSTATE: 22", Invalid),
    (r"Mkdirs failed|FileExistsError|[Nn]ot a directory|ParentNotDirectory|IOException|^OSError: ",
    Disk),
)


def failure(error: BaseException) -> Error:
    """Any failure, also one that Spark has wrapped, as one line and an exit code."""
    if isinstance(error, Error):
        return error
    if isinstance(error, flatq_spark.Unready):
        return Unreachable(str(error))
    # the names of its bases, too: each may be in KINDS
    text = "".join(f"{base.__name__}: " for base in type(error).__mro__) + str(error)
    # A stream's error names what failed; the reason is in its cause, or in that one's
    cause = getattr(error, "_cause", None)
    while cause is not None:
        text += f"\nCaused by: {cause}"
        cause = getattr(cause, "_cause", None)
    # An error that the package raised in a process of Spark
    ours = re.findall(r"^flatq\.[a-z_.]+\.([A-Z][A-Za-z]+): \n?(?:flatq: )?(.+)$", text,
        re.MULTILINE)
    line = ours[-1][1] if ours else flatq_spark.why(error)
    for own in errors.ERRORS.values():
        if ours and ours[-1][0] == own.__name__:
            return own(line)
    # The innermost cause says more than the errors around it
    java = re.findall(r"^(?:: |Caused by: )[\w.$]+(?:Exception|Error): (.+)$", text, re.MULTILINE)
    if deep := re.search(r"[^\n:]*(?:No space left on device|Permission denied)[^\n]*", text):
        line = deep[0]
    elif "error occurred while calling" in line and java:
        line = java[-1]
    line = re.sub(r"^\[[A-Z_.]+\] ", "", " ".join(line.split()))[:500]
    for pattern, kind in KINDS:
        if re.search(pattern, text):
            return kind(line)
    return Internal(line or type(error).__name__)


def number(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        if value >= 100 or value == int(value):
            return f"{value:,.0f}"
        return f"{value:.2g}" if value < 1 else f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def grid(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table of text; columns that are no numbers are aligned left."""
    cells = [[number(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells)]
    left = [all(isinstance(row[at], str) for row in rows) for at in range(len(heads))]
    return "\n".join("  ".join(cell.ljust(width) if side else cell.rjust(width)
        for cell, width, side in zip(line, widths, left)).rstrip() for line in [heads, *cells])
