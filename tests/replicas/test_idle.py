import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.replicas.idle import IdleView, Sweep, effective_timeout, sweep


def quiet(count: int, since: float = 0.0) -> list[IdleView]:
    return [IdleView(index, busy=False, last_done=since) for index in range(count)]


def test_effective_timeout_is_the_seeds_formula() -> None:
    assert effective_timeout(0, 300.0, 4) == 300.0
    assert effective_timeout(1, 300.0, 4) == effective_timeout(3, 300.0, 4) == 75.0
    assert effective_timeout(1, 0.002, 4) == 0.001


def test_the_seeds_example() -> None:
    """T = 300 s and 4 replicas: the copies go at 75 s, one by one from the highest index, the primary at 300 s."""
    assert sweep(74.9, quiet(4), 300.0) == Sweep((), 75.0)
    assert sweep(75.0, quiet(4), 300.0) == Sweep((3, 2, 1), 300.0)
    assert sweep(299.9, quiet(1), 300.0) == Sweep((), 300.0)
    assert sweep(300.0, quiet(1), 300.0) == Sweep((0,), None)


def test_n_is_the_number_alive_when_the_sweep_begins() -> None:
    """With N counted down within the sweep, the second copy would have had to wait for 100 s."""
    views = [IdleView(0, True, 0.0), IdleView(1, True, 0.0), IdleView(2, False, 0.0), IdleView(3, False, 0.0)]
    assert sweep(75.0, views, 300.0).stop == (3, 2)


def test_a_run_longer_than_the_timeout_is_not_idle() -> None:
    """C21: timeout 2 s, run from 0 to 5 s, request a second later, then silence."""
    assert sweep(4.0, [IdleView(0, busy=True, last_done=0.0)], 2.0) == Sweep((), None)
    assert sweep(6.0, [IdleView(0, busy=False, last_done=5.0)], 2.0) == Sweep((), 7.0)
    assert sweep(7.0, [IdleView(0, busy=False, last_done=5.0)], 2.0) == Sweep((0,), None)


def test_a_busy_copy_stays_and_keeps_the_primary() -> None:
    """C15: never the replica that has work; the primary only when it is the last."""
    views = [IdleView(0, False, 0.0), IdleView(1, False, 0.0), IdleView(2, True, 0.0)]
    assert sweep(1e6, views, 300.0) == Sweep((1,), None)


def test_a_newborn_has_its_own_clock() -> None:
    views = [*quiet(2), IdleView(2, False, last_done=90.0)]
    assert sweep(100.0, views, 300.0) == Sweep((), 90.0 + 100.0)
    assert sweep(190.0, views, 300.0) == Sweep((2, 1), 300.0)  # always the highest first, so the other one has waited for it


def test_a_busy_copy_does_not_keep_the_idle_ones_below_it() -> None:
    views = [*quiet(3), IdleView(3, busy=True, last_done=0.0)]
    assert sweep(75.0, views, 300.0) == Sweep((2, 1), None)


def test_copies_that_fall_idle_one_after_the_other_leave_likewise_and_not_ever_more_slowly() -> None:
    """At the end of a burst the last completions are milliseconds apart; the seed wants the copies gone after T / 4 all the same."""
    views = [IdleView(index, False, 0.01 * index, peers=4) for index in range(4)]
    assert sweep(75.02, views, 300.0) == Sweep((), 75.03)
    assert sweep(75.03, views, 300.0) == Sweep((3, 2, 1), 300.0)
    backwards = [IdleView(index, False, 0.01 * (3 - index), peers=4) for index in range(4)]
    assert sweep(75.0, backwards, 300.0) == Sweep((3,), 75.01)
    assert sweep(75.01, backwards[:3], 300.0) == Sweep((2,), 75.02)
    assert sweep(75.02, backwards[:2], 300.0) == Sweep((1,), 300.03)


def test_zero_is_never() -> None:
    assert sweep(1e9, quiet(4), 0.0) == Sweep((), None)


def test_a_pinned_model_keeps_its_primary_but_not_its_copies() -> None:
    assert sweep(75.0, quiet(4), 300.0, pinned=True) == Sweep((3, 2, 1), None)
    assert sweep(1e9, quiet(1), 300.0, pinned=True) == Sweep((), None)


def test_the_floor_stays() -> None:
    assert sweep(1e9, quiet(4), 300.0, floor=2) == Sweep((3, 2), None)
    assert sweep(1e9, quiet(2), 300.0, floor=2) == Sweep((), None)
    assert sweep(1e9, quiet(4), 300.0, floor=9) == Sweep((), None)


def test_after_a_long_silence_all_go_at_once_the_primary_last() -> None:
    assert sweep(300.0, quiet(3), 300.0) == Sweep((2, 1, 0), None)


def test_the_shortest_timeout_is_a_millisecond_for_copies() -> None:
    assert sweep(0.0009, quiet(2), 0.0005) == Sweep((), 0.001)
    assert sweep(0.001, quiet(2), 0.0005) == Sweep((1, 0), None)


def test_when_the_primary_has_died_the_lowest_index_stands_in() -> None:
    orphans = quiet(3)[1:]
    assert sweep(150.0, orphans, 300.0) == Sweep((2,), 300.0)
    assert sweep(300.0, orphans[:1], 300.0) == Sweep((1,), None)


def test_a_fixed_number_sleeps_together() -> None:
    views = [IdleView(0, False, 0.0), IdleView(1, False, 50.0), IdleView(2, False, 20.0)]
    assert sweep(349.0, views, 300.0, together=True) == Sweep((), 350.0)
    assert sweep(350.0, views, 300.0, together=True) == Sweep((2, 1, 0), None)
    assert sweep(1e9, [*views, IdleView(3, True, 0.0)], 300.0, together=True) == Sweep((), None)
    assert sweep(1e9, views, 300.0, pinned=True, together=True) == Sweep((), None)
    assert sweep(1e9, views, 300.0, floor=1, together=True) == Sweep((), None)


def test_nothing_alive() -> None:
    assert sweep(5.0, [], 300.0) == Sweep((), None)


@given(
    st.lists(st.tuples(st.booleans(), st.floats(0, 100)), max_size=6),
    st.floats(0, 1000),
    st.floats(0, 200),
    st.integers(0, 4),
    st.booleans(),
)
def test_laws_of_the_sweep(states: list[tuple[bool, float]], now: float, base: float, floor: int, pinned: bool) -> None:
    views = [IdleView(index, busy, last_done) for index, (busy, last_done) in enumerate(states)]
    stop, next_check = sweep(now, views, base, floor, pinned)
    assert sweep(now, views[::-1], base, floor, pinned) == (stop, next_check)  # the order of the views says nothing
    assert list(stop) == sorted(stop, reverse=True)
    assert not any(views[index].busy for index in stop)
    left = len(views) - len(stop)
    assert not stop or left >= max(floor, 1 if pinned else 0)
    assert 0 not in stop or left == 0
    remaining = [view for view in views if view.index not in stop]
    if next_check is not None:
        assert next_check > now
        assert sweep(next_check, remaining, base, floor, pinned).stop
    elif base > 0:
        assert not sweep(1e9, remaining, base, floor, pinned).stop  # only a completion can change anything


@pytest.mark.parametrize("base", [0.1, 1 / 3, 300.0])
def test_the_time_of_the_next_check_is_late_enough(base: float) -> None:
    """Rounding must not make a loop of checks that each find nothing."""
    for since in (0.1, 1 / 7, 12345.678):
        views, stops = quiet(3, since), 0
        now = since
        for _ in range(4):
            stop, following = sweep(now, views, base)
            views = [view for view in views if view.index not in stop]
            stops += len(stop)
            if following is None:
                break
            now = following
        assert stops == 3
