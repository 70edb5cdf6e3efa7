"""Processes as Python generators, and the state of each as a small number.

A process yields operations (`Op`) and is sent their results. Generators cannot be copied. So a
process's state is the line where it stands and the values of the variables that it may still read;
to reach a state again, the process is run anew with the same results. Every pair of state and
result is run once, and then known.

Nothing else may stay on the interpreter's own stack. `load` sees to that: it makes a `for` whose
body yields a `while` over what is left, and refuses a yield after another operand."""

import ast
import dis
import re
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

END = -1


class Op(NamedTuple):
    """One step. `child` names the command that takes it (a process that lives on when its shell is
    killed); empty: the shell itself."""

    kind: str
    args: tuple = ()
    child: str = ""
    note: str = ""


def load(path):
    """The module at PATH. TypeError: it has a yield that variables do not describe."""
    module = ModuleType(Path(path).stem)
    tree = ast.fix_missing_locations(Loops().visit(ast.parse(Path(path).read_text())))
    for node in ast.walk(tree):
        refuse(node)
    exec(compile(tree, path, "exec"), vars(module))
    return module


def yields(node):
    return any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in ast.walk(node))


class Loops(ast.NodeTransformer):
    def visit_For(self, loop):
        self.generic_visit(loop)
        if not any(map(yields, loop.body)):
            return loop
        rest = f"rest_of_line_{loop.lineno}"
        first, turns = ast.parse(f"{rest} = tuple(_)\n"
            f"while {rest}:\n _, {rest} = {rest}[0], {rest}[1:]").body
        first.value.args = [loop.iter]
        turns.body[0].targets[0].elts[0] = loop.target
        turns.body += loop.body
        turns.orelse = loop.orelse
        return first, turns


def refuse(node):
    """TypeError if a yield below NODE comes after an operand that may be a variable."""
    if isinstance(node, (ast.With, ast.Try)) and yields(node):
        raise TypeError(f"line {node.lineno}: a yield below {type(node).__name__}")
    if not isinstance(node, (ast.expr, ast.AugAssign)) or isinstance(node, (ast.BoolOp, ast.IfExp,
            ast.GeneratorExp)):
        return
    before = False
    for child in ast.iter_child_nodes(node):
        if before and yields(child):
            raise TypeError(f"line {node.lineno}: a yield after an operand")
        before = before or isinstance(child, ast.expr) and child is not getattr(node, "func", 0)


@lru_cache(None)
def read_later(code):
    """For the offset of each instruction: the variables that may be read after it before they are
    set anew. A variable that a generator expression uses counts as read."""
    steps = list(dis.get_instructions(code))
    number = {step.offset: each for each, step in enumerate(steps)}
    after, before = {}, {len(steps): frozenset()}
    changed = True
    while changed:
        changed = False
        for each in reversed(range(len(steps))):
            step = steps[each]
            name = step.opname
            ends = re.match("RETURN|RAISE|RERAISE|JUMP_(?!IF)", name)
            found = frozenset() if ends else before.get(each + 1, frozenset())
            if step.opcode in (*dis.hasjrel, *dis.hasjabs):
                found |= before.get(number[step.argval], frozenset())
            changed = changed or found != after.get(step.offset)
            after[step.offset] = found
            names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            for verb, variable in reversed(list(zip(re.findall("(LOAD|STORE)_FAST", name), names))):
                found = found - {variable} if verb == "STORE" else found | {variable}
            before[each] = found
    return {offset: names.union(code.co_cellvars, code.co_freevars)
        for offset, names in after.items()}


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
        found = self._next.get(key)
        if found is None:
            function, args, results = self._paths[node]
            found = self._next[key] = self._number(function, args, (*results, result), lock)
        return found

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
        key = [op]
        inner = generator
        while inner:
            code, line, variables = inner.gi_code, inner.gi_frame.f_lasti, inner.gi_frame.f_locals
            key.append((code, line, tuple(sorted((name, variables[name])
                for name in read_later(code)[line] if name in variables))))
            inner = inner.gi_yieldfrom
        number = self._numbers.setdefault(tuple(key), len(self.ops))
        if number == len(self.ops):
            self.ops.append(op)
            self._paths.append((function, args, results))
        return number
