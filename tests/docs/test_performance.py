"""The figures that the documents show are those of the report that lies beside them."""

import json
from pathlib import Path

import pytest

from bench.report import Row, headline

DOCS = Path(__file__).parents[2] / "docs"
REPORT = DOCS / "performance" / "report.json"


def test_the_report_is_a_whole_one() -> None:
    report = json.loads(REPORT.read_text("utf-8"))
    assert report["complete"]
    assert not report["quick"]
    assert "".join(row["letter"] for row in report["rows"]) == "ABCDEFGHIJKLMN"


@pytest.mark.parametrize("page", ["../README.md", "performance.md", "performance/report.md"])
def test_its_first_table_stands_in_the_documents(page: str) -> None:
    rows = [
        Row(row["letter"], row["title"], row["target"], row["measured"], row["reached"], near=row["verdict"] == "near")
        for row in json.loads(REPORT.read_text("utf-8"))["rows"]
    ]
    assert "\n".join(headline(rows)) in (DOCS / page).read_text("utf-8")
