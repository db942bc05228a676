"""Which replicas of a model have been idle for too long.

The effective timeout of replica k is T for the primary (k = 0) and max(T / N, 1 ms) for the copies, with N replicas alive when it fell idle: if N
were counted again after each departure, the second copy of a burst would outlive the first by far.
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
    peers: int = 0
    """Replicas that were alive then, itself included."""


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
    """Find the replicas to stop: copies first, and of the idle ones always the highest index first; the primary only when it is the last one.

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
        left = alive - len(stop)
        if copy.busy:
            continue
        if left <= floor:
            break
        if now < _due(copy, base, alive):
            return Sweep(tuple(stop), _due(copy, base, left))
        stop.append(copy.index)
    if len(stop) < len(copies) or floor or primary.busy:
        return Sweep(tuple(stop), None)
    due = primary.last_done + base
    return Sweep(tuple(stop), due) if now < due else Sweep((*stop, primary.index), None)


def asleep_at(replicas: Sequence[IdleView], base: float, floor: int = 0, pinned: bool = False, *, together: bool = False) -> float | None:
    """When the last replica would be stopped if no request came until then; None: never, or not before something in hand has ended.

    Departures one after the other are taken for one: they are milliseconds apart.
    """
    if not replicas or base <= 0 or pinned or floor > 0 or any(replica.busy for replica in replicas):
        return None
    if together:
        return max(replica.last_done for replica in replicas) + base
    primary, *copies = sorted(replicas, key=lambda replica: replica.index)
    return max([primary.last_done + base, *(_due(copy, base, len(replicas)) for copy in copies)])


def _due(copy: IdleView, base: float, alive: int) -> float:
    return copy.last_done + effective_timeout(1, base, max(alive, copy.peers))


def _sweep_together(now: float, replicas: Sequence[IdleView], base: float, stay: bool) -> Sweep:
    if stay or any(replica.busy for replica in replicas):
        return Sweep((), None)
    due = max(replica.last_done for replica in replicas) + base
    if now < due:
        return Sweep((), due)
    return Sweep(tuple(sorted((replica.index for replica in replicas), reverse=True)), None)
