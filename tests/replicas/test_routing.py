from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.replicas.routing import Router

LOADS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), min_size=1, max_size=6)


@pytest.mark.parametrize("spelling", ["least-queue", "least_queue"])
def test_least_queue_compares_queue_then_active_then_index(spelling: str) -> None:
    router = Router(spelling)
    assert router.choose([(3, 0)]) == 0
    assert router.choose([(3, 0), (2, 2)]) == 1
    assert router.choose([(2, 2), (2, 1)]) == 1
    assert router.choose([(2, 1), (2, 1), (2, 1)]) == 0


def test_light_load_leaves_the_spare_replicas_idle() -> None:
    router = Router("least-queue")
    assert {router.choose([(0, 0), (0, 0), (0, 0)]) for _ in range(10)} == {0}


@pytest.mark.parametrize("spelling", ["round-robin", "round_robin"])
def test_round_robin_takes_turns_and_survives_fewer_replicas(spelling: str) -> None:
    router = Router(spelling)
    assert [router.choose([(0, 0)] * 3) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert [router.choose([(0, 0)] * 2) for _ in range(3)] == [0, 1, 0]
    assert [router.choose([(0, 0)]) for _ in range(2)] == [0, 0]


def test_random_is_even_and_repeatable() -> None:
    first, second = Router("random", seed=7), Router("random", seed=7)
    chosen = [first.choose([(9, 9), (0, 0), (5, 5)]) for _ in range(3000)]
    assert chosen == [second.choose([(0, 0)] * 3) for _ in range(3000)]
    assert min(Counter(chosen).values()) > 900


def test_an_unknown_strategy_is_no_default() -> None:
    with pytest.raises(KeyError):
        Router("best-fit")


@given(LOADS, st.sampled_from(["least-queue", "round-robin", "random"]))
def test_the_choice_is_a_replica_and_least_queue_is_least(loads: list[tuple[int, int]], strategy: str) -> None:
    chosen = Router(strategy, seed=1).choose(loads)
    assert 0 <= chosen < len(loads)
    if strategy == "least-queue":
        assert loads[chosen] == min(loads)
        assert loads[chosen] not in loads[:chosen]
