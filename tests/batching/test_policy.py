"""When a batch is cut: every branch of both policies, on a clock that is only a number."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.batching.costs import ArrivalRate, CostModel, GroupCosts
from wakeful.batching.policy import (
    LARGER,
    POLICIES,
    Allowance,
    Limits,
    View,
    adaptive,
    ahead,
    cut,
    fitting,
    prospect,
    remaining,
    row_limit,
    timer,
    too_late,
    trial,
    worth_merging,
)

SECONDS = st.floats(0.0, 100.0)


def learnt(fixed: float, per_row: float, sizes: tuple[int, ...] = (1, 2, 4, 8, 16)) -> CostModel:
    costs = CostModel()
    for _ in range(20):
        for rows in sizes:
            costs.observe(rows, fixed + per_row * rows)
    return costs


def steady(per_second: float, until: float) -> ArrivalRate:
    rate = ArrivalRate()
    for step in range(int(per_second * 4)):
        rate.observe(until - 4 + step / per_second, 1)
    return rate


def idle(rows: int, oldest: float = 0.0, **changes: int) -> View:
    """One idle replica alone."""
    return View(rows, oldest)._replace(**changes)


def due(policy: str, view: View, limits: Limits | None = None, costs: CostModel | None = None) -> float:
    return POLICIES[policy](view, limits or Limits(max_rows=8, max_delay=0.2), costs or CostModel(), 0.0)


# ── timer ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_timer_waits_the_delay_since_the_oldest_arrival_however_long_a_run_was_on() -> None:
    assert due("timer", idle(1, oldest=5.0)) == pytest.approx(5.2)
    assert due("timer", idle(7, oldest=5.0)) == pytest.approx(5.2)


def test_timer_seals_a_full_batch_at_once() -> None:
    assert due("timer", idle(8, oldest=5.0)) <= 5.0
    assert due("timer", idle(12, oldest=5.0)) <= 5.0


def test_no_delay_still_merges_what_waits() -> None:
    assert due("timer", idle(3, oldest=5.0), Limits(max_rows=8, max_delay=0.0)) <= 5.0


def test_timer_does_not_let_a_group_idle_the_replica_before_a_full_queue() -> None:
    assert due("timer", idle(2, oldest=5.0, behind=5)) == pytest.approx(5.2)
    assert due("timer", idle(2, oldest=5.0, behind=6)) <= 5.0


# ── while a replica runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_full_run_is_sealed_ahead_and_nothing_less_where_the_fixed_part_dominates_or_is_not_known() -> None:
    assert ahead(Limits(8), CostModel(), 100.0, 1) == 8
    assert ahead(Limits(8, policy="timer"), learnt(0.001, 0.010), 100.0, 1) == 8
    assert ahead(Limits(64), learnt(0.004, 0.00001), 100.0, 1) == 64
    assert ahead(Limits(64), learnt(0.004, 0.0), 100.0, 1) == 64


def test_what_makes_more_than_one_run_is_sealed_ahead() -> None:
    limits = Limits(64)
    assert ahead(limits, learnt(0.0, 0.010), 1.0, 1) < 1, "rows run one by one anyway"
    some = ahead(limits, learnt(0.004, 0.001), 10.0, 1)
    assert 4 < some < 8, "at little load a little more than the rows that are worth the fixed part"
    assert some < ahead(limits, learnt(0.004, 0.001), 300.0, 1), "near capacity larger runs are better, so more is awaited"
    assert ahead(limits, learnt(0.004, 0.001), 300.0, 2) < ahead(limits, learnt(0.004, 0.001), 300.0, 1)


def test_long_runs_are_not_sealed_ahead_where_another_replica_may_take_them_over() -> None:
    costs = learnt(0.004, 0.100)
    assert ahead(Limits(64), costs, 1.0, 2) == row_limit(Limits(64), costs)
    assert ahead(Limits(64), costs, 1.0, 1) < 1


# ── adaptive ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_adaptive_runs_at_once_where_all_replicas_are_idle() -> None:
    assert due("adaptive", idle(1, oldest=5.0)) <= 5.0
    assert due("adaptive", idle(1, oldest=5.0, siblings_idle=3)) <= 5.0


def test_adaptive_holds_an_idle_replica_beside_a_busy_one_until_its_rows_are_worth_the_fixed_cost() -> None:
    costs, limits, rate = learnt(0.004, 0.00025), Limits(32, 0.010), 4000.0
    beside = idle(1, oldest=10.0, siblings_busy=1)
    # t(1) / 2 replicas after the oldest
    assert adaptive(beside, limits, costs, rate) == pytest.approx(10.0 + 0.00425 / 2, rel=1e-3)
    # 8 rows of 0.25 ms are half as long as the fixed 4 ms; a steady stream of 4000 rows/s would bring 16 a run
    assert adaptive(beside._replace(rows=7), limits, costs, rate) > 10.0
    assert adaptive(beside._replace(rows=9), limits, costs, rate) <= 10.0
    # the end of the sibling's run
    assert adaptive(beside._replace(siblings_busy=0, siblings_idle=1), limits, costs, rate) <= 10.0
    # more replicas take turns more often
    assert adaptive(beside._replace(siblings_idle=2), limits, costs, rate) == pytest.approx(10.0 + 0.00425 / 4, rel=1e-3)
    # other groups wait behind
    assert adaptive(beside._replace(behind=31), limits, costs, rate) <= 10.0


def test_adaptive_does_not_wait_for_a_trickle_nor_for_what_it_does_not_know() -> None:
    costs, limits, beside = learnt(0.004, 0.00025), Limits(32, 0.010), idle(1, oldest=10.0, siblings_busy=1)
    assert adaptive(beside, limits, costs, 5.0) <= 10.0
    assert adaptive(beside, limits, CostModel(), 2000.0) <= 10.0
    assert adaptive(beside, limits, learnt(0.0, 0.004), 2000.0) <= 10.0


def test_adaptive_keeps_the_configured_delay_and_the_target() -> None:
    costs, rate, beside = learnt(0.100, 0.001), 500.0, idle(1, oldest=10.0, siblings_busy=1)
    assert adaptive(beside, Limits(64, 0.003), costs, rate) == pytest.approx(10.003)
    assert adaptive(beside, Limits(64, 0.0), costs, rate) <= 10.0
    assert adaptive(beside, Limits(64, 1.0, target_p99=0.301), costs, rate) == pytest.approx(10.0 + 0.101 / 2, rel=1e-3)
    assert adaptive(beside, Limits(64, 1.0, target_p99=0.220), costs, rate) == pytest.approx(10.0 + 0.101 / 2, rel=1e-3)


@given(
    view=st.builds(View, st.integers(1, 40), SECONDS, st.integers(0, 4), st.integers(0, 4), st.integers(0, 40)),
    limits=st.builds(Limits, st.integers(1, 32), st.floats(0.0, 1.0), st.none() | st.floats(0.001, 1.0)),
    fixed=st.floats(0.0, 0.1),
    per_row=st.floats(0.0, 0.1),
    arriving=st.floats(0.0, 1e4),
)
def test_adaptive_is_never_later_than_timer(view: View, limits: Limits, fixed: float, per_row: float, arriving: float) -> None:
    costs = learnt(fixed, per_row)
    now = view.oldest
    assert max(adaptive(view, limits, costs, arriving), now) <= max(timer(view, limits, costs, arriving), now)


# ── what is learnt ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(fixed=st.floats(0.0, 1.0), per_row=st.floats(1e-6, 1.0), sizes=st.sets(st.integers(1, 128), min_size=2, max_size=6))
def test_costs_are_found(fixed: float, per_row: float, sizes: set[int]) -> None:
    costs = learnt(fixed, per_row, tuple(sorted(sizes)) * 20)
    for rows in sizes:
        assert costs.estimate(rows) == pytest.approx(fixed + per_row * rows, rel=0.05)


def test_one_row_count_says_nothing_about_others_and_makes_nobody_wait() -> None:
    costs = learnt(0.0, 0.010, (4,))
    assert costs.known
    assert costs.estimate(4) == pytest.approx(0.040)
    assert costs.fixed == pytest.approx(0.0)


def test_a_machine_that_becomes_faster_does_not_look_like_a_model_without_a_fixed_part() -> None:
    """Large runs while others use the cores, small ones afterwards: a line through all of them is far too steep."""
    costs = CostModel()
    for rows in (16, 12, 16, 9) * 8:
        costs.observe(rows, 2.0 * (0.0035 + 0.0025 * rows))
    for rows in (1, 2, 1, 3) * 8:
        costs.observe(rows, 0.0035 + 0.0025 * rows)
    assert costs.fixed > 0.5 * costs.per_row
    assert costs.worthwhile > 4


def test_a_large_run_in_a_slow_moment_does_not_take_the_fixed_part_away() -> None:
    costs = learnt(0.0035, 0.0033, (16, 25, 9, 22) * 16)
    costs.observe(46, 2.2 * (0.0035 + 0.0033 * 46))  # the machine was slow while it ran, and no more when the next did
    costs.observe(11, 0.0035 + 0.0033 * 11)
    assert costs.fixed > 0.5 * 0.0035


def test_the_slope_is_remembered_while_only_one_row_count_comes() -> None:
    costs = learnt(0.004, 0.00025)
    for _ in range(1000):
        costs.observe(1, 0.00425)
    assert costs.per_row == pytest.approx(0.00025, rel=0.02)
    assert costs.estimate(16) == pytest.approx(0.008, rel=0.02)


def test_a_slow_first_run_is_forgotten_and_a_hiccup_hardly_counts() -> None:
    costs = CostModel()
    costs.observe(1, 2.0)
    assert not costs.known
    for _ in range(400):
        costs.observe(1, 0.005)
    assert costs.estimate(1) == pytest.approx(0.005, rel=0.1)
    costs.observe(1, 60.0)
    assert costs.estimate(1) < 0.006


def test_a_model_that_has_become_slower_is_followed() -> None:
    costs = learnt(0.001, 0.0)
    for _ in range(400):
        costs.observe(4, 0.1)
    assert costs.estimate(4) == pytest.approx(0.1, rel=0.05)


@given(st.lists(st.tuples(st.integers(-3, 256), st.floats(allow_nan=True, allow_infinity=True)), max_size=60))
def test_costs_stay_sane_whatever_is_observed(runs: list[tuple[int, float]]) -> None:
    costs = CostModel()
    for rows, seconds in runs:
        costs.observe(rows, min(seconds, 1e6) if seconds != math.inf else seconds)
    assert 0.0 <= costs.fixed < math.inf
    assert 0.0 <= costs.per_row < math.inf


def test_runs_that_outgrow_the_caches_are_seen() -> None:
    """Magika's: 6.6 ms a row up to 4 rows, 8.3 ms with 16."""
    costs = CostModel()
    for _ in range(12):
        for rows, seconds in ((1, 0.0070), (2, 0.0134), (4, 0.0262), (16, 0.130)):
            costs.observe(rows, seconds)
    assert costs.worthwhile == 12, "the next smaller one of which nothing bad is known"
    assert row_limit(Limits(64), costs) == costs.worthwhile
    assert row_limit(Limits(64, policy="timer"), costs) == 64
    for _ in range(1001):
        costs.observe(2, 0.0134)
    assert row_limit(Limits(64), costs) >= 16, "what was seen long ago is tried again"


def test_a_size_that_nobody_has_seen_is_tried_in_turn_with_the_next_smaller_one() -> None:
    """Where rows of larger runs take longer, a queue is never served by such runs alone."""
    for longer, ends in ((1.2, {16}), (0.95, {48, 64})):
        costs = learnt(0.001, 0.004)
        tried = []
        for _ in range(12):
            tried.append(costs.worthwhile)
            each = 0.004 * (1.0 if costs.worthwhile <= 16 else longer)
            costs.observe(costs.worthwhile, 0.001 + each * costs.worthwhile)
        assert tried[:4] == [24, 16, 24, 16]
        assert costs.worthwhile in ends


def test_the_window_of_arrivals_suits_the_run_time_and_keeps_the_rate() -> None:
    rate = steady(200.0, until=10.0)
    rate.suit(learnt(0.0, 0.060))
    assert rate.window == pytest.approx(7.5, rel=0.01)
    assert rate.rate(10.0) == pytest.approx(200.0, rel=0.02)
    rate.suit(learnt(0.0, 0.055))
    assert rate.window == pytest.approx(7.5, rel=0.01), "not for every little change"
    rate.suit(learnt(0.0, 1e-6))
    assert rate.window == ArrivalRate.SHORTEST


def test_arrival_rate_follows_and_fades() -> None:
    rate = steady(200.0, until=10.0)
    assert rate.rate(10.0) == pytest.approx(200.0, rel=0.02)
    assert rate.rate(20.0) < 0.1
    assert ArrivalRate().rate(1e9) == 0.0
    rate.observe(1e9, 5)
    assert rate.rate(1e9) == pytest.approx(20.0)


def test_a_rate_is_told_before_the_window_is_full() -> None:
    rate = ArrivalRate()
    for step in range(21):
        rate.observe(1000.0 + step / 200.0, 1)
    assert rate.rate(1000.1) == pytest.approx(200.0, rel=0.1)
    for step in range(20):
        rate.observe(2000.0 + step / 400.0, 1)
    assert rate.rate(2000.05) == pytest.approx(400.0, rel=0.1), "what was long ago does not count as a quiet part of it"


# ── limits ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(fixed=st.floats(0.0, 0.1), per_row=st.floats(1e-5, 0.1), max_rows=st.integers(1, 64), target=st.floats(1e-3, 2.0))
def test_row_limit_is_the_largest_that_keeps_the_target(fixed: float, per_row: float, max_rows: int, target: float) -> None:
    costs = learnt(fixed, per_row)
    n = row_limit(Limits(max_rows, 0.01, target, "timer"), costs)
    assert 1 <= n <= max_rows
    assert n == 1 or 2 * costs.estimate(n) <= target * (1 + 1e-9)
    assert n == max_rows or 2 * costs.estimate(n + 1) > target * (1 - 1e-9)
    assert row_limit(Limits(max_rows, 0.01, target), costs) <= n


def test_without_target_or_knowledge_the_configured_limit_holds() -> None:
    assert row_limit(Limits(16), learnt(1.0, 1.0)) == 16
    assert row_limit(Limits(16, target_p99=0.001), CostModel()) == 16
    assert row_limit(Limits(16, target_p99=1.0), learnt(0.1, 0.0)) == 16


def test_a_run_holds_no_more_than_pays() -> None:
    """A hundred times fixed / per_row: with 0.5 ms and 1 ms, 50 rows."""
    assert row_limit(Limits(1000), learnt(0.0005, 0.001, (8, 16, 32, 64))) == pytest.approx(50, abs=1)
    assert row_limit(Limits(1000), learnt(0.0, 0.001)) == 16
    assert row_limit(Limits(8), learnt(0.0, 0.001)) == 8
    assert row_limit(Limits(1000), learnt(0.001, 0.0)) == 1000
    assert row_limit(Limits(1000), CostModel()) == 16
    assert row_limit(Limits(1000, policy="timer"), learnt(0.0005, 0.001)) == 1000


def test_a_batch_is_cut_where_waiting_for_those_behind_costs_more_than_a_further_run() -> None:
    costs, limits = learnt(0.0006, 0.0044), Limits(64)
    assert costs.runs % 32
    assert cut(1, limits, costs, 10.0, 1) >= 1
    assert cut(10, limits, costs, 20.0, 1) == 2  # 8 runs: 8 * 9 >= 10 * 4.4 * (1 - 0.088) / 0.6 = 67
    assert cut(10, limits, costs, 200.0, 1) == 4  # at a load of 88 % runs have to be larger
    assert cut(10, limits, costs, 200.0, 2) == 2  # and two replicas carry half of it each
    assert cut(10, limits, costs, 1e9, 1) == 5  # no more than at 95 %
    assert cut(2, limits, costs, 20.0, 1) == 1
    assert cut(2, limits, costs, 200.0, 1) == 16, "all, and whoever else comes in this moment"
    assert cut(10, limits, learnt(0.0, 0.005), 20.0, 1) == 1
    assert cut(10, limits, learnt(0.0, 0.005), 200.0, 1) == 2, "a message is never free"
    assert cut(10, limits, learnt(0.004, 0.00025), 200.0, 1) >= 10
    assert cut(1000, limits, learnt(0.004, 0.00025, (1, 4, 16, 32, 64)), 200.0, 1) == 64
    assert cut(10, Limits(64, policy="timer"), costs, 20.0, 1) == 64


def tried(best: int, rows: int, limits: Limits, costs: CostModel, runs: int) -> list[int]:
    """What is taken instead of `best` in so many runs, in order of size; each has 16 rows."""
    taken = []
    for _ in range(runs):
        costs.observe(16, costs.estimate(16))
        taken.append(trial(best, rows, limits, costs))
    return sorted(taken)


def test_now_and_then_a_run_is_larger_than_it_should_be_or_half_as_large() -> None:
    costs = learnt(0.004, 0.004, (1, 4, 16, 32, 64))
    assert tried(1, 10, Limits(64), costs, LARGER) == [1] * 31 + [4]
    assert tried(64, 1000, Limits(64), costs, 16) == [32] * 2 + [64] * 14
    assert tried(64, 64, Limits(64), costs, LARGER) == [64] * 32, "not if that would make two runs of what waits"
    assert tried(64, 1000, Limits(64, policy="timer"), costs, LARGER) == [64] * 32
    assert tried(1, 10, Limits(64, policy="timer"), costs, LARGER) == [1] * 32
    assert tried(64, 1000, Limits(64), learnt(0.040, 0.00025, (1, 4, 16, 32, 64)), LARGER) == [64] * 32, "not where the fixed part outweighs"


def test_equal_runs_of_a_noisy_machine_do_not_take_the_rows_away() -> None:
    """The times of 31 and of 32 rows tell nothing but noise."""
    costs, random = learnt(0.001, 0.004), Random(1)
    for number in range(2000):
        rows = 31 + number % 2
        costs.observe(rows, random.lognormvariate(0.0, 0.1) * (0.001 + 0.004 * rows))
    assert costs.per_row > 0.001


def test_rows_that_cost_nothing_share_a_run_however_many_arrive() -> None:
    """Admission asks with an endless stream of arrivals; infinitely many times nothing is no number."""
    costs = CostModel()
    for seconds in (0.003, 0.002, 0.001) * 8:
        for rows, more in ((1, 0.001), (16, 0.0)):
            costs.observe(rows, seconds + more)
    assert costs.split
    assert costs.per_row == 0.0
    assert cut(10, Limits(64), costs, math.inf, 1) == row_limit(Limits(64), costs)


def test_nothing_is_cut_before_runs_of_several_sizes_have_been_seen() -> None:
    costs = CostModel()
    for _ in range(31):
        costs.observe(1, 0.005)
    assert cut(10, Limits(64), costs, 20.0, 1) == 16, "one row count does not tell the fixed part"
    for rows in (2, 1, 2, 1):
        costs.observe(rows, 0.005 * rows)
    assert cut(10, Limits(64), costs, 20.0, 1) == 1


def test_a_target_makes_batches_smaller() -> None:
    costs, view = learnt(0.010, 0.010), idle(4, oldest=5.0, siblings_busy=1)
    assert timer(view, Limits(16, 1.0, policy="timer"), costs, 0.0) == pytest.approx(6.0)
    assert timer(view, Limits(16, 1.0, 0.101, "timer"), costs, 0.0) <= 5.0
    assert ahead(Limits(16, 1.0, 0.101, "timer"), costs, 0.0, 1) == 4


def test_merging_is_worth_it_while_the_fixed_part_outweighs_the_rows() -> None:
    costs = learnt(0.004, 0.00025)
    assert worth_merging(0, costs)
    assert worth_merging(14, costs)
    assert not worth_merging(17, costs)
    assert not worth_merging(1, learnt(0.0, 0.004))
    assert not worth_merging(0, CostModel())


def test_who_arrives_now_waits_for_full_runs_and_shares_its_own() -> None:
    costs = learnt(0.010, 0.010)  # nine rows take 0.1 s
    assert prospect(1, 0, [0.0], 9, costs) == pytest.approx((0.0, 0.020), rel=1e-3), "it begins at once"
    assert prospect(1, 2, [0.0], 9, costs) == pytest.approx((0.0, 0.040), rel=1e-3)
    assert prospect(1, 8, [0.05], 9, costs) == pytest.approx((0.05, 0.15), rel=1e-3)
    assert prospect(1, 0, [0.05], 9, costs) == pytest.approx((0.05, 0.15), rel=1e-3), "others will come"
    assert prospect(1, 18, [0.05], 9, costs) == pytest.approx((0.25, 0.35), rel=1e-3)
    assert prospect(1, 18, [0.05, 0.08], 9, costs) == pytest.approx((0.15, 0.25), rel=1e-3)
    assert prospect(1, 9, [0.08, 0.0], 9, costs) == pytest.approx((0.08, 0.18), rel=1e-3)
    assert prospect(20, 0, [0.0], 9, costs) == pytest.approx((0.0, 0.3), rel=1e-3), "in three parts"


def test_a_run_that_should_have_ended_takes_a_little_more() -> None:
    costs = learnt(0.010, 0.010)
    assert remaining(9, 0.0, costs) == pytest.approx(0.1, rel=1e-3)
    assert remaining(9, 0.04, costs) == pytest.approx(0.06, rel=1e-3)
    assert remaining(9, 0.5, costs) == pytest.approx(0.01, rel=1e-3)


def test_admission_promises_less_where_promises_are_not_kept() -> None:
    allowance = Allowance.of_target()
    for _ in range(500):
        allowance.observe(0.9)
    assert allowance.share == Allowance.MOST
    for k in range(1000):
        allowance.observe(0.9 if k % 20 else 1.2)
    assert allowance.share < 0.6
    for _ in range(1000):
        allowance.observe(1.2)
    assert allowance.share == Allowance.LEAST
    for _ in range(30):
        allowance.observe(0.3)
    assert allowance.share == Allowance.MOST, "runs with room to spare end the caution soon"


def test_a_deadline_is_promised_with_more_care_than_a_target() -> None:
    target, deadline = Allowance.of_target(), Allowance.of_deadline()
    for k in range(2000):
        for one in (target, deadline):
            one.observe(1.2 if k % 200 == 0 else 0.9)
    assert target.share > 0.9
    assert deadline.share < 0.7


def test_a_run_is_so_large_that_the_first_of_its_members_is_in_time() -> None:
    costs = learnt(0.010, 0.010)
    assert fitting(16, 0.101, costs) == 9
    assert fitting(16, 1.0, costs) == fitting(16, math.inf, costs) == 16
    assert fitting(16, 0.021, costs) == 1
    assert fitting(16, 0.019, costs) == 16, "not even alone: it is not run at all"
    assert fitting(16, 0.019, CostModel()) == 16


def test_who_would_be_served_in_vain() -> None:
    costs, patient, keen = learnt(0.010, 0.010), Limits(16), Limits(16, target_p99=0.1)
    assert too_late(5.0, 4, patient, CostModel()) == (5.0, -math.inf)
    assert too_late(5.0, 4, patient, costs) == pytest.approx((5.02, -math.inf), rel=1e-3)
    assert too_late(5.0, 4, keen, costs) == pytest.approx((5.02, 4.95), rel=1e-3)
    assert too_late(5.0, 1, Limits(16, target_p99=0.015), costs)[1] == -math.inf, "nobody can make such a target"


def test_a_group_that_ran_too_rarely_is_taken_to_be_like_all() -> None:
    costs = GroupCosts()
    for _ in range(8):
        costs.observe("short", 1, 0.001)
    costs.observe("long", 1, 0.1)
    assert costs.of("long") is costs.of("never seen") is costs.all
    for _ in range(8):
        costs.observe("long", 1, 0.1)
    assert costs.of("short").estimate(1) == pytest.approx(0.001)
    assert costs.of("long").estimate(1) == pytest.approx(0.1)
    for group in range(GroupCosts.MOST):
        costs.observe(group, 1, 0.001)
    assert costs.of("short") is costs.all, "groups that are remembered are bounded"
