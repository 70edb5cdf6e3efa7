"""Processes as Python generators, and the state of each as a small number.

A process yields operations (`Op`) and calls of other methods (`Call`), and is sent their results.
Generators cannot be copied, so a state is what leads to it: each call that the process is in, with
the results that it has had. To go on, the innermost call is run anew with these. Of a call that has
returned, only the answer is left."""

from functools import wraps
from inspect import isgeneratorfunction
from typing import NamedTuple

END = -1


class Op(NamedTuple):
    """One step. `child` names the command that takes it (a process that lives on when its shell is
    killed); empty: the shell itself."""

    kind: str
    args: tuple = ()
    child: str = ""
    note: str = ""


class Call(NamedTuple):
    method: object
    args: tuple


def calls(cls):
    """A decorator: the generator methods of a class make Calls."""
    def made(method):
        return wraps(method)(lambda *args: Call(method, args))

    for name, method in list(vars(cls).items()):
        if isgeneratorfunction(method):
            setattr(cls, name, made(method))
    return cls


class Programs:
    """All states of all processes that were met. `skip`: kinds of operations that are no step here
    (their result is None, at once)."""

    def __init__(self, skip=()):
        self.skip = frozenset(skip)
        self.ops = []
        self._stacks = []
        self._numbers = {}
        self._next = {}

    def start(self, call):
        return self._run([(call, ())], False)

    def next(self, node, result, lock):
        """The state after RESULT; LOCK: whether the process has the lock then."""
        key = node, result, lock
        if key not in self._next:
            *outer, (call, results) = self._stacks[node]
            self._next[key] = self._run([*outer, (call, (*results, result))], lock)
        return self._next[key]

    def _run(self, stack, lock):
        while stack:
            call, results = stack.pop()
            generator = call.method(*call.args)
            try:
                found = next(generator)
                for result in results:
                    found = generator.send(result)
            except StopIteration as end:
                if stack:
                    outer, before = stack.pop()
                    stack.append((outer, (*before, end.value)))
                continue
            if isinstance(found, Call):
                stack += [(call, results), (found, ())]
            elif found.kind == "holds" or found.kind in self.skip:
                stack.append((call, (*results, lock and found.kind == "holds")))
            else:
                state = (*stack, (call, results))
                number = self._numbers.setdefault(state, len(self.ops))
                if number == len(self.ops):
                    self.ops.append(found)
                    self._stacks.append(state)
                return number
        return END
