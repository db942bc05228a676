"""Callers that leave, and those whose time is up or nearly: what they cost, and what they are told."""

from tests.batching.stage import Double, Stage, staged
from wakeful.errors import TimedOut

# ── callers that leave, deadlines ────────────────────────────────────────────────────────────────────────────────────────────────────────


@staged(max_rows=4, max_delay=0.1)
async def test_who_has_left_costs_no_run(stage: Stage) -> None:
    """C06."""
    replica = stage.replica()
    gone, stays = stage.ask(1), stage.ask(2)
    gone.left = True
    await stage.wait(0.1)
    await stage.serve()
    assert replica.runs == [1]
    assert stays.values == [2]
    assert stage.stats.requests["test", "left"] == 1


@staged(max_rows=4, max_delay=1.0)
async def test_who_has_left_is_forgotten_before_a_newcomer_is_refused(stage: Stage) -> None:
    """The look at all that wait is not repeated at once: refusals under overload must cost little."""
    stage.replica()
    asked = [stage.ask(number) for number in range(3)]
    assert not stage.batcher.forget_left()
    asked[1].left = True
    assert not stage.batcher.forget_left()
    await stage.wait(0.001)
    assert stage.batcher.forget_left()
    assert stage.batcher.waiting == 2
    assert stage.stats.requests["test", "left"] == 1
    await stage.wait(1.0)
    await stage.serve()


@staged(max_rows=2)
async def test_who_leaves_during_the_run_does_not_disturb_the_neighbour(stage: Stage) -> None:
    replica = stage.replica()
    gone, stays = stage.ask(1), stage.ask(2)
    await stage.turn()
    gone.left = True
    replica.finish()
    assert stays.values == [2]


@staged(max_rows=2)
async def test_a_large_request_whose_caller_leaves_is_counted_and_not_run_on(stage: Stage) -> None:
    for leaves_after in (0, 1, 2):
        replica = stage.replica()
        large = stage.ask(*range(6))
        await stage.turn()
        for _ in range(leaves_after):
            replica.finish()
            await stage.turn()
        large.left = True
        await stage.wait(60)
        await stage.serve()
        assert stage.stats.requests["test", "left"] == leaves_after + 1
        stage.batcher.close(replica.lane)


@staged(max_rows=2)
async def test_a_large_request_whose_caller_leaves_in_its_last_part_is_counted(stage: Stage) -> None:
    replica = stage.replica()
    large = stage.ask(*range(4))
    await stage.turn()
    replica.finish()
    await stage.turn()
    assert len(replica.given) == 1
    large.left = True
    replica.finish()
    assert stage.stats.requests["test", "left"] == 1


@staged(max_rows=4)
async def test_a_deadline_is_noticed_in_the_queue(stage: Stage) -> None:
    replica = stage.replica()
    hasty, patient = stage.ask(1, seconds=2.0), stage.ask(2, seconds=100.0)
    await stage.wait(2.0)
    assert isinstance(hasty.error, TimedOut)
    await stage.wait(60)
    await stage.serve()
    assert replica.runs == [1]
    assert patient.values == [2]


@staged(max_rows=2)
async def test_a_deadline_is_noticed_during_a_run_and_behind_it(stage: Stage) -> None:
    """C06: not when the run ends, but when the time is up."""
    replica = stage.replica()
    running, beside, behind = stage.ask(1, seconds=5.0), stage.ask(2), stage.ask(3, seconds=2.0)
    await stage.wait(2.0)
    assert isinstance(behind.error, TimedOut)
    assert not running.told
    await stage.wait(3.0)
    assert isinstance(running.error, TimedOut)
    replica.finish()
    assert beside.values == [2]


@staged(max_rows=4)
async def test_a_deadline_is_noticed_where_no_replica_is_ready(stage: Stage) -> None:
    waiting = stage.ask(1, seconds=2.0)
    longer = stage.ask(2, seconds=3.0)
    await stage.wait(2.0)
    assert isinstance(waiting.error, TimedOut)
    assert not longer.told
    await stage.wait(1.0)
    assert isinstance(longer.error, TimedOut)


@staged(max_rows=2)
async def test_a_failed_run_is_not_repeated_for_those_whose_time_is_up(stage: Stage) -> None:
    replica = stage.replica()
    expired, good = stage.ask(1, seconds=1.0), stage.ask(2)
    await stage.wait(1.0)
    replica.fail()
    await stage.serve()
    assert replica.runs == [2, 1]
    assert isinstance(expired.error, TimedOut)
    assert good.values == [2]


@staged(max_rows=2)
async def test_a_large_request_that_runs_out_of_time_is_refused_once(stage: Stage) -> None:
    replica = stage.replica()
    large = stage.ask(*range(8), seconds=1.0)
    await stage.wait(2.0)
    assert isinstance(large.error, TimedOut)
    await stage.serve()
    assert sum(replica.runs) <= 4


# ── runs for those who can be in time ────────────────────────────────────────────────────────────────────────────────────────────────────


async def _taught(stage: Stage, per_row: float) -> Double:
    """A replica whose batcher has learnt what its runs take."""
    replica = stage.replica()
    for _ in range(8):
        stage.ask(1, 2, 3, 4)
        stage.ask(1, 2, group="other")
        await stage.turn()
        for rows in (4, 2):
            replica.finish(per_row * rows)
            await stage.turn()
    return replica


@staged(policy="adaptive", max_rows=4)
async def test_a_batch_is_so_small_that_its_first_member_is_in_time(stage: Stage) -> None:
    replica = await _taught(stage, per_row=0.1)
    before = len(replica.runs)
    for k in range(4):
        stage.ask(k)
    await stage.turn()
    for k in range(3):
        stage.ask(k, seconds=0.35)
    await stage.wait(0.1)
    replica.finish(0.4)
    await stage.serve()
    assert replica.runs[before:] == [4, 2, 1], "0.25 s are left"
    assert [request.values for request in stage.asked[-3:]] == [[0], [1], [2]]


@staged(policy="adaptive", max_rows=4)
async def test_a_request_that_cannot_be_in_time_costs_no_run(stage: Stage) -> None:
    replica = await _taught(stage, per_row=0.1)
    before = len(replica.runs)
    stage.ask(0)
    await stage.turn()
    hopeless, patient = stage.ask(1, seconds=0.15), stage.ask(2, seconds=5.0)
    await stage.wait(0.1)
    replica.finish(0.1)
    await stage.turn()
    assert hopeless.error.code == "timeout"
    assert hopeless.error.unstarted
    await stage.serve()
    assert patient.values == [2]
    assert replica.runs[before:] == [1, 1]


@staged(policy="adaptive", max_rows=4)
async def test_an_estimate_that_says_nobody_is_in_time_is_tried(stage: Stage) -> None:
    replica = await _taught(stage, per_row=10.0)
    asked = [stage.ask(k, seconds=1.0) for k in range(3)]
    await stage.turn()
    assert [len(request.told) for request in asked] == [1, 1, 0]
    replica.finish(0.001)
    await stage.turn()
    assert asked[2].values == [2]


@staged(policy="adaptive", max_rows=4, target_p99=1.0)
async def test_who_misses_the_target_makes_room_for_those_behind(stage: Stage) -> None:
    replica = await _taught(stage, per_row=0.1)
    stage.ask(0)
    await stage.turn()
    late = [stage.ask(k) for k in range(3)]
    await stage.wait(0.95)
    fresh = [stage.ask(k) for k in range(6)]
    replica.finish(0.1)
    await stage.serve()
    assert {request.error.code for request in late} == {"overloaded"}
    assert [request.values for request in fresh] == [[k] for k in range(6)]
