"""`wakeful load`: wake models now."""

from argparse import Namespace
from typing import Any

from wakeful import clock
from wakeful.cli.change import Model, add_change_options, post, run_change
from wakeful.cli.client import Client
from wakeful.cli.figures import memory_of
from wakeful.cli.looks import printable
from wakeful.cli.parser import Parser
from wakeful.telemetry.units import show_seconds

AWAKE = ("ready", "busy")


def add_arguments(parser: Parser) -> None:
    add_change_options(parser, dry_run="say what it would need, and who would have to go for it")


def run(arguments: Namespace) -> int:
    return run_change(arguments, "load", change, plan)


def change(client: Client, model: Model) -> tuple[str, Any]:
    if model["state"] in AWAKE:
        return f"{model['key']} is awake already", {"seconds": 0.0, "changed": False}
    started = clock.monotonic()
    post(client, model, "load")
    seconds = clock.monotonic() - started
    now = client.model(model["key"])["model"]
    data = {"seconds": seconds, "changed": True, "bytes": now["resident_bytes"], "measured": now["measured"]}
    return f"loaded {model['key']} in {show_seconds(seconds)}, holds {memory_of(now)}", data


def plan(client: Client, model: Model) -> tuple[str, Any]:
    """As the daemon would decide it now."""
    if model["state"] in AWAKE:
        return f"{model['key']} is awake already", {"plan": None}
    answer = client.model(model["key"], path="/explain", wake=1)
    made = answer["plan"]
    return "\n".join(map(printable, (made["text"] if made else answer["text"]).splitlines())), {"plan": made}
