"""The pages: console blocks print what they show, links lead somewhere, the README is short."""

import os
import re
import shlex
import subprocess
import sys

import pytest

from conftest import LIB, ROOT, need, wait_for
from servers import Redis, module
from test_setup import executable

from crash.gate.processes import kill

COMING = "lib/doors/COMING-FROM.md"
PAGES = [path for path in sorted(ROOT.rglob("*.md"))
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)]


def blocks(page):
    return re.findall(r"^```console\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)


def test_every_console_block_is_run():
    """tests/tree/test_lessons.py runs the blocks of the lessons."""
    having = [str(path.relative_to(ROOT)) for path in PAGES if path.parent.name != "lessons"
        and blocks(path)]
    assert having == ["README.md", COMING, "lib/doors/README.md", "lib/worker/README.md"]


def run(tmp_path, flatq_dir, items, **more):
    """Run these commands in one shell, and return all they print. Of each (command, shown): if it
    is shown, print its line and, behind its output, an exit code that is not 0, as a console block
    has it; else only the line of a command that fails, with its code."""
    executable(tmp_path / "bin/flatq", f'exec "{LIB}/flatq" "$@"')
    # a door alone, without a port, as inetd runs it
    (tmp_path / "lib").symlink_to(LIB)
    script = ""
    for command, shown in items:
        line = f"printf '%s\\n' {shlex.quote('$ ' + command)}"
        if shown:
            script += f'{line}\n{command}\ncode=$?; [ $code -eq 0 ] || echo "[$code]"\n'
        else:
            script += f"""{{ {command}\n}} </dev/null >>cells 2>&1
                code=$?; [ $code -eq 0 ] || {{ {line}; echo "[$code]"; cat cells; }}\n"""
    done = subprocess.run(["sh"], input=script.encode(), cwd=tmp_path, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=100, env={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "HOME": str(tmp_path), "FLATQ_DIR": str(flatq_dir), "FLATQ_SYNC": "off", **more})
    return done.stdout.decode()


def commands(text):
    return [line[2:] for line in text.splitlines() if line.startswith("$ ")]


@pytest.mark.parametrize("page, least", [("README.md", 10), ("lib/doors/README.md", 5),
    ("lib/worker/README.md", 7)])
def test_session(tmp_path, spool, page, least):
    """One shell runs the blocks of a page as they are, in order, and prints every line of output
    that they show."""
    text = "".join(blocks(page))
    assert len(commands(text)) >= least
    assert run(tmp_path, spool, [(command, True) for command in commands(text)]) == text


def coming():
    """What COMING-FROM.md tells its reader to type: {section: [(code, whether it is in a console
    block)]}, in the order of the page."""
    found, section, inside = {}, "", False
    for line in (ROOT / COMING).read_text().splitlines():
        if line.startswith("```"):
            inside = not inside
        elif line.startswith("## "):
            section = line[3:]
        elif inside:
            found.setdefault(section, []).extend((command, True) for command in commands(line))
        elif "→" in line:
            found.setdefault(section, []).append((re.fullmatch(r"  → `([^`]+)`", line)[1], False))
    return found


DOORS = {"line": "1234", "http": "5000", "small-stalk": "6969", "beanstalk": "11300"}


@pytest.mark.parametrize("section", coming())
def test_coming_from_another_queue(flatq, launched, tmp_path, section):
    """Each command that the section has for us succeeds, with its doors, and a Redis if it needs
    one."""
    need("ncat", "curl")
    (tmp_path / "text").write_text("a text")
    for name in ("default", "mail"):
        (tmp_path / f"{name}.queue").write_text("YSBtZXNzYWdl\n")
    executable(tmp_path / "bin/send-one", "exec cat >/dev/null")
    text = (ROOT / COMING).read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    shown = "".join(re.findall(r"^```console\n(.*?)^```", text, re.M | re.S))
    items = [item for item in coming()[section] if not item[0].startswith(("IO.", "flatq serve"))]
    assert len(items) >= 5
    for words in [code.split()[2:] for code, _ in coming()[section]
            if code.startswith("flatq serve")]:
        door = next((word for word in words if word in DOORS), "line")
        port = launched(*(word for word in words if word != door), door=door).port
        items = [(re.sub(f"(localhost[ :]){DOORS[door]}", rf"\g<1>{port}", code), is_shown)
            for code, is_shown in items]
        shown = shown.replace(f"localhost:{DOORS[door]}", f"localhost:{port}")
    env = {"FLATQ_PYTHON": sys.executable}
    try:
        if section == "pressure":
            module("redis")
            with Redis(tmp_path / "redis") as redis:
                said = run(tmp_path, flatq.spool, items, **env, REDIS_PORT=str(redis.port))
        else:
            said = run(tmp_path, flatq.spool, items, **env)
        assert said == shown
        wait_for(lambda: not list(tmp_path.glob("*pid")), "its workers have stopped")
    finally:
        kill(int(file.read_text()) for file in tmp_path.glob("*pid"))


def test_coming_from_ruby(flatq):
    """The calls in Ruby store a message."""
    assert len(coming()) == 6 and sum(map(len, coming().values())) > 40
    program = need("ruby")
    codes = [code for items in coming().values() for code, _ in items if code.startswith("IO.")]
    assert codes
    for code in codes:
        done = subprocess.run([program, "-e", f"print({code}); exit $?.exitstatus"],
            env={**flatq.env, "PATH": f"{LIB}:{os.environ['PATH']}"}, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=100)
        assert (done.returncode, done.stderr) == (0, b"") and done.stdout.strip().isdigit(), done
        assert flatq("pop", "jobs", check=0).out == b"a job"


def headings(page):
    """The anchors of a page's headings, as GitHub names them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-")
        for line in re.findall(r"^#+ (.+)$", text, re.M)}


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


@pytest.mark.parametrize("page", ["README.md", "PROMISE.md", "TOOLS.md", "CONTRIBUTING.md"])
def test_pages_of_lib_name_what_is_there(page):
    """Each function, variable and file that a page names exists."""
    text = re.sub(r"^```.*?^```$", "", (LIB / page).read_text(), flags=re.M | re.S)
    code = "".join(path.read_text() for path in LIB.rglob("*") if path.is_file()
        and path.suffix != ".md")
    named = re.findall(r"`([^`\n]+)`", text)
    functions = [name for name in named if re.fullmatch(r"[a-z]+(_[a-z]+)+", name)]
    files = [name for name in named if re.fullmatch(
        r"(engine|bulk|worker|doors|lib|tests|python)/[a-z0-9_./]+", name)]
    assert functions or page != "README.md"
    assert [name for name in functions if not re.search(rf"\b{name}(\(\) |=)", code)] == []
    assert [name for name in files if not any((place / f"{name}{end}").exists()
        for place in (LIB, ROOT) for end in ("", ".sh"))] == []
