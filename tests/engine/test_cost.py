"""The price of the verbs: how many processes each starts."""

import os
from collections import Counter

import pytest


every_shell = pytest.mark.shells


def cost(runner, *words, **more):
    """The number of processes, and the names of the programs."""
    return started(runner.count(*words, **more))


def started(count):
    return count.processes, [os.path.basename(program) for program in count.programs]


@pytest.fixture
def jobs(flatq):
    """A runner whose spool has been used: the first verb creates the spool, which costs more."""
    for text in (b"first", b"second"):
        flatq("push", "jobs", input=text, check=0)
    return flatq


# what comes before, the verb, its exit code, and the programs that it starts, each in a process; a
# number: so many processes at most
COSTS = [
    ("", "push jobs", 0, ["base64"]),
    ("syncs", "push jobs", 0, ["base64", "sync"]),
    ("syncs", "push -x 9 jobs", 0, ["base64", "sync", "sync"]),
    ("", "pop jobs", 0, ["mv", "base64"]),
    ("drain jobs", "pop jobs", 66, ["find"]),
    ("close jobs", "push jobs", 69, 1),
    ("create -b 2 jobs", "push jobs", 75, ["base64", "flock", "find", "awk", "rm"]),
    ("reserve jobs", "delete RECEIPT", 66, ["find"]),
    ("", "push ../x", 65, 1), ("", "push -p 1e3", 65, 1), ("", "push -z", 64, 1),
    ("", "pop nowhere", 66, 1), ("", "delete no-receipt", 65, 1),
]


@every_shell
@pytest.mark.parametrize("before, words, status, programs", COSTS)
def test_verbs(jobs, before, words, status, programs):
    if before == "syncs":
        jobs.syncs()
    elif before:
        said = jobs(*before.split(), check=0).out
    if "RECEIPT" in words:
        words = words.replace("RECEIPT", said.split()[0].decode())
        jobs(*words.split(), check=0)
    processes, names = cost(jobs, *words.split(), input=b"x" * 100, check=status)
    if programs == 1:
        assert processes <= 1
    else:
        assert processes >= len(names) and Counter(names) == Counter(programs), (processes, names)
        assert status == 75 or (processes, names) == (len(programs), programs)


def test_depth_changes_nothing(jobs):
    """`make bench` has the means of a thousand at 1,000,000 messages, with unfolding."""
    def costs():
        """Each pop here also looks for ended leases, which it otherwise does once a second."""
        (jobs.spool / "deep/tended").unlink(missing_ok=True)
        return [jobs.count(*words, input=b"x" * 100)
            for words in (["push", "deep"], ["pop", "deep"])]

    jobs("push", "deep", input=b"first", check=0)
    costs()
    few = costs()
    jobs("push", "-l", "deep", input=b"".join(b"%099d\n" % number for number in range(20_000)),
        check=0)
    for _ in range(3):  # first the remaining single message, then the unfolding
        costs()
    many = costs()
    assert [started(count) for count in many] == [started(count) for count in few]
    for field in ("read", "written"):
        assert [getattr(count, field) for count in many] == pytest.approx([getattr(count,
            field) for count in few], rel=0.1)


def more(few, many):
    """The programs that `many` has started and `few` has not."""
    return sorted((Counter(many[1]) - Counter(few[1])).elements())


def test_what_the_other_rows_of_the_bench_start(jobs):
    """tests/bench/README.md says why. test_http.py, test_beanstalk.py and test_door.py count those
    of the doors."""
    for _ in range(4):
        jobs("push", "jobs", check=0)
    worker = Counter(cost(jobs, "work", "-q", "jobs", "-n", "4", "--", "true")[1])
    for name, each in {"base64": 1, "mv": 2, "rm": 1, "setsid": 1, "true": 1}.items():
        # What a killed worker of another test has left in /dev/shm: ls proves its death, then rm
        assert 4 * each <= worker[name] <= 4 * each + 3 + worker["ls"], (
            "four jobs, and the worker's start and end", name, worker)
    assert not worker["tee"], "what is silent needs none"
    jobs("push", "mail", check=0)
    assert cost(jobs, "stat")[1] == ["ls", "find", "awk"], "one look at many queues"
    assert cost(jobs, "handler", input=b"list\n")[1] == ["ls"]
    filled = [cost(jobs, "push", "-l", "jobs", input=b"x\n" * count) for count in (2000, 20000)]
    assert set(more(*filled)) <= {"ls", "rmdir"}, "whatever there is to fill"


def test_what_the_rows_in_bulk_and_at_depth_start(jobs):
    """Whatever there is to drain, and however deep the queue is."""
    drained = []
    for count in (2000, 20000):
        jobs("push", "jobs", input=b"single", check=0)
        jobs("push", "-l", "jobs", input=b"x\n" * count, check=0)
        drained.append(cost(jobs, "drain", "jobs")[1])
    assert set(drained[1]) == set(drained[0]) and drained[1].count(
        "base64") <= 20000 // 500, "a batch has many messages"
    found = []
    for count in (2000, 20000):
        jobs("push", "-l", "deep", input=b"x\n" * count, check=0)
        jobs("reserve", "deep", check=0)  # which unfolds
        found.append([sorted(cost(jobs, *words, "deep")[1])
            for words in (["reserve"], ["claim", "-c", f"c{count}", "-n", "1"])])
    assert found[0] == found[1] and found[0][0] == ["base64", "mv"], found
