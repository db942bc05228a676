"""Growth without a ceiling, on two cores and a fake clock."""

import pytest

from wakeful.config.settings import ReplicaSettings
from wakeful.errors import OutOfMemory
from wakeful.models import growth
from wakeful.models.growth import Growing, Growth, Scene

CORES = 2


class Play:
    """A model under load: time passes, rows are run, and arrivals ask for growth as `Model.submit` does."""

    def __init__(self, settings: ReplicaSettings) -> None:
        self.now = 100.0
        self.rows = 0.0
        self.replicas = 1
        self.starting = 0
        self.run_seconds = 0.0
        self.usual_run = 0.0
        self.runs = 0
        self.core_seconds = 0.0
        self.settled = True
        self.growth = Growth(settings, None)
        self.said: list[Growing] = []

    def clock(self) -> float:
        return self.now

    def go(
        self, seconds: float, rows_per_second: float, queue: int, *, active: int = 0, run: float = 0.01, busy: float = 1.0, computing: float = 0.0,
    ) -> None:
        """`queue`: requests that wait for each replica. A run takes `run` seconds, and all replicas run for the share `busy` of their time.
        `computing`: cores that they keep busy."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.01
            self.rows += 0.01 * rows_per_second
            self.run_seconds += 0.01 * busy * self.replicas
            self.core_seconds += 0.01 * computing
            self.runs = int(self.run_seconds / run)
            self.usual_run = run
            if self.now >= self.growth.next_look and (self.growth.trial or queue > 8):
                self.look(queue, active)

    def look(self, queue: int, active: int) -> None:
        queues = [queue] * (self.replicas - self.starting) + [0] * self.starting
        said = self.growth.decide(Scene(
            queues, self.starting, active, self.rows, self.replicas, CORES, self.runs, self.usual_run, self.core_seconds, self.settled,
        ))
        if said != growth.NOTHING:
            self.said.append(said)
        self.replicas += said.more - (said.back is not None)

    @property
    def backs(self) -> list[str]:
        return [said.back for said in self.said if said.back is not None]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    play = Play(ReplicaSettings())
    monkeypatch.setattr(growth, "monotonic", play.clock)
    return play


def test_up_to_the_cores_pressure_is_enough(play: Play) -> None:
    play.go(0.1, 1000.0, 9)
    assert play.replicas == 2


def test_the_next_one_waits_until_there_is_something_to_compare_it_with(play: Play) -> None:
    play.go(0.9, 1000.0, 9)
    assert play.replicas == 2
    play.go(0.5, 1000.0, 9)
    assert play.replicas == 3
    assert play.growth.trial is not None
    assert play.growth.trial.before == pytest.approx(1000.0)


def test_a_trial_that_brings_nothing_is_taken_back_once_and_not_repeated_under_the_same_pressure(play: Play) -> None:
    play.go(20.0, 1000.0, 9, active=16)
    assert play.replicas == 2
    assert play.backs == ["replica 3 brought no throughput (1000 -> 1000 rows/s) and is taken back"]
    assert [said.more for said in play.said if said.more] == [1, 1]


def test_nothing_is_tried_where_the_replicas_keep_all_cores_busy(play: Play) -> None:
    play.go(20.0, 1000.0, 9, computing=1.9)
    assert play.replicas == 2
    assert [said.hold for said in play.said if said.hold] == ["queue 9 > 8 on every replica, but 2 replicas keep 1.9 of 2 cores busy"]


def test_what_is_seen_before_requests_may_be_merged_is_nothing_to_compare_with(play: Play) -> None:
    play.settled = False
    play.go(10.0, 300.0, 9)
    assert play.replicas == 2
    play.settled = True
    play.go(1.3, 600.0, 9)
    assert play.growth.trial is not None
    assert play.growth.trial.before == pytest.approx(600.0, rel=0.02)


def test_a_trial_is_judged_though_it_has_shortened_the_queues(play: Play) -> None:
    play.go(1.3, 1000.0, 9)
    assert play.replicas == 3
    play.go(2.0, 1000.0, 0, active=32)  # all that would wait is running now
    assert play.replicas == 2
    assert len(play.backs) == 1


def test_trials_that_pay_go_on(play: Play) -> None:
    play.go(1.3, 1000.0, 9)
    play.go(1.2, 1500.0, 9)  # what three can do is known now, so the fourth is tried at once
    assert play.replicas == 4
    play.go(1.5, 1510.0, 9)
    assert play.replicas == 3
    assert len(play.backs) == 1
    assert play.backs[0].startswith("replica 4 brought no throughput")


def test_less_work_is_no_sign_of_less_capacity(play: Play) -> None:
    play.go(1.3, 1000.0, 9)
    assert play.replicas == 3
    play.go(10.0, 10.0, 0, active=1)
    assert play.replicas == 3  # the burst is over; the idle clock ends the copy in its own time
    assert play.backs == []


def test_pauses_do_not_count_as_time_under_pressure(play: Play) -> None:
    for _ in range(20):
        play.go(0.1, 1000.0, 9)
        play.go(5.0, 0.0, 0)
    assert play.growth.trial is not None
    assert play.growth.trial.before == pytest.approx(1000.0)


def test_the_time_until_a_replica_has_started_is_not_judged(play: Play) -> None:
    play.go(1.3, 1000.0, 9)
    play.starting = 1
    play.go(5.0, 1000.0, 9)
    assert play.growth.trial is not None
    play.starting = 0
    play.go(0.9, 1500.0, 9)
    assert play.growth.trial is not None
    assert play.growth.trial.replicas == 3
    play.go(0.2, 1500.0, 9)
    assert play.backs == []


def test_after_a_long_pause_another_trial_is_made(play: Play) -> None:
    play.go(20.0, 1000.0, 9)
    play.go(growth.FORGET_SECONDS + 1, 0.0, 0)
    play.go(1.3, 1000.0, 9)
    assert play.replicas == 3


def test_a_ceiling_that_somebody_gave_is_reached_at_once_and_never_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(ReplicaSettings(max_replicas=4))
    monkeypatch.setattr(growth, "monotonic", play.clock)
    play.go(10.0, 1000.0, 9)
    assert play.replicas == 4
    assert play.backs == []
    assert [said.hold for said in play.said if said.hold] == ["queue 9 > 8 on every replica, but 4 of max_replicas 4 run"]


def test_a_step_that_could_not_be_made_is_tried_again_less_and_less_often(play: Play) -> None:
    times = []
    for _ in range(4):
        play.go(100.0, 0.0, 0)
        play.replicas = 1
        play.growth.next_look = max(play.growth.next_look, 0.0)
        play.look(9, 0)
        play.replicas = 1
        play.growth.failed(OutOfMemory("full"), play.now)
        times.append(play.growth.next_look - play.now)
    assert times == pytest.approx([1.0, 1.0, 1.0, 1.0])  # each after a long pause
    for expected in (2.0, 4.0, 8.0):
        play.go(play.growth.next_look - play.now, 0.0, 0)
        play.look(9, 0)
        play.replicas = 1
        play.growth.failed(OutOfMemory("full"), play.now)
        assert play.growth.next_look - play.now == pytest.approx(expected)


# ── replicas that are not what the queue waits for ───────────────────────────────────────────────────────────────────────────────────────


def test_replica_that_mostly_waits_for_work_gets_no_help(play: Play) -> None:
    play.go(5.0, 20_000.0, 30, run=0.0001, busy=0.1)
    assert play.replicas == 1
    assert [said.hold for said in play.said] == [
        "queue 30 > 8 on the only replica, but runs take only 10% of the replicas' time: another one would not shorten it"
    ]


def test_moment_in_which_the_machine_stands_still_is_no_reason(play: Play) -> None:
    """Seen on a busy machine: hardly a run ended for 20 ms, and a model of 0.1 ms a run got a replica that took a third of its throughput."""
    play.go(0.02, 20_000.0, 30, run=0.0001, busy=0.1)
    play.now += 0.03
    play.look(30, 0)
    play.go(1.0, 20_000.0, 30, run=0.0001, busy=0.1)
    assert play.replicas == 1


def test_it_is_said_once_though_pressure_comes_and_goes(play: Play) -> None:
    for _ in range(5):
        play.go(1.0, 20_000.0, 30, run=0.0001, busy=0.1)
        play.go(3.0, 0.0, 0, busy=0.0)
    assert len(play.said) == 1


def test_short_runs_that_fill_the_time_are_helped(play: Play) -> None:
    play.go(0.1, 20_000.0, 30, run=0.0001, busy=0.9)
    assert play.replicas == 2


def test_work_that_becomes_heavier_is_helped(play: Play) -> None:
    play.go(1.0, 20_000.0, 30, run=0.0001, busy=0.1)
    play.go(0.3, 2_000.0, 30, run=0.001, busy=0.95)
    assert play.replicas == 2


def test_long_runs_are_not_waited_for(play: Play) -> None:
    play.go(0.1, 0.0, 9, run=10.0)  # none of them ends while we look
    assert play.replicas == 2


def test_ceiling_that_is_set_says_how_far_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(ReplicaSettings(max_replicas=3))
    monkeypatch.setattr(growth, "monotonic", play.clock)
    play.go(1.0, 20_000.0, 30, run=0.0001, busy=0.1)
    assert play.replicas == 3
