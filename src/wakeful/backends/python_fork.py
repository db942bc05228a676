"""May a process in which somebody's Python code has run be copied by a fork? Only if it has done nothing that a copy would share or miss."""

import os
import re
from contextlib import suppress
from pathlib import Path

from wakeful.worker import family

_UNSAFE = re.compile(r"/(lib(?:gomp|iomp5|omp|torch|cuda|cudart|tensorflow|mxnet|jax|grpc)\w*)[-.][^/]*$|/(cygrpc)[.][^/]*$", re.MULTILINE)
"""Libraries that keep threads, or a device, which a copy has not. A pool that sleeps for want of work is no thread yet: its library tells."""


class Innocence:
    """Made before the code runs, and asked afterwards."""

    def __init__(self) -> None:
        self._descriptors: set[tuple[int, str]] = set()
        self._look()
        os.register_at_fork(after_in_child=self._look)  # a copy has a channel of its own

    def _look(self) -> None:
        self._descriptors = _descriptors()

    def lost(self) -> str:
        """Why it may not be copied; empty if it may. Threads are counted by who forks."""
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            if found := _UNSAFE.search(maps.read()):
                return f"it uses {found[1] or found[2]}"
        if opened := _descriptors() - self._descriptors:
            return f"it keeps {min(opened)[1]} open, which a copy would share"
        if family.has_children():
            return "it has started processes, which a copy would not have"
        threads = len(os.listdir("/proc/self/task"))
        return f"it has {threads} threads" if threads > 1 else ""


def _descriptors() -> set[tuple[int, str]]:
    """Number and what it is, of each that is open."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that lists them is gone by now
            found.add((int(name), str(Path("/proc/self/fd", name).readlink())))
    return found
