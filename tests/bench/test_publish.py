"""A report comes into the documents whole, and its table in place of the one before."""

from pathlib import Path

import pytest

from bench import publish
from bench.report import Report, Row

ROW = Row("A", "requests/s", "≥ 3x", "3.2x", True)


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    page = tmp_path / "README.md"
    page.write_text("Before.\n\n|  | measured as | old |\n|---|---|---|\n| B | old | old |\n\nBehind.\n", "utf-8")
    monkeypatch.setattr(publish, "HOME", tmp_path / "docs")
    monkeypatch.setattr(publish, "PAGES", (page,))
    return page


def test_a_report_is_published(tmp_path: Path, documents: Path) -> None:
    report = tmp_path / "results"
    Report([ROW], {}, "today", 1.0, 5, quick=False).write(report)
    (report / "a-speed.svg").touch()
    (report / "a-speed.png").touch()
    publish.publish(report)
    publish.publish(report)
    assert documents.read_text("utf-8") == (
        "Before.\n\n|  | measured as | must reach | measured | reached |\n|---|---|---|---|---|\n| A | requests/s | ≥ 3x | 3.2x | yes |\n\nBehind.\n"
    )
    assert sorted(path.name for path in (tmp_path / "docs").iterdir()) == ["a-speed.svg", "report.json", "report.md"]


def test_only_a_whole_report_is_published(tmp_path: Path, documents: Path) -> None:
    with pytest.raises(SystemExit, match="there is no whole report"):
        publish.publish(tmp_path / "results")
    Report([ROW], {}, "today", 1.0, 5, quick=False, complete=False).write(tmp_path / "results")
    with pytest.raises(SystemExit, match="there is no whole report"):
        publish.publish(tmp_path / "results")
    assert "old" in documents.read_text("utf-8")
