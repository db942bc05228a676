"""Puts a report where the documents show it: `python -m bench.publish [DIR]` copies it to docs/performance and renews the table of its headlines.

A test holds the tables and the report together (tests/docs/test_performance.py).
"""

import re
import shutil
import sys
from pathlib import Path

from bench.report import earlier, headline

ROOT = Path(__file__).parents[1]
HOME = ROOT / "docs" / "performance"
PAGES = (ROOT / "docs" / "performance.md",)
TABLE = re.compile(r"^\|  \| measured as \|.*?(?=^\s*$)", re.MULTILINE | re.DOTALL)
"""From its first line to the empty one behind it."""
KINDS = (".md", ".json", ".svg")


def publish(source: Path) -> None:
    report = earlier(source)
    if report is None or not report.complete:
        raise SystemExit(f"there is no whole report in {source}; make one: make bench")
    HOME.mkdir(exist_ok=True)
    for file in HOME.iterdir():
        file.unlink()
    for file in source.iterdir():
        if file.suffix in KINDS:
            shutil.copy(file, HOME)
    table = "\n".join(headline(report.rows)) + "\n"
    for page in PAGES:
        text, count = TABLE.subn(lambda _: table, page.read_text("utf-8"))
        if count != 1:
            raise SystemExit(f"{page} has {count} tables of this kind instead of one")
        page.write_text(text, "utf-8")


if __name__ == "__main__":
    publish(Path(sys.argv[1] if len(sys.argv) > 1 else "bench/results"))
