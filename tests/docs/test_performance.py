"""The figures that the documents show are those of the report that lies beside them."""

import re
from pathlib import Path

import pytest

from bench.report import Report, earlier, headline

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def report() -> Report:
    found = earlier(DOCS / "performance")
    assert found is not None
    return found


def test_the_report_is_a_whole_one(report: Report) -> None:
    assert report.complete
    assert not report.quick
    assert "".join(row.letter for row in report.rows) == "ABCDEFGHIJKLMN"


@pytest.mark.parametrize("page", ["performance.md", "performance/report.md"])
def test_its_first_table_stands_in_the_documents(report: Report, page: str) -> None:
    assert "\n".join(headline(report.rows)) in (DOCS / page).read_text("utf-8")


def test_the_readme_shows_its_figures(report: Report) -> None:
    """Those in bold letters."""
    section = (DOCS.parent / "README.md").read_text("utf-8").partition("## Measure it\n")[2].partition("\n## ")[0]
    shown = re.findall(r"\*\*(.+?)\*\*", section, re.DOTALL)
    assert len(shown) == 5
    measured = " ".join(row.measured for row in report.rows)
    assert [figure for figure in shown if " ".join(figure.split()) not in measured] == []
