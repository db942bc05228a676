"""The batcher: what is merged and when, who gets which rows, and what becomes of requests when something goes wrong."""

import struct
from collections.abc import Sequence

import numpy as np

from tests.batching.stage import Asked, Double, Stage, staged
from wakeful.errors import ExecutionFailed, InvalidInput, OutOfMemory, TimedOut, Unavailable
from wakeful.inference import InferRequest
from wakeful.runtime.messages import Done, Placement
from wakeful.tensors import Tensor, decode_strings

# ── when a batch leaves ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@staged(max_rows=4, max_delay=60.0)
async def test_the_seeds_example(stage: Stage) -> None:
    """[1,384], [2,384] and [1,384] make one [4,384] run, which leaves at once, and everybody gets exactly his rows."""
    replica, began = stage.replica(), stage.loop.now
    a, b, c = stage.ask(1, width=384), stage.ask(2, 3, width=384), stage.ask(4, width=384)
    await stage.turn()
    assert replica.shapes == [(4, 384)]
    assert stage.loop.now == began
    replica.finish()
    assert a.values == [1] * 384
    assert b.values == [2] * 384 + [3] * 384
    assert c.values == [4] * 384


@staged(max_rows=4, max_delay=0.5)
async def test_the_delay_counts_from_the_oldest_arrival(stage: Stage) -> None:
    replica = stage.replica()
    a = stage.ask(1)
    await stage.wait(0.4)
    b = stage.ask(2)
    await stage.wait(0.09)
    assert replica.runs == []
    await stage.wait(0.02)
    assert replica.runs == [2]
    replica.finish()
    assert (a.values, b.values) == ([1], [2])


@staged(max_rows=4, max_delay=0.2)
async def test_a_delay_that_passed_during_a_run_is_not_waited_for_again(stage: Stage) -> None:
    """C13 b."""
    replica = stage.replica()
    stage.ask(1, 2, 3, 4)
    await stage.turn()
    stage.ask(5)
    await stage.wait(1.0)
    assert replica.runs == [4]
    replica.finish()
    await stage.turn()
    assert replica.runs == [4, 1]
    await stage.serve()


@staged(policy="adaptive")
async def test_a_lone_request_runs_at_once_by_default(stage: Stage) -> None:
    """C13 a."""
    replica = stage.replica()
    stage.ask(1)
    await stage.turn()
    assert replica.runs == [1]
    await stage.serve()


@staged(max_rows=2048)
async def test_two_thousand_at_once_are_one_run_if_the_limit_says_so(stage: Stage) -> None:
    """C13 d."""
    replica = stage.replica()
    asked = [stage.ask(k) for k in range(2048)]
    await stage.serve()
    assert replica.runs == [2048]
    assert [request.values for request in asked] == [[k] for k in range(2048)]


@staged(max_rows=4, max_delay=0.0)
async def test_no_delay_still_merges_what_waits(stage: Stage) -> None:
    replica = stage.replica()
    for k in range(3):
        stage.ask(k)
    await stage.serve()
    assert replica.runs == [3]


@staged(max_rows=8)
async def test_no_run_has_more_rows_than_the_limit(stage: Stage) -> None:
    """C07."""
    replica = stage.replica()
    for rows in (4, 4, 4, 4, 7, 7, 6, 8):
        stage.ask(*range(rows))
    await stage.wait(60)
    await stage.serve()
    assert replica.runs == [8, 8, 7, 7, 6, 8]


@staged(max_rows=2)
async def test_a_full_batch_is_written_ahead_while_another_runs(stage: Stage) -> None:
    replica = stage.replica()
    for k in range(6):
        stage.ask(k)
    await stage.turn()
    assert len(replica.given) == 2, "one runs, one lies ready, the third waits for a slot"
    assert (stage.batcher.active, stage.batcher.waiting) == (4, 2)
    replica.finish()
    await stage.turn()
    assert len(replica.given) == 2
    await stage.serve()
    assert [request.values for request in stage.asked] == [[k] for k in range(6)]


@staged(max_rows=4, max_delay=0.0)
async def test_a_batch_that_is_not_full_gathers_on_while_another_runs(stage: Stage) -> None:
    replica = stage.replica()
    stage.ask(1)
    await stage.turn()
    stage.ask(2)
    await stage.wait(5)
    assert replica.runs == [1]
    stage.ask(3)
    await stage.serve()
    assert replica.runs == [1, 2]


@staged(max_rows=8, max_delay=0.1)
async def test_groups_run_apart_and_the_oldest_is_first(stage: Stage) -> None:
    """C09, C12."""
    replica = stage.replica()
    short, long, short2 = stage.ask(1, width=15, group="15"), stage.ask(2, 3, 4, width=20, group="20"), stage.ask(5, 6, width=15, group="15")
    await stage.wait(0.1)
    await stage.serve()
    assert replica.shapes == [(3, 15), (3, 20)]
    assert short.values == [1] * 15
    assert long.values == [2] * 20 + [3] * 20 + [4] * 20
    assert short2.values == [5] * 15 + [6] * 15


@staged(max_rows=4, max_delay=0.01)
async def test_nobody_starves_beside_a_crowd(stage: Stage) -> None:
    """C12: a rare shape and a large request are answered while a feeder keeps the common shape's queue long."""
    replica = stage.replica()
    for k in range(20):
        stage.ask(k)
    rare, large = stage.ask(1, group="rare", width=2), stage.ask(*range(10))
    steps = 0
    while not (rare.told and large.told):
        stage.ask(*range(4))
        if replica.given:
            replica.finish()
        await stage.wait(0.001)
        steps += 1
        assert steps < 20, "twenty rows before it and a few turns"
    await stage.serve()


@staged(max_rows=4)
async def test_what_belongs_to_no_group_runs_alone(stage: Stage) -> None:
    replica = stage.replica()
    for k in range(3):
        stage.ask(k, group=None)
    await stage.serve()
    assert replica.runs == [1, 1, 1]


@staged(max_rows=16, target_p99=0.1)
async def test_a_latency_target_limits_the_rows_of_a_run(stage: Stage) -> None:
    replica = stage.replica()
    for _ in range(8):
        stage.ask(1, 2, 3, 4, group=None)
        await stage.turn()
        replica.finish(seconds=0.040)
    assert stage.batcher.row_limit < 16
    limit = stage.batcher.row_limit
    for k in range(40):
        stage.ask(k)
    await stage.turn()
    while len(replica.given) > 1:
        replica.finish(seconds=0.010 * limit)
        await stage.turn()
    await stage.wait(60)
    await stage.serve()
    assert max(replica.runs[8:]) == limit


@staged(policy="adaptive", max_rows=16, target_p99=0.1)
async def test_each_shape_group_has_run_times_of_its_own(stage: Stage) -> None:
    replica = stage.replica()
    for _ in range(6):
        for group, seconds in (("short", 0.001), ("long", 0.020)):
            stage.ask(1, group=group)
            await stage.turn()
            replica.finish(seconds)
    for group, limit in (("long", 2), ("short", 16)):  # 2 t(n) <= 0.1 s; no more than max_rows
        before = len(replica.runs)
        for k in range(32):
            stage.ask(k, group=group)
        await stage.turn()
        while replica.given:
            replica.finish(replica.runs[-len(replica.given)] * (0.020 if group == "long" else 0.001))
            await stage.turn()
        assert max(replica.runs[before:]) == limit


# ── who gets which rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@staged(max_rows=16, max_delay=0.1)
async def test_each_caller_gets_exactly_its_rows(stage: Stage) -> None:
    """C01."""
    replica = stage.replica()
    for _ in range(50):
        asked = [stage.ask(*(caller + row / 10 for row in range(rows)), width=4) for caller, rows in enumerate((1, 2, 3, 1))]
        await stage.wait(0.1)
        replica.finish()
        for caller, request in enumerate(asked):
            expected = np.repeat(np.array([caller + row / 10 for row in range(request.rows)], "<f4"), 4)
            assert request.values == expected.tolist()


@staged(max_rows=3)
async def test_texts_are_cut_by_rows_too(stage: Stage) -> None:
    replica = stage.replica()
    a, b = stage.ask_texts("", "long " * 20), stage.ask_texts("é")
    await stage.turn()
    replica.finish()
    assert decode_strings(a.outputs_told[0].data, 2) == [b"", b"long " * 20]
    assert decode_strings(b.outputs_told[0].data, 1) == ["é".encode()]


@staged(max_rows=3)
async def test_wanted_outputs_are_each_callers_own(stage: Stage) -> None:
    """C10."""
    replica = stage.replica(lambda inputs: [inputs[0]._replace(name="y"), inputs[0]._replace(name="z")])
    a, b, c = stage.ask(1, outputs=["z"]), stage.ask(2, outputs=["z", "y"]), stage.ask(3)
    await stage.turn()
    replica.finish()
    assert [[tensor.name for tensor in request.outputs_told] for request in (a, b, c)] == [["z"], ["z", "y"], ["y", "z"]]


@staged(max_rows=4)
async def test_a_large_request_takes_turns_and_comes_back_in_order(stage: Stage) -> None:
    replica = stage.replica()
    large = stage.ask(*range(10))
    small = stage.ask(77)
    await stage.turn()
    replica.finish()
    replica.finish()
    await stage.turn()
    assert small.told, "the small one did not wait for all of the large one"
    assert not large.told
    await stage.wait(60)
    await stage.serve()
    assert large.values == list(range(10))
    assert max(replica.runs) == 4


@staged(max_rows=2)
async def test_a_large_request_of_texts_comes_back_in_order(stage: Stage) -> None:
    stage.replica()
    large = stage.ask_texts("a", "", "ccc", "dd", "e")
    await stage.wait(60)
    await stage.serve()
    await stage.wait(60)
    await stage.serve()
    (tensor,) = large.outputs_told
    assert tensor.shape == (5,)
    assert decode_strings(tensor.data, 5) == [b"a", b"", b"ccc", b"dd", b"e"]


@staged(max_rows=2)
async def test_wrong_row_count_of_a_merged_run_is_no_reason_to_guess(stage: Stage) -> None:
    """C01: the rows are not cut by guess; each caller is run alone."""

    def constant(inputs: list[Tensor]) -> list[Tensor]:
        return [Tensor("c", "FP32", (3,), struct.pack("<3f", 1, 2, 3))]

    replica = stage.replica(constant)
    a, b = stage.ask(1), stage.ask(2)
    await stage.serve()
    assert replica.runs == [2, 1, 1]
    for request in (a, b):
        (tensor,) = request.outputs_told
        assert tensor.shape == (3,)
        assert tensor.data == struct.pack("<3f", 1, 2, 3)


@staged(max_rows=2)
async def test_an_answer_that_cannot_be_read_fails_its_callers_and_nothing_else(stage: Stage) -> None:
    """A broken child names a place that no memory has."""
    replica = stage.replica()
    a, b = stage.ask(1), stage.ask(2)
    await stage.turn()
    for _ in range(3):  # the merged run, and each alone
        order = replica.given.popleft()
        stage.batcher.done(replica.lane, Done(order.run, 0.001, (Placement("x", "FP32", (2, 1), 1 << 62, 8),)))
        await stage.turn()
    assert isinstance(a.error, ExecutionFailed)
    assert isinstance(b.error, ExecutionFailed)
    after = stage.ask(3, 4)
    await stage.serve()
    assert after.values == [3, 4]


@staged(max_rows=2)
async def test_words_about_unknown_runs_are_ignored(stage: Stage) -> None:
    replica = stage.replica()
    a = stage.ask(1, 2)
    await stage.turn()
    stage.batcher.done(replica.lane, Done(99, 0.1, ()))
    replica.finish()
    assert a.values == [1, 2]


class Clumsy(Asked):
    """A request of a front end that cannot write answers."""

    def answer(self, outputs: Sequence[Tensor], run_seconds: float) -> None:
        raise ZeroDivisionError


@staged(max_rows=2)
async def test_a_front_end_that_fails_does_not_touch_its_neighbour(stage: Stage) -> None:
    replica = stage.replica()
    bad, good = stage.ask(1, kind=Clumsy), stage.ask(2)
    await stage.turn()
    replica.finish()
    assert good.values == [2]
    assert isinstance(bad.error, ExecutionFailed), "its caller is told, and does not wait for ever"


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


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


# ── replicas that come and go ────────────────────────────────────────────────────────────────────────────────────────────────────────────


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
    assert [request.attempts for request in asked] == [1, 1, 0, 0]
    assert stage.batcher.waiting == 4, "in the room: no replica is left"
    second = stage.replica()
    stage.batcher.regroup(_as_it_is)
    await stage.serve()
    assert sorted(second.runs) == [1, 1, 2]
    assert [request.values for request in asked] == [[0], [1], [2], [3]]


@staged(max_rows=2)
async def test_who_kills_two_replicas_is_refused(stage: Stage) -> None:
    for out_of_memory, refusal in ((False, ExecutionFailed), (True, OutOfMemory)):
        killer = stage.ask(1, 2)
        for _ in range(2):
            replica = stage.replica()
            stage.batcher.regroup(_as_it_is)
            await stage.turn()
            assert len(replica.given) == 1
            replica.die(out_of_memory=out_of_memory)
        assert isinstance(killer.error, refusal)


@staged(max_rows=2)
async def test_a_closing_lane_finishes_and_gives_away_what_waits(stage: Stage) -> None:
    first, second = stage.replica(), stage.replica()
    asked = [stage.ask(k) for k in range(10)]
    await stage.turn()
    stage.batcher.close(first.lane)
    assert stage.batcher.busy
    await stage.serve()
    assert first.runs == [2, 2], "what it had been given, and nothing more"
    assert [request.values for request in asked] == [[k] for k in range(10)]
    assert stage.batcher.lanes == [second.lane]


@staged(max_rows=2)
async def test_a_closing_lane_that_dies_loses_nothing(stage: Stage) -> None:
    first, second = stage.replica(), stage.replica()
    stage.ask(1, 2)
    await stage.turn()
    stage.batcher.close(first.lane)
    first.die()
    await stage.serve()
    assert second.runs == [2]


@staged(max_rows=2)
async def test_a_closing_lane_whose_run_fails_retries_elsewhere(stage: Stage) -> None:
    first = stage.replica()
    a, b = stage.ask(1), stage.ask(2)
    await stage.turn()
    second = stage.replica()
    stage.batcher.close(first.lane)
    first.fail()
    await stage.serve()
    assert (a.values, b.values) == ([1], [2])
    assert second.runs == [1, 1]


def _as_it_is(request: InferRequest) -> None:
    """Validation that changes nothing."""


@staged(max_rows=4)
async def test_requests_wait_in_the_room_until_a_replica_is_there(stage: Stage) -> None:
    asked = [stage.ask(k, group=None) for k in range(4)]
    await stage.turn()
    assert stage.batcher.waiting == stage.batcher.smallest_queue() == 4
    replica = stage.replica()

    def now_mergeable(request: InferRequest) -> None:
        request.group = "g"

    stage.batcher.regroup(now_mergeable)
    await stage.serve()
    assert replica.runs == [4]
    assert [request.values for request in asked] == [[0], [1], [2], [3]]


@staged(max_rows=4)
async def test_what_turns_out_to_be_wrong_when_the_model_is_known_is_refused(stage: Stage) -> None:
    good, bad = stage.ask(1), stage.ask(2)
    replica = stage.replica()

    def validate(request: InferRequest) -> None:
        if request is bad:
            raise InvalidInput("no such input")

    stage.batcher.regroup(validate)
    await stage.wait(60)
    await stage.serve()
    assert good.values == [1]
    assert isinstance(bad.error, InvalidInput)
    assert replica.runs == [1]


@staged(max_rows=4)
async def test_a_verdict_that_comes_later_groups_what_waits_and_cuts_what_is_too_large(stage: Stage) -> None:
    replica = stage.replica()
    stage.ask(0, group=None)
    stage.ask(1, group=None)
    await stage.turn()
    waiting = [stage.ask(k, group=None) for k in range(2, 4)]
    large = stage.ask(*range(9), group=None)

    def group(request: InferRequest) -> None:
        request.group = "g"

    stage.batcher.regroup(group)
    await stage.serve()
    await stage.wait(60)
    await stage.serve()
    assert [request.values for request in waiting] == [[2], [3]]
    assert large.values == list(range(9))
    assert max(replica.runs) <= 4


@staged(max_rows=4)
async def test_what_waited_for_minutes_is_grouped_all_the_same(stage: Stage) -> None:
    """Arrivals far apart in time, looked at again in the order of arrival."""
    old = stage.ask(1)
    await stage.wait(3600)
    new = stage.ask(2)
    stage.replica()
    stage.batcher.regroup(_as_it_is)
    await stage.wait(60)
    await stage.serve()
    assert (old.values, new.values) == ([1], [2])


@staged(max_rows=4)
async def test_held_requests_wait_although_a_replica_is_there(stage: Stage) -> None:
    replica = stage.replica()
    before = stage.ask(1)
    stage.batcher.hold(queued=True)
    after = stage.ask(2)
    await stage.wait(100)
    assert replica.runs == []
    stage.batcher.held = False
    stage.batcher.regroup(_as_it_is)
    await stage.serve()
    assert (before.values, after.values) == ([1], [2])


@staged(max_rows=2)
async def test_everything_that_waits_can_be_refused(stage: Stage) -> None:
    stage.replica()
    running, queued = stage.ask(1, 2), stage.ask(3)
    await stage.turn()
    stage.batcher.fail_all(Unavailable("the server is stopping"))
    assert isinstance(queued.error, Unavailable)
    await stage.serve()
    assert running.values == [1, 2]


@staged(max_rows=2)
async def test_the_owner_is_told_when_a_replica_has_nothing_left(stage: Stage) -> None:
    replica = stage.replica()
    await stage.turn()
    stage.idle.clear()
    stage.ask(1, 2)
    await stage.turn()
    assert stage.idle == []
    replica.finish()
    assert stage.idle == [replica.lane]


@staged(max_rows=2)
async def test_the_owner_is_told_when_the_last_waiting_request_expires(stage: Stage) -> None:
    replica = stage.replica()
    await stage.turn()
    stage.idle.clear()
    stage.ask(1, seconds=1.0)
    await stage.wait(1.0)
    assert stage.idle == [replica.lane]


# ── several replicas ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@staged(policy="adaptive", max_rows=1)
async def test_least_queue_leaves_the_spare_replica_idle(stage: Stage) -> None:
    first, second = stage.replica(), stage.replica()
    for k in range(5):
        stage.ask(k)
        await stage.serve()
    assert (len(first.runs), len(second.runs)) == (5, 0)


@staged(policy="adaptive", max_rows=1, routing="round-robin")
async def test_round_robin_goes_round(stage: Stage) -> None:
    first, second = stage.replica(), stage.replica()
    for k in range(6):
        stage.ask(k)
        await stage.serve()
    assert (len(first.runs), len(second.runs)) == (3, 3)


@staged(policy="adaptive", max_rows=1, routing="random")
async def test_random_goes_everywhere(stage: Stage) -> None:
    first, second = stage.replica(), stage.replica()
    for k in range(40):
        stage.ask(k)
        await stage.serve()
    assert len(first.runs) > 5
    assert len(second.runs) > 5


@staged(policy="adaptive", max_rows=1)
async def test_a_replica_that_becomes_ready_takes_over_what_waits(stage: Stage) -> None:
    first = stage.replica()
    asked = [stage.ask(k) for k in range(6)]
    await stage.turn()
    assert stage.batcher.waiting == 4
    second = stage.replica()
    await stage.turn()
    assert second.runs, "it did not wait for a new request"
    await stage.serve()
    assert len(first.runs) + len(second.runs) == 6
    assert [request.values for request in asked] == [[k] for k in range(6)]


@staged(policy="adaptive", max_rows=2)
async def test_a_replica_that_becomes_idle_takes_over_what_waits_for_another(stage: Stage) -> None:
    first, second = stage.replica(), stage.replica()
    asked = [stage.ask(k) for k in range(12)]
    await stage.turn()
    while second.given:  # the first is stuck in its run
        second.finish()
        await stage.turn()
    assert stage.batcher.waiting == 0
    await stage.serve()
    assert len(first.runs) <= 2
    assert [request.values for request in asked] == [[k] for k in range(12)]


@staged(max_rows=4)
async def test_the_expected_wait_follows_from_what_was_learnt(stage: Stage) -> None:
    assert stage.batcher.prospect(1).wait == 0.0, "no replica, nothing known"
    replica = stage.replica()
    for _ in range(20):
        stage.ask(1, 2, 3, 4)
        await stage.turn()
        replica.finish(seconds=0.5)
    assert stage.batcher.prospect(1).wait == 0.0
    for _ in range(6):
        stage.ask(1, 2, 3, 4)
    await stage.turn()  # two with the replica, four wait
    assert 2.5 < stage.batcher.prospect(1).wait < 3.5
    await stage.serve()


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
