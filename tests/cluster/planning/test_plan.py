"""The plan as a whole: a new leader, deletion, pods that come back, scaling, and how it is carried out."""

from tests.cluster.planning.modelled import GIB, MIB, Cluster
from wakeful.cluster.planning.apply import apply
from wakeful.cluster.planning.effects import Drop, Forget, Mark, Put, Release, ScaleServer, SetTarget
from wakeful.cluster.planning.plan import affected, plan
from wakeful.cluster.planning.routing import desired, routes
from wakeful.cluster.planning.world import Bounds, Endpoint, Owner, Placement, Scaling, State, Use, World


def running(models: int = 1, pods: int = 2) -> Cluster:
    cluster = Cluster()
    cluster.server(replicas=pods)
    for index in range(models):
        cluster.model(f"m{index}")
    return cluster.run(3)


# ── a new leader ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_leader_places_and_unloads_nothing_until_every_agent_has_spoken() -> None:
    cluster = running(2)
    cluster.world.led_since = cluster.now
    cluster.silent = {"triton-0"}
    cluster.told.clear()
    cluster.delete_model("m1")
    cluster.model("m2")
    cluster.run(20)
    assert not any(isinstance(effect, Put | Drop | Forget) for _, effect in cluster.told)
    assert len(routes(cluster.world)) == 2, "routes are from what was written down"
    cluster.silent = set()
    cluster.run(3)
    assert cluster.at("m2")
    assert "m1" not in cluster.world.models


def test_after_half_a_minute_who_is_silent_is_only_not_chosen() -> None:
    cluster = running()
    cluster.world.led_since = cluster.now
    cluster.silent = {"triton-0"}
    cluster.model("m1", 2)
    cluster.run(31)
    assert cluster.at("m1") == ["triton-1"]
    assert cluster.at("m0") == ["triton-0"]


def test_a_new_leader_unloads_nothing_while_a_gateway_may_not_have_connected_yet() -> None:
    cluster = running()
    cluster.world.led_since, cluster.world.gateways, cluster.gateways = cluster.now, 0, []
    cluster.world.routing.clear()
    cluster.model("m0", 0)
    cluster.run(9)
    assert cluster.at("m0", State.DRAINING) == ["triton-0"]
    cluster.run(2)
    assert cluster.at("m0", *State) == []


def test_a_new_leader_goes_on_with_a_move_that_was_half_done() -> None:
    cluster = Cluster(ack_delay=1.0)
    cluster.server(replicas=2)
    cluster.model("a")
    cluster.run(4)
    cluster.delete_pod("triton-0")
    cluster.run(1.5)
    assert len(cluster.at("a")) == 2
    cluster.world.led_since = cluster.now
    cluster.run(15)
    assert cluster.at("a", *State) == ["triton-1"]


# ── pods and models that come and go ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pod_of_the_same_name_is_another_replica() -> None:
    cluster = running(pods=1)
    before = cluster.uid("triton-0")
    cluster.kill("triton-0")
    after = cluster.start("triton-0")
    cluster.run(3)
    assert before != after
    assert list(cluster.world.models["m0"].placements) == [after]


def test_a_container_that_restarts_keeps_its_models_and_is_not_routed_until_it_has_them() -> None:
    cluster = running(pods=2)
    cluster.load_seconds = {"m0": 4.0}
    cluster.restart("triton-0")
    cluster.decide()
    assert (cluster.at("m0"), cluster.at("m0", State.ASSIGNED)) == ([], ["triton-0"])
    cluster.run(6)
    assert cluster.at("m0") == ["triton-0"]


def test_a_lost_replica_is_replaced_in_one_plan() -> None:
    cluster = running(40)
    lost = cluster.uid("triton-0")
    cluster.world.replicas[lost].lost = True
    effects = plan(cluster.world, affected(cluster.world, lost), cluster.now, cluster.limits)
    drops = {effect.model for effect in effects if isinstance(effect, Drop)}
    puts = {effect.model for effect in effects if isinstance(effect, Put) and effect.placement.pod == "triton-1"}
    short = {effect.name for effect in effects if isinstance(effect, Mark) and effect.fields.get("short")}
    assert len(drops) > 10
    assert puts | short == drops


def test_a_deleted_model_drains_before_it_is_forgotten() -> None:
    cluster = Cluster(ack_delay=2.0)
    cluster.server()
    cluster.model("a")
    cluster.run(5)
    cluster.delete_model("a")
    cluster.run(1)
    assert cluster.at("a", State.DRAINING) == ["triton-0"]
    wanted = desired(cluster.world, cluster.uid("triton-0"))["a"]
    assert wanted.finish
    cluster.run(5)
    assert cluster.world.models == {}
    assert cluster.world.ledger.accounts() == {}


def test_a_model_that_comes_back_while_it_drains_is_taken_back() -> None:
    cluster = Cluster(ack_delay=3.0)
    cluster.server()
    cluster.model("a")
    cluster.run(8)
    cluster.delete_model("a")
    cluster.run(1)
    cluster.model("a")
    cluster.told.clear()
    cluster.run(10)
    assert cluster.at("a") == ["triton-0"]
    assert not any(isinstance(effect, Drop) for _, effect in cluster.told), "it was never unloaded"


def test_a_spec_with_errors_is_not_loaded_and_what_serves_already_is() -> None:
    cluster = running()
    cluster.model("m0", 2, revision="r2", errors=("serving.batching: no such key",))
    cluster.model("m1", errors=("memory: negative",))
    cluster.run(5)
    assert [placement.revision for placement in cluster.world.models["m0"].placements.values()] == ["r1", "r1"]
    assert cluster.at("m1", *State) == []


# ── counts ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_fewer_copies_the_least_used_goes_of_equals_the_highest_ordinal() -> None:
    cluster = Cluster()
    cluster.server(replicas=3)
    cluster.model("a", 3)
    cluster.run(3)
    cluster.model("a", 2)
    cluster.run(3)
    assert cluster.at("a") == ["triton-0", "triton-1"]
    for pod, busy in (("triton-0", 0.1), ("triton-1", 0.2)):
        cluster.pods[cluster.uid(pod)].use["a"] = Use(9, 9, 0.0, busy, cluster.now)
    cluster.run(1)
    cluster.model("a", 1)
    cluster.run(3)
    assert cluster.at("a") == ["triton-1"]


def test_a_count_that_was_scaled_is_written_before_anything_is_placed() -> None:
    cluster = Cluster()
    cluster.server(replicas=3)
    cluster.model("a", bounds=Bounds(1, 1))
    cluster.run(310, step=1)
    cluster.pods[cluster.uid("triton-0")].use["a"] = Use(90, 40, 50.0, 0.9, cluster.now)
    cluster.run(6, step=1)
    effects = [effect for _, effect in cluster.told]
    step = next(index for index, effect in enumerate(effects) if isinstance(effect, SetTarget) and effect.scaling.target == 2)
    first = next(index for index, effect in enumerate(effects) if isinstance(effect, Put) and effect.placement.pod == "triton-1")
    assert step < first


def test_an_hpa_s_count_is_followed_and_its_owner_shown() -> None:
    cluster = running(pods=3)
    entry = cluster.model("m0", bounds=Bounds(3, 1, 5))
    entry.hpa = True
    cluster.run(3)
    assert len(cluster.at("m0")) == 3
    assert entry.scaling is not None
    assert entry.scaling.owner is Owner.HPA


def test_a_server_grows_for_what_models_lack_and_shrinks_when_it_is_not_needed() -> None:
    cluster = Cluster()
    cluster.server(replicas=1, bounds=Bounds(1, 1, 3), overcommit=0.0)
    for index in range(3):
        cluster.model(f"m{index}", memory=600 * MIB)
    cluster.run(40, step=1)
    scaling = cluster.world.servers["triton"].scaling
    assert scaling is not None
    assert scaling.target == 3
    cluster.start("triton-1")
    cluster.start("triton-2")
    cluster.run(10, step=1)
    assert all(cluster.at(f"m{index}") for index in range(3))
    cluster.delete_model("m2")
    while scaling.target == 3:
        cluster.run(10, step=1)
        scaling = cluster.world.servers["triton"].scaling
        assert scaling is not None
    cluster.delete_pod("triton-2")
    cluster.run(20, step=1)
    cluster.kill("triton-2")
    cluster.run(700, step=1)
    assert all(cluster.at(f"m{index}") for index in range(2))
    assert [effect.scaling.target for _, effect in cluster.told if isinstance(effect, ScaleServer)][-1] == 2


# ── routes, and carrying out ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_routes_leave_out_pods_that_are_not_ready_unless_none_is() -> None:
    cluster = Cluster()
    cluster.server(replicas=2)
    cluster.model("a", 2)
    cluster.run(3)
    first, second = sorted(cluster.pods)
    assert [endpoint.replica for endpoint in routes(cluster.world)["a"]] == [first, second]
    cluster.world.replicas[first].ready = False
    assert routes(cluster.world)["a"] == (Endpoint(second, "10.0.0.2", 8000, 8001),)
    cluster.world.replicas[second].ready = False
    assert len(routes(cluster.world)["a"]) == 2
    cluster.world.replicas[first].lost = True
    assert [endpoint.replica for endpoint in routes(cluster.world)["a"]] == [second]


def test_a_leaving_pod_is_routed_as_long_as_it_serves() -> None:
    cluster = running(pods=1)
    cluster.delete_pod("triton-0")
    cluster.run(20)
    assert len(routes(cluster.world)["m0"]) == 1


def test_desired_says_what_the_agent_watches_only_where_the_scheduler_decides() -> None:
    cluster = running()
    uid = cluster.uid("triton-0")
    assert desired(cluster.world, uid)["m0"].lag_threshold is None
    cluster.model("m0", bounds=Bounds(1, 1), autoscaling={"lag_threshold": 7.0})
    wanted = desired(cluster.world, uid)["m0"]
    assert (wanted.lag_threshold, wanted.inactive, wanted.revision, wanted.finish) == (7.0, 600.0, "r1", False)
    assert desired(cluster.world, cluster.uid("triton-1")) == {}


def test_effects_on_what_is_no_more_are_void() -> None:
    world = World()
    placement = Placement("uid", "triton-0", State.ROUTED, "r1", 0.0)
    apply(world, [
        Put("a", placement), Drop("a", "uid"), SetTarget("a", Scaling(Owner.USER, 1, "")), Mark("model", "a", {"failures": 1}), Release("uid"),
        ScaleServer("triton", Scaling(Owner.USER, 1, "")), Forget("a"),
    ])
    assert world == World(ledger=world.ledger)


def test_a_model_that_was_created_again_is_not_forgotten() -> None:
    cluster = running()
    apply(cluster.world, [Forget("m0")])
    assert "m0" in cluster.world.models


def test_a_big_model_that_was_short_takes_the_room_of_one_that_went() -> None:
    cluster = Cluster()
    cluster.server(overcommit=0.0)
    cluster.model("a", memory=900 * MIB)
    cluster.run(3)
    cluster.model("b", memory=GIB)
    cluster.run(3)
    assert cluster.world.models["b"].short is not None
    cluster.delete_model("a")
    cluster.run(4)
    assert cluster.at("b") == ["triton-0"]
