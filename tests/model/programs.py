"""Processes as Python generators, and the state of each as a small number.

A process yields operations (`Op`) and is sent their results. Generators cannot be copied. So to
reach a state again, the process is run anew with the same results; every pair of state and result
is run once, and then known. Two states are one if their generators stand at the same instructions
and refer to equal values: variables, operands, and what is left of each loop. Tried with CPython
3.11 to 3.13, whose garbage collector shows all of these; an older one's does not."""

import sys
from collections.abc import Iterator
from copy import copy
from gc import get_referents
from types import CellType, FrameType, GeneratorType
from typing import NamedTuple

END = -1

if sys.version_info < (3, 11):
    sys.exit("the model needs Python 3.11")


class Op(NamedTuple):
    """One step. `child` names the command that takes it (a process that lives on when its shell is
    killed); empty: the shell itself."""

    kind: str
    args: tuple = ()
    child: str = ""
    note: str = ""


def frames(generator):
    """Where a generator and those that it yields from stand, and what they refer to. CPython shows
    variables and operands here from 3.11 on."""
    while generator:
        yield generator.gi_code, generator.gi_frame.f_lasti
        for each in get_referents(generator):
            if isinstance(each, CellType):
                each = get_referents(each)
            if not isinstance(each, (FrameType, GeneratorType)):
                yield repr(tuple(copy(each)) if isinstance(each, Iterator) else each)
        generator = generator.gi_yieldfrom


class Programs:
    """All states of all processes that were met. `skip`: kinds of operations that are no step here
    (their result is None, at once)."""

    def __init__(self, skip=()):
        self.skip = frozenset(skip)
        self.ops = []
        self._paths = []
        self._numbers = {}
        self._next = {}

    def start(self, function, *args):
        return self._number(function, args, (), False)

    def next(self, node, result, lock):
        """The state after RESULT; LOCK: whether the process has the lock then."""
        key = node, result, lock
        if key not in self._next:
            function, args, results = self._paths[node]
            self._next[key] = self._number(function, args, (*results, result), lock)
        return self._next[key]

    def _number(self, function, args, results, lock):
        generator = function(*args)
        try:
            op = next(generator)
            for result in results:
                op = generator.send(result)
            while op.kind in self.skip or op.kind == "holds":
                results = (*results, lock and op.kind == "holds")
                op = generator.send(results[-1])
        except StopIteration:
            return END
        number = self._numbers.setdefault((op, *frames(generator)), len(self.ops))
        if number == len(self.ops):
            self.ops.append(op)
            self._paths.append((function, args, results))
        return number
