"""Whose count it is, and what becomes of it when manifests change."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wakeful.cluster.planning.counts import clamp, effective_target, floor_of, is_derived, is_off, keep, left_over, owner_of
from wakeful.cluster.planning.world import Bounds, Owner, Scaling

COUNTS = st.none() | st.integers(0, 20)


@st.composite
def bounds(draw: st.DrawFn) -> Bounds:
    """What the API server lets through."""
    low, high = draw(COUNTS), draw(st.none() | st.integers(1, 20))
    if low is not None and high is not None and low > high:
        low, high = high, low
    return Bounds(draw(COUNTS), low, high)


SCALINGS = st.none() | st.builds(Scaling, st.sampled_from(Owner), st.integers(0, 30), st.sampled_from(["", "0", "1", "3", "7"]))


@pytest.mark.parametrize(
    ("written", "hpa", "owner"),
    [
        (Bounds(3), False, Owner.USER),
        (Bounds(), False, Owner.USER),
        (Bounds(1, 1), False, Owner.SCHEDULER),
        (Bounds(1, None, 4), False, Owner.SCHEDULER),
        (Bounds(None, 0), False, Owner.SCHEDULER),
        (Bounds(1, 1, 4), True, Owner.HPA),
        (Bounds(3), True, Owner.HPA),
    ],
)
def test_a_count_has_one_owner(written: Bounds, hpa: bool, owner: Owner) -> None:
    assert owner_of(written, hpa) is owner


@pytest.mark.parametrize(
    ("written", "first"),
    [
        (Bounds(), 1),
        (Bounds(5), 5),
        (Bounds(0), 0),  # F6: 0 is 0
        (Bounds(1, 1), 1),  # the seed's tfsimple
        (Bounds(None, 3), 3),
        (Bounds(None, None, 3), 1),
        (Bounds(None, 0, 3), 1),
        (Bounds(0, 0, 3), 0),
        (Bounds(0, None, 3), 0),
        (Bounds(7, None, 3), 3),
    ],
)
def test_the_first_count_is_what_was_written(written: Bounds, first: int) -> None:
    assert effective_target(written, None) == first


@pytest.mark.parametrize("written", [Bounds(0), Bounds(0, None, 3)])
def test_replicas_0_without_a_lower_bound_is_off(written: Bounds) -> None:
    assert is_off(written)
    assert effective_target(written, Scaling(Owner.SCHEDULER, 2, "0")) == 0


@pytest.mark.parametrize(("written", "floor"), [(Bounds(1, 1), 1), (Bounds(None, None, 3), 1), (Bounds(1, 0), 0), (Bounds(4, 2), 2), (Bounds(0), 0)])
def test_0_is_a_count_only_where_it_is_written(written: Bounds, floor: int) -> None:
    assert floor_of(written) == floor


def test_the_same_manifest_again_keeps_what_was_decided() -> None:
    """F20: replicas 5 in a range from 2 stays 5, and what the load made of it stays, too."""
    written = Bounds(5, 2)
    kept = keep(written, None, False, 100.0)
    assert kept == Scaling(Owner.SCHEDULER, 5, "5")
    assert keep(written, kept, False, 200.0) is kept
    decided = Scaling(Owner.SCHEDULER, 8, "5", 150.0, "5 → 8: mean lag 41 on 5 replicas ≥ 30")
    assert keep(written, decided, False, 200.0) is decided


def test_another_count_in_the_spec_starts_again() -> None:
    decided = Scaling(Owner.SCHEDULER, 8, "1", 150.0, "4 → 8")
    kept = keep(Bounds(2, 1), decided, False, 200.0)
    assert kept == Scaling(Owner.SCHEDULER, 2, "2", 200.0, "8 → 2: spec.replicas is 2, was 1")
    assert keep(Bounds(None, 1), decided, False, 200.0).last_step == "8 → 1: spec.replicas is not written, was 1"


def test_other_bounds_clamp_the_count() -> None:
    decided = Scaling(Owner.SCHEDULER, 8, "1", 150.0, "4 → 8")
    assert keep(Bounds(1, 1, 6), decided, False, 200.0).target == 6
    assert keep(Bounds(1, 1, 9), decided, False, 200.0) is decided
    assert keep(Bounds(1, 1, 6), decided, False, 200.0).last_step == "8 → 6: minReplicas is 1, maxReplicas is 6"


def test_without_bounds_it_is_exactly_the_written_count() -> None:
    decided = Scaling(Owner.SCHEDULER, 8, "3", 150.0, "4 → 8")
    assert keep(Bounds(3), decided, False, 200.0) == Scaling(Owner.USER, 3, "3", 200.0, "8 → 3: the count is now User's, was Scheduler's")


def test_bounds_do_not_hold_an_hpa() -> None:
    """Section 2.4 of seldon.md: a Server whose HPA goes above maxReplicas must not break."""
    assert effective_target(Bounds(5, 1, 3), None, hpa=True) == 5
    assert effective_target(Bounds(5, 1, 3), Scaling(Owner.SCHEDULER, 2, "1"), hpa=True) == 5


def test_an_hpa_finds_what_the_scheduler_left_until_it_writes() -> None:
    """It reads spec.replicas, which is the user's of long ago: to fall to that count would be an outage that nobody has decided."""
    left = keep(Bounds(1, 1, 4), Scaling(Owner.SCHEDULER, 4, "1", 100.0, "3 → 4: load"), True, 200.0)
    assert (left.owner, left.target, left.last_step) == (Owner.HPA, 4, "3 → 4: load")
    assert left_over(Bounds(1, 1, 4), left) == "; 4, as the scheduler left it, until it writes another count than spec.replicas, 1"
    for count in (3, 1):
        left = keep(Bounds(count, 1, 4), left, True, 300.0)
        assert (left.target, left_over(Bounds(count, 1, 4), left)) == (count, "")


def test_the_scheduler_goes_on_from_where_an_hpa_left() -> None:
    by_hpa = keep(Bounds(5, 1, 9), Scaling(Owner.SCHEDULER, 2, "1"), True, 100.0)
    assert (by_hpa.owner, by_hpa.target) == (Owner.HPA, 5)
    ours = keep(Bounds(5, 1, 9), by_hpa, False, 200.0)
    assert (ours.owner, ours.target, ours.last_step) == (Owner.SCHEDULER, 5, by_hpa.last_step)


@settings(deadline=None)
@given(bounds(), SCALINGS, st.booleans())
def test_what_is_kept_of_a_spec_needs_no_writing_ahead(written: Bounds, kept: Scaling | None, hpa: bool) -> None:
    """A thousand models applied at once, or reset, wait for nothing: who leads next reads the same out of them."""
    target = keep(written, kept, hpa, 1.0).target
    assert is_derived(written, kept, hpa, target)
    assert not is_derived(written, kept, hpa, target + 1)


@settings(deadline=None)
@given(bounds(), SCALINGS, st.booleans(), st.floats(1, 1e9))
def test_once_kept_nothing_changes(written: Bounds, kept: Scaling | None, hpa: bool, now: float) -> None:
    """F18, F20: applying again and restarting are the same thing, reading what was kept."""
    once = keep(written, kept, hpa, now)
    assert keep(written, once, hpa, now + 100) is once
    assert effective_target(written, once, hpa) == once.target


@settings(deadline=None)
@given(bounds(), SCALINGS)
def test_the_scheduler_stays_in_its_range(written: Bounds, kept: Scaling | None) -> None:
    target = effective_target(written, kept)
    if not written.ranged:
        assert target == (1 if written.replicas is None else written.replicas)
        return
    assert target == clamp(written, target)
    if written.maximum is not None:
        assert target <= max(written.maximum, written.minimum or 0)
    if not is_off(written):
        assert target >= (0 if written.minimum == 0 else max(written.minimum or 0, 1))
