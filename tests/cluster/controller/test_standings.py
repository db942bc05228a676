"""What a gateway is told of all models: in short what their statuses say, and whom to ask about callers."""

from dataclasses import replace
from typing import Any

from wakeful.cluster.controller.standings import LONGEST_REASON, standings
from wakeful.cluster.planning.world import Bounds, ModelEntry, ModelSpec, Placement, Replica, ServerEntry, ServerSpec, State, World
from wakeful.cluster.wire import ModelsTold, Standing

NOW = 1_800_000_000.0


def a_world(config: dict[str, Any] | None = None) -> World:
    """`here` serves, `coming` loads, `off` is switched off, `going` is deleted."""
    models = {name: ModelEntry(ModelSpec(name, "file:///m", "r1", bounds=Bounds(1))) for name in ("here", "coming", "going")}
    models["off"] = ModelEntry(ModelSpec("off", "file:///m", "r1", bounds=Bounds(0)))
    models["going"].gone = True
    for name, state in (("here", State.ROUTED), ("coming", State.LOADING), ("going", State.ROUTED)):
        models[name].placements = {"u0": Placement("u0", "triton-0", state, "r1", NOW)}
    servers = {"triton": ServerEntry(ServerSpec("triton", config=config or {}))}
    return World(models, servers, {"u0": Replica("u0", "triton-0", "triton", 0, ready=True)})


def test_all_models_by_name() -> None:
    told = standings(a_world(), NOW)
    assert [(one.name, one.state, one.serves) for one in told.models] == [
        ("coming", "Progressing", False), ("here", "Available", True), ("off", "ScaledDown", False),
    ]
    assert told.models[1] == Standing("here", "Available", serves=True)
    assert "loading" in told.models[0].reason
    assert "switched off" in told.models[2].reason
    assert told.guards == {}


def test_reasons_are_short() -> None:
    world = a_world()
    world.models["coming"].placements = {}
    world.models["coming"].spec = replace(world.models["coming"].spec, errors=("x" * 5000,))
    assert len(standings(world, NOW).models[0].reason) == LONGEST_REASON


def test_a_server_that_asks_for_keys_is_asked_by_a_model_that_it_serves() -> None:
    keys = {"auth": {"api_keys": [{"key_env": "K"}]}}
    assert standings(a_world(keys), NOW).guards == {"triton": "here"}
    assert standings(a_world({"auth": {**keys["auth"], "enabled": False}}), NOW).guards == {}
    alone = a_world(keys)
    alone.models["here"].placements = {}
    assert standings(alone, NOW).guards == {"triton": ""}


def test_no_model() -> None:
    assert standings(World(), NOW) == ModelsTold()
