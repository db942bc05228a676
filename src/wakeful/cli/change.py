"""What `load`, `unload`, `pin` and `unpin` have in common: which models are meant, and one after the other of them."""

import difflib
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from wakeful.cli.client import PREFIX, Client, Failure
from wakeful.cli.looks import printable
from wakeful.cli.output import Output, add_client_options, answered
from wakeful.cli.parser import DONE, Parser
from wakeful.cli.status import NO, NO_MODEL
from wakeful.cli.wire import quoted

SECONDS = 300.0
"""A load may have to wait for room."""
Model = dict[str, Any]
Change = Callable[[Client, Model], tuple[str, Any]]
"""Changes one model, and returns what to say of it and its data."""
Before = Callable[[Client, Model], str]
"""What to say before that, for people who wait; "" for nothing."""


def add_change_options(parser: Parser, *, dry_run: str) -> None:
    parser.usage = f"{parser.prog} MODEL ... [option ...]"
    parser.add_argument("models", nargs="+", metavar="MODEL", help="a name, a name:version, or a pattern such as 'emb-*'")
    parser.add_argument("--dry-run", action="store_true", help=dry_run)
    add_client_options(parser, seconds=SECONDS)


def run_change(arguments: Namespace, kind: str, change: Change, plan: Change, before: Before | None = None) -> int:
    """All of them are tried; the status is that of the first that failed."""

    def work(client: Client, output: Output) -> int:
        meant = meant_by(arguments.models, client.get(f"{PREFIX}/state")["models"])
        first, done = DONE, []
        for model in meant:
            try:
                if before is not None and not arguments.dry_run and (waiting := before(client, model)):
                    output.note(waiting)
                text, data = (plan if arguments.dry_run else change)(client, model)
            except Failure as failure:
                if len(meant) == 1:
                    raise
                output.note(f"error: {model['key']}: {printable(failure.message)}")
                done.append({"model": model["key"], "error": {"code": failure.code, "message": failure.message}})
                first = first or failure.exit
                continue
            output.line(text)
            done.append({"model": model["key"]} | data)
        if output.json:
            output.result(kind, {"dry_run": arguments.dry_run, "models": done}, lambda _: [])
        return first

    return answered(arguments, work)


def meant_by(names: Iterable[str], models: Sequence[Model]) -> list[Model]:
    """In the order of the names, none twice. Raises Failure for a name or a pattern that is nobody's; then nothing has been changed."""
    found: dict[str, Model] = {}
    for name in names:
        if any(char in name for char in "*?["):
            matching = [model for model in models if fnmatchcase(model["key"], name) or fnmatchcase(model["name"], name)]
            if not matching:
                raise Failure("not_found", f"no model's name is like {name}", NO_MODEL, _there_are(models))
            found |= {model["key"]: model for model in matching if not model["pipeline"]}
        else:
            one = named(name, models)
            found[one["key"]] = one
    return list(found.values())


def named(name: str, models: Sequence[Model]) -> Model:
    """By key, or by name: then its newest version, which is the last one. Raises Failure, with the nearest name."""
    exact = [model for model in models if model["key"] == name]
    if exact:
        return exact[0]
    versions = [model for model in models if model["name"] == name]
    if versions:
        return {**versions[-1], "key": name}
    near = difflib.get_close_matches(name, [model["key"] for model in models], n=1)
    raise Failure("not_found", f"there is no model {name}", NO_MODEL, f"did you mean {near[0]}?" if near else _there_are(models))


def _there_are(models: Sequence[Model]) -> str:
    names = [model["key"] for model in models][:8]
    more = f" and {len(models) - len(names)} more" if len(models) > len(names) else ""
    return f"there are {', '.join(names)}{more}" if names else "this daemon has no models"


def post(client: Client, model: Model, verb: str) -> None:
    """Raises Failure; that of a load which failed, other than one for which there was no room or no time, is the answer no."""
    try:
        client.post(f"/v1/models/{quoted(model['key'])}/{verb}")
    except Failure as failure:
        if verb in ("load", "pin") and failure.code == "unavailable" and _has_failed(client, model):
            raise Failure("load_failed", failure.message, NO, f"wakeful explain {model['key']}") from None
        raise


def _has_failed(client: Client, model: Model) -> bool:
    try:
        return bool(client.model(model["key"])["model"]["state"] == "failed")
    except Failure:
        return False
