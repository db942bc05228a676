"""What the report says of rows, and the pictures beside it."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from bench import plots
from bench.report import Plot, Report, Row, earlier, failed, headline, table

BARS = Plot("speed", "Speed", {"": [("Wakeful", 30_000.0), ("Triton", 9_000.0)]}, y="requests/s", kind="bars", log_y=True)
GROUPS = Plot("latency", "Latency", {"p50": [("Wakeful", 1.0), ("Triton", 2.0)], "p99": [("Wakeful", 3.0), ("Triton", 9.0)]}, kind="bars")
LINES = Plot("load", "Load", {"p99": [(10.0, 1.0), (50.0, 2.0)], "p50": [(10.0, 0.5), (50.0, 0.7)]}, x="%", y="ms")
FAST = Row("A", "requests/s", "≥ 3x", "3.2x", True, [{"server": "Wakeful", "requests/s": 31234.5}], "Measured *here*.", (BARS, GROUPS))
NEAR = Row("B", "CPU", "≤ 40 %", "42 %", False, near=True)


def report(*rows: Row, complete: bool = True) -> Report:
    return Report(rows, {"processor": "a fast one"}, "2026-11-30 12:00+00:00", 61.0, 5, False, complete)


@pytest.mark.parametrize(
    ("reached", "near", "verdict"), [(True, False, "yes"), (False, False, "no"), (False, True, "near"), (None, False, "not measured")],
)
def test_a_verdict_is_one_word(reached: bool | None, near: bool, verdict: str) -> None:
    assert Row("A", "", "", "", reached, near=near).verdict == verdict


def test_the_headline_has_one_line_a_row() -> None:
    lines = headline([FAST, NEAR])
    assert len(lines) == 4
    assert lines[2] == "| A | requests/s | ≥ 3x | 3.2x | yes |"
    assert lines[3].endswith("| near |")


def test_a_table_aligns_numbers_and_keeps_text_from_being_markup() -> None:
    lines: list[Mapping[str, object]] = [{"what": "a|b <i>", "ms": 0.012345, "n": 3}, {"what": "c", "ms": float("nan"), "more": True}]
    assert table(lines) == [
        "| what | ms | n | more |", "|---|--:|--:|--:|", "| a\\|b &lt;i> | 0.01235 | 3 |  |", "| c | - |  | yes |",
    ]
    assert table([]) == []


@pytest.mark.parametrize(("value", "shown"), [(31234.5, "31234"), (1.5, "1.5"), (0.0, "0"), (12.3456, "12.35"), (-0.5, "-0.5"), (99.999, "100")])
def test_numbers_have_the_figures_that_say_something(value: float, shown: str) -> None:
    assert table([{"x": value}])[2] == f"| {shown} |"


def test_a_report_is_read_again(tmp_path: Path) -> None:
    assert earlier(tmp_path) is None
    report(FAST, NEAR).write(tmp_path)
    text = (tmp_path / "report.md").read_text("utf-8")
    again = earlier(tmp_path)
    assert again is not None
    again.write(tmp_path)
    assert (tmp_path / "report.md").read_text("utf-8") == text


def test_the_report_names_machine_runs_and_pictures(tmp_path: Path) -> None:
    report(FAST, NEAR).write(tmp_path)
    text = (tmp_path / "report.md").read_text("utf-8")
    for part in ("Absolute figures are those of this machine", "a fast one", "## A: requests/s", "(a-speed.svg)", "31234", "Measured \\*here\\*"):
        assert part in text
    assert "interrupted" not in text
    data = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert [row["verdict"] for row in data["rows"]] == ["yes", "near"]
    assert data["rows"][0]["runs"] == [{"server": "Wakeful", "requests/s": 31234.5}]
    assert data["machine"] == {"processor": "a fast one"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "report.md"]


def test_lines_of_another_kind_are_another_table() -> None:
    row = Row("D", "saturation", "", "", True, [{"a": 1, "b": 2}, {"c": 3}, {"a": 4, "b": 5}])
    text = report(row).markdown()
    assert "| a | b |\n|--:|--:|\n| 1 | 2 |\n| 4 | 5 |\n\n| c |" in text


def test_an_interrupted_report_says_so() -> None:
    assert "interrupted" in report(FAST, complete=False).markdown()


def test_what_has_no_value_is_null_in_json() -> None:
    row = Row("A", "", "", "", True, [{"p99": float("nan"), "cpu": float("inf"), "file": Path("x")}])
    assert json.loads(report(row).json())["rows"][0]["runs"] == [{"p99": None, "cpu": None, "file": "x"}]


def test_a_row_that_broke_off_keeps_its_reason() -> None:
    row = failed("H", RuntimeError("no file"))
    assert (row.verdict, row.measured) == ("not measured", "failed")
    assert "RuntimeError: no file" in report(row).markdown()


def test_pictures_are_png_and_svg(tmp_path: Path) -> None:
    row = Row("F", "", "", "", True, plots=(BARS, GROUPS, LINES))
    assert plots.draw([row], tmp_path) == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"f-{name}.{kind}" for name in ("latency", "load", "speed") for kind in ("png", "svg")
    ]
    assert (tmp_path / "f-speed.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "f-speed.svg").read_text("utf-8")
    assert "Triton" in svg
    assert "this machine" in svg


def test_no_plot_needs_no_library(tmp_path: Path) -> None:
    assert plots.draw([NEAR], tmp_path / "none") == ""
    assert not (tmp_path / "none").exists()
