from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from wakeful.memory.eviction import Candidate, Plan, Refusal, Thrash, plan

GIB, MIB = 1024**3, 1024**2


def loaded(model: str, size: int = GIB, last_used: float = 0.0, **changes: object) -> Candidate:
    """An idle replica that has been there for long."""
    return Candidate(
        model, replica=0, bytes=size, shared=0, last_used=last_used, idle=True, pinned=False, loaded_at=-100.0, min_residency=10.0
    )._replace(**changes)  # type: ignore[arg-type] # names and types are those of the test above all


def victims(answer: Plan | Refusal) -> list[str]:
    assert isinstance(answer, Plan), answer
    return [f"{victim.model}#{victim.replica}" if victim.replica else victim.model for victim in answer.victims]


FOUR = [loaded("a", last_used=4.0), loaded("b", last_used=1.0), loaded("c", last_used=3.0), loaded("d", last_used=2.0)]


def test_one_load_evicts_exactly_the_least_recently_used() -> None:
    """C30."""
    answer = plan(GIB, 0, FOUR, now=100.0)
    assert victims(answer) == ["b"]
    assert answer.reason == "needs 1.0 GiB, free 0 B; evicts b#0 (idle 1m 39s) for 1.0 GiB"


def test_figures_that_look_alike_tell_the_difference() -> None:
    assert plan(GIB + 4096, GIB, [], now=0.0) == Refusal("needs 1.0 GiB, free 1.0 GiB, 4.0 KiB short; no other model is loaded", None)


def test_nobody_goes_where_there_is_room() -> None:
    assert victims(plan(GIB, GIB, FOUR, now=100.0)) == []
    assert victims(plan(0, 0, FOUR, now=100.0)) == []


def test_what_can_never_fit_evicts_nobody() -> None:
    assert plan(9 * GIB, 0, FOUR, now=100.0, budget=4 * GIB) == Refusal("needs 9.0 GiB, budget 4.0 GiB", None)


def test_busy_pinned_and_fresh_ones_stay_and_are_named() -> None:
    candidates = [
        loaded("a", idle=False),
        loaded("b", pinned=True),
        loaded("c", 61 * MIB, loaded_at=94.0),
        loaded("d", MIB),
    ]
    answer = plan(61 * MIB, 22 * MIB, candidates, now=100.0)
    assert answer == Refusal(
        "needs 61 MiB, free 22 MiB; a busy, b pinned, c in its first 10 s for another 4.0 s, d idle but too small", retry_at=104.0
    )


def test_busy_least_recently_used_is_skipped() -> None:
    assert victims(plan(GIB, 0, [FOUR[0], FOUR[1]._replace(idle=False), *FOUR[2:]], now=100.0)) == ["d"]


def test_the_busy_go_too_where_that_is_said_but_after_the_idle_and_never_those_on_their_way() -> None:
    candidates = [loaded("a", last_used=1.0, idle=False), loaded("b", last_used=2.0), loaded("c", last_used=0.0, idle=False, loaded=False)]
    assert victims(plan(GIB, 0, candidates, now=100.0, busy_too=True)) == ["b"]
    answer = plan(2 * GIB, 0, candidates, now=100.0, busy_too=True)
    assert victims(answer) == ["b", "a"]
    assert "b#0 (idle 1m 38s), a#0 (busy)" in answer.reason
    assert isinstance(plan(3 * GIB, 0, candidates, now=100.0, busy_too=True), Refusal)
    copies = [loaded("m", MIB, 1.0, idle=True), loaded("m", MIB, 2.0, idle=False, replica=1)]
    assert victims(plan(2 * MIB, 0, copies, now=100.0, busy_too=True)) == ["m#1", "m"]


def test_all_pinned_is_a_refusal_without_an_end() -> None:
    answer = plan(GIB, 0, [one._replace(pinned=True) for one in FOUR], now=100.0)
    assert isinstance(answer, Refusal)
    assert answer.retry_at is None


def test_none_suffices_then_nobody_goes() -> None:
    answer = plan(5 * GIB, 0, FOUR, now=100.0)
    assert isinstance(answer, Refusal)
    assert "b idle but too small" in answer.reason
    assert plan(GIB, 0, [], now=0.0) == Refusal("needs 1.0 GiB, free 0 B; no other model is loaded", None)


def test_a_later_bigger_one_spares_the_smaller_ones_before_it() -> None:
    candidates = [loaded("s", MIB, 1.0), loaded("t", MIB, 2.0), loaded("u", GIB, 3.0)]
    assert victims(plan(GIB, 0, candidates, now=100.0)) == ["u"]
    assert victims(plan(GIB + MIB, 0, candidates, now=100.0)) == ["s", "u"]


def test_being_over_the_budget_already_is_made_good_first() -> None:
    assert victims(plan(GIB, -GIB, FOUR, now=100.0)) == ["b", "d"]


def test_shared_weights_are_freed_only_with_the_last_replica() -> None:
    two = [loaded("m", MIB, 1.0, shared=GIB), loaded("m", MIB, 5.0, shared=GIB, replica=1)]
    assert victims(plan(MIB, 0, two, now=100.0)) == ["m#1"]  # a copy before the one it came from
    assert victims(plan(GIB, 0, two, now=100.0)) == ["m#1", "m"]
    half_busy = [two[0]._replace(idle=False), two[1]]
    assert isinstance(plan(2 * MIB, 0, half_busy, now=100.0), Refusal)


def test_retry_at_is_when_enough_have_had_their_time() -> None:
    fresh = [one._replace(loaded_at=95.0 + index) for index, one in enumerate(FOUR)]
    answer = plan(2 * GIB, 0, fresh, now=100.0)
    assert isinstance(answer, Refusal)
    assert answer.retry_at == 106.0
    assert victims(plan(2 * GIB, 0, fresh, now=106.0)) == ["b", "a"]


def test_a_long_refusal_stays_readable() -> None:
    answer = plan(99 * GIB, 0, [loaded(f"m{index:02}", idle=False) for index in range(40)], now=100.0)
    assert answer.reason.endswith("m05 busy, and 34 more")


CANDIDATES = st.lists(
    st.builds(
        Candidate,
        model=st.sampled_from("abc"),
        replica=st.just(0),
        bytes=st.integers(0, 9),
        shared=st.just(0),
        last_used=st.integers(0, 9).map(float),
        idle=st.booleans(),
        pinned=st.booleans(),
        loaded_at=st.integers(0, 20).map(float),
        min_residency=st.sampled_from([0.0, 10.0]),
        loaded=st.booleans(),
    ),
    max_size=7,
).map(lambda found: [one._replace(replica=index, shared=ord(one.model) % 5) for index, one in enumerate(found)])


def freed(gone: tuple[Candidate, ...], candidates: list[Candidate]) -> int:
    """Slow and obvious."""
    total = sum(one.bytes for one in gone)
    for model in {one.model for one in gone}:
        if all(one in gone for one in candidates if one.model == model):
            total += next(one.shared for one in gone if one.model == model)
    return total


@given(CANDIDATES, st.integers(0, 40), st.integers(-5, 20), st.booleans())
def test_plans_are_lawful_sufficient_and_minimal_and_refusals_are_needed(
    candidates: list[Candidate], need: int, free: int, busy_too: bool
) -> None:
    now = 20.0
    answer = plan(need, free, candidates, now, busy_too=busy_too)
    may_go = [one for one in candidates if one.idle or (busy_too and one.loaded)]
    lawful = [one for one in may_go if not one.pinned and one.loaded_at + one.min_residency <= now]
    if isinstance(answer, Refusal):
        assert free + freed(tuple(lawful), candidates) < need
        if answer.retry_at is not None:
            assert answer.retry_at > now
            assert isinstance(plan(need, free, candidates, answer.retry_at, busy_too=busy_too), Plan)
        return
    assert set(answer.victims) <= set(lawful)
    assert len(set(answer.victims)) == len(answer.victims)
    assert free + freed(answer.victims, candidates) >= need
    for smaller in combinations(answer.victims, max(len(answer.victims) - 1, 0)):
        assert not answer.victims or free + freed(smaller, candidates) < need


def test_thrashing_is_a_return_soon_after_an_eviction() -> None:
    thrash = Thrash(factor=3.0)
    assert not thrash.loaded("a", 0.0, 10.0)
    thrash.evicted("a", 100.0)
    assert thrash.loaded("a", 130.0, 10.0)
    assert not thrash.loaded("a", 131.0, 10.0)  # each eviction counts once
    thrash.evicted("a", 200.0)
    assert not thrash.loaded("a", 230.1, 10.0)
    assert thrash.count == 1


def test_two_models_that_evict_each_other_take_turns_of_the_minimum_residency() -> None:
    """A budget for one, both asked for every second: each keeps its place for 10 s, and every change after the first is thrashing."""
    thrash, changes = Thrash(), []
    here = loaded("a", loaded_at=0.0)
    for second in range(1, 60):
        now = float(second)
        answer = plan(GIB, 0, [here._replace(last_used=now)], now)
        if isinstance(answer, Plan):
            changes.append(now)
            thrash.evicted(here.model, now)
            here = loaded("b" if here.model == "a" else "a", loaded_at=now)
            thrash.loaded(here.model, now, here.min_residency)
        else:
            assert answer.retry_at == here.resident_until
    assert changes == [10.0, 20.0, 30.0, 40.0, 50.0]
    assert thrash.count == 4
