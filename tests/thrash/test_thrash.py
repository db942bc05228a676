"""A short run of each kind, so that all are known to work. The long ones: python -m tests.thrash --seconds 60."""

from pathlib import Path

import pytest

from tests.thrash.__main__ import thrash
from tests.thrash.park import Case, Park

CASES = (
    Case("one fits", 50, 1, skewed=True, clients=3),
    Case("half fit", 16, 8, pinned=2, never_idle=1),
    Case("all but one fit", 8, 7, pinned=1, never_idle=1),
    Case("two large, one fits", 2, 1, large=2, never_idle=2, clients=0),
)


@pytest.fixture(scope="module")
def park(tmp_path_factory: pytest.TempPathFactory) -> Park:
    park = Park(tmp_path_factory.mktemp("park"))
    park.measure()
    return park


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nothing_fails_and_nobody_goes_without_need(park: Park, tmp_path: Path, case: Case) -> None:
    """C29, C30."""
    report = thrash(park, tmp_path, case, 1.0, seed=1)
    assert report.problems == []
    assert report.requests > 0
    assert report.loads > 1
