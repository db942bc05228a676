"""The schema for editors: the file that lies among the documents is up to date, and whatever the documents and the examples show is right by it."""

import re
import tomllib
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from wakeful.config.json_schema import json_schema, page
from wakeful.config.schema import SECTIONS

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = {
    str(file.relative_to(ROOT)): blocks
    for file in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
    if (blocks := BLOCK.findall(file.read_text("utf-8")))
}
FILES = sorted([*(ROOT / "examples").rglob("models.toml"), *(ROOT / "deploy").rglob("models.toml")])


def test_the_file_is_up_to_date() -> None:
    made = "python -m wakeful.config.json_schema > docs/reference/models.schema.json"
    assert (ROOT / "docs/reference/models.schema.json").read_text("utf-8") == page(), made


@pytest.mark.parametrize("name", PAGES)
def test_what_the_documents_show_is_right(name: str) -> None:
    documents = [tomllib.loads(block) for block in PAGES[name]]
    for document in documents:
        if document.keys() & set(SECTIONS):  # else it is another file, such as a Python model's
            jsonschema.validate(document, json_schema(), jsonschema.Draft202012Validator)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_examples_are_right(file: Path) -> None:
    jsonschema.validate(tomllib.loads(file.read_text("utf-8")), json_schema(), jsonschema.Draft202012Validator)
