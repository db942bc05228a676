"""Processes that a model has started itself: they end with it, and their memory is counted as its own."""

import os
from contextlib import suppress


def has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def descendants() -> list[int]:
    """All processes below this one. Takes a look at every process of the machine, unless there are none."""
    if not has_children():
        return []
    children: dict[int, list[int]] = {}
    for pid, parent in _parents().items():
        children.setdefault(parent, []).append(pid)
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, ())
    return found[1:]


def children() -> list[int]:
    """This process's own ones."""
    return [pid for pid, parent in _parents().items() if parent == os.getpid()] if has_children() else []


def _parents() -> dict[int, int]:
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    return parents
