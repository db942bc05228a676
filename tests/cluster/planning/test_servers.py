"""When a Server gets another replica, and when it loses one."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wakeful.cluster.planning.counts import Hold, Step, clamp, floor_of
from wakeful.cluster.planning.effects import Mark, Note, ScaleServer
from wakeful.cluster.planning.servers import ServerLimits, ServerLoad, load_of, replicas_needed, scale_server, server_effects
from wakeful.cluster.planning.world import (
    Agent,
    Bounds,
    ModelEntry,
    ModelSpec,
    Owner,
    Placement,
    Replica,
    Scaling,
    ServerEntry,
    ServerSpec,
    Short,
    State,
    World,
)

NOW = 10_000.0
LIMITS = ServerLimits()
GIB = 1 << 30


def load(target: int = 3, **changed: Any) -> ServerLoad:
    """A Server in a range from 1 on which nothing happens, and whose last replica has been dispensable for long."""
    return ServerLoad(Bounds(1, 1), False, target, target, 0, "", 1, "", 0.0, NOW - 300)._replace(**changed)


def decide(seen: ServerLoad) -> Step | Hold:
    return scale_server(seen, NOW, LIMITS)


# ── up ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_it_grows_by_what_models_lack() -> None:
    assert decide(load(2, needed=2, needed_by="resnet (2)")) == Step(4, "models lack replicas: resnet (2)")


def test_not_above_the_upper_bound() -> None:
    seen = load(2, needed=2, needed_by="resnet (2)", bounds=Bounds(1, None, 3))
    assert decide(seen) == Step(3, "models lack replicas: resnet (2)", "maxReplicas is 3", 1)
    assert decide(seen._replace(target=3, present=3)) == Hold("models lack replicas: resnet (2), but maxReplicas is 3", "maxReplicas is 3", 2)


def test_what_was_asked_for_must_come_first() -> None:
    assert isinstance(decide(load(3, needed=2, present=2)), Hold)


# ── down ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_it_shrinks_by_one_when_the_last_replica_was_dispensable_for_long() -> None:
    assert decide(load(3)) == Step(2, "for 300 s the others could have taken what the last replica has")


@pytest.mark.parametrize(
    "changed",
    [
        {"fits_since": None},
        {"fits_since": NOW - 299},
        {"last_step_time": NOW - 299},
        {"most_wanted": 3},
        {"busy_with": "copies are loading: 2"},
        {"target": 1, "most_wanted": 0},
        {"bounds": Bounds(3, 3)},
        {"bounds": Bounds(3)},
        {"hpa": True},
    ],
)
def test_what_holds_a_step_down_back(changed: dict[str, Any]) -> None:
    assert isinstance(decide(load(3)._replace(**changed)), Hold)


def test_to_0_only_where_0_is_written_and_no_model_wants_one() -> None:
    """F7: an absent bound bounds nothing, and least of all does it mean 0."""
    assert isinstance(decide(load(1, most_wanted=0, bounds=Bounds(1, None, 3))), Hold)
    assert isinstance(decide(load(1, most_wanted=0, bounds=Bounds(1, 1))), Hold)
    assert isinstance(decide(load(1, most_wanted=1, bounds=Bounds(1, 0))), Hold)
    answer = decide(load(1, most_wanted=0, bounds=Bounds(1, 0)))
    assert isinstance(answer, Step)
    assert answer.target == 0


@pytest.mark.parametrize("bounds", [Bounds(1), Bounds(5), Bounds()])
def test_without_a_bound_it_is_left_alone(bounds: Bounds) -> None:
    """F7: a Server without a maximum was scaled to zero."""
    assert decide(load(3, needed=2, bounds=bounds)) == Hold("fixed: neither minReplicas nor maxReplicas is written")


@settings(deadline=None)
@given(
    st.builds(
        load,
        st.integers(0, 20),
        bounds=st.builds(Bounds, st.integers(0, 20), st.none() | st.integers(0, 5), st.none() | st.integers(5, 20)),
        hpa=st.booleans(),
        present=st.integers(0, 20),
        needed=st.integers(0, 30),
        most_wanted=st.integers(0, 20),
        fits_since=st.none() | st.floats(0, NOW),
        last_step_time=st.floats(0, NOW),
    )
)
def test_a_step_stays_in_range(seen: ServerLoad) -> None:
    seen = seen._replace(target=clamp(seen.bounds, seen.target))
    answer = decide(seen)
    if isinstance(answer, Step):
        assert seen.bounds.ranged
        assert not seen.hpa
        assert floor_of(seen.bounds) <= answer.target
        assert seen.bounds.maximum is None or answer.target <= seen.bounds.maximum
        assert answer.target >= seen.target - 1
        if answer.target < seen.target:
            assert answer.target >= seen.most_wanted
            assert NOW - seen.last_step_time >= LIMITS.window


# ── what is needed ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("lacking", "needed"),
    [
        ([], 0),
        ([(1, 1)], 1),
        ([(3, 1)], 3),  # copies of one model: each on another replica
        ([(1, 4), (1, 6)], 1),
        ([(1, 5), (1, 6)], 2),
        ([(2, 6), (1, 4), (1, 4)], 2),
    ],
)
def test_missing_copies_are_packed_into_new_replicas(lacking: list[tuple[int, int]], needed: int) -> None:
    assert replicas_needed(lacking, 10) == needed


def test_of_a_server_without_replicas_one_is_enough_for_all() -> None:
    assert replicas_needed([(1, 5), (1, GIB)], None) == 1


# ── from the world ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def world(replicas: int = 2, bounds: Bounds = Bounds(1, 1), **models: Short | None) -> World:  # noqa: B008 - a NamedTuple does not change
    """One Server with replicas of 1 GiB; models of 600 MiB, one replica each on the first, and what they are short of."""
    agent = Agent(frozenset({"onnx"}), GIB, 8000, None, NOW)
    there = {f"u{i}": Replica(f"u{i}", f"triton-{i}", "triton", i, "127.0.0.1", True, agent=agent) for i in range(replicas)}
    server = ServerEntry(ServerSpec("triton", bounds=bounds), Scaling(Owner.SCHEDULER, replicas, "1"))
    entries = {}
    for name, short in models.items():
        spec = ModelSpec(name, "s3://m", "r1", requirements=frozenset({"onnx"}), memory=600 << 20, bounds=Bounds(1, 1))
        placements = {"u0": Placement("u0", "triton-0", State.ROUTED, "r1", 0.0)} if replicas else {}
        entries[name] = ModelEntry(spec, Scaling(Owner.SCHEDULER, 1, "1"), placements=placements, short=short)
    return World(entries, {"triton": server}, there)


def short(missing: int = 1, seconds: float = 15) -> Short:
    return Short(missing, NOW - seconds, {"triton": {"memory": 2}})


def test_only_what_has_been_missing_for_long_needs_a_replica() -> None:
    assert load_of(world(a=short(2)), "triton", NOW, LIMITS).needed == 2
    assert load_of(world(a=short(2, 14)), "triton", NOW, LIMITS).needed == 0
    assert load_of(world(a=short(1), b=short(1)), "triton", NOW, LIMITS)[4:6] == (2, "a (1), b (1)")


def test_what_the_load_asks_for_and_has_no_room_needs_one_too() -> None:
    seen = world(a=None)
    seen.models["a"].lacking, seen.models["a"].lacking_since = 2, NOW - 15
    assert load_of(seen, "triton", NOW, LIMITS)[4:7] == (2, "a (2)", 3)


def test_a_server_at_0_grows_at_once() -> None:
    """A wake waits at the gateway for `hold` seconds."""
    seen = world(0, Bounds(1, 0), a=short(1, 0))
    assert load_of(seen, "triton", NOW, LIMITS).needed == 1
    assert server_effects(seen, "triton", NOW, LIMITS, lambda _: True)[0] == ScaleServer(
        "triton", Scaling(Owner.SCHEDULER, 1, "1", NOW, "0 → 1: models lack replicas: a (1)")
    )


def test_no_replica_for_what_it_would_not_help() -> None:
    changes: tuple[dict[str, Any], ...] = ({"memory": 2 * GIB}, {"requirements": frozenset({"tensorflow"})}, {"errors": ("no",)})
    for change in changes:
        seen = world(a=short())
        seen.models["a"].spec = ModelSpec("a", "s3://m", "r1", **change)
        assert load_of(seen, "triton", NOW, LIMITS).needed == 0
    seen = world(a=short())
    seen.models["a"].failures = 1
    assert load_of(seen, "triton", NOW, LIMITS).needed == 0


def test_one_server_grows_for_a_model_that_lives_nowhere() -> None:
    seen = world(1, a=short())
    seen.models["a"].placements.clear()
    seen.servers["another"] = ServerEntry(ServerSpec("another", bounds=Bounds(1)), Scaling(Owner.USER, 1, "1"))
    seen.servers["zzz"] = ServerEntry(ServerSpec("zzz", bounds=Bounds(1, 1)), Scaling(Owner.SCHEDULER, 1, "1"))
    assert [load_of(seen, name, NOW, LIMITS).needed for name in ("another", "triton", "zzz")] == [0, 1, 0]


def test_what_is_under_way_is_seen() -> None:
    seen = world(3, a=None, b=None)
    seen.models["a"].placements["u1"] = Placement("u1", "triton-1", State.LOADING, "r1", 0.0)
    seen.replicas["u2"].leaving_by = NOW + 60
    assert load_of(seen, "triton", NOW, LIMITS).busy_with == "copies are loading: 1, replicas are leaving: 1"
    assert load_of(seen, "triton", NOW, LIMITS).present == 2


def test_the_window_begins_when_the_last_replica_is_dispensable_and_ends_in_a_step() -> None:
    seen = world(2, a=None)
    entry = seen.servers["triton"]
    assert server_effects(seen, "triton", NOW, LIMITS, lambda _: False) == []
    assert server_effects(seen, "triton", NOW, LIMITS, {"u0": False, "u1": True}.__getitem__) == [Mark("server", "triton", {"fits_since": NOW})]
    entry.fits_since = NOW
    assert server_effects(seen, "triton", NOW + 100, LIMITS, lambda _: True) == []
    assert server_effects(seen, "triton", NOW + 100, LIMITS, lambda _: False) == [Mark("server", "triton", {"fits_since": None})]
    why = "2 → 1: for 300 s the others could have taken what the last replica has"
    assert server_effects(seen, "triton", NOW + 300, LIMITS, lambda _: True) == [
        ScaleServer("triton", Scaling(Owner.SCHEDULER, 1, "1", NOW + 300, why)),
        Mark("server", "triton", {"fits_since": None}),
        Note("Server", "triton", "Normal", "Scaled", why),
    ]


def test_the_drain_plan_is_not_made_where_it_decides_nothing() -> None:
    def never(_: str) -> bool:
        raise AssertionError

    assert server_effects(world(1, a=None), "triton", NOW, LIMITS, never) == []
    assert server_effects(world(2, Bounds(2), a=None), "triton", NOW, LIMITS, never) == []
    wanting = world(2, a=None)
    wanting.models["a"].scaling = Scaling(Owner.SCHEDULER, 2, "1")
    assert server_effects(wanting, "triton", NOW, LIMITS, never) == []
