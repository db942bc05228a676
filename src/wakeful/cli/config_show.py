"""`wakeful config show`: the settings that count, each with the line, the variable or the option that says so."""

import difflib
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from wakeful.cli.client import PREFIX, Failure
from wakeful.cli.figures import GAP, columns
from wakeful.cli.looks import printable
from wakeful.cli.options import add_options, options_of
from wakeful.cli.output import Output, add_client_options, answered, output_of
from wakeful.cli.parser import DONE, WRONG_USE, Parser
from wakeful.config.effective import written
from wakeful.config.load import load
from wakeful.config.problems import ConfigError
from wakeful.config.settings import Settings
from wakeful.config.sources import DEFAULT, Sourced, of_all, of_daemon, of_model


def add_arguments(parser: Parser) -> None:
    parser.usage = f"{parser.prog} [KEY] [option ...]"
    parser.add_argument("key", nargs="?", metavar="KEY", help="only this one, or those below it: server.port, defaults, models.NAME")
    parser.add_argument("--changed", action="store_true", help="only those that are not as by default")
    add_client_options(parser)
    add_options(parser)
    parser.epilog = "With --url, a daemon says what counts there; without, it is what counts where this command runs, as serve would find it."


def run(arguments: Namespace) -> int:
    if arguments.url is not None:
        return answered(arguments, lambda client, output: _tell(output, arguments, *_told(client.get(f"{PREFIX}/config"), arguments.key)))
    output = output_of(arguments)
    try:
        settings = load(options_of(arguments))
        return _tell(output, arguments, list(map(str, settings.files)), found(settings, arguments.key), found(settings, None))
    except ConfigError as error:
        return output.fail_configuration(error)
    except Failure as failure:
        output.fail(failure)
        return failure.exit


def _told(answer: Mapping[str, Any], key: str | None) -> tuple[list[str], list[Sourced], list[Sourced]]:
    """By a daemon."""
    every = [Sourced(one["key"], one["value"], one["source"]) for one in answer["settings"]]
    return list(answer["files"]), [one for one in every if key is None or _is_below(one.key, key)], every


def _tell(output: Output, arguments: Namespace, files: list[str], wanted: list[Sourced], every: list[Sourced]) -> int:
    """Raises Failure for a key that there is not."""
    if not wanted:
        near = difflib.get_close_matches(arguments.key, [one.key for one in every], n=1)
        hint = f"did you mean {near[0]}?" if near else "wakeful config show lists all"
        raise Failure("not_found", f"there is no setting {arguments.key}", WRONG_USE, hint)
    if arguments.changed:
        wanted = [one for one in wanted if one.source != DEFAULT]
    output.result("config", {"files": files, "settings": [one._asdict() for one in wanted]}, lambda _: lines(wanted))
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
