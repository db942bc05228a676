"""A changed revision: one replica after the other, each serves the old one until it has the new, and the first failure stops it."""

from dataclasses import replace

from tests.cluster.planning.modelled import Cluster
from wakeful.cluster.planning.kept import restore_model
from wakeful.cluster.planning.status import model_status
from wakeful.cluster.planning.world import ModelEntry, State


def revisions(cluster: Cluster, name: str = "a") -> list[tuple[str, str]]:
    placements = cluster.world.models[name].placements.values()
    return sorted((placement.pod, placement.revision) for placement in placements if placement.state is State.ROUTED)


def test_one_replica_after_the_other_and_all_serve_meanwhile() -> None:
    cluster = Cluster()
    cluster.server(replicas=3)
    cluster.model("a", 3)
    cluster.run(3)
    cluster.load_seconds = {"a": 2.0}
    cluster.model("a", 3, revision="r2")
    for _ in range(40):
        cluster.run(0.25)
        assert len(cluster.at("a")) == 3
        assert sum(placement.previous != "" for placement in cluster.world.models["a"].placements.values()) <= 1
    assert revisions(cluster) == [("triton-0", "r2"), ("triton-1", "r2"), ("triton-2", "r2")]
    assert not cluster.notes("RolloutStopped")


def test_the_first_failure_stops_it_and_the_old_revision_serves() -> None:
    cluster = Cluster()
    cluster.server(replicas=2)
    cluster.model("a", 2)
    cluster.run(3)
    cluster.fails = {("r2", "triton-0")}
    cluster.model("a", 2, revision="r2")
    cluster.run(60)
    assert revisions(cluster) == [("triton-0", "r1"), ("triton-1", "r1")]
    assert cluster.world.models["a"].revision_failed == "r2"
    assert cluster.notes("RolloutStopped") == ["r2 failed on triton-0: it does not load; r1 serves on"]
    cluster.model("a", 2, revision="r3")
    cluster.run(10)
    assert revisions(cluster) == [("triton-0", "r3"), ("triton-1", "r3")]
    assert cluster.world.models["a"].revision_failed == ""
    assert cluster.world.models["a"].sources == {}, "nobody has the ones before any more"


def test_one_that_does_not_end_has_failed_and_the_old_revision_serves() -> None:
    cluster = Cluster()
    cluster.server(replicas=1)
    cluster.model("a")
    cluster.run(3)
    cluster.load_seconds = {"a": 1e9}
    cluster.model("a", revision="r2")
    cluster.run(310, step=1)
    assert revisions(cluster) == [("triton-0", "r1")]
    assert "did not get on for 300 s" in cluster.notes("RolloutStopped")[0]


def test_who_changes_his_mind_gets_the_last_revision() -> None:
    cluster = Cluster()
    cluster.server(replicas=2)
    cluster.model("a", 2)
    cluster.run(3)
    cluster.load_seconds = {"a": 3.0}
    cluster.model("a", 2, revision="r2")
    cluster.run(1)
    cluster.model("a", 2, revision="r1")
    cluster.run(10)
    assert revisions(cluster) == [("triton-0", "r1"), ("triton-1", "r1")]


def test_what_does_not_serve_yet_gets_the_new_revision_at_once() -> None:
    cluster = Cluster()
    cluster.server(replicas=1)
    cluster.fails = {("r1", "*")}
    cluster.model("a")
    cluster.run(20)
    assert cluster.at("a") == []
    cluster.model("a", revision="r2")
    cluster.run(2)
    assert revisions(cluster) == [("triton-0", "r2")]
    assert cluster.world.models["a"].failures == 0


def stopped(replicas: int = 2, count: int = 1) -> Cluster:
    """A roll to r2 that has failed; r1 serves."""
    cluster = Cluster()
    cluster.server(replicas=replicas)
    cluster.model("a", count)
    cluster.run(3)
    cluster.fails = {("r2", "*")}
    cluster.model("a", count, revision="r2")
    cluster.run(5)
    assert revisions(cluster) == [(f"triton-{ordinal}", "r1") for ordinal in range(count)]
    return cluster


def test_a_step_up_while_a_roll_has_stopped_gets_what_serves() -> None:
    cluster = stopped(replicas=3)
    cluster.model("a", 3, revision="r2")
    cluster.run(5)
    assert revisions(cluster) == [("triton-0", "r1"), ("triton-1", "r1"), ("triton-2", "r1")]
    assert cluster.notes("LoadFailed") == []


def test_a_drain_while_a_roll_has_stopped_moves_what_serves() -> None:
    cluster = stopped()
    cluster.delete_pod("triton-0")
    for _ in range(40):
        cluster.run(0.25)
        assert cluster.at("a"), "somebody serves all the time"
    assert revisions(cluster) == [("triton-1", "r1")]
    assert cluster.world.models["a"].revision_failed == "r2"


def test_a_lost_replica_while_a_roll_has_stopped_is_replaced_by_what_served_there() -> None:
    cluster = stopped()
    cluster.kill("triton-0")
    cluster.run(5)
    assert revisions(cluster) == [("triton-1", "r1")]
    assert cluster.notes("LoadFailed") == []


def test_a_container_that_restarts_while_a_roll_has_stopped_gets_what_served_there() -> None:
    cluster = stopped(replicas=1)
    cluster.restart("triton-0")
    cluster.run(5)
    assert revisions(cluster) == [("triton-0", "r1")]


def test_where_neither_loads_any_more_both_are_tried_in_turn() -> None:
    cluster = stopped()
    cluster.fails = {("r1", "*"), ("r2", "*")}
    cluster.kill("triton-0")
    cluster.run(60)
    assert cluster.at("a") == []
    cluster.fails = {("r1", "*")}
    cluster.run(600, step=1)
    assert revisions(cluster) == [("triton-1", "r2")]
    assert cluster.world.models["a"].revision_failed == ""


def test_a_new_leader_knows_what_the_revision_before_was() -> None:
    cluster = stopped()
    before = cluster.world.models["a"]
    fresh = ModelEntry(before.spec)
    restore_model(fresh, model_status(before, cluster.world, {}, cluster.now))
    cluster.world.models["a"] = fresh
    cluster.delete_pod("triton-0")
    cluster.run(10)
    assert revisions(cluster) == [("triton-1", "r1")]


def test_a_spec_that_was_changed_while_nobody_led_is_known_from_the_status() -> None:
    cluster = Cluster()
    cluster.server()
    entry = cluster.model("a")
    cluster.run(3)
    status = model_status(entry, cluster.world, {}, cluster.now)
    fresh = ModelEntry(replace(entry.spec, revision="r2", storage_uri="s3://models/a/r2"))
    restore_model(fresh, status)
    assert [*fresh.sources] == ["r1"]
    assert fresh.sources["r1"].storage_uri == "s3://models/a/r1"


def test_a_drain_with_a_spec_that_is_wrong_moves_what_serves() -> None:
    cluster = Cluster()
    cluster.server(replicas=2)
    cluster.model("a")
    cluster.run(3)
    cluster.model("a", revision="r2", errors=("spec.serving.batching: no such key",))
    cluster.delete_pod("triton-0")
    cluster.run(10)
    assert revisions(cluster) == [("triton-1", "r1")]
