"""The site of the documents holds every page, no dead link, and nothing that a browser would fetch from elsewhere."""

import re
from pathlib import Path

import pytest

from tests.docs.test_docs import ROOT
from tools import site

FETCHED = re.compile(r"""<(?:script|link|img|iframe)[^>]*\s(?:src|href)=["']?(https?:)?//""")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return site.build(tmp_path_factory.mktemp("site"))


def test_every_page_is_there(built: Path) -> None:
    for page in site.pages(site.settings()["nav"]):
        path = Path(page.path)
        name = path.with_name("index.html") if path.name == "README.md" else path.with_suffix(".html")
        assert (built / name).is_file(), page


def test_no_page_asks_another_host(built: Path) -> None:
    for path in built.rglob("*.html"):
        assert not FETCHED.search(path.read_text("utf-8").replace("https://zensical.org", "")), path


def test_every_document_is_reached(built: Path, tmp_path: Path) -> None:
    assert site.stage(tmp_path) >= {path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")}


def test_programs_that_read_get_a_list_and_the_whole(built: Path) -> None:
    listed = (built / "llms.txt").read_text("utf-8")
    assert listed.startswith("# Wakeful\n\n> A server for")
    for page in site.pages(site.settings()["nav"]):
        (line,) = (line for line in listed.splitlines() if line.startswith(f"- [{page.title}]({page.path}): "))
        assert line.endswith((".", ")")), line
    assert "# Glossary" in (built / "llms-full.txt").read_text("utf-8")
