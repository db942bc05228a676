"""Each sentence of the seed names a test, and the test exists."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cluster-seed.md").read_text("utf-8")
ROW = re.compile(r"^\| (?!sentence|---)(.+) \| (.+) \|$", re.MULTILINE)
SCENARIOS = ROOT / "tests" / "cluster" / "scenarios"


@cache
def names_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))


def test_every_sentence_has_its_test() -> None:
    rows = ROW.findall(PAGE)
    assert len(rows) == 37
    for sentence, tests in rows:
        assert re.search(r"`[^`]+\.py(::test_\w+)?`|scenario \d", tests), sentence


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", PAGE)
    assert named
    for path, test in named:
        assert (ROOT / path).is_file(), path
        assert not test or test in names_in(ROOT / path), f"{path}::{test}"


def test_every_scenario_that_is_named_exists() -> None:
    there = {
        int(match[1]) for path in SCENARIOS.glob("test_*.py") for name in (path.stem, *names_in(path)) if (match := re.match(r"test_(\d\d)_", name))
    }
    named = {int(number) for number in re.findall(r"scenario (\d+)", PAGE)}
    assert named <= there
