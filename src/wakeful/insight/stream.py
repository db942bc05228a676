"""Those who follow the daemon: a whole picture first, then once a second what has changed, and decisions as they fall.

A frame is encoded once for all, and written to a reader only while little of what was written before waits for it. Who does not read misses frames,
is told so, and gets a whole picture when it reads again: memory does not grow, and nobody waits for anybody.
"""

import asyncio
import math
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from wakeful.clock import monotonic, wall
from wakeful.errors import Unavailable
from wakeful.insight import state, views
from wakeful.insight.history import WINDOW
from wakeful.insight.views import View
from wakeful.insight.watch import SLICE, Streams, Watch
from wakeful.telemetry.events import Event

MOST_FOLLOWERS = 32
RETRY_SECONDS = 5.0
"""After which somebody for whom there is no place may try again."""
MOST_EVENTS = 20
"""Events of a second that are told one by one; of more, only that there were some."""
REPLAYED = 200
"""Events that somebody who comes back is told at most."""
COMMENT_TICKS = 15
"""From one comment to the next: it keeps proxies from taking the line for dead."""
ROUND = 30
"""Ticks in which models to which nothing seems to happen are looked at once."""
COMMENT = b": \n\n"
BEGIN = b"retry: 1000\n\n"

encode = msgspec.json.encode


class Line(Protocol):
    """Where frames go."""

    @property
    def takes(self) -> bool:
        """False where too much of what was written before still waits: it would take nothing now."""

    def push(self, data: bytes) -> bool:
        """False, and nothing is written, where too much of what was written before still waits."""

    def end(self, data: bytes) -> None:
        """The last words; none where they would have to wait."""


class Follower:
    def __init__(self, line: Line, key: str | None, until: float) -> None:
        self.line = line
        self.key = key
        """Of the only model that it wants to hear of; None: all."""
        self.until = until
        """Seconds since 1970 from which it may not follow any more."""
        self.left = False
        self.seq = 0
        """Number of the last event that it was told, or that happened before what it was told."""
        self.behind = False
        """It has missed something, and needs a whole picture."""


def frame(kind: str, data: Any, seq: int) -> bytes:
    """A server-sent event. JSON has no line breaks of its own."""
    return b"event: %s\nid: %d\ndata: %s\n\n" % (kind.encode(), seq, encode(data))


class Stream:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._followers: list[Follower] = []
        self._dropped = 0
        self._views: dict[str, View] = {}
        """As they were told last, in moments (see `views`). All followers know these: what they are told next is the difference."""
        self._touched: set[str] = set()
        """Models of which events have told since then."""
        self._told = 0
        """Events of this second."""
        self._ticks = 0
        self._everyone: list[str] = []
        """Whose turn comes, in order."""
        watch.on_tick.append(self._tick)
        watch.on_event.append(self._event)

    # ── coming and going ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """Raises Unavailable where there is no place for one more."""
        self._forget_left()
        if len(self._followers) >= MOST_FOLLOWERS:
            text = f"{MOST_FOLLOWERS} streams are open, which is the limit; /wakeful/v1/state may be asked instead"
            raise Unavailable(text, retry_after=RETRY_SECONDS, unstarted=True)
        if self._watch.stopping:
            raise Unavailable("the server is stopping", unstarted=True)

    def follow(self, line: Line, key: str | None = None, last: int | None = None, until: float = math.inf) -> Follower:
        """From now on `line` gets frames. `key`: of one model alone, which there is. `last`: number of the last event that it knows from an earlier
        time. To be checked for before."""
        if not self._followers:
            self._views = {view["key"]: view for view in self._watch.views()}
        follower = Follower(line, key, until)
        self._followers.append(follower)
        self._note()
        missed = b"" if last is None else b"".join(self._missed(key, last))
        self._picture(follower, BEGIN, missed)
        return follower

    def _missed(self, key: str | None, last: int) -> Iterator[bytes]:
        for event in state.events(self._watch, state.Wanted(after=last, limit=REPLAYED, model=key))["events"]:
            yield frame("event", event, event["seq"])

    def close(self, reason: str) -> None:
        """Say goodbye to all."""
        bye = frame("bye", {"reason": reason}, self._watch.engine.events.seq)
        followers, self._followers = self._followers, []
        for follower in followers:
            if not follower.left:
                follower.line.end(bye)
        self._note()

    def _forget_left(self) -> None:
        self._followers = [follower for follower in self._followers if not follower.left]
        self._note()

    def _note(self) -> None:
        self._watch.streams = Streams(len(self._followers), self._dropped)

    # ── telling ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _picture(self, follower: Follower, before: bytes = b"", after: bytes = b"") -> None:
        if not follower.line.takes:  # a picture of a thousand models, for nobody, would be the dearest of all
            self._miss(follower)
            return
        now, seq = monotonic(), self._watch.engine.events.seq
        chosen = self._views.values() if follower.key is None else [view for key, view in self._views.items() if key == follower.key]
        whole = state.state(self._watch, self._views.values())
        whole["models"] = [views.relative(view, now) for view in chosen]
        self._push(follower, before + frame("snapshot", whole, seq) + after, seq)

    def _push(self, follower: Follower, data: bytes, seq: int) -> None:
        if follower.left:
            return
        if follower.line.push(data):
            follower.seq, follower.behind = seq, False
        else:
            self._miss(follower)

    def _miss(self, follower: Follower) -> None:
        follower.behind = True
        self._dropped += 1

    def _event(self, event: Event) -> None:
        if event.model:
            self._touched.add(event.model)
        if not self._followers:
            return
        self._told += 1
        data = frame("event", state.event(event), event.seq) if self._told <= MOST_EVENTS else b""
        for follower in self._followers:
            if follower.key is not None and not state.Wanted(model=follower.key).includes(event):
                continue
            if data and not follower.behind:
                self._push(follower, data, event.seq)
            else:
                self._miss(follower)

    async def _tick(self) -> None:
        self._told = 0
        self._forget_left()
        if not self._followers:
            self._views.clear()
            self._touched.clear()
            self._everyone.clear()
            return
        self._ticks += 1
        changed = await self._changes()
        now, seq = monotonic(), self._watch.engine.events.seq
        about = {"seq": seq, "t": wall(), "mem": state.memory(self._watch), "daemon": state.rates(self._watch)}
        shown = {key: None if view is None else views.relative(view, now) for key, view in changed.items()}
        frames: dict[str | None, bytes] = {}
        for follower in self._followers:
            if follower.until <= wall():
                follower.line.end(frame("bye", {"reason": "expired"}, seq))
                follower.left = True
            elif follower.behind:
                self._picture(follower, frame("gap", {"from": follower.seq, "to": seq}, seq))
            else:
                if follower.key not in frames:
                    chosen = shown if follower.key is None else {key: view for key, view in shown.items() if key == follower.key}
                    comment = COMMENT if self._ticks % COMMENT_TICKS == 0 else b""
                    frames[follower.key] = frame("tick", about | {"models": chosen}, seq) + comment
                self._push(follower, frames[follower.key], seq)
        self._note()

    async def _changes(self) -> dict[str, View | None]:
        """Of each model the fields that are not as they were; None for one that is not there any more. A few models in a turn of the loop."""
        changes: dict[str, View | None] = {}
        watch = self._watch
        wanted = self._wanted()
        resident = watch.engine.supervisor.resident_by_model()
        for number, key in enumerate(wanted):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            if (model := watch.engine.registry.by_key(key)) is not None:
                self._compare(watch.view(model, resident), changes)
        for view in watch.pipeline_views():
            self._compare(view, changes)
        for gone in self._views.keys() - watch.keys():
            del self._views[gone]
            changes[gone] = None
        return changes

    def _compare(self, view: View, changes: dict[str, View | None]) -> None:
        key = view["key"]
        before = self._views.get(key)
        if before is None:
            changes[key] = view
        elif view != before:
            changes[key] = {name: value for name, value in view.items() if value != before[name]}
        self._views[key] = view

    def _wanted(self) -> list[str]:
        """Which models may have changed: those that are awake, were lately, are new, or of which somebody has told; and of the others some in
        turn."""
        watch = self._watch
        touched, self._touched = self._touched, set()
        lately = [key for key, track in watch.tracks.items() if watch.second - track.moved <= WINDOW + 1]
        everyone = sorted(watch.keys()) if self._ticks % ROUND == 0 else self._everyone
        self._everyone = everyone
        share = len(everyone) // ROUND + 1
        turn = everyone[share * (self._ticks % ROUND) :][:share]
        return list({*watch.engine.supervisor.holders(), *touched, *lately, *turn, *(watch.keys() - self._views.keys())})
