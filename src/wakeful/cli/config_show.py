"""`wakeful config show`: the settings that count, each with the line, the variable or the option that says so."""

import difflib
import sys
from argparse import Namespace
from collections.abc import Sequence

from wakeful.cli.figures import GAP, columns
from wakeful.cli.looks import printable
from wakeful.cli.options import add_options, options_of
from wakeful.cli.output import Output
from wakeful.cli.parser import DONE, WRONG_USE, Parser, complain
from wakeful.config.effective import written
from wakeful.config.load import load
from wakeful.config.problems import ConfigError
from wakeful.config.settings import Settings
from wakeful.config.sources import DEFAULT, Sourced, of_all, of_daemon, of_model


def add_arguments(parser: Parser) -> None:
    parser.usage = f"{parser.prog} [KEY] [option ...]"
    parser.add_argument("key", nargs="?", metavar="KEY", help="only this one, or those below it: server.port, defaults, models.NAME")
    parser.add_argument("--changed", action="store_true", help="only those that are not as by default")
    parser.add_argument("--json", action="store_true", help="for programs")
    add_options(parser)


def run(arguments: Namespace) -> int:
    try:
        settings = load(options_of(arguments))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return WRONG_USE
    wanted = found(settings, arguments.key)
    if not wanted:
        near = difflib.get_close_matches(arguments.key, [one.key for one in found(settings, None)], n=1)
        hint = f"did you mean {near[0]}?" if near else "wakeful config show lists all"
        complain(f"there is no setting {arguments.key}", ("hint", hint))
        return WRONG_USE
    if arguments.changed:
        wanted = [one for one in wanted if one.source != DEFAULT]
    data = {"files": list(map(str, settings.files)), "settings": [one._asdict() for one in wanted]}
    Output(json=arguments.json).result("config", data, lambda _: lines(wanted))
    return DONE


def found(settings: Settings, key: str | None) -> list[Sourced]:
    """Without a key, of each model only what is not as all models have it."""
    models = [(model.key, list(of_model(model, settings))) for model in settings.models]
    if key is None:
        return list(of_all(settings, models))
    every = [*of_daemon(settings), *(one._replace(key=f"models.{name}.{one.key}") for name, own in models for one in own)]
    return [one for one in every if _is_below(one.key, key)]


def _is_below(key: str, wanted: str) -> bool:
    return key == wanted or key.startswith(f"{wanted}.")


def lines(settings: Sequence[Sourced]) -> list[str]:
    rows = [[one.key, "-" if one.value is None else printable(written(one.value)), printable(one.source)] for one in settings]
    return [GAP.join(row).rstrip() for row in columns([["KEY", "VALUE", "SOURCE"], *rows])]
