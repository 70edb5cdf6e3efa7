"""A plugin for CI, which runs `make test` and then `make test-all`: the second leaves out what has
passed in the first, unless it does more there. FLATQ_TESTED is the file of their names."""

import os
from pathlib import Path

import pytest

import running

PLACE = Path(os.environ["FLATQ_TESTED"])


def name(item):
    return item.nodeid.partition("@")[0]  # pytest-xdist adds the group of a test


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if running.everything():
        passed = set(PLACE.read_text().splitlines())
        config.hook.pytest_deselected(items=[item for item in items if name(item) in passed])
        items[:] = [item for item in items if name(item) not in passed]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item, call):
    if call.when == "call" and name(item) in running.asked:
        item.user_properties.append(("does more in", "make test-all"))


def pytest_runtest_logreport(report):
    """Also in the processes of pytest-xdist, which leave it to the first one."""
    done = report.when == "call" and report.passed and "PYTEST_XDIST_WORKER" not in os.environ
    if done and not running.everything() and "does more in" not in dict(report.user_properties):
        with PLACE.open("a") as file:
            file.write(name(report) + "\n")
