"""When a model gets another replica, and when it loses one."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.clock import Clock
from wakeful.cluster.planning.counts import Hold, Step, clamp, floor_of
from wakeful.cluster.planning.effects import Mark, Note, SetTarget
from wakeful.cluster.planning.scaling import ModelLoad, Room, blocked_text, is_calm, limits_in, load_of, model_effects, scale_model
from wakeful.cluster.planning.world import (
    Agent,
    Bounds,
    ModelEntry,
    ModelSpec,
    Owner,
    Placement,
    Replica,
    ScaleLimits,
    Scaling,
    ServerEntry,
    ServerSpec,
    State,
    Use,
    World,
)

NOW = 10_000.0
LIMITS = ScaleLimits()


def load(target: int = 2, lag: float = 0.0, busy: float = 0.0, **changed: Any) -> ModelLoad:
    """A model that has served for long, in a range from 1, used a second ago."""
    settled = ModelLoad(Bounds(1, 1), False, target, target, target, lag, busy, "", NOW - 1, 0.0, 0.0, None)
    return settled._replace(**changed)


def plenty(copies: int) -> Room:
    return Room(copies, {})


def room(fits: int) -> Callable[[int], Room]:
    return lambda copies: Room(min(fits, copies), {"triton": {"memory": 2}} if fits < copies else {})


def decide(seen: ModelLoad, limits: ScaleLimits = LIMITS, space: Callable[[int], Room] = plenty) -> Step | Hold:
    return scale_model(seen, NOW, limits, space)


def goal(seen: ModelLoad) -> int:
    answer = decide(seen)
    assert isinstance(answer, Step)
    return answer.target


# ── up ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_lag_over_the_threshold_gives_more_replicas() -> None:
    assert decide(load(2, lag=82)) == Step(4, "mean lag 41 on 2 replicas ≥ 30")


def test_lag_at_the_threshold_counts_and_below_does_not() -> None:
    assert decide(load(1, lag=30)) == Step(2, "mean lag 30 on 1 replica ≥ 30")
    assert isinstance(decide(load(1, lag=29.9)), Hold)


def test_the_sum_over_all_replicas_decides_not_one_of_them() -> None:
    """F4: per-agent events made N steps of one burst; one replica at 50 and one at 0 are no lack of replicas."""
    assert isinstance(decide(load(2, lag=50)), Hold)


def test_a_step_doubles_at_most_and_goes_no_further_than_the_load() -> None:
    assert goal(load(4, lag=1000)) == 8
    assert goal(load(10, lag=300)) == 17  # 300 / (0.6 * 30)
    assert decide(load(4, lag=1000), ScaleLimits(max_step=0.25)) == Step(5, "mean lag 250 on 4 replicas ≥ 30")
    assert decide(load(1, lag=1000), ScaleLimits(max_step=0.01)) == Step(2, "mean lag 1000 on 1 replica ≥ 30")


def test_not_above_the_upper_bound() -> None:
    top = load(3, lag=900, bounds=Bounds(1, None, 4))
    assert decide(top) == Step(4, "mean lag 300 on 3 replicas ≥ 30", "maxReplicas is 4")
    assert decide(top._replace(target=4, routed=4, heard=4)) == Hold("mean lag 225 on 4 replicas ≥ 30, but maxReplicas is 4", "maxReplicas is 4")


def test_without_room_the_target_stays_and_the_filter_is_named() -> None:
    """F1: a scale-up that cannot be placed leaves the target alone, and says why."""
    limited = "no room for 2 more: memory on 2 replicas of triton"
    assert decide(load(2, lag=82), space=room(0)) == Hold(f"mean lag 41 on 2 replicas ≥ 30, but {limited}", limited, 2)


def test_what_fits_is_taken() -> None:
    limited = "no room for 1 more: memory on 2 replicas of triton"
    assert decide(load(2, lag=82), space=room(1)) == Step(3, "mean lag 41 on 2 replicas ≥ 30", limited, 1)


def test_room_is_asked_only_when_the_count_is_to_grow() -> None:
    def never(_: int) -> Room:
        raise AssertionError

    for seen in (load(2), load(2, lag=50), load(2, lag=900, moving="1 Loading"), load(2, lag=900, changed=NOW - 10), load(2, lag=9, busy=0.1)):
        assert isinstance(decide(seen, space=never), Hold)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"changed": NOW - 299}, "not stable: its state changed 299 s ago, 300 s must pass"),
        ({"routed": 0, "heard": 0}, "not available: no replica serves yet"),
        ({"moving": "1 Loading"}, "a change is under way: 1 Loading"),
        ({"last_step_time": NOW - 14}, "mean lag 450 on 2 replicas ≥ 30, but the last step was 14 s ago, 15 s must pass"),
        ({"heard": 0}, "no figures: the agents of its replicas are silent"),
        ({"routed": 1, "heard": 1}, "mean lag 900 on 1 replica ≥ 30, but only 1 of 2 replicas serve"),
        ({"bounds": Bounds(2)}, "fixed: neither minReplicas nor maxReplicas is written"),
        ({"hpa": True}, "a HorizontalPodAutoscaler decides the count"),
        ({"bounds": Bounds(0, None, 3)}, "switched off: replicas is 0, and minReplicas: 0 is not written"),
    ],
)
def test_what_holds_a_step_up_back(changed: dict[str, Any], why: str) -> None:
    assert decide(load(2, lag=900, **changed)).why == why


def test_after_the_first_minutes_our_own_steps_follow_each_other() -> None:
    """Our step is no change of state: from 1 to 8 in three steps of 15 s."""
    clock, target, last_step = Clock(NOW), 1, 0.0
    for _ in range(12):
        answer = scale_model(load(target, lag=400, last_step_time=last_step), clock.time, LIMITS, plenty)
        if isinstance(answer, Step):
            target, last_step = answer.target, clock.time
        clock.time += 5
    assert target >= 8


def test_at_most_one_step_a_period() -> None:
    slow = ScaleLimits(up_cooldown=1, period=20)
    assert isinstance(decide(load(2, lag=900, last_step_time=NOW - 19), slow), Hold)
    assert isinstance(decide(load(2, lag=900, last_step_time=NOW - 20), slow), Step)


# ── down ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_light_load_shrinks_without_silence() -> None:
    """F4: the seed's rule alone, silence, never shrinks what is still used."""
    calm = load(3, lag=2.0, busy=0.9, calm_since=NOW - 300)
    assert decide(calm) == Step(2, "lag 2.0 and busy 0.90 on 3 replicas for 300 s: 2 replicas can bear that")


@pytest.mark.parametrize(
    "seen",
    [
        load(3, lag=2.0, busy=0.9, calm_since=NOW - 299),
        load(3, lag=2.0, busy=0.9, calm_since=None),
        load(3, lag=2.0, busy=0.9, calm_since=NOW - 300, last_step_time=NOW - 299),
        load(3, lag=25.0, busy=0.9, calm_since=NOW - 300),
        load(3, lag=2.0, busy=1.3, calm_since=NOW - 300),
        load(3, lag=2.0, busy=0.9, calm_since=NOW - 300, heard=2),
        load(1, lag=0.0, busy=0.0, calm_since=NOW - 300),
    ],
)
def test_a_light_load_must_last_and_be_light_for_fewer(seen: ModelLoad) -> None:
    assert isinstance(decide(seen), Hold)


def test_silence_on_all_replicas_shrinks() -> None:
    assert decide(load(3, last_used=NOW - 600)) == Step(2, "no request for 600 s ≥ 600")
    assert isinstance(decide(load(3, last_used=NOW - 599)), Hold)
    assert isinstance(decide(load(3, lag=1, last_used=NOW - 600)), Hold)  # a long request is still there


def test_a_range_that_does_not_name_0_ends_at_1() -> None:
    assert isinstance(decide(load(1, last_used=NOW - 9000)), Hold)
    assert isinstance(decide(load(1, last_used=NOW - 9000, bounds=Bounds(1, None, 4))), Hold)


def test_to_0_by_silence_alone_and_back_by_a_request() -> None:
    """F5: who sleeps at 0 has a way back that needs no replica."""
    zero = Bounds(None, 0)
    assert isinstance(decide(load(1, bounds=zero, calm_since=NOW - 900)), Hold)
    assert decide(load(1, bounds=zero, last_used=NOW - 600)) == Step(0, "no request for 600 s ≥ 600")
    assert isinstance(decide(load(1, bounds=zero, last_used=NOW - 600, wanted_until=NOW + 10)), Hold)
    asleep = load(0, bounds=zero, last_used=0.0)
    assert decide(asleep) == Hold("at 0 replicas; the next request wakes it", "")
    assert decide(asleep._replace(wanted_until=NOW + 60)) == Step(1, "a request waits for it at the gateway")


def test_what_is_switched_off_is_not_woken() -> None:
    """F6."""
    assert isinstance(decide(load(0, bounds=Bounds(0), wanted_until=NOW + 60)), Hold)
    assert isinstance(decide(load(0, bounds=Bounds(0, None, 3), wanted_until=NOW + 60)), Hold)


def test_a_woken_model_is_not_put_back_at_once() -> None:
    """Its replica is new, and says that it was never used."""
    assert isinstance(decide(load(1, bounds=Bounds(None, 0), last_used=0.0, last_step_time=NOW - 400)), Hold)


def test_a_model_that_lacks_room_may_want_less() -> None:
    """F3: 5 wanted, 2 fit, and the load has gone: the target comes down, and no replica goes."""
    assert goal(load(5, routed=2, heard=2, lag=1, busy=0.5, calm_since=NOW - 300)) == 4


# ── properties ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@st.composite
def loads(draw: st.DrawFn) -> ModelLoad:
    low = draw(st.none() | st.integers(0, 5))
    high = draw(st.none() | st.integers(max(low or 1, 1), 50))
    bounds = Bounds(draw(st.none() | st.integers(0, 50)), low, high)
    target = clamp(bounds, draw(st.integers(0, 50)))
    routed = draw(st.integers(0, target))
    times = st.floats(0, NOW)
    return ModelLoad(
        bounds,
        draw(st.booleans()),
        target,
        routed,
        draw(st.integers(0, routed)),
        draw(st.floats(0, 5000)),
        draw(st.floats(0, max(routed, 0.1))),
        draw(st.sampled_from(["", "1 Loading"])),
        draw(times),
        draw(times),
        draw(times),
        draw(st.none() | times),
        draw(st.floats(0, 2 * NOW)),
    )


@settings(deadline=None)
@given(loads(), st.integers(0, 60))
def test_a_step_stays_in_range_and_in_room(seen: ModelLoad, fits: int) -> None:
    answer = decide(seen, space=room(fits))
    if not isinstance(answer, Step):
        return
    assert seen.bounds.ranged
    assert not seen.hpa
    assert answer.target != seen.target
    assert answer.target >= floor_of(seen.bounds)
    assert seen.bounds.maximum is None or answer.target <= seen.bounds.maximum
    assert answer.target <= seen.target + max(fits, 1 if seen.target == 0 else 0)
    assert answer.target >= seen.target - 1
    assert not seen.moving or seen.target == 0


@settings(deadline=None)
@given(st.floats(0, 400), st.floats(0.001, 0.5), st.integers(1, 20))
def test_under_a_constant_load_the_count_settles(arriving: float, service: float, first: int) -> None:
    """No oscillation: requests a second and seconds a run held constant, two hours, each step's effect as a queue would have it."""
    target, last_step, calm_since, steps = first, 0.0, None, []
    for now in range(10_000, 17_200, 5):
        busy = min(1.0, arriving * service / target)
        each = 40.0 if busy >= 1 else busy / (1 - busy)
        seen = load(target, lag=min(each, 40.0) * target, busy=busy * target, last_step_time=last_step, calm_since=calm_since)
        answer = scale_model(seen._replace(last_used=float(now)), float(now), LIMITS, plenty)
        calm_since = None if isinstance(answer, Step) or not is_calm(seen, LIMITS) else float(now) if calm_since is None else calm_since
        if isinstance(answer, Step):
            steps.append(answer.target - target)
            target, last_step = answer.target, float(now)
    directions = [step > 0 for step in steps]
    assert sum(a != b for a, b in pairwise(directions)) <= 1, steps


# ── from the world ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def world(*uses: Use | None) -> World:
    """One model, on as many replicas as there are uses; None: its agent is silent."""
    replicas = {}
    for i, use in enumerate(uses):
        agent = None if use is None else Agent(frozenset(), 1 << 30, 8000, None, NOW, {}, {"resnet": use}, {"up_cooldown": 30.0})
        replicas[f"u{i}"] = Replica(f"u{i}", f"triton-{i}", "triton", i, "127.0.0.1", True, agent=agent)
    placements = {uid: Placement(uid, r.pod, State.ROUTED, "r1", 0.0) for uid, r in replicas.items()}
    spec = ModelSpec("resnet", "s3://m", "r1", bounds=Bounds(1, 1))
    entry = ModelEntry(spec, Scaling(Owner.SCHEDULER, len(uses), "1"), placements=placements)
    return World({"resnet": entry}, {}, replicas)


def test_the_load_is_summed_over_the_replicas_that_serve() -> None:
    seen = world(Use(9, 3, 6.0, 0.5, 70.0), Use(5, 1, 4.0, 0.25, 90.0), None)
    entry = seen.models["resnet"]
    assert load_of(seen, entry)[3:9] == (3, 2, 10.0, 0.75, "", 90.0)
    entry.placements["u1"] = Placement("u1", "triton-1", State.LOADING, "r1", 0.0)
    seen.replicas["u0"].lost = True
    assert load_of(seen, entry)[3:9] == (1, 0, 0, 0, "1 Loading", 0.0)


def test_the_figures_are_those_of_where_it_lives() -> None:
    seen = world(None, Use())
    entry = seen.models["resnet"]
    assert limits_in(seen, entry) == ScaleLimits(up_cooldown=30.0)
    seen.servers["triton"] = ServerEntry(ServerSpec("triton", model_autoscaling={"up_cooldown": 20.0, "lag_threshold": 7.0}))
    assert limits_in(seen, entry) == ScaleLimits(up_cooldown=20.0, lag_threshold=7.0)
    entry.placements.clear()
    assert limits_in(seen, entry) == ScaleLimits()


def apply(seen: World, effects: list[Any]) -> None:
    """As the loop does with what concerns one model."""
    entry = seen.models["resnet"]
    for effect in effects:
        if isinstance(effect, SetTarget):
            entry.scaling = effect.scaling
        elif isinstance(effect, Mark):
            for name, value in effect.fields.items():
                setattr(entry, name, value)


def test_a_step_is_written_with_its_reason() -> None:
    seen = world(Use(lag=41.0), Use(lag=41.0))
    effects = model_effects(seen, "resnet", NOW, plenty)
    step = "2 → 4: mean lag 41 on 2 replicas ≥ 30"
    assert effects == [SetTarget("resnet", Scaling(Owner.SCHEDULER, 4, "1", NOW, step)), Note("Model", "resnet", "Normal", "Scaled", step)]


def test_what_lacks_room_is_told_once_and_forgotten_when_it_has_gone() -> None:
    seen = world(Use(lag=41.0), Use(lag=41.0))
    effects = model_effects(seen, "resnet", NOW, room(0))
    assert [type(effect) for effect in effects] == [Note, Mark]
    apply(seen, effects)
    entry = seen.models["resnet"]
    assert (entry.limited, entry.lacking, entry.lacking_since) == ("no room for 2 more: memory on 2 replicas of triton", 2, NOW)
    assert model_effects(seen, "resnet", NOW + 5, room(0)) == []
    entry.changed = NOW
    assert model_effects(seen, "resnet", NOW + 5, room(0)) == []  # not looked at: what was found stands
    entry.changed = 0.0
    for replica in seen.replicas.values():
        assert replica.agent is not None
        replica.agent.use["resnet"] = Use(lag=20.0, busy=0.9)
    apply(seen, model_effects(seen, "resnet", NOW + 10, room(0)))
    assert (entry.limited, entry.lacking) == ("", 0)


def test_the_same_world_twice_says_nothing_more() -> None:
    seen = world(Use(lag=0.5, busy=0.1, last_used=NOW), Use(last_used=NOW))
    effects = model_effects(seen, "resnet", NOW, plenty)
    assert effects == [Mark("model", "resnet", {"calm_since": NOW})]
    apply(seen, effects)
    assert model_effects(seen, "resnet", NOW + 5, plenty) == []
    assert seen.models["resnet"].calm_since == NOW


def test_blocked_is_told_by_server_and_cause() -> None:
    assert blocked_text({"b": {"memory": 1}, "a": {"requirements": 2}}) == "requirements on 2 replicas of a, memory on 1 replica of b"
    assert blocked_text({"a": {"no replica": 1}}) == "no replica a"
    assert blocked_text({}) == "no server replica that could take it"
