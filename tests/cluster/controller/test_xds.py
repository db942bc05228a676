"""Real Envoys follow the controller, and the book knows what they have taken."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.cluster.ground.controller import Controller
from tests.cluster.ground.envoy import Envoy, gateway
from tests.cluster.ground.puppet import Puppet
from tests.daemon import wait_until
from wakeful.cluster.controller import xds
from wakeful.cluster.planning import book
from wakeful.cluster.planning.world import Endpoint, Routing

ONE, TWO, THREE = Endpoint("u1", "127.0.0.1", 7001, 7101), Endpoint("u2", "127.0.0.2", 7002, 7102), Endpoint("u3", "127.0.0.3", 7003, None)
BOTH = frozenset(["u1", "u2"])


@pytest.fixture
def controller() -> Iterator[Controller]:
    controller = Controller()
    yield controller
    controller.stop()


@pytest.fixture
def envoys(tmp_path: Path, controller: Controller) -> Iterator[Any]:
    """Starts Envoys by their names."""
    started: list[Envoy] = []

    def start(name: str, *controllers: str) -> Envoy:
        started.append(Envoy(tmp_path / name, gateway(name, *(controllers or (controller.address,)))))
        return started[-1]

    yield start
    for envoy in started:
        envoy.stop()


def test_envoy_has_what_the_book_says(controller: Controller, envoys: Any) -> None:
    envoy = envoys("gw-0")
    controller.settle({"cat": (ONE, TWO), "dog": (THREE,)})
    assert envoy.clusters() == {
        "model/cat": {"127.0.0.1:7001", "127.0.0.2:7002"}, "model/cat/grpc": {"127.0.0.1:7101", "127.0.0.2:7102"}, "model/dog": {"127.0.0.3:7003"},
    }
    controller.settle({"cat": (TWO,)})
    assert envoy.clusters() == {"model/cat": {"127.0.0.2:7002"}, "model/cat/grpc": {"127.0.0.2:7102"}}
    controller.settle({})
    assert envoy.clusters() == {}
    controller.settle({"cat": (ONE,)})
    assert envoy.clusters() == {"model/cat": {"127.0.0.1:7001"}, "model/cat/grpc": {"127.0.0.1:7101"}}


def test_a_second_envoy_that_comes_late_is_waited_for(controller: Controller, envoys: Any) -> None:
    envoys("gw-0")
    controller.settle({"cat": (ONE,)})
    late = envoys("gw-1")
    controller.wait(lambda _: controller.gateways() == {"gw-0", "gw-1"}, "both gateways are counted")
    controller.settle({"cat": (ONE, TWO)})
    assert late.clusters()["model/cat"] == {"127.0.0.1:7001", "127.0.0.2:7002"}


def test_nothing_is_answered_before_the_gate_opens_and_nothing_moves_at_a_new_leader(envoys: Any, controller: Controller) -> None:
    """Envoy loses no cluster when the leader changes, and takes none that it has again."""
    routes = {f"m{n}": (ONE, TWO) for n in range(20)}
    envoy = envoys("gw-0")
    controller.settle(routes)
    before = envoy.clusters()
    updates, removed = envoy.stat("cluster_manager.cluster_updated"), envoy.stat("cluster_manager.cluster_removed")
    controller.stop()
    second = Controller(port=controller.port, opened=False)
    try:
        wait_until(lambda: envoy.stat("control_plane.connected_state") == 1, "Envoy has found the new leader")
        second.set_routes(routes)
        assert envoy.clusters() == before
        second.open()
        second.wait(lambda routing: len(routing) == 20 and {*routing.values()} == {Routing(BOTH, BOTH)}, "the new leader knows what Envoy has")
        second.settle(routes | {"new": (ONE,)})
        assert envoy.clusters().keys() == before.keys() | {"model/new", "model/new/grpc"}
        assert envoy.stat("cluster_manager.cluster_removed") == removed
        assert envoy.stat("cluster_manager.cluster_updated") == updates
    finally:
        second.stop()


def test_what_came_and_went_while_the_controller_was_away(envoys: Any, controller: Controller) -> None:
    envoy = envoys("gw-0")
    controller.settle({"stays": (ONE,), "moves": (ONE,), "goes": (ONE,)})
    controller.stop()
    second = Controller({"stays": (ONE,), "moves": (TWO,), "comes": (TWO,)}, port=controller.port)
    try:
        second.wait(lambda _: second.gateways() == {"gw-0"}, "Envoy has come")
        second.settle({"stays": (ONE,), "moves": (TWO,), "comes": (TWO,)})
        assert {name: hosts for name, hosts in envoy.clusters().items() if not name.endswith("/grpc")} == {
            "model/stays": {"127.0.0.1:7001"}, "model/moves": {"127.0.0.2:7002"}, "model/comes": {"127.0.0.2:7002"},
        }
    finally:
        second.stop()


def test_a_killed_envoy_is_not_waited_for_for_ever(controller: Controller, envoys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "PATIENCE", 0.5)
    envoy = envoys("gw-0")
    controller.settle({"cat": (ONE,)})
    envoy.stop()
    controller.set_routes({"cat": (TWO,)})
    controller.wait(lambda routing: "u1" not in routing["cat"].anywhere, "nobody is thought to use the old replica")
    assert controller.gateways() == frozenset()


def test_an_envoy_that_is_restarted_is_another_one(controller: Controller, envoys: Any) -> None:
    envoys("gw-0").stop()
    controller.set_routes({"cat": (ONE,)})
    envoy = envoys("gw-0")
    controller.settle({"cat": (ONE,)})
    assert envoy.clusters()["model/cat"] == {"127.0.0.1:7001"}


# ── an Envoy of our own, which says what a real one would not ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def puppet(controller: Controller) -> Iterator[Puppet]:
    puppet = Puppet(grpc.insecure_channel(controller.address), "gw-9")
    yield puppet
    puppet.close()


def test_a_refusal_is_told_and_tried_again_and_nothing_is_acknowledged_by_it(
    controller: Controller, puppet: Puppet, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(xds, "REFUSED_AGAIN", 0.2)
    controller.set_routes({"dog": (THREE,)})
    clusters, endpoints = xds._URLS["clusters"], xds._URLS["endpoints"]
    puppet.ask(clusters)
    puppet.answer(puppet.next())
    puppet.ask(endpoints, "model/dog")
    puppet.answer(puppet.next())
    controller.settle({"dog": (THREE,)})
    controller.set_routes({"dog": (ONE,)})
    first = [puppet.next(), puppet.next()]
    assert {response.type_url for response in first} == {clusters, endpoints}
    for response in first:
        puppet.answer(response, "no such thing")
    wait_until(lambda: len(controller.notes) == 2, "both refusals are told")
    assert {note.reason for note in controller.notes} == {"RoutesRefused"}
    assert any(note.name == "gw-9" and "no such thing" in note.message and "model/dog" in note.message for note in controller.notes)
    assert controller.routing()["dog"] == Routing(frozenset(), frozenset(["u1", "u3"]))
    for _ in range(2):
        puppet.answer(puppet.next())
    puppet.ask(endpoints, "model/dog/grpc")
    puppet.answer(puppet.next())
    controller.settle({"dog": (ONE,)})


def test_two_that_say_the_same_name_are_both_waited_for(controller: Controller, puppet: Puppet) -> None:
    other = Puppet(grpc.insecure_channel(controller.address), puppet.node)
    for one in (puppet, other):
        one.ask(xds._URLS["clusters"])
        one.answer(one.next())
    controller.wait(lambda _: controller.gateways() == {"gw-9", "gw-9 (2)"}, "both are counted")
    other.close()


def test_who_does_not_surely_lead_any_more_tells_nobody_anything(controller: Controller, envoys: Any) -> None:
    """As one that has stood still for longer than its Lease lasts: its streams end before it says another word, and it takes no new ones."""
    envoy = envoys("gw-0")
    puppet = Puppet(grpc.insecure_channel(controller.address), "gw-1")
    controller.set_routes({"cat": (ONE,)})
    puppet.ask(xds._URLS["clusters"])
    puppet.answer(puppet.next())
    wait_until(lambda: envoy.clusters().get("model/cat") == {"127.0.0.1:7001"}, "Envoy has its route")
    controller.leads = False
    controller.set_routes({"dog": (TWO,)})
    late = Puppet(grpc.insecure_channel(controller.address), "gw-2")
    late.ask(xds._URLS["clusters"])
    for one in (puppet, late):
        with pytest.raises(grpc.RpcError, match="another one may lead") as caught:
            one.next()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        one.close()
    wait_until(lambda: controller.call(lambda: not controller.discovery._streams), "Envoy's stream has ended, too")
    assert envoy.clusters() == {"model/cat": {"127.0.0.1:7001"}, "model/cat/grpc": {"127.0.0.1:7101"}}
    controller.leads = True
    wait_until(lambda: envoy.clusters().keys() == {"model/dog", "model/dog/grpc"}, "it comes again, and again, until somebody leads")


def test_versions_are_the_same_whoever_makes_them() -> None:
    once, again = xds.assignment("model/cat", [ONE, TWO]), xds.assignment("model/cat", [TWO, ONE])
    assert once == again
    assert xds.replicas(once.version) == BOTH
    moved = xds.assignment("model/cat", [ONE._replace(http_port=1), TWO])
    assert moved.version != once.version
    assert xds.cluster("model/cat").version != xds.cluster("model/cat/grpc").version
