"""A changed revision: one replica after the other, each serves the old one until it has the new, and the first failure stops it."""

from tests.cluster.planning.modelled import Cluster
from wakeful.cluster.planning.world import State


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
