"""`wakeful init`: a commented models.toml for the models that lie in a directory."""

import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path

from wakeful.cli.parser import DONE, NO, WRONG_USE, Parser, complain
from wakeful.config.effective import written
from wakeful.config.layouts import Found, models_in
from wakeful.config.problems import Problem
from wakeful.config.reference import shown_default
from wakeful.config.schema import BudgetTable, ModelTable
from wakeful.telemetry.units import counted

FILES = ("models.toml", "models.json")
BOUNDS = ("memory_limit", "max_loaded_models")
OFTEN = ("idle_timeout_secs", "max_batch_size", "max_batch_delay_ms", "target_p99_ms", "max_replicas", "request_timeout_ms")
"""Keys that people turn first."""
EXAMPLES = {"memory_limit": '"80%"', "max_loaded_models": "20", "target_p99_ms": "50"}
"""For keys that have no default."""
OPENING = """\
# Settings of the models in this directory. Nothing here is needed: what stands behind a # is what counts without it, or an example.
# `wakeful check` says what is wrong with this file, `kill -HUP` makes a running daemon read it again.
"""
COLUMN = 34


def add_arguments(parser: Parser) -> None:
    parser.usage = "wakeful init [DIR] [--print]"
    parser.epilog = None
    parser.add_argument("directory", nargs="?", type=Path, default=Path("models"), metavar="DIR", help="directory with models (default: models)")
    parser.add_argument("--print", action="store_true", dest="only_print", help="show the file instead of writing it")


def run(arguments: Namespace) -> int:
    directory: Path = arguments.directory
    if not directory.is_dir():
        missing = f"mkdir {directory}, and put models into it; or name another one"
        hint = f"name the one that it lies in: wakeful init {directory.parent}" if directory.exists() else missing
        complain(f"{directory} is no directory", ("hint", hint))
        return WRONG_USE
    skipped: list[Problem] = []
    try:
        found = models_in(directory, skipped).found
    except OSError as error:
        complain(f"{directory} cannot be read: {error.strerror}")
        return NO
    text = page(directory, found)
    if arguments.only_print:
        print(text, end="")
        return DONE
    present = next((directory / name for name in FILES if (directory / name).exists()), None)
    if present is not None:
        complain(f"{present} is there already, and stays as it is", ("hint", "--print shows what would be written"))
        return NO
    try:
        with (directory / FILES[0]).open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        complain(f"{directory / FILES[0]} cannot be written: {error.strerror}", ("hint", "--print shows what would be written"))
        return NO
    names = f" ({', '.join(model.id for model in found)})" if found else ""
    more = f", {len(skipped)} skipped" if skipped else ""
    print(f"{directory / FILES[0]} written: {counted(len(found), 'model')} found{names}{more}")
    for problem in skipped:
        print(f"  {problem.message}")
    print(f"next: wakeful serve --models-dir {directory}", file=sys.stderr)
    return DONE


def page(directory: Path, found: Iterable[Found]) -> str:
    """The whole file. Every line that is not a comment says what would be so without it, too."""
    return "\n".join([OPENING, "[defaults]", *_defaults(), *(line for model in found for line in _model(directory, model)), ""])


def _defaults() -> Iterator[str]:
    for key in (*BOUNDS, *OFTEN):
        fields = BudgetTable.model_fields if key in BOUNDS else ModelTable.model_fields
        value = EXAMPLES.get(key) or shown_default(key, fields[key]).strip("`")
        yield f"{f'# {key} = {value}':<{COLUMN}}# {(fields[key].description or '').replace('`', '')}"


def _model(directory: Path, model: Found) -> Iterator[str]:
    yield ""
    yield "[[models]]"
    yield f"id = {written(model.id)}"
    yield f"path = {written(str(model.home.relative_to(directory.absolute())))}"
    yield f"{'# pinned = true':<{COLUMN}}# loaded at start, and never asleep"
