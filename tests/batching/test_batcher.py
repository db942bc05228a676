"""The batcher: what is merged and when, and who gets which rows."""

import struct
from collections.abc import Sequence

import numpy as np

from tests.batching.stage import Asked, Stage, staged
from wakeful.errors import ExecutionFailed
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
