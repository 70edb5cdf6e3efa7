"""How the files of the tree are written: headers, options, ShellCheck, ruff, and no path of one
machine."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headers
from conftest import LIB, ROOT, everything, need
from servers import module


def tree():
    """Every file of the tree but those that tools keep in hidden directories and in __pycache__."""
    for above, directories, names in os.walk(ROOT):
        directories[:] = sorted(name for name in directories if name == ".ci"
            or name != "__pycache__" and not name.startswith("."))
        yield from (path for name in sorted(names)
            if (path := Path(above, name)).is_file() and name != ".git")


TREE = list(tree())


def first_line(path):
    with path.open("rb") as file:
        return file.readline().rstrip(b"\n")


SCRIPTS = [path for path in TREE if path.suffix == ".sh" or first_line(path) == b"#!/bin/sh"]
OURS = [path for path in SCRIPTS if LIB in path.parents]
EXECUTABLES = [path for path in OURS if path.suffix != ".sh"]
SOURCED = [path for path in OURS if path.suffix == ".sh"]


def name(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", EXECUTABLES, ids=name)
def test_executable_has_its_header(path):
    header = headers.header(path)
    assert header.verb == path.name
    assert list(header.sections)[-4:] == ["Exit", "Files", "Order", "Crash"]
    assert all(header.sections.values())
    assert path.stat().st_mode & 0o111, "not executable"
    assert path.read_text().rstrip("\n").endswith('\nmain "$@"') or path.name == "flatq"


@pytest.mark.parametrize("path", EXECUTABLES, ids=name)
def test_header_names_the_options_that_are_taken(path):
    taken = re.search(r"\bgetopts :?(\S+) option\b", path.read_text())
    letters = dict(re.findall(r"([A-Za-z0-9])(:?)", taken[1] if taken else ""))
    named = {letter[1:]: ":" if value else ""
        for letter, _, value, _ in headers.header(path).options}
    assert {**named, "h": ""} == {**letters, "h": ""}


@pytest.mark.parametrize("path", SOURCED, ids=name)
def test_sourced_file_has_its_title(path):
    assert first_line(path).startswith(f"# {path.relative_to(LIB)} - ".encode())
    assert not path.stat().st_mode & 0o111


@pytest.mark.parametrize("verb", headers.verbs())
def test_help_is_the_header(flatq, verb):
    """-h has what fits a terminal: the use, the options, an example and the exit codes. `flatq
    help` has all."""
    header = headers.header(LIB / verb)
    usual, whole = (flatq("flatq", *words, check=0).out.decode() for words in ([verb, "-h"],
        ["help", verb]))
    assert flatq(verb, "-h").out.decode() == usual == whole[:len(usual)]
    title = " ".join(usual.partition("\n\n")[0].split())
    assert title == f"{verb} {header.arguments}".rstrip() + f" - {header.text}"
    assert max(map(len, usual.splitlines())) <= 80 and usual.count("\n") <= 40
    assert all(f"\n  {letter}, {name} {value}".rstrip() in usual
        for letter, name, value, _ in header.options)
    for section in ("Exit", "Files", "Order", "Crash"):
        assert (f"\n{section}:" in usual) == (section == "Exit") and f"\n{section}:" in whole
    names = {name for _, name, _, _ in header.options}
    assert header.sections["Example"].startswith("flatq ") or verb == "push"
    assert f"\nExample: {header.sections['Example']}\n" in usual
    assert {*re.findall(r" (--[a-z-]+)", header.sections["Example"])} <= names


def test_an_option_has_one_letter_and_one_name_in_all_verbs():
    options = {row[:2] for verb in headers.verbs() for row in headers.header(LIB / verb).options}
    assert len({name for _, name in options}) == len(options)


def test_readme_has_the_headers_table():
    readme = (ROOT / "README.md").read_text()
    assert readme == headers.filled(readme), "make tables writes them anew"


def test_man_page_has_all_options_and_examples():
    words = ["awk", "-f", LIB / "man/flatq.awk", LIB / "flatq",
        *(LIB / verb for verb in headers.verbs())]
    page = subprocess.run(words, stdout=subprocess.PIPE, text=True,
        check=True).stdout.replace("\\-", "-")
    assert {line[3:] for line in page.splitlines() if line.startswith(".B -")} == {
        f"{letter}, {name} {value}".rstrip() for verb in ("flatq", *headers.verbs())
        for letter, name, value, _ in headers.header(LIB / verb).options}
    assert "\n.SH EXIT STATUS\n" in page and "\n.SH FILES\n" in page
    assert "\n.SH NOTES\n.PP\nA queue's name " in page and "\n.nf\nQUEUE  " in page
    examples = page.partition("\n.SH EXAMPLES\n")[2].partition("\n.SH")[0].replace("\\(dq", '"')
    assert all(headers.header(LIB / verb).sections["Example"] in examples
        for verb in headers.verbs())


def passes(*words, cwd=ROOT):
    done = subprocess.run(words, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


def test_shellcheck():
    passes("tests/bin/lint", *([] if everything() else ["--quick"]), need("shellcheck"))


def test_ruff():
    """Mistakes in Python that need not be run to be seen (.ruff.toml)."""
    passes(need("ruff"), "check", "--no-cache")


@pytest.mark.parametrize("part", [
    "wrapper", pytest.param("package", marks=pytest.mark.slow)])
def test_types(tmp_path, part):
    """The package's types, as strict as mypy can be."""
    module("mypy")
    files = ["flatq"]
    if part == "wrapper":
        files = ["flatq/shovel", *(ROOT / "python/flatq").glob("*.py")]
    else:
        module("pyspark")
    passes(sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path, *files,
        cwd=ROOT / "python")


@pytest.mark.parametrize("path", TREE, ids=name)
def test_nothing_of_one_machine_and_no_long_lines(path):
    """At most 100 columns in lib, the README and other prose, but for tables and code there."""
    text = path.read_text(errors="replace")
    homes = re.findall(r"(?<![\w$}.])/(?:home|root|Users|work|farm)/\S*", text)
    assert not homes and not re.search(r"\.\./shared\b", text)
    ours = path in (ROOT / "launch", ROOT / "README.md") or LIB in path.parents
    if path.suffix == ".md" and not ours:
        text = re.sub(r"^```.*?^```$|^\|[^\n]*", "", text, flags=re.M | re.S)
    if ours or path.suffix == ".md" and path.parent.name != "lessons":
        assert not [line for line in text.splitlines() if len(line) > 100]
