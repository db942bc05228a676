"""Does a model need another replica? Asked on every arrival."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

GAIN = 1.1
"""A replica more than there are cores must bring this factor of throughput to stay, where nobody has set a ceiling."""


BUSY = 0.65
"""Share of its time that a replica must run for its queue to be its own doing. A model of microseconds has queues because the daemon is busy: seen
were 5 to 22 % at full load, where a further replica took a seventh of the throughput and three took a quarter; 90 % where the model is slow."""


FULL = 0.6
"""Share of the cores that the replicas compute on, from which a replica more than there are cores could only take from the others. What is left
are the daemon, its callers and the gaps between runs, and on a machine that is shared what others take: seen were 91 to 97 % of a core for each of
two replicas at saturation, and less than 75 % where the hypervisor gave the cores to somebody else."""


class ScaleView(NamedTuple):
    """The model, and the machine it shares."""

    queues: Sequence[int]
    """Waiting requests of every replica; one that is starting has its own queue, empty at first. Draining ones do not count."""
    loaded: int
    """Replicas of all models that are loaded or loading."""
    cores: int | None = None
    """Replicas that have a core of their own each; None: not on a CPU."""
    rate: float | None = None
    """Rows per second that this many replicas have been seen to run under pressure; None: not measured yet."""
    useless: tuple[float, float] | None = None
    """Rows per second before and with one replica more, which was taken back for that reason; None: not tried, or forgotten."""
    busy: float | None = 1.0
    """Share of their time that the replicas have been running lately; None: not measured yet."""
    computing: float = 0.0
    """Cores that their processes kept busy while `rate` was measured; a replica of several threads counts them as one core."""


@dataclass(frozen=True, slots=True)
class ScaleLimits:
    queue_threshold: int = 8
    max_replicas: int = 0
    """0: no ceiling."""
    min_replicas: int = 0
    fixed: int | None = None
    max_loaded: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """Start `count` more replicas. If memory is full and nothing can be evicted, go on without."""

    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Hold:
    """The queues ask for a replica, and this is why there is none. `cause` stays the same while the figures move: report it when it changes."""

    cause: Literal["max_replicas", "max_loaded", "not_busy", "measuring", "cores_full", "no_gain"]
    reason: str


def decide(view: ScaleView, limits: ScaleLimits) -> Step | Hold | None:
    """One more replica when even the smallest queue exceeds the threshold and no limit forbids it; None: all is well.

    A model without replicas always gets its first ones, whatever `max_loaded` says: room is then made by eviction.
    """
    count = len(view.queues)
    if limits.fixed is not None:
        return _towards(limits.fixed, "replicas", view, limits)
    if count < max(limits.min_replicas, 1):
        return _towards(max(limits.min_replicas, 1), "min_replicas", view, limits)
    smallest = min(view.queues)
    if smallest <= limits.queue_threshold:
        return None
    pressure = f"queue {smallest} > {limits.queue_threshold} on {'every replica' if count > 1 else 'the only replica'}"
    if 0 < limits.max_replicas <= count:
        return Hold("max_replicas", f"{pressure}, but {count} of max_replicas {limits.max_replicas} run")
    if _ceiling(view, limits):
        return Hold("max_loaded", f"{pressure}, but {view.loaded} replicas are loaded (max_loaded_models {limits.max_loaded})")
    if not limits.max_replicas and (hold := _not_busy(pressure, view)):
        return hold
    return _beyond_cores(pressure, view, limits) or Step(1, f"{pressure}, {count} -> {count + 1} replicas")


def _towards(floor: int, setting: str, view: ScaleView, limits: ScaleLimits) -> Step | Hold | None:
    """As many as it takes to reach a number that is configured."""
    count = len(view.queues)
    missing = floor - count
    if missing <= 0:
        return None
    if count == 0:
        allowed = missing if limits.max_loaded is None else min(missing, max(limits.max_loaded - view.loaded, 1))
        return Step(allowed, "a request for a sleeping model")
    if _ceiling(view, limits):
        return Hold("max_loaded", f"{count} of {setting} {floor}, but {view.loaded} replicas are loaded (max_loaded_models {limits.max_loaded})")
    allowed = missing if limits.max_loaded is None else min(missing, limits.max_loaded - view.loaded)
    return Step(allowed, f"{count} of {setting} {floor}")


def _ceiling(view: ScaleView, limits: ScaleLimits) -> bool:
    return limits.max_loaded is not None and view.loaded >= limits.max_loaded


def _not_busy(pressure: str, view: ScaleView) -> Hold | None:
    """Replicas that mostly wait for work are not what the requests wait for."""
    if view.busy is None:
        return Hold("measuring", f"{pressure}, but how busy the replicas are is not measured yet")
    if view.busy < BUSY:
        return Hold("not_busy", f"{pressure}, but runs take only {view.busy:.0%} of the replicas' time: another one would not shorten it")
    return None


def _beyond_cores(pressure: str, view: ScaleView, limits: ScaleLimits) -> Hold | None:
    """On a CPU more replicas than cores only fight, as a rule. Where no ceiling says when to stop, one more is a trial that throughput judges."""
    count = len(view.queues)
    if limits.max_replicas or view.cores is None or count < view.cores:
        return None
    if view.useless is not None:
        before, after = view.useless
        return Hold("no_gain", f"{pressure}, but replica {count + 1} brought no throughput: {before:.0f} -> {after:.0f} rows/s")
    if view.rate is None:
        return Hold("measuring", f"{pressure}, but what {count} replicas on {view.cores} cores can do is not measured yet")
    if view.computing >= FULL * view.cores:
        return Hold("cores_full", f"{pressure}, but {count} replicas keep {view.computing:.1f} of {view.cores} cores busy")
    return None


def gained(before: float, after: float) -> bool:
    """Is this throughput worth the replica that was added for it?"""
    return after >= GAIN * before
