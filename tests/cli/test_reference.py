"""docs/cli.md says what the parsers say."""

from pathlib import Path

from wakeful.cli import status
from wakeful.cli.completion import line_of
from wakeful.cli.main import FIRST, VERBS
from wakeful.cli.reference import STATUSES, reference
from wakeful.config.schema import OverrideTable

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == reference(), "python -m wakeful.cli.reference > docs/cli.md"


def test_every_verb_option_and_status_is_on_it() -> None:
    page, keys = reference(), {f"--{key.replace('_', '-')}" for key in OverrideTable.model_fields}
    for verb, entry in VERBS.items():
        assert f"## wakeful {verb}\n" in page
        for option in line_of(verb, entry).options:
            if "--help" not in option.flags and not keys.intersection(option.flags):
                assert f"`{option.flags[-1]}" in page, (verb, option)
    assert set(STATUSES) == {value for name, value in vars(status).items() if name.isupper()}


def test_what_a_beginner_sees_are_verbs() -> None:
    named = [line.split()[1] for line in FIRST.splitlines() if line.startswith("  wakeful ") and "--help" not in line]
    assert len(named) == 6
    assert set(named) <= set(VERBS)
