"""Arguments of methods, as words for the verbs.

A wrong type raises a TypeError here. A wrong value is the verb's to refuse: Call has the names.
"""

from __future__ import annotations

import math
import operator
import os
import warnings
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar, Union

from .errors import Invalid

T = TypeVar("T")
Seconds = Union[float, timedelta]
FOREVER = 2**32 - 1


def wrong(name: str, allowed: str, value: object) -> TypeError:
    """Return the exception for an argument of a wrong type."""
    return TypeError(f"{name} is {allowed}, not {type(value).__name__}")


def former(old: str, value: T, new: str, stacklevel: int = 4) -> T:
    """Return the value of an argument that has another name now."""
    warnings.warn(f"{old} is {new} now", DeprecationWarning, stacklevel=stacklevel)
    return value


def text(name: str, value: Any) -> str:
    """Return a text."""
    if not isinstance(value, (str, bytes)):
        raise wrong(name, "a str", value)
    return os.fsdecode(value)


def number(name: str, value: Any) -> str:
    """Return a whole number."""
    try:
        return str(operator.index(value))
    except TypeError:
        raise wrong(name, "an int", value) from None


def natural(name: str, value: Any) -> str:
    """Return a number that is no option's, so that the verb would not name it."""
    if (word := number(name, value))[0] == "-":
        raise Invalid(f"{name} is a number from 0, not {word}")
    return word


def seconds(name: str, value: Any) -> float:
    """Return seconds, which may be infinite."""
    found = value.total_seconds() if isinstance(value, timedelta) else value
    try:
        if not math.isnan(found):
            return found
    except TypeError:
        raise wrong(name, "a number of seconds, or a timedelta", value) from None
    raise Invalid(f"{name} is a number of seconds, not nan")


def whole_seconds(name: str, value: Any) -> str:
    """Return seconds, rounded up."""
    found = seconds(name, value)
    return str(FOREVER if found == math.inf else math.ceil(max(found, -1)))


def moment(name: str, value: Any) -> str:
    """Return a time; a timedelta, which `since` may be: so long ago."""
    if isinstance(value, timedelta) and name == "since":
        value = datetime.now(timezone.utc) - value
    if not isinstance(value, datetime):
        raise wrong(name, "a datetime" + ", or a timedelta" * (name == "since"), value)
    return f"@{math.floor(value.timestamp())}"


#: The letters of the verbs' options, and what makes a word of an argument
LETTERS: dict[str, tuple[str, Callable[[str, Any], str]]] = {
    "priority": ("p", number), "delay": ("d", whole_seconds), "lease": ("t", whole_seconds),
    "key": ("k", text), "wait": ("w", whole_seconds), "count": ("n", number),
    "reason": ("r", text), "state": ("s", text), "consumer": ("c", text), "bound": ("b", number),
    "max_tries": ("m", number), "force": ("f", text), "since": ("s", moment),
    "at": ("A", moment), "dead": ("D", text), "expire": ("x", whole_seconds),
    "within": ("t", whole_seconds),
    "queues": ("q", text), "jobs": ("j", number), "timeout": ("x", whole_seconds),
    "delays": ("d", text), "until_empty": ("e", text),
}


def options(given: dict[str, Any]) -> list[str]:
    """Return the options of a verb; None and False are none."""
    words: list[str] = []
    for name, value in given.items():
        if value is None or value is False or (name == "wait" and value == 0):
            continue
        letter, word = LETTERS[name]
        words += [f"-{letter}", *([] if value is True else [word(name, value)])]
    return words


def letters(given: dict[str, Any]) -> dict[str, str]:
    """Return what Python calls an option, by its letter."""
    names = {"force": "force=True", "delays": "delay", "within": "timeout"}
    return {LETTERS[name][0]: names.get(name, name) for name in given}
