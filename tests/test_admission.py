"""Who is refused at the door, and with what advice."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wakeful.admission import LONE_RUNS, admit
from wakeful.batching.costs import CostModel
from wakeful.batching.policy import Allowance, Prospect
from wakeful.config.settings import AdmissionSettings, BatchingSettings, ModelSettings
from wakeful.errors import Overloaded
from wakeful.inference import FOREVER, InferRequest

NOW = 100.0
CROWD = LONE_RUNS + 1


def request(seconds: float = FOREVER) -> InferRequest:
    return InferRequest("m", (), arrived=NOW, deadline=NOW + seconds)


def model(target_p99: float | None = None, **admission: Any) -> ModelSettings:
    return ModelSettings("m", Path("m.onnx"), batching=BatchingSettings(target_p99=target_p99), admission=AdmissionSettings(**admission))


def batcher(waiting: int, wait: float = 0.0, run: float = 0.0, *, busy: bool = True) -> Any:
    """A queue of so many requests, where one that arrives now begins after `wait` seconds, and a run takes `run` seconds."""
    costs = CostModel()
    for _ in range(CostModel.MIN_RUNS):
        costs.observe(1, run)
    return SimpleNamespace(
        waiting=waiting, busy=busy, costs=costs, allowance=Allowance.of_target(), punctuality=Allowance.of_deadline(),
        prospect=lambda _: Prospect(wait, wait + run), forget_left=lambda: False,
    )


def test_a_model_gives_each_request_its_timeout_unless_the_caller_is_in_more_of_a_hurry() -> None:
    patient, hasty = request(), request(1.0)
    for one in (patient, hasty):
        admit(one, model(request_timeout=2.0), batcher(0))
    assert (patient.deadline, hasty.deadline) == (NOW + 2.0, NOW + 1.0)


def test_a_full_queue_refuses_at_once_and_says_when_half_of_it_is_done() -> None:
    settings = model(queue_limit=3)
    admit(request(), settings, batcher(2))
    with pytest.raises(Overloaded, match="3 requests waiting, its queue_limit") as refusal:
        admit(request(), settings, batcher(3, wait=8.0))
    assert refusal.value.retry_after == 4.0
    assert refusal.value.unstarted


def test_nobody_is_refused_for_the_sake_of_those_who_have_left() -> None:
    queue = batcher(3)

    def forget_left() -> bool:
        queue.waiting -= 1
        return True

    queue.forget_left = forget_left
    admit(request(), model(queue_limit=3), queue)
    with pytest.raises(Overloaded, match="1 requests waiting"):
        admit(request(), model(queue_limit=1), queue)


def test_who_cannot_be_answered_in_time_does_not_wait_for_it() -> None:
    crowded = batcher(CROWD, wait=3.0, run=0.5)
    admit(request(4.5), model(), crowded)
    with pytest.raises(Overloaded, match=r"would need 4.250 s for this request, and its deadline leaves 3.200 s"):
        admit(request(3.2), model(), crowded)


def test_where_deadlines_were_missed_a_long_wait_needs_room_and_a_lone_run_does_not() -> None:
    crowded, next_ = batcher(CROWD, wait=3.0, run=0.5), batcher(1, run=0.5)
    for one in (crowded, next_):
        for _ in range(30):
            one.punctuality.observe(1.1)
    with pytest.raises(Overloaded):
        admit(request(4.5), model(), crowded)
    admit(request(0.6), model(), next_)


def test_a_short_queue_is_weighed_only_by_who_is_in_a_hurry() -> None:
    """Asking costs time on every request; where little waits and runs are short, the answer is in time anyway, or nobody knows."""
    admit(request(1.0), model(), batcher(16, wait=3.0, run=0.01))
    with pytest.raises(Overloaded):
        admit(request(0.5), model(), batcher(16, wait=3.0, run=0.01))
    admit(request(0.5), model(), batcher(16, wait=0.3, run=0.01))


def test_a_latency_target_refuses_even_behind_a_short_queue() -> None:
    late = batcher(1, wait=0.3, run=0.1)
    admit(request(), model(target_p99=0.51), late)
    with pytest.raises(Overloaded, match=r"would need 0.400 s for this request, over target_p99_ms \(350\)"):
        admit(request(), model(target_p99=0.35), late)


def test_promises_that_were_not_kept_make_admission_careful() -> None:
    late = batcher(1, wait=0.3, run=0.1)
    for _ in range(30):
        late.allowance.observe(1.1)
    with pytest.raises(Overloaded):
        admit(request(), model(target_p99=0.5), late)


def test_an_idle_model_is_tried_whatever_is_thought_of_it() -> None:
    """Else one that was slow at first would be refused for ever, and nobody would see that it has become fast."""
    idle = batcher(0, run=2.0, busy=False)
    admit(request(), model(target_p99=0.5), idle)
    admit(request(1.0), model(), idle)
    with pytest.raises(Overloaded):
        admit(request(), model(target_p99=0.5), batcher(0, run=2.0))
