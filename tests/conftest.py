"""Tests run side by side, a file at a time; those marked `alone` count on the machine's cores or memory, and have it for themselves.

Scenarios of the cluster start a control plane and take minutes: they run where their folder is named, as `make test-cluster` does.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

LOCKS = "TEST_LOCKS"
"""Variable with a directory that all processes of this run know."""
SCENARIOS = Path(__file__).parent / "cluster/scenarios"


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


def _scenarios_named(config: pytest.Config) -> bool:
    named = (Path(config.invocation_params.dir, argument.partition("::")[0]).resolve() for argument in config.args)
    return any(path.is_relative_to(SCENARIOS) for path in named)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    scenarios = [item for item in items if item.path.is_relative_to(SCENARIOS)]
    for item in scenarios:
        item.add_marker("scenario")
    if not _scenarios_named(config):
        config.hook.pytest_deselected(items=scenarios)
        items[:] = [item for item in items if item not in set(scenarios)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    above = (Path(config.invocation_params.dir, argument.partition("::")[0]).resolve() for argument in config.args)
    if any(SCENARIOS.is_relative_to(path) for path in above if path != SCENARIOS):
        terminalreporter.write_line("the scenarios of the cluster are not among these tests: make test-cluster runs them")
