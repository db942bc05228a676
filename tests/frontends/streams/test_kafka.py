"""What may be committed of a partition whose messages are answered in any order."""

from hypothesis import given
from hypothesis import strategies as st

from wakeful.frontends.streams.kafka import Answered


def test_up_to_the_lowest_that_is_not_answered() -> None:
    answered = Answered()
    for offset in (10, 11, 13, 14):  # Kafka leaves gaps
        answered.take(offset)
    assert answered.position is None
    answered.settle(11)
    assert answered.position is None
    answered.settle(10)
    assert answered.position == 12
    answered.settle(14)
    assert answered.position == 12
    answered.settle(13)
    assert answered.position == 15


def test_what_was_taken_before_the_partition_came_back_counts_for_nothing() -> None:
    answered = Answered()
    answered.settle(5)
    answered.take(5)
    assert answered.position is None
    answered.settle(5)
    assert answered.position == 6


@given(st.permutations(range(20)))
def test_any_order(order: list[int]) -> None:
    answered = Answered()
    for offset in range(20):
        answered.take(offset)
    for count, offset in enumerate(order, start=1):
        answered.settle(offset)
        lowest = min(order[count:], default=20)
        assert (answered.position or 0) == lowest
