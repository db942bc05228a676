"""Why a model is as it is, and what would happen if it were asked for: read by the functions that decide, and put into words."""

import math
import time
from typing import NamedTuple

from wakeful.clock import monotonic, wall
from wakeful.insight import state, views, wording
from wakeful.insight.tracks import Track
from wakeful.insight.views import View
from wakeful.insight.watch import Watch
from wakeful.memory import forecast
from wakeful.models.model import Model
from wakeful.models.pipelines.pipeline import Pipeline
from wakeful.telemetry.events import Event
from wakeful.telemetry.units import show_bytes, show_seconds

LABEL = 9
"""Characters of the column in which labels stand."""


class Line(NamedTuple):
    label: str
    text: str


def explain(watch: Watch, name: str, *, wake: bool) -> View:
    """`wake`: with what a request would bring about, for a model that sleeps. Raises as `state.named`."""
    one = state.named(watch, name)
    if isinstance(one, Pipeline):
        return _of_pipeline(watch, one)
    track = watch.tracks.get(one.key)
    view, now = views.relative(watch.view(one), monotonic()), wall()
    event = decided(watch, one, track)
    plan = plan_of(one, view["wakes_in"]) if wake and not one.group.replicas else None
    first = headline(view, None if track is None else track.since, now)
    lines = [Line("because", because(view, event, now)), *_now(one, view), *_batching(one), *_hints(view, event, watch.engine.supervisor.budget)]
    return {
        **state.FORMAT, "model": one.key, "state": view["state"], "since": None if track is None else track.since,
        "lines": [line._asdict() for line in lines], "text": in_words(first, lines), "event": None if event is None else state.event(event),
        "plan": plan,
    }


def _of_pipeline(watch: Watch, one: Pipeline) -> View:
    (view,) = (shown for shown in watch.pipeline_views() if shown["key"] == one.id)
    steps = ", ".join(step.model for step in one.settings.steps)
    lines = [Line("because", view["reason"]), Line("steps", steps), Line("batching", view["batching"])]
    return {
        **state.FORMAT, "model": one.id, "state": view["state"], "since": None, "lines": [line._asdict() for line in lines],
        "text": in_words(f"{one.id} is {view['state']}: a pipeline, as ready as the least ready of its models.", lines), "event": None, "plan": None,
    }


def decided(watch: Watch, model: Model, track: Track | None) -> Event | None:
    """The event that made the model what it is; None where none is kept that did."""
    wanted = track.gone.event if track is not None and track.gone is not None and not model.group.replicas and model.backoff.error is None else None
    kinds = ("refuse",) if model.backoff.error is not None and not model.group.replicas else ("load", "scale", "restart")
    found = None
    for event in watch.engine.events.kept():
        if event.seq == wanted or (wanted is None and event.model == model.key and event.kind in kinds):
            found = event
    return found


def plan_of(model: Model, seconds: float | None) -> View:
    """What a request would bring about."""
    found = model.forecast()
    return {
        "needs": found.needs, "measured": found.measured, "free": found.free, "budget": found.budget,
        "evict": [{"key": one.model, "bytes": one.bytes, "text": one.text} for one in found.evict],
        "keep": [{"key": one.model, "text": one.text} for one in found.keep],
        "possible": found.refusal is None, "retry_in": found.retry_in, "text": forecast.in_words(found, model.key, seconds), "seconds": seconds,
    }


# ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def headline(view: View, since: float | None, now: float) -> str:
    """What it is, since when, and what comes next."""
    text = f"{view['key']} is {view['state']}"
    if since is not None:
        text += f" since {clock(since)} ({show_seconds(max(now - since, 0.0))})"
    state, wakes_in, sleeps_in, retry_in = view["state"], view["wakes_in"], view["sleeps_in"], view["retry_in"]
    if state == "asleep":
        return f"{text}. A request would wake it" + (f" in about {show_seconds(wakes_in)}." if wakes_in is not None else ".")
    if state == "failed":
        return f"{text}. " + (f"The next try may be in {show_seconds(math.ceil(retry_in))}." if retry_in else "The next request tries again.")
    if state in ("ready", "busy"):
        if view["pinned"]:
            return f"{text}. It stays awake: it is pinned."
        if sleeps_in is not None:
            return f"{text}. It sleeps in {show_seconds(sleeps_in)} if nobody asks for it."
    return f"{text}."


def because(view: View, event: Event | None, now: float) -> str:
    """The reason, with the figures of the event that decided."""
    reason: str = view["reason"]
    if event is None:
        return reason
    figures = event.figures
    if event.kind == "evict" and view["state"] == "asleep":
        text = f"evicted (event {event.seq}) for {figures.get('wanted_by')}: {event.text.partition(': ')[2] or event.text}"
        passed_over = figures.get("passed_over")
        return f"{text}. Passed over: {passed_over}" if passed_over else text
    if view["state"] in ("asleep", "failed"):
        told = "" if reason in event.text else f": {event.text}"  # an error that is the reason need not stand there twice
        return f"{reason} (event {event.seq}, {wording.ago(max(now - event.time, 0.0))}{told})"
    return f"{reason}; last {event.kind} (event {event.seq}): {event.text}"


def _now(model: Model, view: View) -> list[Line]:
    """What it holds and may hold, where it is awake."""
    replicas = view["replicas"]
    if not replicas:
        return []
    how = "measured" if view["measured"] else "expected"
    held = f"{show_bytes(view['resident_bytes'])} ({how}): {show_bytes(view['private_bytes'])} private, {show_bytes(view['shared_bytes'])} shared"
    settings = model.settings.replicas
    if settings.fixed is not None:
        rule = f"always {settings.fixed} while it is awake"
    elif settings.max_replicas == 1:
        rule = "never more than one"
    else:
        most = f", {settings.max_replicas} at most" if settings.max_replicas else ""
        rule = f"one more when more than {settings.queue_threshold} requests wait for each{most}"
    return [Line("memory", held), Line("replicas", f"{len(replicas)}; {rule}")]


def _batching(model: Model) -> list[Line]:
    merges, limits, costs = model.interface.merges, model.batcher.limits, model.batcher.costs
    undecided = "not tested yet; " if model.interface.undecided else ""
    text = f"{'on' if merges else 'off'}: {undecided}{model.interface.verdict.reason}"
    if merges:
        text += f"; up to {limits.max_rows} rows a run, which waits for company 0 to {show_seconds(limits.max_delay)}"
    if costs.known:
        text += f"; a run takes {show_seconds(costs.fixed)} and {show_seconds(costs.per_row)} for each row"
    return [Line("batching", text)]


def _hints(view: View, event: Event | None, budget: int) -> list[Line]:
    if event is not None and event.kind == "evict" and view["state"] == "asleep":
        more = budget + int(event.figures.get("bytes") or 0)
        if event.figures.get("reason") == "lru":
            return [Line("hint", f"to keep it awake: pinned = true, or memory_limit of {show_bytes(more)} or more")]
        return [Line("hint", "to keep it awake: pinned = true, or a larger max_loaded_models")]
    if view["state"] == "asleep" and event is not None and event.figures.get("reason") == "idle":
        return [Line("hint", "to keep it awake: pinned = true, or a longer idle_timeout_secs")]
    return []


def in_words(first: str, lines: list[Line]) -> str:
    """As people read it."""
    return "\n".join([first, *(f"{line.label:<{LABEL}}{line.text}" for line in lines)])


def clock(moment: float) -> str:
    """Of the day, where the daemon is."""
    return time.strftime("%H:%M:%S", time.localtime(moment))
