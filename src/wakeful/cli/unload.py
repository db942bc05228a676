"""`wakeful unload`: put models to sleep, once they have done what they have in hand."""

from argparse import Namespace
from typing import Any

from wakeful import clock
from wakeful.cli.change import Model, add_change_options, post, run_change
from wakeful.cli.client import Client
from wakeful.cli.figures import size
from wakeful.cli.parser import Parser
from wakeful.telemetry.units import show_seconds

ASLEEP = ("asleep", "failed")


def add_arguments(parser: Parser) -> None:
    add_change_options(parser, dry_run="say what it would free, and for what it would wait")


def run(arguments: Namespace) -> int:
    return run_change(arguments, "unload", change, plan, before)


def change(client: Client, model: Model) -> tuple[str, Any]:
    if model["state"] in ASLEEP:
        return f"{model['key']} sleeps already", {"seconds": 0.0, "changed": False, "bytes": 0}
    now = client.model(model["key"])["model"]
    started = clock.monotonic()
    post(client, model, "unload")
    seconds, freed = clock.monotonic() - started, now["resident_bytes"]
    return f"unloaded {model['key']} in {show_seconds(seconds)}, freed {size(freed)}", {"seconds": seconds, "changed": True, "bytes": freed}


def before(client: Client, model: Model) -> str:
    now = client.model(model["key"])["model"]
    return f"draining {model['key']}: {work_of(now)}" if now["queue"] or now["running"] else ""


def work_of(model: Model) -> str:
    """What it has in hand, and how long that takes at the rate of the last minute."""
    pending, rate = model["queue"] + model["running"], model["requests_per_second"]
    after = f", {show_seconds(pending / rate)} at the present rate" if rate else ""
    return f"{model['queue']} queued, {model['running']} running{after}"


def plan(client: Client, model: Model) -> tuple[str, Any]:
    now = client.model(model["key"])["model"]
    if now["state"] in ASLEEP:
        return f"{model['key']} sleeps already", {"bytes": 0, "queue": 0, "running": 0}
    pending = f"; before that, it would finish {work_of(now)}" if now["queue"] or now["running"] else ""
    text = f"would put {model['key']} to sleep, and free {size(now['resident_bytes'])}{pending}"
    return text, {"bytes": now["resident_bytes"], "queue": now["queue"], "running": now["running"]}
