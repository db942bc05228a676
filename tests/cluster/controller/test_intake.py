"""What is heard of objects of two groups: Seldon's Models and Servers beside our own, each under its own kind."""

import itertools
from typing import Any

import pytest

from tests.clock import Clock
from wakeful.cluster.controller.api import AUTOSCALER, MODEL, SELDON_MODEL, SELDON_SERVER, SERVER, Kind, Manifest
from wakeful.cluster.controller.intake import Dirty, Intake
from wakeful.cluster.controller.writer import Writer
from wakeful.cluster.dialects import DIALECTS
from wakeful.cluster.planning.world import Bounds, Placement, State, World


class Stage:
    def __init__(self, *dialects: str) -> None:
        self.world = World()
        writer = Writer(self, lambda key: None, lambda: True, lambda text: None)
        readers = [reader for name, reader in DIALECTS.items() if name in dialects]
        self.intake = Intake(self.world, readers, writer, Clock())
        self._numbers = itertools.count(1)

    async def patch(self, kind: Kind, name: str, body: Manifest, *, status: bool = False) -> Manifest:
        raise AssertionError("nothing is written here")

    def seen(self, kind: Kind, name: str, status: dict[str, Any] | None = None, **spec: Any) -> Dirty:
        number = next(self._numbers)
        meta = {"name": name, "uid": f"uid-{kind.group}-{name}", "generation": number, "resourceVersion": str(number)}
        self.intake.seen(kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec, "status": status or {}})
        return self.intake.take()

    def vanished(self, kind: Kind, name: str) -> Dirty:
        self.intake.vanished(kind, name)
        return self.intake.take()

    def autoscaled(self, kind: Kind, name: str) -> Dirty:
        target = {"apiVersion": kind.api_version, "kind": kind.kind, "name": name}
        self.intake.seen(AUTOSCALER, {"metadata": {"name": "hpa"}, "spec": {"scaleTargetRef": target}})
        return self.intake.take()


def test_seldons_model_and_server_are_read_and_keep_their_kind() -> None:
    stage = Stage("wakeful", "seldon")
    dirty = stage.seen(SELDON_MODEL, "m", storageUri="gs://b/m", requirements=["sklearn"], replicas=2, minReplicas=0)
    assert dirty.models == {"m"}
    assert stage.seen(SELDON_SERVER, "mlserver", serverConfig="mlserver").servers == {"mlserver"}
    model, server = stage.world.models["m"].spec, stage.world.servers["mlserver"].spec
    assert (model.dialect, model.requirements, model.bounds) == ("seldon", frozenset({"sklearn"}), Bounds(2))
    assert server.dialect == "seldon"
    assert model.requirements <= (server.capabilities or set())
    assert stage.intake.kinds == {("Model", "m"): SELDON_MODEL, ("Server", "mlserver"): SELDON_SERVER}


def test_a_count_that_was_decided_is_kept_of_seldons_too() -> None:
    stage = Stage("wakeful", "seldon")
    stage.seen(SELDON_MODEL, "m", {"scaling": {"target": 3, "fromSpec": "1", "owner": "Scheduler"}}, storageUri="gs://b/m", replicas=1, minReplicas=1)
    scaling = stage.world.models["m"].scaling
    assert scaling is not None
    assert scaling.target == 3


def test_a_group_that_is_not_read_is_not_heard() -> None:
    stage = Stage("wakeful")
    assert stage.seen(SELDON_MODEL, "m", storageUri="gs://b/m") == Dirty()
    assert stage.world.models == {}


def test_a_name_belongs_to_the_group_that_came_first() -> None:
    stage = Stage("wakeful", "seldon")
    stage.seen(MODEL, "m", storageUri="file:///ours")
    assert stage.seen(SELDON_MODEL, "m", storageUri="gs://b/theirs") == Dirty()
    assert stage.world.models["m"].spec.storage_uri == "file:///ours"
    assert stage.vanished(SELDON_MODEL, "m") == Dirty()
    assert not stage.world.models["m"].gone
    assert stage.vanished(MODEL, "m").models == {"m"}
    assert stage.world.models["m"].gone


def test_the_other_ones_model_has_the_name_once_the_first_is_deleted() -> None:
    stage = Stage("wakeful", "seldon")
    stage.seen(MODEL, "m", storageUri="file:///ours")
    stage.seen(SELDON_MODEL, "m", storageUri="gs://b/theirs")
    dirty = stage.vanished(MODEL, "m")
    entry = stage.world.models["m"]
    assert dirty.models == {"m"}
    assert (entry.spec.storage_uri, entry.spec.dialect, entry.gone) == ("gs://b/theirs", "seldon", False)
    assert stage.intake.kinds["Model", "m"] == SELDON_MODEL


def test_the_other_ones_server_has_the_name_once_the_first_is_deleted() -> None:
    stage = Stage("wakeful", "seldon")
    stage.seen(SELDON_SERVER, "triton", serverConfig="triton")
    stage.seen(SERVER, "triton")
    dialects = [stage.world.servers["triton"].spec.dialect]
    assert stage.vanished(SERVER, "triton").servers == {"triton"}
    dialects.append(stage.world.servers["triton"].spec.dialect)
    assert dialects == ["wakeful", "seldon"]


SCALED = {
    "scaling": {"target": 3, "fromSpec": "1", "owner": "Scheduler"},
    "placements": [{"replica": "triton-0", "uid": "u", "state": "Routed", "revision": "r"}],
}


@pytest.mark.parametrize("order", [(MODEL, SELDON_MODEL), (SELDON_MODEL, MODEL)])
def test_our_own_object_has_the_name_whichever_is_seen_first(order: tuple[Kind, Kind]) -> None:
    """The next leader lists in another order, and comes to the same; what ours has in its status is kept."""
    stage = Stage("wakeful", "seldon")
    for kind in order:
        stage.seen(kind, "m", SCALED if kind == MODEL else {}, storageUri=f"gs://{kind.group}/m", replicas=1, minReplicas=1)
    entry = stage.world.models["m"]
    assert entry.spec.storage_uri == "gs://wakeful.dev/m"
    assert entry.scaling is not None
    assert (entry.scaling.target, set(entry.placements)) == (3, {"u"})
    assert [key.kind for key in stage.intake.rivals] == [SELDON_MODEL]
    stage.vanished(MODEL, "m")
    assert stage.world.models["m"].spec.storage_uri == "gs://mlops.seldon.io/m"
    assert stage.intake.rivals == {}


def test_an_object_made_again_is_tried_at_once_and_keeps_its_copies() -> None:
    stage = Stage("wakeful")
    stage.seen(MODEL, "m", storageUri="file:///m")
    entry = stage.world.models["m"]
    for uid, state in (("a", State.ROUTED), ("b", State.FAILED)):
        entry.placements[uid] = Placement(uid, uid, state, entry.spec.revision, 0.0)
    entry.failures, entry.retry_at = 5, 1e9
    stage.vanished(MODEL, "m")
    stage.intake.seen(MODEL, {"metadata": {"name": "m", "uid": "another", "generation": 1, "resourceVersion": "99"}, "spec": {"storageUri": "file:///m"}})
    stage.intake.take()
    assert (set(entry.placements), entry.gone, entry.failures, entry.retry_at) == ({"a"}, False, 0, 0.0)


def test_an_autoscaler_of_seldons_group_decides_the_count_of_seldons_object() -> None:
    stage = Stage("wakeful", "seldon")
    stage.seen(SELDON_MODEL, "m", storageUri="gs://b/m")
    assert stage.autoscaled(SELDON_MODEL, "m").models == {"m"}
    assert stage.world.models["m"].hpa


def test_an_autoscaler_of_a_group_that_is_not_read_decides_nothing() -> None:
    stage = Stage("wakeful")
    stage.seen(MODEL, "m", storageUri="file:///m")
    stage.autoscaled(SELDON_MODEL, "m")
    assert not stage.world.models["m"].hpa
