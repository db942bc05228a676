"""What a Wakeful says itself of the load that it is under: rows a run, time in the queue and in runs, memory."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from wakeful.cli.client import PREFIX, Client, Failure
from wakeful.cli.wire import Address
from wakeful.loadgen.sweep import Own
from wakeful.loadgen.target import Target

_SAMPLE = re.compile(r"^wakeful_(batch_rows|queue_seconds|run_seconds)_(sum|count)\{([^}]*)\} (\S+)$", re.MULTILINE)
SECONDS = 5.0


class Counted(NamedTuple):
    """Of all models in question together, since the daemon began."""

    sums: Mapping[str, float]
    """By the names of the metrics and "sum" or "count"."""
    memory: int
    """Bytes, now."""


class Asked:
    """Asks a server about models. One that is no Wakeful, or does not let us look, says nothing."""

    def __init__(self, target: Target, models: Iterable[str]) -> None:
        self._client = Client(Address("http", target.host, target.port, target.prefix), target.key, SECONDS)
        self._models = tuple(models)
        self._silent = False

    def __call__(self) -> Counted | None:
        if self._silent:
            return None
        try:
            state = self._client.get(f"{PREFIX}/state")
            page = self._client.ask("GET", "/metrics").body.decode("utf-8", "replace")
            found = counted(state, page, self._models)
        except (Failure, LookupError, TypeError, ValueError):
            found = None
        self._silent = found is None
        return found


def counted(state: Mapping[str, Any], page: str, models: Sequence[str]) -> Counted | None:
    """From the answers of /wakeful/v1/state and /metrics. None where a model is not among them."""
    shown = [_named(state["models"], model) for model in models]
    known = [model for model in shown if model is not None]
    if len(known) < len(shown):
        return None
    labels = {_label(model) for model in known}
    sums: dict[str, float] = {}
    for name, what, label, value in _SAMPLE.findall(page):
        if label in labels:
            key = f"{name}_{what}"
            sums[key] = sums.get(key, 0.0) + float(value)
    return Counted(sums, sum(int(model["resident_bytes"]) for model in known))


def _named(models: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any] | None:
    """By its key, else the one of this name that is used."""
    exact = [model for model in models if model["key"] == name]
    named = [model for model in models if model["name"] == name]
    return next(iter(exact), None) or max(named, key=lambda model: model["runs"] or 0, default=None)


def _label(model: Mapping[str, Any]) -> str:
    """As the page of metrics writes it."""
    name = str(model["name"]).replace("\\", r"\\").replace('"', r"\"")
    return f'model="{name}"' + (f',version="{model["version"]}"' if model["version"] is not None else "")


def between(before: Counted | None, after: Counted | None) -> Own | None:
    if before is None or after is None:
        return None

    def mean(name: str) -> float | None:
        count = after.sums.get(f"{name}_count", 0.0) - before.sums.get(f"{name}_count", 0.0)
        return (after.sums[f"{name}_sum"] - before.sums.get(f"{name}_sum", 0.0)) / count if count > 0 else None

    return Own(mean("batch_rows"), mean("queue_seconds"), mean("run_seconds"), after.memory)
