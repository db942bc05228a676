"""When a request that was refused is made again."""

import pytest

from wakeful.errors import ALL_ERRORS, Overloaded, Unavailable
from wakeful.frontends.streams.stream import LONGEST_RETRY, RETRY_SECONDS, pause_before_retry


@pytest.mark.parametrize("kind", [error for error in ALL_ERRORS if error not in (Overloaded, Unavailable)])
def test_an_error_that_stays_is_told_at_once(kind: type) -> None:
    assert pause_before_retry(kind("no"), 0, 100.0) is None


@pytest.mark.parametrize("kind", [Overloaded, Unavailable])
def test_what_passes_is_tried_more_and_more_rarely(kind: type) -> None:
    pauses = [pause_before_retry(kind("no"), attempt, 100.0) for attempt in range(12)]
    assert pauses[:3] == [RETRY_SECONDS, 2 * RETRY_SECONDS, 4 * RETRY_SECONDS]
    assert pauses[-1] == LONGEST_RETRY


def test_the_refusal_may_ask_for_more() -> None:
    assert pause_before_retry(Unavailable("no", retry_after=8.0), 0, 100.0) == 8.0
    assert pause_before_retry(Overloaded("no", retry_after=0.001), 0, 100.0) == RETRY_SECONDS


def test_not_beyond_the_deadline() -> None:
    assert pause_before_retry(Unavailable("no", retry_after=64.0), 0, 30.0) is None
    assert pause_before_retry(Overloaded("no"), 0, -1.0) is None
    assert pause_before_retry(Overloaded("no"), 5000, 1.0) is None
