"""Runs that go wrong and replicas that die: who is tried again, how, and who is refused."""

import numpy as np

from tests.batching.stage import Double, Stage, as_it_is, staged
from wakeful.errors import ExecutionFailed, InvalidInput, OutOfMemory, Unavailable


def rows_given(replica: Double) -> list[float]:
    """The values of the run that is next to end."""
    order = replica.given[0]
    place = order.inputs[0]
    view = replica.slots[order.slot].view[place.offset : place.offset + place.nbytes]
    values: list[float] = np.frombuffer(view, "<f4").tolist()
    return values


async def serve_refusing(stage: Stage, replica: Double, culprit: float) -> None:
    """End all runs; those that hold the culprit's value fail."""
    await stage.turn()
    while replica.given:
        if culprit in rows_given(replica):
            replica.fail("invalid_input", "index out of bounds")
        else:
            replica.finish()
        await stage.turn()


@staged(max_rows=4)
async def test_only_the_culprit_of_a_merged_run_fails(stage: Stage) -> None:
    """C05."""
    replica = stage.replica()
    asked = [stage.ask(1), stage.ask(2), stage.ask(99), stage.ask(3)]
    await serve_refusing(stage, replica, 99)
    assert replica.runs == [4, 1, 1, 1, 1]
    assert [request.values for request in asked if request is not asked[2]] == [[1], [2], [3]]
    assert isinstance(asked[2].error, InvalidInput)
    after = stage.ask(*range(4))
    await stage.serve()
    assert after.values == [0, 1, 2, 3]


@staged(max_rows=4)
async def test_a_batch_that_cannot_be_put_together_is_tried_one_by_one(stage: Stage) -> None:
    """C05, second round: putting together raises."""
    replica = stage.replica()
    good = stage.ask(1, 2)
    bad = stage.ask(3, 4)
    bad.inputs = []  # the first input that is looked for is not there
    await stage.turn()
    assert replica.runs == [2]
    await stage.serve()
    assert good.values == [1, 2]
    assert not bad.inputs
    assert bad.told


@staged(max_rows=2)
async def test_a_part_that_fails_fails_the_whole_once(stage: Stage) -> None:
    replica = stage.replica()
    large = stage.ask(*range(8))
    await serve_refusing(stage, replica, 3)
    await stage.wait(60)
    await serve_refusing(stage, replica, 3)
    assert isinstance(large.error, InvalidInput)
    assert sum(replica.runs) <= 6, "what is left of it is not run"


@staged(max_rows=4)
async def test_out_of_memory_is_tried_again_then_halved_and_remembered(stage: Stage) -> None:
    """C26."""
    replica = stage.replica()
    asked = [stage.ask(k) for k in range(4)]
    await stage.turn()
    replica.fail("out_of_memory")
    await stage.turn()
    assert (stage.memory_asked, replica.runs) == (1, [4, 4])
    replica.fail("out_of_memory")
    await stage.wait(60)
    await stage.serve()
    assert replica.runs == [4, 4, 2, 2]
    assert [request.values for request in asked] == [[0], [1], [2], [3]]
    assert stage.batcher.row_limit == 2
    for k in range(4):
        stage.ask(k)
    await stage.serve()
    assert replica.runs[4:] == [2, 2]


@staged(max_rows=4)
async def test_out_of_memory_in_one_large_request_cuts_it(stage: Stage) -> None:
    replica = stage.replica()
    large = stage.ask(*range(4))
    for _ in range(2):
        await stage.turn()
        replica.fail("out_of_memory")
    await stage.wait(60)
    await stage.serve()
    assert large.values == [0, 1, 2, 3]
    assert replica.runs == [4, 4, 2, 2]


@staged(max_rows=4)
async def test_one_row_that_never_fits_is_refused_and_costs_the_others_nothing(stage: Stage) -> None:
    replica = stage.replica()
    huge = stage.ask(1, group=None)
    for _ in range(2):
        await stage.turn()
        replica.fail("out_of_memory", "out of memory: failed to allocate")
    await stage.turn()
    assert isinstance(huge.error, OutOfMemory)
    assert replica.runs == [1, 1]
    assert stage.batcher.row_limit == 4, "one row says nothing about how many fit"


@staged(max_rows=4)
async def test_runs_that_never_fit_end_for_everybody(stage: Stage) -> None:
    replica = stage.replica()
    asked = [stage.ask(0), stage.ask(1), stage.ask(2, 3)]
    await stage.turn()
    for _ in range(40):
        if replica.given:
            replica.fail("out_of_memory")
        await stage.wait(60)
    assert all(isinstance(request.error, OutOfMemory) for request in asked)
    assert len(replica.runs) < 16


@staged(max_rows=2)
async def test_what_a_dead_replica_ran_is_run_again_alone(stage: Stage) -> None:
    first, second = stage.replica(), stage.replica()
    asked = [stage.ask(k) for k in range(4)]
    await stage.turn()
    assert (first.runs, second.runs) == ([2], [2])
    first.die()
    await stage.serve()
    assert second.runs == [2, 1, 1]
    assert [request.values for request in asked] == [[0], [1], [2], [3]]


@staged(max_rows=2)
async def test_a_batch_that_had_only_been_handed_over_is_not_blamed(stage: Stage) -> None:
    first = stage.replica()
    asked = [stage.ask(k) for k in range(4)]
    await stage.turn()
    assert len(first.given) == 2
    first.die()
    assert [request.deaths for request in asked] == [1, 1, 0, 0]
    assert stage.batcher.waiting == 4, "in the room: no replica is left"
    second = stage.replica()
    stage.batcher.regroup(as_it_is)
    await stage.serve()
    assert sorted(second.runs) == [1, 1, 2]
    assert [request.values for request in asked] == [[0], [1], [2], [3]]


@staged(max_rows=4)
async def test_a_run_without_memory_is_no_death(stage: Stage) -> None:
    """One death after it is the first one: nobody is blamed."""
    first = stage.replica()
    asked = [stage.ask(k) for k in range(4)]
    await stage.turn()
    first.fail("out_of_memory")
    await stage.turn()
    first.die()
    stage.replica()
    stage.batcher.regroup(as_it_is)
    await stage.serve()
    assert [request.values for request in asked] == [[0], [1], [2], [3]]


@staged(max_rows=2)
async def test_who_kills_two_replicas_is_refused(stage: Stage) -> None:
    for out_of_memory, refusal in ((False, ExecutionFailed), (True, OutOfMemory)):
        killer = stage.ask(1, 2)
        for _ in range(2):
            replica = stage.replica()
            stage.batcher.regroup(as_it_is)
            await stage.turn()
            assert len(replica.given) == 1
            replica.die(out_of_memory=out_of_memory)
        assert isinstance(killer.error, refusal)
        assert stage.culprits.pop() is killer


@staged(max_rows=2)
async def test_who_has_run_once_is_not_said_to_be_unstarted(stage: Stage) -> None:
    """A gateway tries elsewhere what did not start: what waits for another try, or for its other parts, is none of that."""
    replica = stage.replica()
    dead, fresh = stage.ask(1, 2), stage.ask(3, 4, group=None)
    await stage.turn()
    replica.die()
    parted = stage.ask(*range(6))
    stage.batcher.fail_all(Unavailable("it does not load", retry_after=7.0, unstarted=True))
    told = [(request.error.message, request.error.retry_after, request.error.unstarted) for request in (dead, fresh, parted)]
    assert told == [("it does not load", 7.0, False), ("it does not load", 7.0, True), ("it does not load", 7.0, True)]


@staged(max_rows=2)
async def test_nor_is_who_has_parts_that_ran(stage: Stage) -> None:
    replica = stage.replica()
    stage.batcher.regroup(as_it_is)
    parted = stage.ask(*range(10))
    await stage.turn()
    replica.finish()  # two more run now, and one waits
    await stage.turn()
    stage.batcher.fail_all(Unavailable("it was removed", unstarted=True))
    assert not parted.error.unstarted
    await stage.serve()
