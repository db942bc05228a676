"""docs/cli.md says what the parsers say."""

import re
from pathlib import Path

from wakeful.cli import status
from wakeful.cli.client import KEY_VARIABLE, URL_VARIABLE
from wakeful.cli.main import FIRST, VERBS
from wakeful.cli.reference import STATUSES, parser_of_verb, reference, verbs
from wakeful.config.cluster import NAMES
from wakeful.config.service import SERVICE_VARIABLES

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == reference(), "python -m wakeful.cli.reference > docs/cli.md"


def test_every_verb_has_its_options_on_it() -> None:
    """Of each verb where it stands, or among those that it has in common with others."""
    page = reference()
    common = page[page.index("## Options in common") : page.index("## wakeful serve")]
    for name, entry in verbs():
        section = page[page.index(f"## {name}\n") :].partition("\n## ")[0]
        assert f"[`{name}`](#{name.replace(' ', '-')})" in page
        if entry.group:
            continue
        for action in parser_of_verb(name, entry)._actions:
            flag = (action.option_strings or [str(action.metavar or "")])[-1]
            assert flag in section or f"`{flag}" in common or f", {flag}" in common, (name, flag)
        assert f"\n{name}" in section, "how it is called"


def test_every_status_and_variable_is_on_it() -> None:
    assert set(STATUSES) == {value for name, value in vars(status).items() if name.isupper()}
    page = reference()
    source = "".join(path.read_text("utf-8") for path in (Path(status.__file__).parent).glob("*.py"))
    read = set(re.findall(r'environ(?:\.get\(|\[)"(\w+)"', source)) - {"GRPC_ENABLE_FORK_SUPPORT"}  # which it sets
    for name in {*read, URL_VARIABLE, KEY_VARIABLE, *SERVICE_VARIABLES, "NO_COLOR", "LC_ALL", "XDG_CACHE_HOME", NAMES["controllers"][0]}:
        assert f"`{name}`" in page, name


def test_no_help_is_empty_or_of_another_making() -> None:
    """What Python adds to help texts differs from version to version."""
    page = reference()
    assert "%(" not in page
    assert "(default: None)" not in page
    assert " |  |" not in page


def test_what_a_beginner_sees_are_verbs() -> None:
    named = [line.split()[1] for line in FIRST.splitlines() if line.startswith("  wakeful ") and "--help" not in line]
    assert len(named) == 6
    assert set(named) <= set(VERBS)
