"""How far the planner takes an agent at its word: only if it has heard what it was told last, and a load as long as it gets on."""

from tests.cluster.planning.modelled import Cluster
from wakeful.cluster.planning.world import Agent, Held, State


def coming(revision: str = "r1") -> tuple[Cluster, Agent]:
    """A model that is assigned, and of which its agent has heard nothing yet."""
    cluster = Cluster()
    cluster.server()
    cluster.model("a", revision=revision)
    cluster.decide()
    [replica] = cluster.world.replicas.values()
    assert replica.agent is not None
    return cluster, replica.agent


def says(cluster: Cluster, agent: Agent, held: Held, *, seen: int | None = None) -> State:
    """What the copy is after the agent has said that."""
    agent.held["a"], agent.seen = held, seen
    cluster.dirty.add("a")
    cluster.decide()
    [placement] = cluster.world.models["a"].placements.values()
    return placement.state


def test_ready_is_believed_when_it_is_said_in_knowledge_of_the_assignment() -> None:
    cluster, agent = coming()
    assert says(cluster, agent, Held("ready", "r1"), seen=6) is State.ASSIGNED, "nobody has told it of the model yet: it speaks of one that goes"
    agent.told["a"] = 7
    assert says(cluster, agent, Held("ready", "r1"), seen=6) is State.ASSIGNED
    assert says(cluster, agent, Held("ready", "r1"), seen=7) is State.ROUTED


def test_failed_is_believed_when_it_is_said_of_this_try() -> None:
    cluster, agent = coming()
    agent.told["a"] = 7
    assert says(cluster, agent, Held("failed", "r1", error="of the try before"), seen=6) is State.ASSIGNED
    assert says(cluster, agent, Held("failed", "r1", error="of this one"), seen=7) is State.FAILED


def test_an_agent_that_does_not_say_what_it_has_heard_is_believed() -> None:
    cluster, agent = coming()
    assert says(cluster, agent, Held("ready", "r1")) is State.ROUTED


def test_a_copy_that_was_quiet_before_it_was_told_to_finish_again_is_not_unloaded() -> None:
    cluster, agent = coming()
    agent.told["a"] = 1
    says(cluster, agent, Held("ready", "r1"), seen=1)
    cluster.model("a", 0)
    cluster.turn()
    cluster.acknowledge(cluster.gateways[0])
    agent.told["a"] = 3
    assert says(cluster, agent, Held("quiet", "r1"), seen=2) is State.DRAINING
    agent.seen = 3
    cluster.dirty.add("a")
    cluster.decide()
    assert cluster.world.models["a"].placements == {}


def test_a_long_load_has_not_failed_as_long_as_it_gets_on() -> None:
    cluster, agent = coming()
    for fetched in range(0, 1000, 100):
        assert says(cluster, agent, Held("loading", "r1", progress=fetched)) is State.LOADING
        cluster.now += cluster.limits.progress - 1
    assert says(cluster, agent, Held("loading", "r1", progress=900)) is State.LOADING
    cluster.now += 1
    assert says(cluster, agent, Held("loading", "r1", progress=900)) is State.FAILED
    assert "no progress in 300 s of Loading" in cluster.notes("LoadFailed")[0]


def test_what_waits_for_its_turn_has_not_failed_as_long_as_others_get_on() -> None:
    cluster, agent = coming()
    for _ in range(10):
        cluster.now += cluster.limits.progress - 1
        agent.worked = cluster.now
    cluster.dirty.add("a")
    cluster.decide()
    assert cluster.notes("LoadFailed") == []
    cluster.now += cluster.limits.progress
    cluster.dirty.add("a")
    cluster.decide()
    assert "of Assigned" in cluster.notes("LoadFailed")[0]


def test_a_long_load_of_another_revision_is_not_given_up_as_long_as_it_gets_on() -> None:
    cluster, agent = coming()
    says(cluster, agent, Held("ready", "r1"))
    cluster.model("a", revision="r2")
    cluster.decide()
    for fetched in range(1, 1000, 100):
        assert says(cluster, agent, Held("loading", "r2", serves="r1", progress=fetched)) is State.ROUTED
        assert cluster.world.models["a"].revision_failed == ""
        cluster.now += cluster.limits.progress - 1
    cluster.now += 1
    says(cluster, agent, Held("loading", "r2", serves="r1", progress=901))
    assert cluster.world.models["a"].revision_failed == "r2"
