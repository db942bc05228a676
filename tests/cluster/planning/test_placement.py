"""Who is chosen, and what is said of those who are not."""

from typing import Any

import pytest

from wakeful.cluster.planning.ledger import Account, Weight
from wakeful.cluster.planning.placement import Ask, Placed, Sites, place
from wakeful.cluster.planning.world import Agent, ModelSpec, Replica, ServerEntry, ServerSpec, World

GIB, MIB = 1024**3, 1024**2


def world(*pods: str, capabilities: str = "onnx", overcommit: float = 0.0) -> World:
    """Replicas of a gibibyte; their uids are their names."""
    made = World()
    for pod in pods:
        server, _, ordinal = pod.rpartition("-")
        made.servers[server] = ServerEntry(ServerSpec(server, overcommit=overcommit))
        agent = Agent(frozenset(capabilities.split()), GIB, 8000, None, 0.0)
        made.replicas[pod] = Replica(pod, pod, server, int(ordinal), "10.0.0.1", ready=True, agent=agent)
    return made


def ask(size: int = 100 * MIB, *, active: bool = False, load: float = 0.0, **more: Any) -> Ask:
    spec = ModelSpec("a", "s3://a", "r1", requirements=more.pop("requirements", frozenset()), server=more.pop("server", None))
    return Ask(spec, Weight(size, active, load), **more)


def placed(asked: Ask, want: int, there: World, **accounts: Account) -> Placed:
    return place(asked, want, Sites(there, {uid.replace("_", "-"): account for uid, account in accounts.items()}))


THREE = world("triton-0", "triton-1", "triton-2")


def test_the_emptiest_first_of_equals_the_lowest_ordinal() -> None:
    assert placed(ask(), 2, THREE).chosen == ("triton-0", "triton-1")
    assert placed(ask(), 2, THREE, triton_0=Account(500 * MIB)).chosen == ("triton-1", "triton-2")


def test_load_counts_as_much_as_memory() -> None:
    assert placed(ask(), 1, THREE, triton_0=Account(GIB // 4), triton_1=Account(GIB // 8, 0, 0.2), triton_2=Account(GIB // 8, 0, 0.1)).chosen == (
        "triton-2",
    )


def test_fewer_than_asked_for_is_an_answer_and_says_why() -> None:
    assert placed(ask(), 5, THREE, triton_1=Account(GIB)) == Placed(
        ("triton-0", "triton-2"), 3, {"triton": {"memory": 1, "has a copy": 2}}
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"ready": False}, "not ready"), ({"lost": True}, "lost"), ({"leaving_by": 5.0}, "leaving"), ({"agent": None}, "agent unknown"),
    ],
)
def test_what_is_not_there_is_not_chosen(change: dict[str, Any], why: str) -> None:
    there = world("triton-0")
    for name, value in change.items():
        setattr(there.replicas["triton-0"], name, value)
    assert placed(ask(), 1, there) == Placed((), 1, {"triton": {why: 1}})


def test_all_requirements_must_be_capabilities_of_that_replica() -> None:
    there = world("triton-0", "triton-1", capabilities="onnx python")
    agent = there.replicas["triton-0"].agent
    assert agent is not None
    agent.capabilities = frozenset({"onnx"})
    asked = ask(requirements=frozenset({"onnx", "python"}))
    assert placed(asked, 2, there) == Placed(("triton-1",), 1, {"triton": {"requirements": 1, "has a copy": 1}})
    there.servers["triton"].spec = ServerSpec("triton", capabilities=frozenset({"onnx", "python", "cuda"}))
    assert len(placed(asked, 2, there).chosen) == 2, "the Server's own list counts where it has one"


@pytest.mark.parametrize(
    ("asked", "account", "why"),
    [
        (ask(2 * GIB), Account(), "too large"),
        (ask(), Account(1500 * MIB), "memory"),
        (ask(active=True), Account(1000 * MIB, 1000 * MIB), "memory in use"),
        (ask(active=False), Account(1000 * MIB, 1000 * MIB), ""),
        (ask(taken=frozenset({"triton-0"})), Account(), "has a copy"),
        (ask(failed=frozenset({"triton-0"})), Account(), "failed there"),
    ],
)
def test_memory_may_be_lent_by_sleepers_and_not_by_those_in_use(asked: Ask, account: Account, why: str) -> None:
    answer = placed(asked, 1, world("triton-0", overcommit=0.5), triton_0=account)
    assert answer == (Placed((), 1, {"triton": {why: 1}}) if why else Placed(("triton-0",), 0, {}))


def test_a_model_lives_on_one_server() -> None:
    there = world("mlserver-0", "triton-0", "triton-1")
    assert placed(ask(), 3, there).chosen == ("triton-0", "triton-1"), "the one that can take most"
    assert placed(ask(), 1, there).chosen == ("triton-0",)
    assert placed(ask(home="mlserver"), 2, there).chosen == ("mlserver-0",)
    assert placed(ask(server="mlserver", home="triton"), 2, there).chosen == ("mlserver-0",)


def test_where_there_is_nothing_the_answer_says_so() -> None:
    assert placed(ask(server="triton"), 1, world()) == Placed((), 1, {"triton": {"no such Server": 1}})
    empty = world()
    empty.servers["triton"] = ServerEntry(ServerSpec("triton"))
    assert placed(ask(), 1, empty) == Placed((), 1, {"triton": {"no replica": 1}})
