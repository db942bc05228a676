"""When calls are due: rates, shapes, seeds, and files of moments."""

from array import array
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from wakeful.errors import InvalidInput
from wakeful.loadgen.arrivals import bursts, poisson, read_trace, steps


def test_poisson_has_its_rate_and_spread() -> None:
    due = poisson(1000, 20)
    assert isinstance(due, array)
    assert list(due) == sorted(due)
    assert 0 <= due[0] < due[-1] < 20
    assert len(due) == pytest.approx(20_000, rel=0.03)
    gaps = np.diff(due)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)  # as an exponential distribution has it


def test_the_seed_decides() -> None:
    assert poisson(100, 2) == poisson(100, 2, 1)
    assert poisson(100, 2, 1) != poisson(100, 2, 2)


def test_steps_follow_each_other() -> None:
    due = np.array(steps([(10, 10), (10, 1000), (5, 0)], 3))
    first, second = (due < 10).sum(), ((due >= 10) & (due < 20)).sum()
    assert first == pytest.approx(100, rel=0.4)
    assert second == pytest.approx(10_000, rel=0.05)
    assert first + second == len(due)
    assert list(steps([])) == []


def test_bursts() -> None:
    due = np.array(bursts(10, 1000, period=2, duty=0.25, seconds=9))
    inside = due % 2 < 0.5
    assert inside.sum() == pytest.approx(2500, rel=0.1)
    assert (~inside).sum() == pytest.approx(65, rel=0.5)
    assert due.max() < 9
    assert list(bursts(0, 0, 1, 0.5, 1)) == []
    with pytest.raises(InvalidInput, match="duty"):
        bursts(1, 2, 1, 1.5, 1)


def test_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("# seconds\n12.5\n\n10, fraud\n11.25 anything\n", encoding="utf-8")
    due = read_trace(path)
    assert list(due) == [0, 1.25, 2.5]
    assert all(later >= earlier for earlier, later in pairwise(due))
    path.write_text("1\nsoon\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match="line 2: expected a moment in seconds, got 'soon'"):
        read_trace(path)
    path.write_text("", encoding="utf-8")
    assert list(read_trace(path)) == []
