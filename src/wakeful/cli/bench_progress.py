"""How far a load is, on stderr: on a terminal one line that is written again and again, elsewhere a line now and then."""

from collections.abc import Callable
from typing import TextIO

from wakeful.cli.looks import Looks
from wakeful.clock import Clock, monotonic
from wakeful.telemetry.units import show_seconds

REDRAW = 0.25
"""Seconds between two states of the line: writing one takes time in which nothing is sent."""
ONCE_IN = 10.0
"""Seconds between two lines where they stay."""
BAR = 24
CLEAR = "\r\x1b[K"


class Progress:
    """`report` is given to what drives a load. `looks` are those of `stream`: their width is None where that is no terminal."""

    def __init__(self, text: str, stream: TextIO, looks: Looks, *, quiet: bool = False, clock: Clock = monotonic) -> None:
        self.text = text
        self._stream, self._looks, self._quiet, self._clock = stream, looks, quiet, clock
        self._began = self._written = clock()
        if looks.width is None:
            self._say(f"{text} ...\n")

    def report(self, share: float) -> None:
        now = self._clock()
        in_place = self._looks.width is not None
        if now - self._written < (REDRAW if in_place else ONCE_IN):
            return
        self._written = now
        text = line(self.text, share, now - self._began, self._looks)
        self._say(CLEAR + text if in_place else text + "\n")

    def step(self, text: str, what_next: str) -> None:
        """A part is done, and the next one begins. A line that stays, but on a terminal."""
        if self._looks.width is None:
            self._say(f"{text}\n")
        self.text = what_next
        self._began = self._written = self._clock()

    def done(self) -> None:
        """Nothing of it stays on a terminal."""
        if self._looks.width is not None:
            self._say(CLEAR)

    @property
    def seen(self) -> Callable[[float], None] | None:
        """`report`, or None where nobody looks."""
        return None if self._quiet else self.report

    def _say(self, text: str) -> None:
        if not self._quiet:
            self._stream.write(text)
            self._stream.flush()


def line(text: str, share: float, seconds: float, looks: Looks) -> str:
    """ "200 calls/s for 10 s  ████████      45 %  5.5 s left". `seconds`: how long it has taken so far."""
    left = f"  {show_seconds(seconds / share - seconds)} left" if 0.02 < share < 1 else ""
    figures = f"{100 * share:.0f} %{left}"
    if looks.width is None:
        return f"{text}: {figures}"
    full = round(share * BAR)
    return looks.cut(f"{text}  {looks.symbol('full') * full}{' ' * (BAR - full)} {figures}", looks.width - 1)
