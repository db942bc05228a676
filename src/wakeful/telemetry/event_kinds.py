"""What each kind of event means, and the figures that it may have: docs/events.md is made from here, and a test holds it against the code."""

import sys
from collections.abc import Mapping
from typing import NamedTuple

from wakeful.telemetry.events import Kind


class Meaning(NamedTuple):
    what: str
    figures: Mapping[str, str]
    """By name; not every event of the kind has them all."""


_REPLICA = "the replica's place in the model's group; 0 is the first"
_CODE = "what it is about, in one word"
_CAUSE = (
    "how it died: `oom` (the kernel's kill for memory), `signal`, `exit`, `stuck` or `broken` (ended by the daemon), `unknown`; of a nursery in words"
)

MEANINGS: Mapping[Kind, Meaning] = {
    "ready": Meaning("The daemon serves.", {
        "port": "of HTTP", "grpc_port": "of gRPC, or null", "grpc_library": "what serves gRPC", "models": "how many there are",
        "cores": "that may be used",
        "budget": "bytes that all models together may hold",
    }),
    "load": Meaning("A replica is ready; or a model thrashes: it was needed again right after it had been evicted.", {
        "replica": _REPLICA, "seconds": "from the decision until it was ready",
        "room_seconds": "the part of them that went to room in memory",
        "private_bytes": "that it alone holds", "waiting": "requests that waited for it",
        "how": "as shipped, prepared copy, or copied from a live replica",
    }),
    "unload": Meaning("A replica has ended.", {
        "replica": _REPLICA,
        "reason": "`idle`, `lru`, `capacity`, `oom`, `no_gain`, `manual`, `shutdown` or `config`, as in `wakeful_unloads_total`",
        "private_bytes": "that are free now", "mapped_bytes": "of its prepared copy, which the page cache may keep",
    }),
    "evict": Meaning("A replica goes to make room for another model.", {
        "replica": _REPLICA, "bytes": "that it holds",
        "reason": "why room is made: `lru` for memory, `capacity` for max_loaded_models, `oom` after an allocation failed",
        "wanted_by": "the model that needs the room", "short_bytes": "that were missing",
        "waited_seconds": "for which that model had waited", "passed_over": "models that were used longer ago and stay, with the reasons",
        "busy": "whether it had work", "pinned": "whether it is pinned", "loaded_seconds": "since it was loaded",
        "min_residency_seconds": "for which it is kept by the settings",
    }),
    "scale": Meaning("A model gets a replica more for its load, loses one that brought nothing, or stays as it is for a reason.", {
        "replicas": "how many there are now",
    }),
    "refuse": Meaning("Requests are refused, a load has failed, or a caller showed no good key. At most one a second of a model is kept.", {
        "code": "of the error", "suppressed": "events of the same kind and model that were not kept before this one",
    }),
    "restart": Meaning("A process of a model, or a nursery, has died and is replaced.", {"replica": _REPLICA, "cause": _CAUSE}),
    "blame": Meaning("A request ends the processes that run it.", {
        "request": "its id", "attempts": "processes that it has ended", "reason": "how they died",
    }),
    "probe": Meaning("A self-test has ended: whether requests may share a run; or how long a lone run takes with how many threads.", {
        "mergeable": "whether requests may share a run", "one": "seconds of a run with one thread", "many": "seconds with all threads",
        "threads": "that is, so many",
    }),
    "prepare": Meaning("A prepared copy was made, or cannot be.", {"bytes": "of the copy", "seconds": "that it took"}),
    "config": Meaning("The configuration or the model files have changed, or something in them, or around the daemon, is odd.", {
        "code": _CODE, "key": "the setting", "models": "how many there are now", "bytes": "of a file that was uploaded",
        "margin": "bytes that are left free", "hint": "what to do about it",
    }),
    "stream": Meaning("A stream of messages comes, goes, or gives a message up.", {
        "stream": "its name", "broker": "which", "state": "connected, lost, or fatal for a message that is given up",
        "times": "how often the message was tried",
    }),
    "cluster": Meaning("Between this daemon and the controller of a cluster.", {"code": _CODE, "models": "how many are served again"}),
    "stop": Meaning("The daemon stops.", {"cut": "requests that were cut off"}),
}

INTRODUCTION = """\
# Events

<!-- Made from src/wakeful/telemetry/event_kinds.py by `python -m wakeful.telemetry.event_kinds`; a test holds it up to date. -->

What the daemon decides is an event: a line of its log, with the figures that decided it. The latest 1,000 are kept: `wakeful events`, the page's
feed, `GET /wakeful/v1/events` and `GET /v1/events` show them, each with `seq` (counts from 1, without gaps), `time`, `kind`, `model`, `text` and
`figures`. `model` is empty for what concerns the whole daemon.
"""


def reference() -> str:
    """The whole page. Bytes are bytes, times seconds."""
    parts = [INTRODUCTION]
    for kind, (what, figures) in MEANINGS.items():
        parts.append(f"\n## {kind}\n\n{what}\n\n| figure | what it is |\n|---|---|\n")
        parts += [f"| `{name}` | {meaning} |\n" for name, meaning in figures.items()]
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(reference())
