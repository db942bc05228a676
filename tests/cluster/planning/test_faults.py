"""Faults that others had (the design's F1 to F23), as far as the planner has to do with them. Each is a sentence on how it is here."""

import math
from itertools import pairwise

from tests.cluster.planning.modelled import GIB, MIB, Cluster
from wakeful.cluster.planning.effects import Drop, Put, ScaleServer, SetTarget
from wakeful.cluster.planning.ledger import Ledger, Weight, footprint
from wakeful.cluster.planning.routing import routes
from wakeful.cluster.planning.world import Bounds, State, Use


def in_use(cluster: Cluster, name: str, lag: float, busy: float = 0.5) -> None:
    """Every pod that has the model says so."""
    for pod in cluster.pods.values():
        if name in pod.models:
            pod.use[name] = Use(100, 100, lag, busy, cluster.now)
    cluster.dirty.add(name)


def test_f1_lag_on_a_full_server_changes_neither_target_nor_what_serves() -> None:
    cluster = Cluster()
    cluster.server(replicas=1)
    cluster.model("a", bounds=Bounds(1, 1, 5))
    cluster.run(400)
    in_use(cluster, "a", lag=50.0)
    cluster.run(2)
    assert (cluster.target("a"), cluster.at("a")) == (1, ["triton-0"])
    assert "has a copy on 1 replica of triton" in cluster.world.models["a"].limited


def test_f1_lag_with_room_adds_what_fits() -> None:
    cluster = Cluster()
    cluster.server(replicas=3)
    cluster.model("a", bounds=Bounds(1, 1, 5))
    cluster.run(400)
    in_use(cluster, "a", lag=500.0)
    cluster.run(2)
    assert (cluster.target("a"), len(cluster.at("a"))) == (2, 2)
    first = next(index for index, (_, effect) in enumerate(cluster.told) if isinstance(effect, SetTarget) and effect.scaling.target == 2)
    assert not any(isinstance(effect, Put) and effect.placement.state is State.ASSIGNED for _, effect in cluster.told[first - 3:first])


def test_f2_more_replicas_than_there_are_pods_leave_the_loaded_ones_serving() -> None:
    cluster = Cluster()
    cluster.server(replicas=2)
    cluster.model("a", 2)
    cluster.run(3)
    cluster.model("a", 3)
    cluster.run(3)
    short = cluster.world.models["a"].short
    assert short is not None
    assert (short.missing, short.blocked) == (1, {"triton": {"has a copy": 2}})
    assert cluster.at("a") == ["triton-0", "triton-1"]
    cluster.start("triton-2")
    cluster.run(3)
    assert len(cluster.at("a")) == 3
    assert cluster.world.models["a"].short is None


def test_f3_a_server_that_shrinks_below_what_models_want_leaves_them_serving() -> None:
    cluster = Cluster()
    cluster.server(replicas=2)
    cluster.model("a", 2)
    cluster.run(3)
    cluster.delete_pod("triton-1")
    cluster.run(3)
    assert cluster.at("a") == ["triton-0"]
    assert cluster.world.replicas[cluster.uid("triton-1")].released, "the other copy bears the load"
    cluster.kill("triton-1")
    cluster.start("triton-1")
    cluster.run(3)
    assert len(cluster.at("a")) == 2


def test_f5_a_model_at_zero_wakes_when_a_request_waits_for_it() -> None:
    cluster = Cluster()
    cluster.server(replicas=1)
    model = cluster.model("a", bounds=Bounds(0, 0, 3))
    cluster.run(3)
    assert cluster.at("a", *State) == []
    model.wanted_until = cluster.now + 60
    cluster.dirty.add("a")
    cluster.run(3)
    assert (cluster.target("a"), cluster.at("a")) == (1, ["triton-0"])


def test_f5_a_server_at_zero_wakes_with_its_model() -> None:
    cluster = Cluster()
    cluster.server(replicas=0, bounds=Bounds(0, 0, 2))
    model = cluster.model("a", bounds=Bounds(0, 0, 3), server="triton")
    cluster.run(3)
    model.wanted_until = cluster.now + 60
    cluster.dirty.add("a")
    cluster.run(1)
    assert [effect.scaling.target for _, effect in cluster.told if isinstance(effect, ScaleServer)] == [0, 1]
    cluster.start("triton-0")
    cluster.run(2)
    assert cluster.at("a") == ["triton-0"]


def test_f6_a_model_that_is_switched_off_goes_and_nothing_wakes_it() -> None:
    cluster = Cluster()
    cluster.server(replicas=1)
    model = cluster.model("a", 1)
    cluster.run(3)
    cluster.model("a", 0)
    cluster.run(5)
    assert cluster.at("a", *State) == []
    model.wanted_until = cluster.now + 60
    cluster.dirty.add("a")
    cluster.run(3)
    assert (cluster.target("a"), cluster.at("a", *State)) == (0, [])


def test_f9_replicas_that_leave_together_are_one_plan_and_what_fits_nowhere_waits_alone() -> None:
    cluster = Cluster()
    cluster.server(replicas=0, overcommit=0.0)
    cluster.start("triton-4")
    cluster.model("vast", memory=900 * MIB)
    cluster.run(3)
    for ordinal in range(4):
        cluster.start(f"triton-{ordinal}")
    for index in range(8):
        cluster.model(f"small{index}")
    cluster.run(3)
    deleted = cluster.now
    for ordinal in range(1, 5):
        cluster.delete_pod(f"triton-{ordinal}", grace=60)
    cluster.run(10)
    puts = [effect.placement for time, effect in cluster.told if time > deleted and isinstance(effect, Put)]
    assert {placement.pod for placement in puts if placement.state is State.ASSIGNED} == {"triton-0"}, "nothing moves to another one that leaves"
    assert all(cluster.at(f"small{index}") == ["triton-0"] for index in range(8))
    released = {replica.pod for replica in cluster.world.replicas.values() if replica.released}
    assert released == {"triton-1", "triton-2", "triton-3"}
    assert cluster.at("vast") == ["triton-4"], "it serves where it is"
    short = cluster.world.models["vast"].short
    assert short is not None
    assert short.blocked == {"triton": {"leaving": 4, "memory": 1}}
    cluster.run(60)
    assert cluster.world.replicas[cluster.uid("triton-4")].released
    assert cluster.notes("DrainDeadline")


def test_f12_nothing_is_unloaded_before_every_gateway_has_acknowledged() -> None:
    """The modelled agent asserts it at each unload."""
    cluster = Cluster(gateways=3, ack_delay=4.0)
    cluster.server(replicas=5)
    cluster.model("a", 5)
    cluster.run(10)
    cluster.model("a", 1)
    cluster.run(3)
    assert len(cluster.at("a", State.DRAINING)) == 4
    cluster.run(5)
    assert cluster.at("a", *State) == ["triton-0"]


def test_f14_a_model_that_fails_after_it_was_loaded_moves_and_says_why() -> None:
    cluster = Cluster()
    cluster.server(replicas=2)
    cluster.model("a")
    cluster.run(3)
    (pod,) = cluster.at("a")
    cluster.pods[cluster.uid(pod)].models["a"].failed = True
    cluster.run(3)
    (other,) = cluster.at("a")
    assert other != pod
    assert cluster.notes("LoadFailed") == [f"on {pod}, try 1: it does not load"]


def test_f15_a_load_that_fails_is_tried_elsewhere_first_then_after_pauses() -> None:
    cluster = Cluster()
    cluster.server(replicas=2)
    cluster.fails = {("a", "triton-0")}
    cluster.model("a")
    cluster.run(3)
    assert cluster.at("a") == ["triton-1"]
    assert cluster.at("a", State.FAILED) == [], "once it is available nobody has to know"

    cluster.fails = {("b", "*")}
    cluster.model("b")
    cluster.run(120)
    tries = [time for time, effect in cluster.told if isinstance(effect, Put) and effect.model == "b" and effect.placement.state is State.ASSIGNED]
    pauses = [after - before for before, after in pairwise(tries)]
    assert pauses[0] < 1 <= pauses[1], "another replica at once, then pauses"
    assert len(tries) < 12
    assert pauses[-1] > pauses[1]


def test_f15_one_failing_replica_of_three_leaves_the_others_serving() -> None:
    cluster = Cluster()
    cluster.server(replicas=3)
    cluster.fails = {("a", "triton-1")}
    cluster.model("a", 3)
    cluster.run(30)
    assert cluster.at("a") == ["triton-0", "triton-2"]
    cluster.fails = set()
    cluster.run(60)
    assert len(cluster.at("a")) == 3


def test_f16_accounts_are_signed_and_hold_with_hundreds_of_registered_models() -> None:
    cluster = Cluster()
    cluster.server(replicas=1, capacity=GIB, overcommit=0.1)
    for index in range(925):
        cluster.model(f"m{index}", memory=2 * MIB)
    cluster.run(3)
    account = cluster.world.ledger.accounts()[cluster.uid("triton-0")]
    assert account.registered == 563 * 2 * MIB <= GIB * 1.1
    short = [model.short for model in cluster.world.models.values() if model.short is not None]
    assert len(short) == 925 - 563
    assert short[0].blocked == {"triton": {"memory": 1}}
    ledger = Ledger()
    ledger.weigh("a", Weight(GIB, True, 0.1), ["x"])
    ledger.weigh("a", Weight(3 * GIB, False, 0.1), ["x"])
    ledger.weigh("a", Weight(3 * GIB, False, 0.1), [])
    assert ledger.accounts() == {}


def test_f17_the_footprint_that_was_measured_counts_from_then_on() -> None:
    assert (footprint(7, 5, 3), footprint(0, 5, 3)) == (7, 5)
    assert footprint(0, None, 0) > 0
    cluster = Cluster()
    cluster.server(replicas=1, overcommit=0.0)
    cluster.model("a", memory=MIB)
    cluster.run(3)
    uid = cluster.uid("triton-0")
    agent = cluster.world.replicas[uid].agent
    assert agent is not None
    agent.held["a"] = agent.held["a"]._replace(footprint=900 * MIB, artifact="sha256:1", artifact_bytes=5)
    cluster.dirty.add("a")
    cluster.decide()
    assert cluster.world.ledger.accounts()[uid].registered == 900 * MIB, "from that very plan on"
    cluster.model("b", memory=200 * MIB)
    cluster.run(3)
    assert cluster.at("b", *State) == []
    assert (cluster.world.models["a"].footprint, cluster.world.models["a"].artifact) == (900 * MIB, "sha256:1")


def test_f19_an_agent_whose_stream_is_cut_is_unknown_and_its_routes_stay() -> None:
    cluster = Cluster()
    cluster.server(replicas=2)
    cluster.model("a", 2)
    cluster.run(3)
    cluster.silent = {"triton-0"}
    cluster.run(60)
    assert len(routes(cluster.world)["a"]) == 2
    assert len(cluster.at("a")) == 2
    cluster.model("b", 2)
    cluster.run(3)
    assert cluster.at("b") == ["triton-1"]
    cluster.silent = set()
    cluster.run(3)
    assert len(cluster.at("b")) == 2


def test_f19_a_pod_that_dies_while_it_loads_loses_the_model_to_another() -> None:
    cluster = Cluster()
    cluster.server(replicas=2)
    cluster.load_seconds = {"a": 5.0}
    cluster.model("a")
    cluster.run(2)
    assert cluster.at("a", State.LOADING) == ["triton-0"]
    cluster.kill("triton-0")
    cluster.run(7)
    assert cluster.at("a") == ["triton-1"]


def test_f19_a_load_that_does_not_end_has_failed_after_five_minutes() -> None:
    cluster = Cluster()
    cluster.server(replicas=1)
    cluster.load_seconds = {"a": 1e9}
    cluster.model("a")
    cluster.run(290, step=1)
    cluster.start("triton-1")
    cluster.load_seconds = {}
    cluster.run(20, step=1)
    assert cluster.at("a") == ["triton-1"]
    assert "no progress in 30" in cluster.notes("LoadFailed")[0]


def test_f20_what_is_missing_is_tried_again_until_it_is_there() -> None:
    cluster = Cluster()
    cluster.server(replicas=5, overcommit=0.0)
    cluster.model("a", 5, bounds=Bounds(5, 2))
    for ordinal in range(5):
        cluster.model(f"filler{ordinal}", memory=1000 * MIB)
    cluster.run(3)
    for name in [name for name in cluster.world.models if name != "a"][:3]:
        cluster.delete_model(name)
    cluster.run(40)
    assert len(cluster.at("a")) == 5 or cluster.world.models["a"].short is not None
    for name in [name for name in cluster.world.models if name != "a"]:
        cluster.delete_model(name)
    cluster.run(10)
    assert len(cluster.at("a")) == 5


def test_f21_what_is_loaded_is_counted_on_live_replicas_once() -> None:
    """A copy that moves is charged where it is and where it goes, and given back when it has gone."""
    cluster = Cluster(ack_delay=1.0)
    cluster.server(replicas=2)
    cluster.model("a", memory=100 * MIB)
    cluster.run(4)
    cluster.delete_pod("triton-0")
    cluster.run(1)
    assert [account.registered for account in cluster.world.ledger.accounts().values()] == [100 * MIB, 100 * MIB]
    cluster.run(8)
    assert {uid: account.registered for uid, account in cluster.world.ledger.accounts().items()} == {cluster.uid("triton-1"): 100 * MIB}


def test_f23_a_model_that_never_fits_takes_nobody_s_place() -> None:
    cluster = Cluster()
    cluster.server(replicas=2)
    for index in range(30):
        cluster.model(f"m{index}", memory=60 * MIB)
    cluster.run(3)
    cluster.told.clear()
    cluster.model("never", memory=3 * GIB)
    cluster.run(40)
    assert not any(isinstance(effect, Put | Drop) for _, effect in cluster.told)
    short = cluster.world.models["never"].short
    assert short is not None
    assert short.blocked == {"triton": {"too large": 2}}


def test_a_copy_too_many_ends_although_its_pod_is_not_ready() -> None:
    """Nobody is sent there, so it is no copy that others would have to wait for."""
    cluster = Cluster()
    cluster.server(replicas=3)
    cluster.model("a", 3)
    cluster.run()
    cluster.falter("triton-1", ready=False, lost=False)
    cluster.run()
    cluster.model("a", 2)
    cluster.run(10)
    assert cluster.at("a", *State) == ["triton-0", "triton-2"]


def test_a_pod_that_has_gone_does_not_end_the_plan_of_a_model_that_waits_for_its_turn() -> None:
    """More models hear of it than one plan looks at; one of them is looked at all the same, as room is gained."""
    cluster = Cluster()
    cluster.server(replicas=3)
    cluster.model("a")
    cluster.model("b", 4)
    cluster.run()
    cluster.lot = 1
    cluster.kill("triton-0")
    cluster.decide()
    assert cluster.at("b") == ["triton-1", "triton-2"]


def test_models_that_wait_for_their_turn_take_room_after_a_change_of_leader() -> None:
    """What was restored from a status counts before it was looked at."""
    cluster = Cluster()
    cluster.server(replicas=1, overcommit=0.0)
    cluster.model("z", memory=900 * MIB)
    cluster.run()
    cluster.world.ledger = Ledger()
    cluster.world.models["z"].look_at = math.inf
    cluster.lot = 1
    cluster.model("a", memory=900 * MIB)
    cluster.decide()
    assert cluster.at("a", *State) == []


def faltering() -> Cluster:
    """triton-0 is the emptiest, and loads nothing any more."""
    cluster = Cluster()
    cluster.server(replicas=2)
    cluster.load_seconds = {"a": 1e9}
    cluster.model("a", memory=10 * MIB)
    cluster.model("big", memory=500 * MIB, server="triton")
    cluster.run()
    assert (cluster.at("a", State.LOADING), cluster.at("big")) == (["triton-0"], ["triton-1"])
    return cluster


def test_a_replica_where_a_load_stands_still_is_given_others_last() -> None:
    cluster = faltering()
    cluster.run(30)
    cluster.model("b")
    cluster.model("c", 2)
    cluster.run()
    assert (cluster.at("b"), cluster.at("c")) == (["triton-1"], ["triton-0", "triton-1"])


def test_a_replica_where_several_models_have_just_failed_is_given_others_last() -> None:
    cluster = Cluster()
    cluster.server(replicas=2)
    cluster.model("big", memory=500 * MIB)
    cluster.run()
    (other,) = {"triton-0", "triton-1"} - {*cluster.at("big")}
    cluster.fails = {("a", other), ("b", other)}
    for name in "ab":
        cluster.model(name, 2, memory=10 * MIB)
    cluster.run()
    cluster.model("c")
    cluster.run()
    assert cluster.at("c") == cluster.at("big")
    cluster.fails.clear()
    cluster.run(400)
    cluster.model("d")
    cluster.run()
    assert cluster.at("d") == [other]
