"""A control group of our own, to give a daemon a smaller machine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon import wait_until
from wakeful.memory import budget

ENTER = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


def inside(group: Path) -> list[str]:
    """Launcher of a process that lives in the group."""
    return ["sh", "-c", ENTER, str(group)]


@contextmanager
def child_group(controller: str, *names: str, parent: Path | None = None) -> Iterator[Path]:
    """A child of our own group, so that what happens in it is charged to us as well, or of `parent`; `names`: and a child of that, and so on.

    Skips where we may not make one, or where version 2 does not hand the controller down. The outermost is yielded.
    """
    own = next(budget._groups(budget.PROC, budget.CGROUPS, controller), None)
    if own is None:
        pytest.skip(f"no {controller} controller of a control group here")
    paths = [(parent or own.path) / f"wakeful-test-{os.getpid()}"]
    for name in names:
        paths.append(paths[-1] / name)
    try:
        try:
            for path in paths:
                path.mkdir()
        except OSError as error:
            pytest.skip(f"no group can be made here: {error}")
        if not any(file.name.startswith(f"{controller}.") for file in paths[0].iterdir() if file.name != f"{controller}.stat"):
            pytest.skip(f"the {controller} controller is not handed down here")
        yield paths[0]
    finally:
        for path in reversed(paths):
            wait_until(lambda path=path: _removed(path), "the group is empty")


def _removed(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
