"""`wakeful check`: all that `serve` would say of a configuration before it listens."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from wakeful.cli.options import add_options, options_of
from wakeful.cli.parser import DONE, NO, Parser
from wakeful.config.effective import effective
from wakeful.config.kinds import KINDS
from wakeful.config.load import load
from wakeful.config.problems import ConfigError, Problem, render
from wakeful.config.settings import Settings
from wakeful.telemetry.units import counted

FORMATS = ("text", "json", "github")


def add_arguments(parser: Parser) -> None:
    parser.usage = "wakeful check [FILE] [option ...]"
    parser.add_argument("config", nargs="?", type=Path, metavar="FILE", help="models.toml or models.json")
    parser.add_argument("--show", action="store_true", help="write out all settings that count, as a file would have them; no keys, no secrets")
    parser.add_argument("--format", choices=FORMATS, default="text", help="text (default), json, or github for annotations of a pull request")
    parser.add_argument("--json", action="store_const", const="json", dest="format", help="the same as --format json")
    add_options(parser, config=False)
    parser.epilog = f"Models' files are not opened: what is wrong inside one is said when the model is asked for. {parser.epilog}"


def run(arguments: Namespace) -> int:
    """Problems are this command's result, so they go to stdout."""
    try:
        settings = load(options_of(arguments))
    except ConfigError as error:
        _tell(arguments.format, error.problems, None)
        return NO
    if arguments.show:
        if settings.warnings:
            print(render(settings.warnings), file=sys.stderr)
        print(effective(settings), end="")
        return DONE
    _tell(arguments.format, [*settings.warnings, *_empty(settings)], settings)
    return DONE


def _empty(settings: Settings) -> Iterator[Problem]:
    for model in settings.models:
        if model.path.is_file() and not model.path.stat().st_size:
            yield Problem("empty-file", f"{model.path} is empty, so that {model.key} cannot be loaded", severity="warning")


def _tell(form: str, problems: Iterable[Problem], settings: Settings | None) -> None:
    problems = list(problems)
    if form == "json":
        print(json.dumps({"wakeful": 1, "kind": "check", "data": data(problems, settings)}, ensure_ascii=False))
    elif form == "github":
        print(*map(annotation, problems), sep="\n", end="\n" if problems else "")
    else:
        if problems:
            print(render(problems))
        if settings is not None:
            print(*summary(settings), sep="\n")


def summary(settings: Settings) -> Iterator[str]:
    """Of a configuration that is right: what foreign files say, and how many models there are."""
    for model in {model.id: model for model in settings.models}.values():
        if model.foreign is not None:
            yield f"{model.id}, by {model.foreign.file}:"
            yield from (f"  {what} {field}" for what, fields in model.foreign.parts for field in fields)
    models = _names(settings)
    names = [*models, *(pipeline.id for pipeline in settings.pipelines)]
    counts = [counted(len(models), "model"), *([counted(len(settings.pipelines), "pipeline")] if settings.pipelines else [])]
    yield f"{' and '.join(counts)}, no error: {', '.join(names) or 'nothing to serve yet'}"


def data(problems: list[Problem], settings: Settings | None) -> dict[str, Any]:
    errors = sum(problem.severity == "error" for problem in problems)
    return {
        "errors": errors, "warnings": len(problems) - errors, "problems": [
            {
                "severity": problem.severity, "code": problem.code, "message": problem.message, "file": problem.file, "line": problem.line,
                "column": problem.column, "width": problem.place.width if problem.place and problem.line else None, "key": problem.key,
                "hint": problem.hint,
            }
            for problem in problems
        ],
        "models": None if settings is None else _names(settings),
        "pipelines": None if settings is None else [pipeline.id for pipeline in settings.pipelines],
    }


def annotation(problem: Problem) -> str:
    """A workflow command of GitHub's: it puts the message beside the line."""
    where = {"title": problem.code} if problem.line is None else {
        "file": problem.file, "line": problem.line, "col": problem.column, "title": problem.code,
    }
    place = ",".join(f"{name}={_escaped(str(value)).replace(':', '%3A').replace(',', '%2C')}" for name, value in where.items())
    hint = f" (hint: {problem.hint})" if problem.hint else ""
    said = f"{problem.file}: {problem.message}" if problem.file and problem.line is None else problem.message  # an option, a variable, a whole file
    return f"::{problem.severity} {place}::{_escaped(said + hint)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _names(settings: Settings) -> list[str]:
    return [model.key for model in settings.models if not KINDS[model.backend].serves_models]
