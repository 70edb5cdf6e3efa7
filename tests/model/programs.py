"""Processes as Python generators, and the state of each as a small number.

A process yields operations (`Op`) and is sent their results. Generators cannot be copied. So a
process's state is identified by the line where it stands and by the values of its local variables;
to reach a state again, the process is run anew with the same results. Every pair of state and
result is run once, and then known.

The line and the local variables must say everything, so nothing may stay on the interpreter's own
stack over a yield. `checked` refuses a class in which something could: a yield in a `for`, `with`,
`try` or comprehension, or in the middle of an expression."""

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


def checked(cls):
    """A class decorator: raises TypeError if a method has a yield that the locals do not
    describe."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    _check(tree, (), cls.__name__)
    return cls


def _check(node, above, name):
    if isinstance(node, (ast.Yield, ast.YieldFrom)):
        for parent in reversed(above):
            if isinstance(parent, (ast.Expr, ast.Assign, ast.If, ast.While, ast.Return)):
                break
            if not isinstance(parent, (ast.BoolOp, ast.UnaryOp)):
                raise TypeError(
                    f"{name}, line {node.lineno}: a yield inside {type(parent).__name__}")
        for parent in above:
            if isinstance(parent, (ast.For, ast.With, ast.Try, ast.ListComp, ast.GeneratorExp,
                    ast.SetComp, ast.DictComp)):
                raise TypeError(
                    f"{name}, line {node.lineno}: a yield below {type(parent).__name__}")
    for child in ast.iter_child_nodes(node):
        _check(child, (*above, node), name)


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
