"""Tests run side by side, a file at a time; those marked `alone` count on the machine's cores or memory, and have it for themselves."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

LOCKS = "TEST_LOCKS"
"""Variable with a directory that all processes of this run know."""


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        os.environ[LOCKS] = tempfile.mkdtemp(prefix="test-locks-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(LOCKS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Whoever wants the machine closes the gate and waits for the others to end; nobody new begins meanwhile."""
    directory = Path(os.environ[LOCKS])
    with open(directory / "gate", "wb") as gate, open(directory / "machine", "wb") as machine:
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(machine, fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        return (yield)
