"""Who goes with a run, who is told that it is too late, and who is only dropped."""

from tests.batching.test_queue import filled, request
from wakeful.batching.boarding import board
from wakeful.batching.costs import CostModel
from wakeful.batching.policy import Limits
from wakeful.errors import Overloaded, TimedOut


def learnt() -> CostModel:
    """Runs take 0.1 s."""
    costs = CostModel()
    for rows in (1, 2) * 8:
        costs.observe(rows, 0.1)
    return costs


def test_all_that_fit_go_before_anything_is_known() -> None:
    a, b, c = (request(float(i)) for i in range(3))
    assert board(filled(), 5.0, 5.0, 2, Limits(8), CostModel()) == ([], [])
    assert board(filled(a, b, c), 5.0, 5.0, 2, Limits(8), CostModel()) == ([a, b], [])


def test_whoever_cannot_be_in_time_is_told_so_and_the_others_go() -> None:
    late, left, overdue, patient = request(4.0, deadline=5.05), request(4.0), request(4.0, deadline=4.9), request(4.0)
    left.left = True
    requests, dropped = board(filled(late, left, overdue, patient), 5.0, 5.0, 8, Limits(8), learnt())
    assert requests == [patient]
    assert {one.deadline: type(error) for one, error in dropped} == {5.05: TimedOut, 4.9: type(None), left.deadline: type(None)}


def test_a_target_that_is_missed_is_given_up_only_where_others_profit() -> None:
    old, young = request(1.0), request(4.99)
    limits = Limits(8, target_p99=0.5)
    requests, ((dropped, error),) = board(filled(old, young), 5.0, 5.0, 1, limits, learnt())
    assert (requests, dropped, type(error)) == ([young], old, Overloaded)
    assert board(filled(old, young), 5.0, 5.0, 8, limits, learnt()) == ([old, young], [])


def test_where_nobody_can_be_in_time_the_last_one_runs_all_the_same() -> None:
    """The estimate may be wrong, and only a run can show that."""
    first, last = request(4.0, deadline=5.05), request(4.1, deadline=5.06)
    requests, dropped = board(filled(first, last), 5.0, 5.0, 8, Limits(8), learnt())
    assert requests == [last]
    assert [one for one, _ in dropped] == [first]
