import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.replicas.threads import threads_for, usable_cores


@pytest.mark.parametrize(
    ("quota", "affinity", "cores"), [(None, 8, 8), (2.0, 64, 2), (1.9, 64, 1), (0.5, 64, 1), (16.0, 4, 4), (None, 0, 1), (2.5, 2, 2)]
)
def test_usable_cores(quota: float | None, affinity: int, cores: int) -> None:
    """C33."""
    assert usable_cores(quota, affinity) == cores


def test_one_thread_is_the_usual_best() -> None:
    assert threads_for(0, 16, 1, None, single_replica=False) == 1
    assert threads_for(0, 16, 1, None, single_replica=True) == 1
    assert threads_for(0, 16, 1, {1: 0.005, 4: 0.001}, single_replica=True) == 1
    assert threads_for(0, 16, 1, {1: 0.500}, single_replica=False) == 1


def test_a_long_run_that_may_not_be_copied_gets_the_cores() -> None:
    assert threads_for(0, 4, 1, {1: 0.500}, single_replica=True) == 4
    assert threads_for(0, 4, 1, {1: 0.500, 2: 0.300, 4: 0.200}, single_replica=True) == 4
    assert threads_for(0, 4, 1, {1: 0.500, 4: 0.480}, single_replica=True) == 1


def test_a_model_that_may_be_copied_needs_a_measured_gain() -> None:
    assert threads_for(0, 4, 1, {1: 0.060, 2: 0.041}, single_replica=False) == 1
    assert threads_for(0, 4, 1, {1: 0.060, 2: 0.035, 4: 0.036}, single_replica=False) == 2
    assert threads_for(0, 4, 1, {1: 0.019, 2: 0.010}, single_replica=False) == 1


def test_the_setting_decides() -> None:
    assert threads_for(6, 2, 5, None, single_replica=False) == 6


@given(
    st.integers(1, 64),
    st.integers(0, 80),
    st.none() | st.dictionaries(st.integers(1, 64), st.floats(0.0, 2.0), max_size=6),
    st.booleans(),
)
def test_replicas_never_have_more_threads_than_cores(cores: int, replicas: int, measured: dict[int, float] | None, single: bool) -> None:
    threads = threads_for(0, cores, replicas, measured, single)
    assert threads == 1 or threads * max(replicas, 1) <= cores
