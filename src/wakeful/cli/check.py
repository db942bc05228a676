"""`wakeful check`: all that `serve` would say of a configuration before it listens."""

import sys
from argparse import Namespace
from pathlib import Path

from wakeful.cli.options import add_options, options_of
from wakeful.cli.parser import DONE, NO, Parser
from wakeful.config.effective import effective
from wakeful.config.kinds import KINDS
from wakeful.config.load import load
from wakeful.config.problems import ConfigError, render


def add_arguments(parser: Parser) -> None:
    parser.usage = "wakeful check [FILE] [option ...]"
    parser.add_argument("config", nargs="?", type=Path, metavar="FILE", help="models.toml or models.json")
    parser.add_argument("--show", action="store_true", help="write out all settings that count, as a file would have them; no keys, no secrets")
    add_options(parser, config=False)


def run(arguments: Namespace) -> int:
    """Problems are this command's result, so they go to stdout."""
    try:
        settings = load(options_of(arguments))
    except ConfigError as error:
        print(error)
        return NO
    if arguments.show:
        if settings.warnings:
            print(render(settings.warnings), file=sys.stderr)
        print(effective(settings), end="")
        return DONE
    if settings.warnings:
        print(render(settings.warnings))
    for model in {model.id: model for model in settings.models}.values():
        if model.foreign is not None:
            print(f"{model.id}, by {model.foreign.file}:")
            print(*(f"  {what} {field}" for what, fields in model.foreign.parts for field in fields), sep="\n")
    models = [model.key for model in settings.models if not KINDS[model.backend].serves_models]
    names = [*models, *(pipeline.id for pipeline in settings.pipelines)]
    counts = [_counted(len(models), "model"), *([_counted(len(settings.pipelines), "pipeline")] if settings.pipelines else [])]
    print(f"{' and '.join(counts)}, no error: {', '.join(names) or 'nothing to serve yet'}")
    return DONE


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
