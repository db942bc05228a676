"""A short run of the soak test, so that it is known to work. The long one: make soak MINUTES=30."""

from pathlib import Path

import pytest

from tests.soak.__main__ import soak

pytestmark = pytest.mark.alone


def test_nothing_is_lost_and_nobody_hurt(tmp_path: Path) -> None:
    report = soak(tmp_path, 12.0, seed=1)
    print(report.text())
    assert report.problems == []
    assert report.faults.total() > 5
