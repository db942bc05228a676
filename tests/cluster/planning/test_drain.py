"""Where the models of leaving replicas go, how many at once, and what happens to those that have nowhere to go."""

import pytest

from tests.cluster.planning.modelled import GIB, MIB, Cluster
from wakeful.cluster.planning.draft import Draft
from wakeful.cluster.planning.drain import plan_drain
from wakeful.cluster.planning.effects import Put, Release
from wakeful.cluster.planning.world import State, Use


def leaving(cluster: Cluster, *pods: str) -> list[tuple[str, str]]:
    """(model, what becomes of it) if these pods left now."""
    draft = Draft(cluster.world, (), cluster.now, cluster.limits)
    return [(move.model, move.what) for move in plan_drain(frozenset(map(cluster.uid, pods)), draft)]


def filled(models: int, *, busy: tuple[int, ...] = ()) -> Cluster:
    """All models on triton-0, the named ones in use; then there is triton-1 as well."""
    cluster = Cluster()
    cluster.server(replicas=1, capacity=8 * GIB)
    for index in range(models):
        cluster.model(f"m{index:02}", memory=10 * MIB)
    cluster.run(3)
    for index in busy:
        cluster.pods[cluster.uid("triton-0")].use[f"m{index:02}"] = Use(9, 9, 0.0, 0.1 * index, cluster.now)
    cluster.run(1)
    cluster.start("triton-1", 8 * GIB)
    return cluster


def test_the_most_used_go_first_and_eight_at_a_time() -> None:
    cluster = filled(20, busy=(3, 7, 5))
    moves = leaving(cluster, "triton-0")
    assert [name for name, what in moves if what == "load"][:3] == ["m07", "m05", "m03"]
    assert [what for _, what in moves] == ["load"] * 8 + ["wait"] * 12
    assert cluster.world.models["m07"].placements.keys() == {cluster.uid("triton-0")}, "a plan alone changes nothing"


def test_f8_a_thousand_models_leave_a_few_at_a_time_and_none_stops_serving() -> None:
    cluster = filled(200)
    cluster.delete_pod("triton-0")
    for _ in range(160):
        cluster.run(0.25)
        assert len(cluster.world.models["m00"].placements) <= 2
        coming = [name for name in cluster.world.models if cluster.at(name, State.ASSIGNED, State.LOADING)]
        assert len(coming) <= 8
        assert all(cluster.at(name) for name in cluster.world.models)
    assert all(cluster.at(name) == ["triton-1"] for name in cluster.world.models)
    assert cluster.world.replicas[cluster.uid("triton-0")].released


def test_who_has_another_copy_with_room_to_spare_is_only_unrouted() -> None:
    cluster = Cluster()
    cluster.server(replicas=3)
    cluster.model("a", 2)
    cluster.run(3)
    assert leaving(cluster, "triton-0") == [("a", "spare")]
    for pod in cluster.pods.values():
        pod.use["a"] = Use(9, 9, 0.0, 0.5, cluster.now)
    cluster.run(1)
    assert leaving(cluster, "triton-0") == [("a", "load")], "one copy cannot be busy for a hundred per cent"


@pytest.mark.parametrize("seconds", [2.0, 20.0])
def test_the_old_copy_serves_until_the_new_one_does(seconds: float) -> None:
    cluster = Cluster(ack_delay=1.0)
    cluster.server(replicas=2)
    cluster.model("a")
    cluster.run(5)
    cluster.load_seconds = {"a": seconds}
    cluster.delete_pod("triton-0")
    cluster.run(seconds)
    assert cluster.at("a") == ["triton-0"]
    cluster.run(6)
    assert cluster.at("a", *State) == ["triton-1"]
    assert cluster.world.replicas[cluster.uid("triton-0")].released


@pytest.mark.parametrize("gets_on", [False, True], ids=["it stands still", "it says that it gets on"])
def test_a_target_that_stalls_is_left_alone(gets_on: bool) -> None:
    cluster = Cluster()
    cluster.server(replicas=3)
    cluster.model("a")
    cluster.run(3)
    cluster.load_seconds = {"a": 1e9}
    cluster.delete_pod("triton-0")

    def run(seconds: int) -> None:
        for _ in range(seconds):
            cluster.run(1)
            placements = cluster.world.models["a"].placements
            for uid, placement in placements.items():
                if gets_on and placement.state is State.LOADING:
                    placements[uid] = placement._replace(progressed=cluster.now)

    run(20)
    assert cluster.at("a", State.LOADING) == ["triton-1"]
    cluster.load_seconds = {}
    run(15)
    assert cluster.at("a", *State) == ["triton-2"], "and the one that stalled is given up"


def test_a_load_that_fails_is_tried_elsewhere_and_holds_up_nobody() -> None:
    cluster = filled(3)
    cluster.fails = {("m01", "*")}
    cluster.delete_pod("triton-0", grace=30)
    cluster.run(10)
    assert (cluster.at("m00"), cluster.at("m01"), cluster.at("m02")) == (["triton-1"], ["triton-0"], ["triton-1"])
    cluster.run(40)
    released = [time for time, effect in cluster.told if isinstance(effect, Release)]
    assert len(released) == 1
    assert cluster.at("m01") == [], "its pod has to go"
    assert len(cluster.notes("DrainDeadline")) == 1


def test_a_pod_with_nothing_is_released_at_once_and_once() -> None:
    cluster = Cluster()
    cluster.server(replicas=2)
    cluster.delete_pod("triton-1")
    cluster.run(3)
    assert [effect.replica for _, effect in cluster.told if isinstance(effect, Release)] == [cluster.uid("triton-1")]


def test_what_never_served_there_goes_at_once() -> None:
    cluster = Cluster()
    cluster.server(replicas=2)
    cluster.load_seconds = {"a": 60.0}
    cluster.model("a")
    cluster.run(2)
    cluster.delete_pod("triton-0")
    cluster.run(1)
    assert cluster.at("a", *State) == ["triton-1"]
    assert cluster.world.replicas[cluster.uid("triton-0")].released


def test_a_model_that_must_live_on_another_server_moves_before_it_stops() -> None:
    cluster = Cluster(ack_delay=1.0)
    cluster.server("triton", 1)
    cluster.server("mlserver", 1)
    cluster.model("a", server="triton")
    cluster.run(4)
    cluster.model("a", server="mlserver")
    for _ in range(40):
        cluster.run(0.25)
        assert cluster.at("a")
    assert cluster.at("a", *State) == ["mlserver-0"]


def test_all_replicas_of_a_server_leave_for_another_server() -> None:
    cluster = Cluster()
    cluster.server("mlserver", 1)
    cluster.model("a")
    cluster.run(3)
    cluster.server("triton", 1)
    cluster.delete_pod("mlserver-0")
    cluster.run(5)
    assert cluster.at("a", *State) == ["triton-0"]
    assert any(isinstance(effect, Put) for _, effect in cluster.told)
