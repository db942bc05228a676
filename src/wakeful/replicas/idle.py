"""Which replicas of a model have been idle for too long.

The effective timeout of replica k is T for the primary (k = 0) and max(T / N, 1 ms) for the copies, with N replicas alive.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

SHORTEST = 0.001
"""Seconds that a copy is left idle at least, however many there are."""


@dataclass(frozen=True, slots=True)
class IdleView:
    """A replica that is alive. Starting counts as busy; `last_done` is when it last completed a request, or became ready."""

    index: int
    busy: bool
    last_done: float


class Sweep(NamedTuple):
    stop: tuple[int, ...]
    """Indices to stop, one by one in this order."""
    next_check: float | None
    """When the next one would be due if nothing completes until then; None: a completion has to come first."""


def effective_timeout(k: int, base: float, n: int) -> float:
    """Seconds that replica `k` of `n` may be idle; `base` is the configured timeout, not 0."""
    return base if k == 0 else max(base / n, SHORTEST)


def sweep(
    now: float, replicas: Sequence[IdleView], base: float, floor: int = 0, pinned: bool = False, *, together: bool = False
) -> Sweep:
    """Find the replicas to stop: copies first, the highest index first, and the primary only when it is the last one.

    The primary is the lowest index alive. `base` 0 means never; `pinned` keeps the primary for ever, and `floor` that many replicas.
    `together`: their number is fixed while the model is awake, so all go when the last of them has been idle for `base`, or none.
    """
    if not replicas or base <= 0:
        return Sweep((), None)
    if together:
        return _sweep_together(now, replicas, base, pinned or floor > 0)
    primary, *copies = sorted(replicas, key=lambda replica: replica.index)
    floor = max(floor, 1 if pinned else 0)
    alive = len(replicas)
    stop: list[int] = []
    for copy in reversed(copies):
        if alive - len(stop) > floor and not copy.busy and now >= copy.last_done + effective_timeout(1, base, alive):
            stop.append(copy.index)
    if len(stop) == len(copies) and floor == 0 and not primary.busy and now >= primary.last_done + base:
        stop.append(primary.index)
    stopped = set(stop)
    return Sweep(tuple(stop), _next_due([replica for replica in (primary, *copies) if replica.index not in stopped], base, floor))


def _sweep_together(now: float, replicas: Sequence[IdleView], base: float, stay: bool) -> Sweep:
    if stay or any(replica.busy for replica in replicas):
        return Sweep((), None)
    due = max(replica.last_done for replica in replicas) + base
    if now < due:
        return Sweep((), due)
    return Sweep(tuple(sorted((replica.index for replica in replicas), reverse=True)), None)


def _next_due(alive: Sequence[IdleView], base: float, floor: int) -> float | None:
    """When the next of the replicas that stay would be due, their timeout now being that of their smaller number."""
    if len(alive) <= floor:
        return None
    primary, *copies = alive
    candidates = copies or [primary]
    timeout = effective_timeout(1 if copies else 0, base, len(alive))
    return min((replica.last_done + timeout for replica in candidates if not replica.busy), default=None)
