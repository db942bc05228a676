"""A few seconds of overload, and only what no machine can miss. The long run, with the strict figures: python -m tests.overload."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import running
from tests.overload.judgement import CREEP, table, verdicts
from tests.overload.load import DEADLINE, Scene, write_models

pytestmark = pytest.mark.alone

GENEROUS = 5.0
"""Seconds, where the promise is a tenth of one."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory: Path = tmp_path_factory.mktemp("overload")
    with running(directory / "daemon", "--config", str(write_models(directory)), "--no-grpc") as daemon:
        yield Scene(daemon, "slow", 1024)


@pytest.mark.parametrize("factor", [2.0, 10.0])
def test_too_much_is_refused_and_the_rest_is_answered_in_time(scene: Scene, factor: float) -> None:
    """C43: at once, with 429 and Retry-After; nothing is lost, the daemon is alive and does not grow, and afterwards nothing is left."""
    outcome = scene.overload(factor, scene.capacity(1.0), seconds=3.0, after=0.5)
    print(table(f"{factor:g} x capacity", verdicts(outcome)))
    statuses, seen = outcome.statuses, outcome.seen
    assert statuses.total() == len(outcome.results)
    assert set(statuses) <= {200, 429, 504}
    assert statuses[200] > 0
    assert statuses[429] > 0
    assert outcome.seconds(200)[-1] < DEADLINE + GENEROUS
    assert seen.replies
    for reply in seen.replies:
        assert reply.right
        assert (reply.status == 429) == (reply.retry_after is not None)
    assert seen.broken == []
    assert max(seen.kept + seen.fresh) < GENEROUS
    assert max(seen.memory) < outcome.before + 4 * CREEP
    assert outcome.after.ok() > 0
    assert outcome.left_over == []
