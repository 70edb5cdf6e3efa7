"""What the pages promise a reader: console blocks print what they show, links lead somewhere, and the README is short."""

import re
import subprocess

import pytest

from conftest import LIB, ROOT

PAGES = [path for path in sorted(ROOT.rglob("*.md")) if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)]


def blocks(page):
    return re.findall(r"^```console\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)


def test_every_console_block_is_run():
    """tests/tree/test_lessons.py runs the blocks of the lessons."""
    having = [str(path.relative_to(ROOT)) for path in PAGES if path.parent.name != "lessons" and blocks(path)]
    assert having == ["README.md", "lib/doors/README.md", "lib/worker/README.md"]


@pytest.mark.parametrize("page, least", [("README.md", 10), ("lib/doors/README.md", 5), ("lib/worker/README.md", 15)])
def test_session(tmp_path, spool, page, least):
    """One shell runs the blocks of a page as they are, in order, and prints every line of output that they show."""
    (tmp_path / "bin").mkdir()
    wrapper = tmp_path / "bin/flatq"
    wrapper.write_text(f'#!/bin/sh\nexec "{LIB}/flatq" "$@"\n')
    wrapper.chmod(0o755)
    # a door alone, without a port, as inetd runs it
    (tmp_path / "lib").symlink_to(LIB)
    commands = [line[2:] for block in blocks(page) for line in block.splitlines() if line.startswith("$ ")]
    assert len(commands) >= least
    script = "".join(f"printf '%s\\n' {quote('$ ' + command)}\n{command}\ncode=$?; [ $code -eq 0 ] || echo \"[$code]\"\n" for command in commands)
    done = subprocess.run(
        ["sh"], input=script.encode(), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100,
        env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "HOME": str(tmp_path), "FLATQ_DIR": str(spool), "FLATQ_SYNC": "off"},
    )
    assert done.stdout.decode() == "".join(blocks(page))


def quote(text):
    return "'" + text.replace("'", "'\\''") + "'"


def headings(page):
    """The anchors of a page's headings, as GitHub names them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in re.findall(r"^#+ (.+)$", text, re.M)}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links(page):
    """Each link leads to a file of the tree, and to a heading of that file if it names one."""
    text = re.sub(r"^```.*?^```$|`[^`\n]*`(?!\])", "", page.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith("http"):
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            assert file.is_file(), target
            assert not anchor or anchor in headings(file), target


def test_the_readme_is_for_a_first_visit():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 200 and max(map(len, lines)) <= 100
