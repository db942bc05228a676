"""What a daemon holds of the machine: memory, descriptors, processes, threads."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import psutil


class Holdings(NamedTuple):
    """Of the daemon itself, and of everything below it."""

    memory: int
    """Private bytes of the daemon."""
    descriptors: int
    threads: int
    processes: int
    """Below it."""


def holdings(pid: int) -> Holdings:
    daemon = psutil.Process(pid)
    return Holdings(daemon.memory_full_info().uss, daemon.num_fds(), daemon.num_threads(), len(daemon.children(recursive=True)))


def usual(seen: Sequence[Holdings]) -> Holdings:
    """The median of each: replicas come and go, connections open and close."""
    return Holdings(*(int(median(column)) for column in zip(*seen, strict=True)))


NOISE = Holdings(memory=16 * 1024**2, descriptors=16, threads=2, processes=4)
"""By how much medians may differ."""


def grown(first: Holdings, last: Holdings) -> list[str]:
    """What has become more than it may."""
    pairs = zip(Holdings._fields, first, last, NOISE, strict=True)
    return [f"{name} grew from {before} to {after}" for name, before, after, noise in pairs if after > before + noise]
