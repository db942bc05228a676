"""What a gateway is told of a model for which it holds a request. How it comes about is the loop's, and tested there."""

from dataclasses import replace

from wakeful.cluster.controller.wakes import LONGEST, answer
from wakeful.cluster.planning.world import Bounds, ModelEntry, ModelSpec, Placement, Replica, ServerEntry, ServerSpec, Short, State, World

NOW = 1_800_000_000.0
SPEC = ModelSpec("cat", "file:///cat", "r1", bounds=Bounds(1))


def a_world(*placements: Placement, short: Short | None = None) -> World:
    cat = ModelEntry(SPEC, short=short)
    cat.placements = {one.replica: one for one in placements}
    return World({"cat": cat}, {"triton": ServerEntry(ServerSpec("triton"))}, {"u0": Replica("u0", "triton-0", "triton", 0, ready=True)})


def test_why_it_has_no_place() -> None:
    told = answer(a_world(short=Short(1, NOW, {"triton": {"memory": 1}})), "cat")
    assert (told.state, told.message) == ("waking", "1 replica of 1 without a place: triton: memory on 1 of 1 replica")


def test_one_that_is_loading_has_a_place_whatever_the_others_lack() -> None:
    short = Short(1, NOW, {"triton": {"has a copy": 1}})
    assert answer(a_world(Placement("u0", "triton-0", State.LOADING, "r1", NOW), short=short), "cat").message == ""


def test_reasons_are_no_longer_than_a_trailer_bears() -> None:
    crowd = {f"triton-{number}": {"memory": 1} for number in range(500)}
    assert len(answer(a_world(short=Short(1, NOW, crowd)), "cat").message) == LONGEST
    failed = answer(a_world(Placement("u0", "triton-0", State.FAILED, "r1", NOW, error="x" * 5000)), "cat")
    assert (failed.state, len(failed.message)) == ("failed", LONGEST)
    invalid = a_world()
    invalid.models["cat"].spec = replace(SPEC, errors=("x" * 5000,))
    assert len(answer(invalid, "cat").message) == LONGEST
