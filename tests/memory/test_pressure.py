"""Budgets from one model to all but one, under traffic of all kinds, with the real supervisor in time that jumps: nobody waits without an end, and
nobody goes who should not. On a real daemon: tests/thrash."""

import random
from collections.abc import Sequence

import pytest

from tests.memory.simulation import Kind, Outcome, Traffic, simulate
from tests.thrash.judge import most_loads, unlawful
from wakeful.memory.supervisor import TURN_PATIENCE

SIZES = [random.Random(5).choice((2, 4, 8)) for _ in range(50)]
TOTAL = sum(SIZES)
BUDGETS = {"one fits": max(SIZES), "a tenth fits": TOTAL // 10, "half fit": TOTAL // 2, "all but one fit": TOTAL - 1}
TRAFFIC = Traffic(clients=8, seconds=12.0)


def judged(kinds: Sequence[Kind], budget: int, traffic: Traffic, seed: int, max_loaded: int | None = None, waiting: int | None = None) -> Outcome:
    """`waiting`: turns that a model may have to wait for: those before it all go one by one."""
    outcome = simulate(kinds, budget, traffic, seed, max_loaded)
    assert outcome.refused == []
    assert unlawful(event.figures for event in outcome.events if event.kind == "evict") == []
    assert outcome.most <= budget
    assert len(outcome.ready) <= most_loads(budget, min(kind.bytes for kind in kinds), outcome.seconds, traffic.residency)
    turn = TURN_PATIENCE + traffic.residency + 4 * traffic.load  # to wait for a load, and for a run and an end
    assert max(outcome.waits) <= turn * (waiting or traffic.clients)
    assert outcome.left == (0, 0, 0.0)
    return outcome


@pytest.mark.parametrize("skewed", [False, True], ids=["uniform", "skewed"])
@pytest.mark.parametrize("budget", BUDGETS)
def test_fifty_models(budget: str, skewed: bool) -> None:
    """C30."""
    for seed in range(3):
        order = random.Random(seed).sample(range(50), 50)
        kinds = [Kind(size, 1 / (1 + rank) if skewed else 1.0) for size, rank in zip(SIZES, order, strict=True)]
        outcome = judged(kinds, BUDGETS[budget], TRAFFIC, seed)
        if budget == "all but one fit" and not skewed:
            assert min(outcome.answered) > 0


@pytest.mark.parametrize("budget", ["half fit", "all but one fit"])
def test_pinned_ones_and_some_that_are_never_idle_among_them(budget: str) -> None:
    for seed in range(3):
        kinds = [Kind(size, pinned=number % 10 == 3, never_idle=number % 10 == 7) for number, size in enumerate(SIZES)]
        outcome = judged(kinds, BUDGETS[budget], TRAFFIC, seed, waiting=TRAFFIC.clients + 5)
        pinned = {f"m{number}" for number, kind in enumerate(kinds) if kind.pinned}
        assert not pinned & {event.model for event in outcome.events if event.kind == "evict"}


@pytest.mark.parametrize("residency", [0.1, 1.0, 5.0])
def test_two_large_ones_that_are_never_idle_take_turns(residency: float) -> None:
    """C29."""
    outcome = judged([Kind(8, never_idle=True), Kind(8, never_idle=True)], 10, Traffic(0, 120.0, residency), seed=1, waiting=2)
    most, least = max(outcome.answered), min(outcome.answered)
    assert most < 2 * least


@pytest.mark.parametrize(("residency", "guessed"), [(0.2, False), (2.0, False), (2.0, True)])
def test_a_large_one_has_its_turn_among_small_ones_that_always_find_room(residency: float, guessed: bool) -> None:
    """It needs the room of eight that have all had their minimum residency, and without a claim each of them is followed by another small one.

    At most fifteen asked before it, whom ten places serve in two turns. Then comes its own.
    """
    kinds = [Kind(80, weight=2.0, guess=70 if guessed else 0), *(Kind(10) for _ in range(40))]
    traffic = Traffic(clients=16, seconds=20.0, residency=residency)
    outcome = judged(kinds, 100, traffic, seed=2, waiting=4)
    assert outcome.answered[0] > 0


def test_a_ceiling_of_replicas_beside_the_budget() -> None:
    for budget in (TOTAL, TOTAL // 4):
        judged([Kind(size) for size in SIZES], budget, TRAFFIC, seed=1, max_loaded=10)
