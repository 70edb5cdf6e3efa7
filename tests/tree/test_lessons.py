"""The lessons: the tests run each of their commands and compare what it prints, check each answer,
and follow each link."""

import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lessons"))
import course

from conftest import share

lessons = pytest.mark.parametrize("path", course.LESSONS, ids=lambda path: path.stem)


@pytest.mark.parametrize("path", share("lessons", course.LESSONS, 4), ids=lambda path: path.stem)
def test_it_runs(path):
    reason = course.gate()
    if reason and course.uses_the_gate(path):
        pytest.skip(reason)
    left_out = ""
    with course.Place() as place:
        for part in course.parts(path):
            if part.kind == "file":
                place.write(part)
            elif part.kind == "answer":
                said, code = place.answer(part)
                assert code == 0, f"{part.text}\n{said}"
            elif part.kind == "console" and part.name == "cuts" and course.cuts():
                left_out = course.cuts()
            elif part.kind == "console":
                said = "".join(course.shown(command) + place.step(command) for command,
                    _ in part.steps)
                assert said == part.text
    if left_out:
        pytest.skip(f"all else was run, and is right: {left_out}")


@lessons
def test_its_form(path):
    text = path.read_text()
    assert text.startswith(f"# {int(path.name[:2])}. ")
    assert re.search(r"^\*\*Learn:\*\* ", text, re.M), "one sentence says what is learned"
    assert text.count("<details>") == text.count("</details>") == 2, "two exercises, with answers"
    for answer in re.findall(r"<details>.*?</details>", text, re.S):
        assert "```sh answer\n" in answer, "an answer that is checked"
        assert not re.search(r"^ *! (?!.*\n```)", answer,
            re.M), "set -e passes over a `!`, unless it is the last command"
    printed = re.sub(r"<details>.*?</details>", "", text, flags=re.S)
    assert sum(bool(line) and not line.startswith("```")
        for line in printed.splitlines()) <= 132, "two pages of 66 lines, without the answers"
    assert max(map(len, text.splitlines())) <= 150


@lessons
def test_its_links(path):
    """Each link leads to a file, and to the line of the function that it names. A LookupError names
    a link that does not."""
    text = "".join(course.resolved(path, part.text) for part in course.parts(path)
        if part.kind == "text")
    assert re.search(r"`\w+` \((lib|tests)/[a-z/_.-]+:[0-9]+\)", text), "how flatq does it"
    assert not re.search(r"\(lib/[a-z-]+\.sh\)", text), "a function is named"


def test_a_link_that_leads_nowhere(tmp_path):
    """The link leads to the line of the function itself, not to a use before it. A function that
    does not exist is an error."""
    file, lesson = tmp_path / "some.sh", course.ROOT / "tests/lessons/01-of-no-file.md"
    place = "../" * len(lesson.parents) + str(file)
    file.write_text("# some()\nother() { some; }\nsome() {\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(course, "ROOT", tmp_path)
        assert course.resolved(lesson,
            f"see [`some`]({place}), [it]({place}), [x](http://x)") == "see `some` (some.sh:3), it (some.sh), x (http://x)"
        for gone in (f"[`som`]({place})", f"[it]({place}.gone)"):
            with pytest.raises(LookupError):
                course.resolved(lesson, gone)


def test_the_order():
    assert [int(path.name[:2]) for path in course.LESSONS] == list(range(1,
        len(course.LESSONS) + 1))


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
#!/bin/sh
echo 2
```

```console
$ ./two >file
$ ./two >>file; rm two
$ cat file; rm file
2
2
```

**1.** Why?

<details><summary>Answer</summary>

Because.

```sh answer
echo so
```

</details>
"""
RUNNER = """\
import runpy, sys
from pathlib import Path
tests, lesson = Path(sys.argv.pop(1)), Path(sys.argv.pop(1))
sys.path.insert(0, str(tests / "lessons"))
import course, plots
course.LESSONS, course.ROOT = [lesson, lesson], lesson.parent
plots.write = lambda target: print("written:", target)
runpy.run_path(str(tests / "bin/lesson"), run_name="__main__")
"""


def at_a_terminal(tmp_path, lesson, keys, *arguments):
    """What tests/bin/lesson shows at a terminal, with this lesson as both of its lessons, if
    somebody presses a key whenever it asks; and its exit code."""
    (tmp_path / "01-short.md").write_text(lesson)
    (tmp_path / "some.sh").write_text("some() {\n")
    ours, its = pty.openpty()
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, course.ROOT / "tests",
        tmp_path / "01-short.md", *arguments], stdin=its, stdout=its,
                              stderr=its, start_new_session=True)
    os.close(its)
    said, asked, keys = b"", 0, iter(keys)
    try:
        while select.select([ours], [], [], 60)[0]:
            try:
                more = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            said += more
            if said.count(b"q ends]") > asked:
                asked += 1
                os.write(ours, next(keys))
        return said.decode().replace("\r\n", "\n"), runner.wait(60)
    finally:
        runner.kill()
        runner.wait()
        os.close(ours)


def plain(said):
    """The text without colours. A prompt and the line that replaces it stand together."""
    return re.sub(r"\033\[[0-9]*m", "", said).replace("\r\033[K", "\n")


def test_the_runner_at_a_terminal(tmp_path):
    """The lesson waits for a key at each step, and shows the files before and after, where a link
    leads, and the pictures after the last lesson."""
    said, code = at_a_terminal(tmp_path, LESSON, [b" "] * 11)
    first, second, last = plain(said).partition("[the next lesson: any key; q ends]")
    assert (code, bool(second)) == (0, True), said
    assert first == """
# 1. Short
See `some` (some.sh:1).

[type the file two: any key; q ends]
--- two
#!/bin/sh
echo 2
---
$ ./two >file
[run it: any key; q ends]
      before: file  (no file)
      after:  file  (2\\n)
$ ./two >>file; rm two
[run it: any key; q ends]
      before: file  (2\\n)
      after:  file  (2\\n2\\n)
      before: two  (#!/bin/sh\\necho 2\\n)
      after:  two  (no file)
$ cat file; rm file
[run it: any key; q ends]
2
2
      before: file  (2\\n2\\n)
      after:  file  (no file)

**1.** Why?

[the answer: any key; q ends]

Because.

echo so
so
(checked)
"""
    assert last.endswith(f"written: {tmp_path}/.lessons\n")


def test_who_ends_it(tmp_path):
    """q ends it with 0, and without the pictures."""
    said, code = at_a_terminal(tmp_path, LESSON, [b" ", b" ", b"q"])
    assert code == 0 and plain(said).endswith(
        "$ ./two >>file; rm two\n[run it: any key; q ends]\n"), said


def test_what_the_lesson_does_not_say(tmp_path):
    """A lesson that is named prints no pictures. If a command prints something else than the lesson
    says, the lesson shows what it should have printed."""
    said, code = at_a_terminal(tmp_path, LESSON.replace("\n2\n2\n", "\n2\n3\n"), [b" "] * 11, "1")
    assert code == 70 and "written:" not in said
    assert plain(said).count(
        "file\n[run it: any key; q ends]\n2\n2\n      before: file  (2\\n2\\n)\n      after:  file  (no file)\nThis is not what the lesson says, which is:\n2\n3\n") == 2


@pytest.mark.slow
def test_the_pictures(tmp_path, monkeypatch, capsys):
    """They show what is measured."""
    if reason := course.gate():
        pytest.skip(reason)
    import plots

    point = {"verb": "article", "fault": plots.SHOWN[0],
        "call": "unlink q.cut", "detail": "lost"}
    monkeypatch.setattr(plots, "measured", lambda: [{**point, "outcome": "good"},
        {**point, "outcome": "bad"}])
    monkeypatch.setattr(plots, "DEPTHS", (10, 100))
    plots.write(tmp_path / "pictures")
    assert "kill, article: 1 of 2 bad" in (tmp_path / "pictures/crash-points.svg").read_text()
    assert ">1,287</text>" in (tmp_path / "pictures/cost.svg").read_text(
        ), "lesson 12's pop writes the rest of the queue"
    mentioned = {path.name[:2]: set(re.findall(r"\.lessons/(\S+\.svg)", path.read_text()))
        for path in course.LESSONS}
    assert set.union(*mentioned.values()) == {path.name
        for path in (tmp_path / "pictures").iterdir()}
    assert {number for number, names in mentioned.items() if names} == {"02", "03", "04", "12"}
    assert "crash-points.svg (" in capsys.readouterr().out
