"""The lessons: each command of theirs is run, and what it prints compared; each answer is checked; each link leads to what it names."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "lessons"))
import course  # noqa: E402

from servers import module  # noqa: E402

lessons = pytest.mark.parametrize("path", course.LESSONS, ids=lambda path: path.stem)


@lessons
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
                said = "".join(course.shown(command) + place.step(command) for command, _ in part.steps)
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
    printed = re.sub(r"<details>.*?</details>", "", text, flags=re.S)
    assert sum(bool(line) and not line.startswith("```") for line in printed.splitlines()) <= 132, "two pages of 66 lines, without the answers"
    assert max(map(len, text.splitlines())) <= 150


@lessons
def test_its_links(path):
    links = re.findall(r"\[([^]]+)\]\(([^)]+)\)", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S))
    assert any(target.startswith("../../") for _, target in links), "how flatq does it"
    for words, target in links:
        if target.startswith("http"):
            continue
        file = path.parent / target
        assert file.exists(), target
        name = re.fullmatch(r"`(\w+)`", words)
        if name:
            assert re.search(rf"^{name[1]}\(\)|\bdef {name[1]}\b", file.read_text(), re.M), f"{name[1]} is not in {target}"


def test_the_order():
    assert [int(path.name[:2]) for path in course.LESSONS] == list(range(1, len(course.LESSONS) + 1))


def test_the_runner_without_a_terminal():
    done = subprocess.run([sys.executable, course.ROOT / "tests/lesson", "1"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "$ " in done.stdout and "new file:  q.queue" in done.stdout
    assert subprocess.run([sys.executable, course.ROOT / "tests/lesson", "99"], capture_output=True).returncode == 64


def test_the_pictures(tmp_path, monkeypatch, capsys):
    """Of the cost what is measured; of the crash points what the pipeline has written."""
    if reason := course.gate():
        pytest.skip(reason)
    parquet = module("pyarrow.parquet")
    from pyarrow import Table

    import plots

    point = {"family": "article", "verb": "article", "fault": plots.SHOWN[0], "call": "unlink q.cut", "detail": "lost"}
    outcomes = [{**point, "point": 1, "outcome": "good"}, {**point, "point": 2, "outcome": "bad"}, {**point, "point": 3, "outcome": "not reached"}]
    (tmp_path / "outcomes").mkdir()
    parquet.write_table(Table.from_pylist(outcomes), tmp_path / "outcomes/part.parquet")
    monkeypatch.setattr(plots, "PIPED", tmp_path / "outcomes")
    monkeypatch.setattr(plots, "PYTHON", sys.executable)
    monkeypatch.setattr(plots, "DEPTHS", (10, 100))
    plots.write(tmp_path / "pictures")
    assert "all killed, article: 1 of 2 bad" in (tmp_path / "pictures/crash-points.svg").read_text()
    assert ">1,287</text>" in (tmp_path / "pictures/cost.svg").read_text(), "lesson 12's pop writes the rest of the queue"
    assert "crash-points.svg (" in capsys.readouterr().out
    monkeypatch.setattr(plots, "PIPED", tmp_path / "nothing")
    assert plots.piped() == []
