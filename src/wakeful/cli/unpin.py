"""`wakeful unpin`: let models sleep again."""

from argparse import Namespace
from typing import Any

from wakeful.cli.change import Model, add_change_options, post, run_change
from wakeful.cli.client import Client
from wakeful.cli.parser import Parser
from wakeful.telemetry.units import show_seconds


def add_arguments(parser: Parser) -> None:
    add_change_options(parser, dry_run="say which of them are pinned")


def run(arguments: Namespace) -> int:
    return run_change(arguments, "unpin", change, plan)


def change(client: Client, model: Model) -> tuple[str, Any]:
    if not model["pinned"]:
        return f"{model['key']} is not pinned", {"changed": False, "sleeps_in": model["sleeps_in"]}
    post(client, model, "unpin")
    sleeps_in = client.model(model["key"])["model"]["sleeps_in"]
    after = "it may be put to sleep again" if sleeps_in is None else f"it sleeps in {show_seconds(sleeps_in)}, unless somebody asks for it"
    return f"unpinned {model['key']}: {after}", {"changed": True, "sleeps_in": sleeps_in}


def plan(_client: Client, model: Model) -> tuple[str, Any]:
    return f"would unpin {model['key']}" if model["pinned"] else f"{model['key']} is not pinned", {"pinned": model["pinned"]}
