"""Bounds and closed queues. A bound is exact, however many producers there are."""


import pytest

from conftest import LIB, wait_for
from engine import loop, push, refused


@pytest.mark.parametrize("options", [[], ["-l"]], ids=["one", "lines"])
def test_a_queue_that_is_dropped_as_a_push_begins_to_wait_stays_away(shell, flatq, spool, stub,
        options):
    """The push made an empty queue, without a bound."""
    flatq("create", "-b", "1", "q", check=0)
    push(flatq, b"1", "q")
    stub("mkfifo", f'"$REAL" "$@" && FLATQ_SYNC=off "{flatq.shell}" "{LIB}/drop" -f q')
    refused(flatq("push", *options, "-w", "30", "q", input=b"x"), 69, "push", text=b"gone")
    assert not (spool / "q").exists()
    assert not list((spool / ".wait").iterdir())


def test_a_kick_reaches_all_windows_of_a_bounded_queue(flatq, spool):
    """Before each message the kick counts the queue, which goes through the directories of delayed/
    meanwhile."""
    flatq("create", "-b", "100", "q", check=0)
    loop(flatq, '''for n in $(seq 30); do
      printf "$n" | "$sh" "$lib/push" q >&2 && "$sh" "$lib/reserve" q >said &&
        read -r receipt rest <said && "$sh" "$lib/bury" "$receipt" || exit; done''')
    buried = spool / "q/buried"
    for number, path in enumerate(sorted(buried.glob("*/*/*"))):
        when, rest = path.name.split(".", 1)
        when = f"{int(when) - 100_000 * (40 - number):012}"
        window = buried / when[:-5] / when[:-3]
        window.mkdir(parents=True)
        path.rename(window / f"{when}.{rest}")
    assert flatq("kick", "-n", "30", "q", check=0).out == b"30\n"
    assert flatq("drain", "q", check=0).out.split() == [b"%d" % number for number in range(1, 31)]


def test_two_that_change_the_settings_at_the_same_time(flatq, stub):
    """One changes the bound, the other the most tries, while the first is about to rename its
    conf."""
    flatq("create", "q", check=0)
    stub("mv", '''case $*.${other:-} in *conf*.1)
      (other= "$sh" "$lib/create" -m 3 q; : >"$HOME/ended") 9>&- >/dev/null 2>&1 &
      while [ ! -e "$HOME/ended" ]; do
        ! grep -q -- "->.*:$(stat -c %i "$FLATQ_DIR/q/lock") " /proc/locks || break
        sleep 0.05
      done ;;
    esac
    exec "$REAL" "$@"''')
    flatq("create", "-b", "5", "q", env={"other": "1", "sh": flatq.shell, "lib": str(LIB)}, check=0)
    wait_for((flatq.home / "ended").exists, "the other one has ended")
    assert (flatq.spool / "q/conf").read_text() == "5 3\n"


def test_flat_files_of_one_bulk_push_count_apart(flatq):
    """All have the nonce of that push. The first is unfolded by the pop, the second is not."""
    flatq("create", "-b", "700", "q", check=0)
    flatq("push", "-l", "q", input=b"x\n" * 700, check=0)
    flatq("pop", "q", check=0)
    push(flatq, b"y", "q")
    assert flatq("push", "q", input=b"z").status == 75
