"""What a person sees: a table at the end, one trial in full."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .gate import faults
from .judge import trees
from .trials import Outcome, Seen, Trial


def table(outcomes: Iterable[Outcome]) -> str:
    """Bad trials of all, by family and kind of fault."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for one in outcomes:
        for row in ((one.trial.family, faults.kind(one.trial.fault)), ("all", "")):
            counts.setdefault(row, Counter())[one.outcome] += 1
    total = {("all", ""): counts.pop(("all", ""), Counter())}
    return "\n".join(f"{family:8} {kind:20} {count['bad']:>5} bad of {sum(count.values())}"
        f"{', {} not reached'.format(count['not reached']) if count['not reached'] else ''}"
        for (family, kind), count in {**counts, **total}.items())


def full(trial: Trial, seen: Seen) -> str:
    """The calls around the one that was struck, the spool before and after, and what is wrong."""
    lines = [f"{trial}", ""]
    struck = next((call.seq for call in seen.calls if call.fate != "run"), 0)
    for call in seen.calls:
        if abs(call.seq - struck) <= 4:
            lines.append(f"{'>' if call.seq == struck else ' '} {call.seq:4} {call}"
                f"{f' ({call.size} bytes)' if call.size else ''}"
                f"{'' if call.fate == 'run' else ': ' + call.fate}")
    lines += [seen.said or seen.call, "", "the spool (- only before, + only after):",
        *_differences(seen.before, seen.after), ""]
    said = "not reached" if seen.wrong is None else "bad" if seen.wrong else "good"
    return "\n".join([*lines, said, *(f"  {text}" for text in dict.fromkeys(seen.wrong or ()))])


def _differences(before: trees.Tree | None, after: trees.Tree | None) -> list[str]:
    def files(tree: trees.Tree | None) -> set[str]:
        return {path + ("/" if content is None else f" ({len(content)} bytes)"
            if isinstance(content, bytes) and content else "")
            for path, content in (tree.entries if tree else ())}

    old, new = files(before), files(after)
    return [f"{' ' if line in old and line in new else '-' if line in old else '+'} {line}"
        for line in sorted(old | new)]
