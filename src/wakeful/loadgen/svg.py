"""Drawing without any library: frames with axes, lines, marks and text as SVG. Light or dark as the reader's system is, by CSS alone; no script."""

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

STYLE: Final = """\
svg{--paper:#fff;--ink:#333;--rule:#ddd;--blue:#2563a8;--red:#c0392b;--grey:#767676}
@media (prefers-color-scheme:dark){svg{--paper:#16181d;--ink:#ddd;--rule:#3a3f47;--blue:#7fb4ff;--red:#ff8a80;--grey:#9aa4b1}}
.paper{fill:var(--paper)}.ink{fill:var(--ink)}.blue{fill:var(--blue);stroke:var(--blue)}.red{fill:var(--red);stroke:var(--red)}
.grey{fill:var(--grey);stroke:var(--grey)}text{stroke:none!important}.line{fill:none;stroke-width:1.5}.open{fill:var(--paper);stroke-width:1.5}
.grid{fill:none;stroke:var(--rule)}
"""
Point = tuple[float, float]


class Frame(NamedTuple):
    """A rectangle of the page, and what its edges stand for."""

    left: float
    top: float
    right: float
    bottom: float
    low_x: float
    high_x: float
    low_y: float
    high_y: float
    log_x: bool = False
    log_y: bool = False

    def x(self, value: float) -> float:
        return self.left + (self.right - self.left) * _share(value, self.low_x, self.high_x, log=self.log_x)

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * _share(value, self.low_y, self.high_y, log=self.log_y)

    def line(self, points: Sequence[Point], colour: str, *, dashed: bool = False) -> str:
        """Through all points that are there; a NaN leaves a hole."""
        path, pen = [], "M"
        for x, y in points:
            if math.isnan(y):
                pen = "M"
                continue
            path.append(f"{pen}{self.x(x):.1f},{self.y(y):.1f}")
            pen = "L"
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        return f'<path class="line {colour}" d="{" ".join(path)}"{dashes}/>' if path else ""

    def mark(self, point: Point, colour: str, *, hollow: bool = False) -> str:
        """A dot; a circle where `hollow`."""
        return f'<circle class="{"open " if hollow else ""}{colour}" cx="{self.x(point[0]):.1f}" cy="{self.y(point[1]):.1f}" r="4"/>'

    def grid(self, across: Sequence[tuple[float, str]], up: Sequence[tuple[float, str]]) -> Iterator[str]:
        """Lines at these values, and what stands at their ends."""
        lines = [f"M{self.x(value):.1f},{self.top}V{self.bottom}" for value, _ in across]
        lines += [f"M{self.left},{self.y(value):.1f}H{self.right}" for value, _ in up]
        yield f'<path class="grid" d="{" ".join(lines)}"/>'
        yield from (words(self.x(value), self.bottom + 16, label) for value, label in across)
        yield from (words(self.left - 6, self.y(value) + 4, label, "end") for value, label in up)


def _share(value: float, low: float, high: float, *, log: bool) -> float:
    if log:
        value, low, high = math.log10(value), math.log10(low), math.log10(high)
    return (value - low) / (high - low) if high > low else 0.5


def document(title: str, width: int, height: int, parts: Sequence[str]) -> str:
    """A whole picture, for a file or inside of HTML."""
    return "\n".join(filter(None, (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11" role="img">',
        f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", f'<rect class="paper" width="{width}" height="{height}"/>',
        words(width / 2, 24, title, size=14), *parts, "</svg>",
    )))


def words(x: float, y: float, text: str, anchor: str = "middle", colour: str = "ink", size: int = 11) -> str:
    return f'<text class="{colour}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def decades(low: float, high: float) -> tuple[float, float]:
    """Round bounds around two values, one of 1, 2 and 5 times a power of ten."""
    low, high = max(low, 1e-6), max(high, 1e-6)
    below = [tick for tick in ticks(low / 10, low * 1.0000001) if tick <= low]
    above = [tick for tick in ticks(high, high * 10) if tick > high]
    return below[-1], above[0]


def ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [tick for power in powers for step in (1, 2, 5) if low <= (tick := step * 10.0**power) <= high]
