"""`wakeful doctor`: can this machine do it, with this configuration?"""

import json
import shutil
import sys
import textwrap
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path

from wakeful.cli.options import add_options, options_of
from wakeful.cli.parser import DONE, NO, Parser
from wakeful.config.effective import effective
from wakeful.config.load import load
from wakeful.config.problems import ConfigError, Problem
from wakeful.config.settings import Settings
from wakeful.insight.doctor import Check, examine, failed
from wakeful.insight.readings import Readings, take

LABEL = 6


def add_arguments(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    parser.add_argument("--report", action="store_true", help="a page to put into an issue: checks, versions and settings; no keys, no secrets")
    add_options(parser)


def run(arguments: Namespace) -> int:
    settings: Settings | None = None
    problems: tuple[Problem, ...] = ()
    try:
        settings = load(options_of(arguments))
    except ConfigError as error:
        problems = tuple(error.problems)
    readings = take(settings, problems)
    checks = examine(readings)
    if arguments.json:
        print(json.dumps({"wakeful": 1, "kind": "doctor", "data": {"checks": [check._asdict() for check in checks]}}))
    elif arguments.report:
        print(report(readings, checks, settings))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print("\n".join(lines(checks, width)))
    return NO if failed(checks) else DONE


def lines(checks: Iterable[Check], width: int | None) -> Iterator[str]:
    """As people read them. `width`: columns of the terminal; None: no line is broken."""
    for check in checks:
        yield from _wrapped(f"{'FAIL' if check.level == 'fail' else check.level:<{LABEL}}", check.text, LABEL, width)
        if check.hint is not None and check.level != "ok":
            yield from _wrapped(f"{'':<{LABEL}}hint  ", check.hint, 2 * LABEL, width)


def _wrapped(label: str, text: str, indent: int, width: int | None) -> list[str]:
    if width is None:
        return [label + text]
    return textwrap.wrap(text, max(width, 40), initial_indent=label, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def report(readings: Readings, checks: Iterable[Check], settings: Settings | None) -> str:
    """Markdown for an issue. Whose machine it is does not show in it: the home directory is `~`."""
    parts = [
        f"wakeful {readings.version}, Python {readings.python}, {readings.system} {readings.kernel}",
        f"```\n{chr(10).join(lines(checks, None))}\n```",
        f"```toml\n{effective(settings).rstrip() if settings is not None else '# the configuration is wrong'}\n```",
    ]
    text, home = "\n\n".join(parts), str(Path.home())
    return text if home == "/" else text.replace(home, "~")
