"""Processes as Python generators, and the state of each as a small number.

A process yields operations (`Op`) and is sent their results. Generators cannot be copied. So a
process's state is identified by the line where it stands and by the values of its local variables;
to reach a state again, the process is run anew with the same results. Every pair of state and
result is run once, and then known.

The line and the local variables must say everything: nothing that an earlier yield has answered may
stay on the interpreter's own stack. `checked` refuses a class in which something could: a yield in
the body of a `for` or `with`, or one in an operand after another yield."""

import ast
import inspect
import textwrap
from typing import NamedTuple

END = -1


class Op(NamedTuple):
    """One step. `child` names the command that takes it (a process that lives on when its shell is
    killed); empty: the shell itself."""

    kind: str
    args: tuple = ()
    child: str = ""
    note: str = ""


def checked(code):
    """A decorator: raises TypeError if a class or function has a yield that the locals do not
    describe."""
    _check(ast.parse(textwrap.dedent(inspect.getsource(code))), code.__name__)
    return code


def _yields(node):
    return any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in ast.walk(node))


def _check(node, name):
    before = False  # whether an operand in front of this one yields
    for child in ast.iter_child_nodes(node):
        if not _yields(child):
            continue
        where = f"{name}, line {getattr(child, 'lineno', 0)}: a yield"
        if isinstance(node, (ast.For, ast.With, ast.Try)) and child is not getattr(node, "iter", 0):
            raise TypeError(f"{where} below {type(node).__name__}")
        if before and isinstance(node, ast.expr) and not isinstance(node, ast.BoolOp):
            raise TypeError(f"{where} after another in one {type(node).__name__}")
        before = True
        _check(child, name)


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
        return self._number(function, args, ())

    def next(self, node, result):
        key = node, result
        found = self._next.get(key)
        if found is None:
            function, args, results = self._paths[node]
            found = self._next[key] = self._number(function, args, (*results, result))
        return found

    def _number(self, function, args, results):
        generator = function(*args)
        try:
            op = next(generator)
            for result in results:
                op = generator.send(result)
            while op.kind in self.skip:
                results = (*results, None)
                op = generator.send(None)
        except StopIteration:
            return END
        key = [function]
        inner = generator
        while inner is not None:
            frame = inner.gi_frame
            key.append((frame.f_code, frame.f_lasti, tuple(sorted(frame.f_locals.items()))))
            inner = inner.gi_yieldfrom
        key = tuple(key)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.ops)
            self.ops.append(op)
            self._paths.append((function, args, results))
        return number
