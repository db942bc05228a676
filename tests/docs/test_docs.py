"""What the documents point at exists, and the pages that are made from the code are up to date."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from wakeful.config.kinds import KINDS
from wakeful.frontends.grpc import method_reference as grpc_page
from wakeful.frontends.http import reference as errors_page
from wakeful.frontends.http.errors import OIP_STATUS
from wakeful.telemetry import reference as metrics_page
from wakeful.telemetry.metrics import DEFINITIONS

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FILE = re.compile(r"`([\w./-]+\.py)`")
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
MODULES = {path.name for folder in ("src", "tests", "tools") for path in (ROOT / folder).rglob("*.py")}
MODULES |= {marker for kind in KINDS.values() for marker in kind.markers}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(CODE.sub("", page.read_text("utf-8"))):
        assert "://" not in link or link.startswith("https://"), link
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT), link
        assert target.is_file(), f"{page.name}: {link}"
        if anchor:
            anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in HEADING.findall(target.read_text("utf-8"))}
            assert anchor in anchors, link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path) -> None:
    for name in FILE.findall(page.read_text("utf-8")):
        assert (ROOT / name).is_file() or name in MODULES, f"{page.name}: {name}"


def test_every_decision_is_in_the_list_and_short() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = LINK.findall((folder / "README.md").read_text("utf-8"))
    assert listed == sorted(path.name for path in folder.glob("[0-9]*.md"))
    for path in folder.glob("[0-9]*.md"):
        text = path.read_text("utf-8")
        assert text.startswith(f"# {int(path.name[:2])}. ")
        assert len(text.splitlines()) <= 50


@pytest.mark.parametrize(("page", "made"), [
    ("errors.md", errors_page.reference), ("grpc.md", grpc_page.reference), ("metrics.md", metrics_page.reference),
])
def test_pages_made_from_the_code_are_up_to_date(page: str, made: Callable[[], str]) -> None:
    assert (ROOT / "docs" / page).read_text("utf-8") == made(), "run: make docs"


def test_those_pages_are_complete() -> None:
    assert all(f"| `{name}` |" in metrics_page.reference() for name in DEFINITIONS)
    assert all(f"| `{code}` |" in errors_page.reference() for code in OIP_STATUS)


def test_settings_that_the_documents_name_exist() -> None:
    """Names with a unit at their end are settings, in whatever page they stand."""
    from wakeful.config.schema import TABLES

    known = {key for table in TABLES.values() for key in table.model_fields} | {"max_delay_ms", "duration_ms", "client_timeout_ms"}
    for page in PAGES:
        if page.name == "json.md":
            continue  # names of fields in answers, which test_forms.py holds
        for name in re.findall(r"`?\b(\w+_(?:secs|ms))\b", page.read_text("utf-8")):
            assert name in known or not name.islower(), f"{page.name}: {name}"
