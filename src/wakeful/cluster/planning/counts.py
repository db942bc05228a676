"""How many copies a Model, or pods a Server, is to have: whose count it is, and what is kept of it when manifests are applied again.

The count in `spec` is never changed by us. A count that was decided is kept in `status.scaling` with the `spec.replicas` of that time: another value
there is a wish to start again, and everything else (the same manifest once more, another bound, a restart) keeps what was decided.
"""

from typing import NamedTuple

from wakeful.cluster.planning.world import Bounds, Owner, Scaling


class Step(NamedTuple):
    """Another count."""

    target: int
    why: str
    limited: str = ""
    """What kept it from going further up."""
    lacking: int = 0
    """Replicas above the target that the load asks for and that have no room."""


class Hold(NamedTuple):
    """The same count, and why."""

    why: str
    limited: str | None = None
    """As of a step; None: it was not looked at, and what was found before stands."""
    lacking: int = 0


def owner_of(bounds: Bounds, hpa: bool) -> Owner:
    """An HPA that targets the object, else the scheduler if it was given a range, else whoever writes `spec.replicas`."""
    if hpa:
        return Owner.HPA
    return Owner.SCHEDULER if bounds.ranged else Owner.USER


def why_not_ours(bounds: Bounds, hpa: bool) -> str:
    """Why the scheduler leaves the count alone, for people; empty: it does not."""
    owner = owner_of(bounds, hpa)
    if owner is Owner.HPA:
        return "a HorizontalPodAutoscaler decides the count"
    if owner is Owner.USER:
        return "fixed: neither minReplicas nor maxReplicas is written"
    return "switched off: replicas is 0, and minReplicas: 0 is not written" if is_off(bounds) else ""


def is_off(bounds: Bounds) -> bool:
    """Switched off by hand: `replicas: 0`, and no `minReplicas: 0` that makes 0 a count among others. Nothing wakes it."""
    return bounds.replicas == 0 and bounds.minimum is None


def floor_of(bounds: Bounds) -> int:
    """Fewest replicas that the scheduler may leave: one, unless `minReplicas: 0` is written out."""
    return 0 if bounds.minimum == 0 or is_off(bounds) else max(bounds.minimum or 0, 1)


def clamp(bounds: Bounds, count: int) -> int:
    """The nearest count in the range. An absent bound bounds nothing."""
    ceiling = count if bounds.maximum is None else bounds.maximum
    return max(min(count, ceiling), floor_of(bounds))


def effective_target(bounds: Bounds, kept: Scaling | None, hpa: bool = False) -> int:
    """Replicas to have now.

    Exactly `spec.replicas` if a user decides; 1 if it was not written. In a range of the scheduler, what was decided last. An HPA finds what the
    scheduler left, and decides from the first count on that it writes; bounds do not hold it: two owners would pull at one count.
    """
    first = _first(bounds)
    if is_off(bounds):
        return 0
    owner = owner_of(bounds, hpa)
    if owner is Owner.USER:
        return first
    decided = kept.target if kept is not None and kept.from_spec == as_written(bounds) else first
    return decided if owner is Owner.HPA else clamp(bounds, decided)


def left_over(bounds: Bounds, kept: Scaling | None) -> str:
    """For people, where an HPA has not yet written a count and the scheduler's stands; empty: it has."""
    if kept is None or kept.target == _first(bounds) or is_off(bounds):
        return ""
    return f"; {kept.target}, as the scheduler left it, until it writes another count than spec.replicas, {as_written(bounds) or 'not written'}"


def is_derived(bounds: Bounds, kept: Scaling | None, hpa: bool, target: int) -> bool:
    """Would whoever leads next come to the same target, from the spec and what is kept? Only what would not need be written before it is followed."""
    return target == effective_target(bounds, kept, hpa)


def as_written(bounds: Bounds) -> str:
    """`spec.replicas` as `Scaling.from_spec` has it."""
    return "" if bounds.replicas is None else str(bounds.replicas)


def keep(bounds: Bounds, kept: Scaling | None, hpa: bool, now: float) -> Scaling:
    """What `status.scaling` is to say. The same object if it says so already: then there is nothing to write."""
    owner, target, written = owner_of(bounds, hpa), effective_target(bounds, kept, hpa), as_written(bounds)
    if kept is None:
        return Scaling(owner, target, written)
    if (kept.owner, kept.target, kept.from_spec) == (owner, target, written):
        return kept
    if kept.target == target:
        return Scaling(owner, target, written, kept.last_step_time, kept.last_step)
    if kept.from_spec != written:
        cause = f"spec.replicas is {written or 'not written'}, was {kept.from_spec or 'not written'}"
    elif owner is kept.owner:
        cause = f"minReplicas is {_or_none(bounds.minimum)}, maxReplicas is {_or_none(bounds.maximum)}"
    else:
        cause = f"the count is now {owner.value}'s, was {kept.owner.value}'s"
    return Scaling(owner, target, written, now, f"{kept.target} → {target}: {cause}")


def _first(bounds: Bounds) -> int:
    if bounds.replicas is not None:
        return bounds.replicas
    return max(bounds.minimum or 0, 1)


def _or_none(bound: int | None) -> str:
    return "not written" if bound is None else str(bound)
