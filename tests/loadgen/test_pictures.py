"""The picture of a run: XML that is well formed, inside its page, and the same for the same run."""

import re
from array import array
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.loadgen.steps import SWEEP
from wakeful.loadgen import pictures, plot
from wakeful.loadgen.results import Results
from wakeful.loadgen.sweep import Step

SVG = "{http://www.w3.org/2000/svg}"


def results(count: int, *, failing: int = 0) -> Results:
    moments = array("d", (0.01 * number for number in range(count)))
    seconds = array("d", (0.001 + 0.0001 * (number % 37) for number in range(count)))
    status = array("h", [200] * (count - failing) + [503] * failing)
    return Results(moments, seconds, status, array("l", [0] * count), wall=max(0.01 * count, 0.01), cpu=0.1, lag=0.0)


def drawn(made: Results, path: Path, title: str = "m at http://x: 10 calls/s") -> ET.Element:
    pictures.run(made, title, path)
    return ET.fromstring(path.read_text("utf-8"))


@pytest.mark.parametrize(("count", "failing"), [(0, 0), (1, 0), (2, 2), (300, 0), (300, 40), (20_000, 10)])
def test_everything_is_on_the_page(count: int, failing: int, tmp_path: Path) -> None:
    root = drawn(results(count, failing=failing), tmp_path / "a.svg")
    for path in root.iter(f"{SVG}path"):
        numbers = list(map(float, re.findall(r"-?[\d.]+", path.get("d", ""))))
        assert all(0 <= number <= pictures.WIDTH for number in numbers)
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


@pytest.mark.parametrize("steps", [SWEEP, SWEEP[:1], []])
def test_a_sweep(steps: list[Step], tmp_path: Path) -> None:
    pictures.sweep(steps, "m & n", tmp_path / "a.svg")
    root = ET.fromstring((tmp_path / "a.svg").read_text("utf-8"))
    for circle in root.iter(f"{SVG}circle"):
        assert 0 < float(circle.get("cx", "")) < pictures.WIDTH
        assert 0 < float(circle.get("cy", "")) < pictures.HEIGHT
    assert len(list(root.iter(f"{SVG}circle"))) == 2 * len(steps)
    assert any("knee near" in (text.text or "") for text in root.iter(f"{SVG}text")) == bool(steps)


def test_a_page_holds_the_picture_and_the_figures(tmp_path: Path) -> None:
    pictures.sweep(SWEEP, "m & <n>", tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text("utf-8")
    assert "<title>m &amp; &lt;n&gt;</title>" in page
    assert page.count("<tr>") == 1 + len(SWEEP)
    assert "<svg " in page
    assert "prefers-color-scheme:dark" in page
    for foreign in ("<script", "<?xml", "http://x", "src=", "@import"):
        assert foreign not in page
    pictures.run(results(300), "m", tmp_path / "b.html")
    assert "answers/s" in (tmp_path / "b.html").read_text("utf-8")


@pytest.mark.parametrize("steps", [SWEEP, SWEEP[3:4], []])
def test_a_sweep_as_png(steps: list[Step], tmp_path: Path) -> None:
    plot.sweep(steps, "m", tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
