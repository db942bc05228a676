"""Texts that are compared with files. `GOLDEN=write pytest ...` writes them anew; what has changed is then read in the difference."""

import os
from pathlib import Path

DIRECTORY = Path(__file__).parent / "golden"


def assert_golden(name: str, text: str) -> None:
    file = DIRECTORY / name
    if os.environ.get("GOLDEN") == "write":
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
