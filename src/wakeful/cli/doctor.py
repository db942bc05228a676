"""`wakeful doctor`: can this machine do it, with this configuration? Or, of a daemon that runs: can that one, where it runs?"""

import textwrap
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path

from wakeful.cli.client import PREFIX, Client
from wakeful.cli.looks import Looks, printable
from wakeful.cli.options import add_options, options_of
from wakeful.cli.output import Output, add_client_options, answered, output_of
from wakeful.cli.parser import DONE, NO, WRONG_USE, Parser, complain
from wakeful.config.effective import effective
from wakeful.config.load import load
from wakeful.config.problems import ConfigError, Problem
from wakeful.config.settings import Settings
from wakeful.insight.doctor import Check, examine, failed
from wakeful.insight.readings import Readings, take

LABEL = 6
NARROWEST = 40
COLOURS = {"ok": "ready", "warn": "warn", "fail": "failed"}


def add_arguments(parser: Parser) -> None:
    parser.add_argument("--report", action="store_true", help="a page to put into an issue: checks, versions and settings; no keys, no secrets")
    add_client_options(parser)
    add_options(parser)
    parser.epilog = "With --url, a daemon says it of its own surroundings; without, it is said of where this command runs, as serve would find it."


def run(arguments: Namespace) -> int:
    if arguments.url is not None:
        if arguments.report:
            complain("a report is about where this command runs", ("hint", "leave out --url, and run it where the daemon runs"))
            return WRONG_USE
        return answered(arguments, _ask)
    settings: Settings | None = None
    problems: tuple[Problem, ...] = ()
    try:
        settings = load(options_of(arguments))
    except ConfigError as error:
        problems = tuple(error.problems)
    readings = take(settings, problems)
    checks = examine(readings)
    if arguments.report:
        print(report(readings, checks, settings))
    else:
        _tell(output_of(arguments), checks)
    return NO if failed(checks) else DONE


def _ask(client: Client, output: Output) -> int:
    checks = [Check(check["level"], check["name"], check["text"], check["hint"]) for check in client.get(f"{PREFIX}/doctor")["checks"]]
    _tell(output, checks)
    return NO if failed(checks) else DONE


def _tell(output: Output, checks: list[Check]) -> None:
    shown = [check for check in checks if check.level != "ok"] if output.quiet else checks
    output.result("doctor", {"checks": [check._asdict() for check in checks]}, lambda looks: lines(shown, looks))


def lines(checks: Iterable[Check], looks: Looks) -> Iterator[str]:
    """As people read them."""
    for check in checks:
        word = "FAIL" if check.level == "fail" else check.level
        first, *more = _wrapped(check.text, LABEL, looks.width)
        yield looks.paint(word, COLOURS[check.level]) + " " * (LABEL - len(word)) + first
        yield from (" " * LABEL + line for line in more)
        if check.hint is not None and check.level != "ok":
            first, *more = _wrapped(check.hint, 2 * LABEL, looks.width)
            yield f"{'':<{LABEL}}hint  {first}"
            yield from (" " * 2 * LABEL + line for line in more)


def _wrapped(text: str, indent: int, width: int | None) -> list[str]:
    text = printable(text)
    if width is None:
        return [text]
    return textwrap.wrap(text, max(width, NARROWEST) - indent, break_long_words=False, break_on_hyphens=False)


def report(readings: Readings, checks: Iterable[Check], settings: Settings | None) -> str:
    """Markdown for an issue. Whose machine it is does not show in it: the home directory is `~`."""
    parts = [
        f"wakeful {readings.version}, Python {readings.python}, {readings.system} {readings.kernel}",
        f"```\n{chr(10).join(lines(checks, Looks()))}\n```",
        f"```toml\n{effective(settings).rstrip() if settings is not None else '# the configuration is wrong'}\n```",
    ]
    text, home = "\n\n".join(parts), str(Path.home())
    return text if home == "/" else text.replace(home, "~")
