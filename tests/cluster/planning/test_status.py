"""What statuses say: each condition names its cause, and a new leader reads back what the one before knew."""

from dataclasses import replace
from typing import Any

import pytest

from wakeful.cluster.planning.kept import placements_of, restore_model, restore_server, scaling_of
from wakeful.cluster.planning.status import Observed, model_status, rival_status, server_status
from wakeful.cluster.planning.world import (
    Agent,
    Bounds,
    ModelEntry,
    ModelSpec,
    Owner,
    Placement,
    Replica,
    Routing,
    Scaling,
    ServerEntry,
    ServerSpec,
    Short,
    Source,
    State,
    World,
)

NOW = 1_800_000_000.0
SPEC = ModelSpec("fraud", "s3://b/fraud", "r1", generation=2, bounds=Bounds(2))


def a_replica(ordinal: int, **other: Any) -> Replica:
    agent = Agent(frozenset(), 1 << 30, 8080, None, NOW)
    return Replica(f"u{ordinal}", f"triton-{ordinal}", "triton", ordinal, **{"ready": True, "agent": agent, **other})


def placed(ordinal: int, state: State = State.ROUTED, **other: Any) -> Placement:
    return Placement(f"u{ordinal}", f"triton-{ordinal}", state, "r1", NOW - 60, **other)


def a_world(*placements: Placement, entry: ModelEntry | None = None, **other: Any) -> tuple[ModelEntry, World]:
    entry = entry or ModelEntry(SPEC)
    entry.placements = {placement.replica: placement for placement in placements}
    world = World(
        {"fraud": entry}, {"triton": ServerEntry(ServerSpec("triton"))}, {f"u{ordinal}": a_replica(ordinal) for ordinal in range(2)}, **other)
    return entry, world


def condition(status: dict[str, Any], kind: str) -> tuple[str, str, str]:
    (found,) = (one for one in status["conditions"] if one["type"] == kind)
    return found["status"], found["reason"], found["message"]


def told(*placements: Placement, entry: ModelEntry | None = None, **other: Any) -> dict[str, Any]:
    return model_status(*a_world(*placements, entry=entry, **other), {}, NOW)


class TestModel:
    def test_a_model_that_serves(self) -> None:
        status = told(placed(0), placed(1))

        assert status["observedGeneration"] == 2
        assert (status["state"], status["server"], status["selector"]) == ("Available", "triton", "wakeful.dev/model=fraud")
        assert (status["replicas"], status["desiredReplicas"], status["availableReplicas"]) == (2, 2, 2)
        assert condition(status, "Ready") == ("True", "Available", "2 of 2 replicas serve")
        assert condition(status, "Placed") == ("True", "Placed", "all 2 replicas")
        assert condition(status, "Scaling") == ("False", "Off", "neither minReplicas nor maxReplicas is set: the count is fixed")
        assert condition(status, "ConfigValid")[:2] == ("True", "Valid")
        assert status["placements"][0] == {
            "replica": "triton-0", "uid": "u0", "state": "Routed", "revision": "r1", "since": "2027-01-15T07:59:00Z"}

    def test_only_what_every_gateway_knows_is_available(self) -> None:
        status = told(placed(0), placed(1), gateways=2, routing={"fraud": Routing(frozenset({"u0"}), frozenset({"u0", "u1"}))})

        assert status["availableReplicas"] == 1
        assert condition(status, "Ready") == ("True", "Partial", "1 of 2 replicas serves")

    def test_the_revision_before_serves_while_another_loads(self) -> None:
        assert told(placed(0, previous="r0"))["availableReplicas"] == 1
        assert told(placed(0, State.LOADING))["availableReplicas"] == 0

    def test_a_shortfall_names_each_server_and_filter(self) -> None:
        short = Short(1, NOW, {"triton": {"memory": 2}, "gpu": {"requirements": 1, "not ready": 2}})
        entry = ModelEntry(replace(SPEC, bounds=Bounds(3)), short=short)
        status = told(placed(0), placed(1), entry=entry)

        assert status["state"] == "Available"
        assert condition(status, "Ready") == ("True", "Partial", "2 of 3 replicas serve")
        assert condition(status, "Placed") == (
            "False", "NoRoom",
            "1 replica of 3 without a place: gpu: not ready on 2 of 3 replicas, requirements on 1 of 3 replicas; triton: memory on 2 of 2 replicas",
        )

    def test_requirements_that_are_missing_are_named(self) -> None:
        short = Short(2, NOW, {"triton": {"requirements": 2}})
        entry, world = a_world(entry=ModelEntry(replace(SPEC, requirements=frozenset({"onxx"})), short=short))
        world.servers["triton"].spec = ServerSpec("triton", capabilities=frozenset({"onnx", "python"}))
        status = model_status(entry, world, {}, NOW)

        message = "2 replicas of 2 without a place: triton: requirements on 2 of 2 replicas (it has onnx, python, not onxx; did you mean onnx?)"
        assert condition(status, "Placed") == ("False", "NoRoom", message)
        assert condition(status, "Ready") == ("False", "NotPlaced", message)

    def test_a_model_that_is_too_large_is_told_by_how_much(self) -> None:
        entry = ModelEntry(replace(SPEC, memory=3 << 30), short=Short(2, NOW, {"triton": {"too large": 2}}))

        assert condition(told(entry=entry), "Placed")[2].endswith("too large on 2 of 2 replicas (a copy takes 3.0 GiB, the largest has 1.0 GiB)")

    def test_keys_that_are_not_to_be_had_are_said(self) -> None:
        status = model_status(*a_world(placed(0, State.ASSIGNED)), {}, NOW, "there is no Secret aws, which spec.secretName names")

        assert condition(status, "Ready") == ("False", "KeysMissing", "there is no Secret aws, which spec.secretName names")

    def test_a_pin_to_a_server_that_is_not_there(self) -> None:
        status = told(entry=ModelEntry(replace(SPEC, server="gone"), short=Short(2, NOW, {"gone": {"no such Server": 1}})))

        assert condition(status, "Placed")[2].endswith("there is no Server gone, to which spec.server pins it; there is triton")
        assert status["server"] == "gone"

    def test_failed_loads_say_where_and_why(self) -> None:
        status = told(placed(0, State.FAILED, tries=2, error="no such file"), entry=ModelEntry(SPEC, retry_at=NOW + 60))

        assert status["state"] == "Failed"
        assert condition(status, "Ready") == (
            "False", "LoadFailed",
            "on triton-0: no such file. It is tried again after 2027-01-15T08:01:00Z, and at once when the Model changes")

    def test_one_failing_of_several_does_not_unready_it(self) -> None:
        status = told(placed(0), placed(1, State.FAILED, tries=1, error="killed"))

        assert condition(status, "Ready")[0] == "True"
        assert condition(status, "Placed") == ("False", "LoadFailed", "1 of 2 replicas placed; on triton-1: killed")

    def test_a_shortfall_because_of_a_failed_load_says_why_that_failed(self) -> None:
        short = Short(1, NOW, {"triton": {"has a copy": 1, "failed there": 1}})
        status = told(placed(0), placed(1, State.FAILED, tries=1, error="killed"), entry=ModelEntry(SPEC, short=short))

        assert condition(status, "Placed")[1] == "LoadFailed"
        assert condition(status, "Placed")[2].endswith("failed there on 1 of 2 replicas; on triton-1: killed")

    def test_a_failed_revision_leaves_the_one_before(self) -> None:
        status = told(placed(0, error="bad graph"), placed(1), entry=ModelEntry(SPEC, revision_failed="r2"))

        assert status["state"] == "Degraded"
        assert condition(status, "Ready")[1] == "RevisionFailed"
        assert "revision r2 failed on triton-0: bad graph; the one before serves on. Correct" in condition(status, "Ready")[2]

    def test_a_revision_of_which_nobody_knows_what_it_was_cannot_be_replaced_and_that_is_said(self) -> None:
        status = told(placed(0), entry=ModelEntry(replace(SPEC, revision="r2"), revision_failed="r2"))

        assert "cannot be loaded anew, because what it was loaded from is not known any more" in condition(status, "Ready")[2]

    def test_what_copies_were_loaded_from_is_kept(self) -> None:
        spec = replace(SPEC, revision="r2", backend="onnx", serving={"batching": False}, secret="keys")
        entry = ModelEntry(spec, sources={"r1": Source("s3://b/old", artifact="abc")})
        status = told(placed(0), placed(1)._replace(revision="r2", previous="r1"), entry=entry)

        assert status["revisions"] == [
            {"revision": "r1", "storageUri": "s3://b/old", "artifact": "abc"},
            {"revision": "r2", "storageUri": "s3://b/fraud", "backend": "onnx", "serving": {"batching": False}, "secretName": "keys"},
        ]
        fresh = ModelEntry(spec)
        restore_model(fresh, status)
        assert fresh.sources == entry.sources

    def test_zero_and_off_are_two_things(self) -> None:
        asleep = told(entry=ModelEntry(replace(SPEC, bounds=Bounds(None, 0)), scaling=Scaling(Owner.SCHEDULER, 0, "")))
        off = told(entry=ModelEntry(replace(SPEC, bounds=Bounds(0))))

        assert (asleep["state"], condition(asleep, "Ready")[1]) == ("ScaledDown", "ScaledDown")
        assert (off["state"], condition(off, "Ready")[1]) == ("ScaledDown", "Off")
        assert "503" in condition(off, "Ready")[2]
        assert asleep["desiredReplicas"] == asleep["replicas"] == asleep["availableReplicas"] == 0

    def test_waking_and_going(self) -> None:
        bounds = Bounds(None, 0)
        waking = ModelEntry(replace(SPEC, bounds=bounds), scaling=Scaling(Owner.SCHEDULER, 1, ""), wanted_until=NOW + 60)

        assert told(placed(0, State.LOADING), entry=waking)["state"] == "Waking"
        assert told(placed(0, State.FAILED), entry=waking)["state"] == "Failed"
        assert told(placed(0, State.LOADING), entry=replace(waking, wanted_until=NOW))["state"] == "Progressing"  # nobody waits any more
        assert told(placed(0, State.DRAINING), entry=ModelEntry(SPEC, gone=True))["state"] == "Terminating"

    def test_what_limits_the_count_is_named(self) -> None:
        ranged = replace(SPEC, bounds=Bounds(1, 1))
        limited = told(placed(0), entry=ModelEntry(ranged, limited="memory on 2 of 2 replicas"))

        assert condition(limited, "Scaling") == ("False", "Limited", "load asks for more than 1 replica: memory on 2 of 2 replicas")
        assert condition(limited, "Ready")[0] == "True"
        assert condition(told(placed(0), entry=ModelEntry(ranged)), "Scaling") == ("True", "Active", "by load: at least 1, no maximum")
        assert condition(told(placed(0), entry=ModelEntry(ranged, hpa=True)), "Scaling")[1] == "HPA"

    @pytest.mark.parametrize(("spec", "expected"), [
        ({"errors": ("spec.serving.threads: no",)}, ("False", "Invalid", "spec.serving.threads: no")),
        ({"errors": ("spec.llm: not supported: no",)}, ("False", "NotSupported", "spec.llm: not supported: no")),
        ({"notes": ("spec.logger: no",)}, ("True", "PartlyOfNoEffect", "spec.logger: no")),
    ])
    def test_configuration(self, spec: dict[str, Any], expected: tuple[str, str, str]) -> None:
        assert condition(told(entry=ModelEntry(replace(SPEC, **spec))), "ConfigValid") == expected

    def test_a_model_that_is_wrong_now_serves_on_as_it_was(self) -> None:
        status = told(placed(0), placed(1), entry=ModelEntry(replace(SPEC, errors=("spec.serving.x: no",))))

        assert condition(status, "Ready")[0] == "True"
        assert condition(status, "ConfigValid")[0] == "False"

    def test_times_of_transitions_stay_while_nothing_changes(self) -> None:
        entry, world = a_world(placed(0), placed(1))
        first = model_status(entry, world, {}, NOW)

        assert model_status(entry, world, first, NOW + 100) == first
        entry.short = Short(1, NOW, {})
        second = model_status(entry, world, first, NOW + 100)
        changed = {one["type"]: one["lastTransitionTime"] for one in second["conditions"]}
        assert changed == {"Ready": "2027-01-15T08:00:00Z", "Placed": "2027-01-15T08:01:40Z", "Scaling": "2027-01-15T08:00:00Z",
                           "ConfigValid": "2027-01-15T08:00:00Z"}

    def test_long_messages_are_cut(self) -> None:
        message = condition(told(entry=ModelEntry(replace(SPEC, errors=("x" * 5000,)))), "ConfigValid")[2]

        assert len(message) == 1024
        assert message.endswith("...")


class TestKept:
    def test_a_new_leader_reads_back_what_was_decided(self) -> None:
        placements = (placed(0), placed(1, State.FAILED, tries=3, error="killed", previous="r0"))
        scaling = Scaling(Owner.SCHEDULER, 3, "1", NOW - 5, "2 → 3: lag 41")
        entry = ModelEntry(SPEC, scaling=scaling, artifact="abc", artifact_bytes=7, footprint=9, revision_failed="r2")
        status = model_status(*a_world(*placements, entry=entry), {}, NOW)

        fresh = ModelEntry(SPEC)
        restore_model(fresh, status)

        assert (fresh.scaling, fresh.placements) == (scaling, entry.placements)
        assert (fresh.artifact, fresh.artifact_bytes, fresh.footprint, fresh.revision_failed) == ("abc", 7, 9, "r2")
        assert fresh.changed == NOW

    def test_nothing_was_written_yet(self) -> None:
        fresh = ModelEntry(SPEC)
        restore_model(fresh, {})

        assert fresh == ModelEntry(SPEC)
        assert scaling_of({}) is None
        assert placements_of({}) == []

    def test_a_server(self) -> None:
        entry, world = ServerEntry(ServerSpec("triton"), scaling=Scaling(Owner.SCHEDULER, 2, "1", NOW, "1 → 2")), World()
        fresh = ServerEntry(ServerSpec("triton"))
        restore_server(fresh, server_status(entry, world, Observed(), {}, NOW))

        assert fresh.scaling == entry.scaling


class TestServer:
    def status(self, *replicas: Replica, spec: ServerSpec | None = None, observed: Observed | None = None, **entry: Any) -> dict[str, Any]:
        world = World(replicas={replica.uid: replica for replica in replicas})
        return server_status(ServerEntry(spec or ServerSpec("triton", bounds=Bounds(2)), **entry), world, observed or Observed(), {}, NOW)

    def test_a_server_that_serves(self) -> None:
        status = self.status(a_replica(0), a_replica(1), observed=Observed(updated=2, capacity=10, registered=6, active=4))

        assert (status["selector"], status["replicas"], status["readyReplicas"], status["desiredReplicas"], status["updatedReplicas"]) == (
            "wakeful.dev/server=triton", 2, 2, 2, 2)
        assert status["memory"] == {"capacityBytes": 10, "registeredBytes": 6, "activeBytes": 4}
        assert condition(status, "Ready") == ("True", "Available", "2 of 2 pods are ready")
        assert condition(status, "Progressing") == ("False", "Stable", "2 pods, as it should be")
        assert condition(status, "ScaleOwner") == ("True", "User", "spec.replicas is the count")
        assert condition(status, "Degraded")[0] == "False"

    def test_an_autoscaler_beyond_the_maximum_breaks_nothing(self) -> None:
        spec = ServerSpec("triton", bounds=Bounds(3, 1, 2))
        status = self.status(*map(a_replica, range(3)), spec=spec, hpa=True)

        assert status["desiredReplicas"] == 3
        assert condition(status, "Ready")[0] == "True"
        assert condition(status, "ScaleOwner")[1] == "HPA"
        assert "do not bind it" in condition(status, "ScaleOwner")[2]

    def test_fewer_than_wanted(self) -> None:
        status = self.status(a_replica(0), a_replica(1, ready=False))

        assert condition(status, "Ready") == ("True", "Partial", "1 of 2 pods is ready")
        assert condition(status, "Progressing") == ("True", "Scaling", "from 1 to 2 ready pods")
        assert condition(self.status(), "Ready")[:2] == ("False", "NoPodReady")
        assert condition(self.status(spec=ServerSpec("triton", bounds=Bounds(0))), "Ready")[:2] == ("False", "ScaledDown")

    def test_models_are_counted_once_while_they_move(self) -> None:
        """F21: on live replicas that stay."""
        entry, world = a_world(placed(0), placed(1))
        world.replicas["u1"].leaving_by = NOW + 60
        world.replicas["u2"] = a_replica(2, lost=True)
        entry.placements["u2"] = placed(2)
        status = server_status(world.servers["triton"], world, Observed(), {}, NOW)

        assert status["loadedModels"] == 1
        assert condition(status, "Progressing") == ("True", "Draining", "models move off triton-1")

    @pytest.mark.parametrize(("replica", "observed", "reason", "words"), [
        ({"lost": True}, Observed(), "NodeLost", "triton-0: the node does not answer"),
        ({"agent": None}, Observed(), "AgentSilent", "triton-0: ready, but not heard from"),
        ({}, Observed(refused="StatefulSet: bad quantity"), "Refused", "StatefulSet: bad quantity"),
    ])
    def test_what_is_wrong_with_it(self, replica: dict[str, Any], observed: Observed, reason: str, words: str) -> None:
        status, found, message = condition(self.status(a_replica(0, **replica), a_replica(1), observed=observed), "Degraded")

        assert (status, found) == ("True", reason)
        assert words in message

    def test_a_rollout(self) -> None:
        status = self.status(a_replica(0), a_replica(1), a_replica(2), observed=Observed(updated=1, rolling=True))

        assert condition(status, "Progressing") == ("True", "RollingOut", "1 of 2 pods have the new template")

    def test_one_pod_more(self) -> None:
        status = self.status(a_replica(0), a_replica(1), a_replica(2), observed=Observed(updated=2, surging=True))

        assert condition(status, "Progressing") == ("True", "Surging", "there is one pod more until all others are ready")


def test_who_has_not_its_name_is_told_so_once() -> None:
    first = rival_status({"placements": []}, 3, "wakeful.dev", 100.0)
    assert {one["type"]: (one["status"], one["reason"]) for one in first["conditions"]} == {
        "Ready": ("False", "NameTaken"), "ConfigValid": ("False", "NameTaken"),
    }
    assert "an object of wakeful.dev has this name" in first["conditions"][0]["message"]
    assert rival_status(first, 3, "wakeful.dev", 200.0) == first, "nothing to write"
