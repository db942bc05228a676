"""Replicas that come and go, and several of them: where requests wait, and who runs them."""

from tests.batching.stage import Stage, as_it_is, staged
from wakeful.errors import InvalidInput, Unavailable
from wakeful.inference import InferRequest

# ── replicas that come and go ────────────────────────────────────────────────────────────────────────────────────────────────────────────


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
async def test_a_waiting_part_that_has_become_too_large_is_cut_again_and_the_rest_follows(stage: Stage) -> None:
    replica = stage.replica()
    large = stage.ask(*range(10))
    stage.batcher.limits.max_rows = 2
    stage.batcher.regroup(as_it_is)
    await stage.serve()
    assert large.values == list(range(10))
    assert replica.runs.count(2) == 3, "two of them in place of the first four rows"


@staged(max_rows=4)
async def test_what_waited_for_minutes_is_grouped_all_the_same(stage: Stage) -> None:
    """Arrivals far apart in time, looked at again in the order of arrival."""
    old = stage.ask(1)
    await stage.wait(3600)
    new = stage.ask(2)
    stage.replica()
    stage.batcher.regroup(as_it_is)
    await stage.wait(60)
    await stage.serve()
    assert (old.values, new.values) == ([1], [2])


@staged(max_rows=4)
async def test_held_requests_wait_although_a_replica_is_there(stage: Stage) -> None:
    replica = stage.replica()
    stage.batcher.held = True
    before, after = stage.ask(1), stage.ask(2)
    await stage.wait(100)
    assert replica.runs == []
    stage.batcher.held = False
    stage.batcher.regroup(as_it_is)
    await stage.serve()
    assert (before.values, after.values) == ([1], [2])


@staged(max_rows=2)
async def test_what_has_begun_is_finished_by_those_who_began_it(stage: Stage) -> None:
    """Another file, or other settings, will serve what comes from now on; half an answer of each would be none."""
    old = stage.replica()
    large = stage.ask(1, 2, 3, 4, 5, 6, 7)
    await stage.turn()
    assert old.runs
    stage.batcher.held = True
    new = stage.ask(8)
    await stage.serve()
    await stage.wait(60)
    await stage.serve()
    assert large.values == [1, 2, 3, 4, 5, 6, 7]
    assert stage.batcher.room.size == 1
    stage.batcher.held = False
    stage.batcher.regroup(as_it_is)
    await stage.wait(60)
    await stage.serve()
    assert new.values == [8]


@staged(max_rows=2)
async def test_what_somebody_else_is_to_serve_begins_anew(stage: Stage) -> None:
    """Its replica has died in the middle: what the parts gave so far is forgotten."""
    old = stage.replica()
    large = stage.ask(1, 2, 3, 4, 5)
    await stage.turn()
    old.finish()
    await stage.turn()
    old.die()
    stage.batcher.adopt(stage.batcher.take())
    new = stage.replica()
    stage.batcher.regroup(as_it_is)
    await stage.serve()
    await stage.wait(60)
    await stage.serve()
    assert large.values == [1, 2, 3, 4, 5]
    assert sum(new.runs) == 5


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
