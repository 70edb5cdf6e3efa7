"""The parts that each file of lib/ needs, derived from what it calls.

Under its header a file needs the parts whose functions its usual run calls. If only a less usual run calls a function, the caller needs the part
just before."""

import re

import pytest

import parts
from conftest import LIB
from parts import calls, files, owners

# What no part needs: each verb and door reads common first (and bash, in that shell), and spool if one of its parts calls it
ALWAYS = ("engine/common", "engine/bash", "engine/spool")


def sites(title, name):
    """Where a file calls one of its functions: [(function, position)]."""
    return [(function, at) for function in files()[title].functions for at, called in calls(title, function) if called == name]


def loaded(title, function, at, part, seen=()):
    """Whether the part is surely loaded there: the file needs it, or the function has needed it before, or every caller of the function has."""
    file = files()[title]
    if part in file.at_once or any(needed == part and place < at for place, needed in file.needs(function)):
        return True
    if not function or function in seen or any(name == function for other in files() if other != title for within in files()[other].functions
                                               for _, name in calls(other, within)):
        return False
    above = sites(title, function)
    return bool(above) and all(loaded(title, caller, place, part, (*seen, function)) for caller, place in above)


def serves(title, function, at, part, seen=()):
    """Whether the function calls the part after that place, itself or through other functions of its file."""
    for place, name in calls(title, function):
        if place > at and (owners()[name] == part or owners()[name] == title and name not in seen and serves(title, name, -1, part, (*seen, name))):
            return True
    return False


@pytest.mark.parametrize("title", files())
def test_needs_what_it_calls(title):
    missing = {f"{function or 'outside of functions'} calls {name} of {part}" for function in files()[title].functions for at, name in calls(title, function)
               if (part := owners()[name]) not in (title, *ALWAYS) and "/" in part and not loaded(title, function, at, part)}
    assert not missing, "\n".join(sorted(missing))


@pytest.mark.parametrize("title", files())
def test_needs_nothing_else(title):
    file, idle = files()[title], set()
    for function in file.functions:
        for at, part in file.needs(function, "need"):
            if not function:
                used = any(serves(title, other, -1, part) for other in file.functions)
            else:
                used = serves(title, function, at, part) and part not in file.at_once
            if not used:
                idle.add(f"{function or 'the file'} needs {part}")
    assert not idle, "\n".join(sorted(idle))


def reached(title):
    """The parts that a run of this file may read."""
    found, left = set(), [title]
    while left:
        file = files()[left.pop()]
        new = {part for function in file.functions for _, part in file.needs(function)} - found
        found |= new
        left += new
    return found


# handler reads of these only input, and input_dotted runs only in the push that it becomes, which has read spool
@pytest.mark.parametrize("title", sorted({title for title in files() if "/" not in title} - {"handler"}))
def test_a_verb_whose_parts_call_spool_needs_it(title):
    callers = {part for part in reached(title) - {"engine/spool"} for function in files()[part].functions
               for _, name in calls(part, function) if owners()[name] == "engine/spool"}
    assert not callers or "engine/spool" in files()[title].at_once, callers


def test_python_that_sources_parts_needs_spool_first():
    package = parts.LIB.parent / "python/flatq"
    asked = [needed for path in package.rglob("*.py") for needed in re.findall(r"engine/common\.sh\"; need ([^;]*);", path.read_text())]
    assert asked and all(needed.split()[0] == "engine/spool" for needed in asked), asked


def test_each_part_exists():
    assert {part for file in files().values() for function in file.functions for _, part in file.needs(function)} <= set(files())


@pytest.mark.parametrize("code, found", [
    ('f "$(queue_open x)" "queue_open"', ["queue_open"]), ("x=$((now + 1)) # queue_open\n", []), ("trap 'wake_some 1' ALRM", ["wake_some"]),
    ("printf '%s' queue_open; LC_ALL=C slip_parse \"$name\"", ["queue_open", "slip_parse"]), ('why="${x:-"$(capture a b)"}" number=1', ["capture"]),
    ("case $x in\n*) capture ;;\nesac", ["capture"]), ("echo capture ${number} $number", [])])
def test_what_a_function_calls_is_seen(code, found, monkeypatch):
    bare = " " + parts.Bare(" " + code).result
    owners()  # before there is an `f` to find
    monkeypatch.setitem(files(), "x", parts.File("x", {"f": bare}))
    calls.cache_clear()
    assert [name for _, name in calls("x", "f")] == found
    calls.cache_clear()


def test_no_name_is_a_function_and_a_variable():
    functions = {name for file in files().values() for name in file.functions}
    both = set()
    for path in [*parts.LIB.rglob("*.sh"), *filter(parts.Path.is_file, parts.LIB.iterdir()), parts.LIB.parent / "launch"]:
        code = parts.re.sub(r"^\s*#.*$", "", path.read_text(), flags=parts.re.M)
        both |= functions & set(parts.re.findall(r"(?<=\$)[a-z]\w*|(?<=\$\{)[a-z]\w*|(?<![\w.-])[a-z]\w*(?==)|(?<=\bfor )[a-z]\w*", code))
    assert not both
