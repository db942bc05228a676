"""`wakeful pin`: wake models, and keep them awake."""

from argparse import Namespace
from typing import Any

from wakeful import clock
from wakeful.cli import load
from wakeful.cli.change import Model, add_change_options, post, run_change
from wakeful.cli.client import Client
from wakeful.cli.parser import Parser
from wakeful.telemetry.units import show_seconds


def add_arguments(parser: Parser) -> None:
    add_change_options(parser, dry_run="say what waking them would need, and who would have to go for it")


def run(arguments: Namespace) -> int:
    return run_change(arguments, "pin", change, load.plan)


def change(client: Client, model: Model) -> tuple[str, Any]:
    if model["pinned"] and model["state"] in load.AWAKE:
        return f"{model['key']} is pinned already", {"seconds": 0.0, "changed": False}
    awake, started = model["state"] in load.AWAKE, clock.monotonic()
    post(client, model, "pin")
    seconds = clock.monotonic() - started
    how = "awake already" if awake else f"awake in {show_seconds(seconds)}"
    return f"pinned {model['key']}: {how}; no idle time, eviction or ceiling ends it now", {"seconds": seconds, "changed": True}
