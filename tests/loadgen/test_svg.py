"""The picture of a run: XML that is well formed, inside its page, and the same for the same run."""

import re
from array import array
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from wakeful.loadgen import svg
from wakeful.loadgen.results import Results

SVG = "{http://www.w3.org/2000/svg}"


def results(count: int, *, failing: int = 0) -> Results:
    moments = array("d", (0.01 * number for number in range(count)))
    seconds = array("d", (0.001 + 0.0001 * (number % 37) for number in range(count)))
    status = array("h", [200] * (count - failing) + [503] * failing)
    return Results(moments, seconds, status, array("l", [0] * count), wall=max(0.01 * count, 0.01), cpu=0.1, lag=0.0)


def drawn(made: Results, path: Path, title: str = "m at http://x: 10 calls/s") -> ET.Element:
    svg.plot(made, title, path)
    return ET.fromstring(path.read_text("utf-8"))


@pytest.mark.parametrize(("count", "failing"), [(0, 0), (1, 0), (2, 2), (300, 0), (300, 40), (20_000, 10)])
def test_everything_is_on_the_page(count: int, failing: int, tmp_path: Path) -> None:
    root = drawn(results(count, failing=failing), tmp_path / "a.svg")
    for path in root.iter(f"{SVG}path"):
        numbers = list(map(float, re.findall(r"-?[\d.]+", path.get("d", ""))))
        assert all(0 <= number <= svg.WIDTH for number in numbers)
    assert (tmp_path / "a.svg").stat().st_size < 100_000
    assert ("failures/s (dashed)" in (tmp_path / "a.svg").read_text("utf-8")) == (count > 2 and failing > 0)


def test_the_same_run_is_the_same_file(tmp_path: Path) -> None:
    drawn(results(300), tmp_path / "a.svg")
    drawn(results(300), tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_names_are_text(tmp_path: Path) -> None:
    root = drawn(results(30), tmp_path / "a.svg", "<script>&\x1b")
    assert root.findall(f".//{SVG}script") == []
    assert any(text.text == "<script>& " for text in root.iter(f"{SVG}text"))
