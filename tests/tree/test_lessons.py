"""The lessons: each command prints what is shown, each answer is right, each link leads
somewhere."""

import dataclasses
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lessons"))
import course

from conftest import share
from engine import on_terminal

lessons = pytest.mark.parametrize("path", course.LESSONS, ids=lambda path: path.stem)


@pytest.mark.parametrize("path", share("lessons", course.LESSONS, 4), ids=lambda path: path.stem)
def test_it_runs(path):
    reason = course.gate()
    if reason and course.uses_the_gate(path):
        pytest.skip(reason)
    with course.Place() as place:
        for part in course.parts(path):
            if part.kind == "file":
                place.write(part)
            elif part.kind == "answer":
                said, code = place.answer(part)
                assert code == 0, f"{part.text}\n{said}"
            elif part.kind == "console":
                said = "".join(course.shown(command) + place.step(command) for command,
                    _ in part.steps)
                assert said == part.text


@lessons
def test_its_form(path):
    text = path.read_text()
    assert text.startswith(f"# {course.LESSONS.index(path) + 1}. ")
    assert int(path.name[:2]) == course.LESSONS.index(path) + 1
    assert re.search(r"^\*\*Learn:\*\* ", text, re.M), "one sentence says what is learned"
    assert text.count("<details>") == text.count("</details>") == 2, "two exercises, with answers"
    for answer in re.findall(r"<details>.*?</details>", text, re.S):
        assert "```sh answer\n" in answer, "an answer that is checked"
        assert not re.search(r"^ *! (?!.*\n```)", answer, re.M), (
            "set -e passes over a `!`, unless it is the last command")
    printed = re.sub(r"<details>.*?</details>\n|^(```[^\n]*)?\n", "", text, flags=re.S | re.M)
    assert printed.count("\n") <= 132, "two pages of 66 lines, without the answers"
    assert max(map(len, text.splitlines())) <= 150


@lessons
def test_its_links(path):
    """To a file, and to the line of the function that it names. A LookupError names one that does
    not."""
    text = "".join(course.resolved(path, part.text) for part in course.parts(path)
        if part.kind == "text")
    assert re.search(r"`\w+` \((lib|tests)/[a-z/_.-]+:[0-9]+\)", text), "how flatq does it"
    assert not re.search(r"\(lib/[a-z-]+\.sh\)", text), "a function is named"


def test_the_runner_without_a_terminal():
    done = subprocess.run([sys.executable, course.ROOT / "tests/bin/lesson", "1"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "$ " in done.stdout and "before: q.queue  (no file)" in done.stdout
    assert subprocess.run([sys.executable, course.ROOT / "tests/bin/lesson", "99"],
        capture_output=True).returncode == 64


LESSON = """\
# 1. Short
See [`some`](some.sh).

```sh two
echo 2
```

```console
$ sh two >file; rm two
$ cat file
3
```

<details><summary>Answer</summary>

```sh answer
echo so
```

</details>
"""
SHOWN = """
# 1. Short
See `some` (some.sh:1).

[type the file two: any key; q ends]
--- two
echo 2
---
$ sh two >file; rm two
[run it: any key; q ends]
      before: file  (no file)
      after:  file  (2\\n)
      before: two  (echo 2\\n)
      after:  two  (no file)
$ cat file
[run it: any key; q ends]
2
This is not what the lesson says, which is:
3

[the answer: any key; q ends]
echo so
so
(checked)
[the next lesson: any key; q ends]
"""
RUNNER = """\
import runpy, sys
from pathlib import Path
tests, lesson = Path(sys.argv.pop(1)), Path(sys.argv.pop(1))
sys.path[:0] = [str(tests / "lessons"), str(tests)]
import course
course.LESSONS, course.ROOT = [lesson, lesson], lesson.parent
runpy.run_path(str(tests / "bin/lesson"), run_name="__main__")
"""


def test_the_runner_at_a_terminal(tmp_path):
    """It waits for a key at each step, and shows where a link leads, what changes, and what should
    have been printed. q ends it."""
    (tmp_path / "01-short.md").write_text(LESSON)
    (tmp_path / "some.sh").write_text("some() {\n")
    ours, its = pty.openpty()
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, course.ROOT / "tests",
        tmp_path / "01-short.md"], stdin=its, stdout=its, stderr=its, start_new_session=True)
    os.close(its)
    said = b""
    try:
        for key in (b" ", b" ", b" ", b" ", b"q"):
            said += on_terminal(ours, b"q ends]")
            os.write(ours, key)
        said += on_terminal(ours)
        assert runner.wait(60) == 0, said
    finally:
        runner.kill()
        runner.wait()
        os.close(ours)
    # without colours; a prompt and the line that replaces it stand together
    plain = re.sub(r"\033\[[0-9]*m|\r(?=\n)", "", said.decode()).replace("\r\033[K", "\n")
    assert plain == SHOWN


@pytest.mark.slow
def test_the_pictures(tmp_path, monkeypatch, capsys):
    """They show what is measured."""
    if reason := course.gate():
        pytest.skip(reason)
    import plots
    from crash.trials import Seen

    point = Seen("unlink q.cut", [])
    monkeypatch.setattr(plots, "measured", lambda: {"article": [point,
        dataclasses.replace(point, wrong=["lost"])]})
    monkeypatch.setattr(plots, "DEPTHS", (10, 100))
    plots.write(tmp_path / "pictures")
    assert "kill, article: 1 of 2 bad" in (tmp_path / "pictures/crash-points.svg").read_text()
    assert ">1,287</text>" in (tmp_path / "pictures/cost.svg").read_text(), (
        "lesson 12's pop writes the rest of the queue")
    mentioned = {path.name[:2]: set(re.findall(r"\.lessons/(\S+\.svg)", path.read_text()))
        for path in course.LESSONS}
    assert set.union(*mentioned.values()) == {path.name
        for path in (tmp_path / "pictures").iterdir()}
    assert {number for number, names in mentioned.items() if names} == {"02", "03", "04", "12"}
    assert "crash-points.svg (" in capsys.readouterr().out
