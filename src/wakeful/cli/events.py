"""`wakeful events`: what the daemon decided, newest last."""

import time
from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from typing import Any, NoReturn

from wakeful import clock
from wakeful.cli.client import PREFIX, Client, Failure
from wakeful.cli.figures import GAP, event_line
from wakeful.cli.looks import Looks, printable
from wakeful.cli.output import Output, add_client_options, answered, seconds_of
from wakeful.cli.parser import DONE, Parser
from wakeful.cli.status import NOT_REACHABLE, UNAVAILABLE

POLL_SECONDS = 0.3
WIDEST = 32
"""Columns that a name may widen the column of names to."""
MOST = 1000
"""Events of an answer."""
Event = dict[str, Any]
AWAY = (NOT_REACHABLE, UNAVAILABLE)


def add_arguments(parser: Parser) -> None:
    parser.add_argument("-f", "--follow", action="store_true", help="go on with new ones, until Ctrl-C; over restarts of the daemon, too")
    parser.add_argument("--since", type=seconds_of, metavar="TIME", help="only of the last TIME, such as 90, 10m or 1h")
    parser.add_argument("--model", metavar="NAME", help="only of this model")
    parser.add_argument("--kind", metavar="KIND,...", help="only of these kinds, such as evict,scale")
    parser.add_argument("--reason", metavar="REASON", help="only with this reason, such as lru")
    parser.add_argument("-n", "--limit", type=int, default=200, metavar="N", help="at most so many, the newest (default 200)")
    add_client_options(parser)


def run(arguments: Namespace) -> int:
    def work(client: Client, output: Output) -> int:
        since = clock.wall() - arguments.since if arguments.since else None
        wanted = {"model": arguments.model, "kind": arguments.kind, "reason": arguments.reason, "since": since}
        answer = client.get(f"{PREFIX}/events", limit=arguments.limit, **wanted)
        if arguments.follow:
            follow(client, output, answer, wanted)
        output.result("events", answer, lambda _: table(answer["events"], figures=output.verbose))
        return DONE

    return answered(arguments, work)


def table(events: list[dict[str, Any]], *, figures: bool = False) -> list[str]:
    width = min(max((len(event["model"]) for event in events), default=0), WIDEST)
    return [line for event in events for line in _lines(event, width, figures)]


def _lines(event: dict[str, Any], width: int, figures: bool, _: Looks | None = None) -> list[str]:
    shown = GAP.join(f"{name}={value}" for name, value in event["figures"].items())
    return [event_line(event, width=width), *([f"{'':<13}{printable(shown)}"] if figures and shown else [])]


def follow(client: Client, output: Output, answer: dict[str, Any], wanted: dict[str, Any]) -> NoReturn:
    """Print what is there, then what comes, one event a line. Never returns."""
    width = 0
    for event in _coming(client, output, answer, wanted):
        width = min(max(width, len(event["model"])), WIDEST)
        output.result("event", event, partial(_lines, event, width, output.verbose))
    raise AssertionError("they never end")


def _coming(client: Client, output: Output, answer: dict[str, Any], wanted: dict[str, Any]) -> Iterator[dict[str, Any]]:
    seen: Event | None = None
    latest, away = 0.0, False
    while True:
        for event in answer["events"]:
            if event != seen:
                seen, latest = event, max(latest, event["time"])
                yield event
        time.sleep(POLL_SECONDS)
        known = {"after": seen["seq"] - 1} if seen else {"since": latest + 0.001} if latest else {}
        try:
            answer = client.get(f"{PREFIX}/events", limit=MOST, **(wanted | known))
        except Failure as failure:
            if failure.exit not in AWAY:
                raise
            if not away:
                output.note(f"{failure.message}; waiting for it")
            away, seen, answer = True, None, {"events": []}  # another daemon counts from 1 again
            continue
        if away:
            away = False
            output.note("it is back")
        elif seen and not _goes_on(answer, seen):
            seen, answer = None, {"events": []}


def _goes_on(answer: dict[str, Any], seen: Event) -> bool:
    """Is it still the daemon of the event that was seen last? Whoever was suspended meanwhile does not notice that it was away."""
    return seen in answer["events"] or answer["first"] > seen["seq"] or len(answer["events"]) == MOST
