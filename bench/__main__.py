"""Measures Wakeful, its peers and the raw limit side by side, and writes a report.

usage: python -m bench [--only A,C,H] [--quick] [--rounds N] [--out DIR] [--peers triton,mlserver|all|none] [--whole-grid] [--add]

The report (report.md, report.json, pictures) is written anew after every part, so that an interrupted run leaves what it has. Models, the peers' own
environments and how long each part takes are kept in a cache directory ($WAKEFUL_BENCH_CACHE, else below the user's cache directory).
"""

import argparse
import importlib
import json
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from bench import machine, plots
from bench.context import Context
from bench.models import cache_directory
from bench.peers import PEERS, install_all
from bench.report import Report, Row, earlier, failed, headline

PARTS: Mapping[str, str] = {
    "tiny": "AB", "grpc": "O", "overhead": "CE", "saturation": "D", "overload": "G", "waking": "HI", "scaling": "JL", "sleeping": "K", "many": "MN",
    "regret": "F",
}
"""Modules of `bench.rows` and the rows that they yield, in the order in which they run: what takes longest is last."""
LETTERS = "".join(sorted("".join(PARTS.values())))
ROUNDS, QUICK_ROUNDS = 5, 2
GUESS, QUICK_GUESS = 300.0, 30.0
"""Seconds of a part that has never run here."""


class Progress:
    """Lines of what is going on, with the time so far and, roughly, the time to come. Parts take about what they took the last time."""

    def __init__(self, path: Path, kind: str, parts: Sequence[str], guess: float) -> None:
        self._path, self._kind, self._guess = path, kind, guess
        self._known: dict[str, float] = _read_durations(path)
        self._left = list(parts)
        self._began = self._part_began = time.monotonic()

    def say(self, text: str) -> None:
        now = time.monotonic()
        current = max(self._expected(self._left[0]) - (now - self._part_began), 0.0) if self._left else 0.0
        left = current + sum(map(self._expected, self._left[1:]))
        print(f"[{_clock(now - self._began)}, about {_clock(left)} left] {text}", file=sys.stderr, flush=True)

    def done(self, took_part: bool) -> None:
        """The first of the parts that are left is over; one that broke off tells nothing about how long it takes."""
        now, part = time.monotonic(), self._left.pop(0)
        if took_part:
            self._known[f"{self._kind} {part}"] = round(now - self._part_began, 1)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(self._known))
        self._part_began = now

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def _expected(self, part: str) -> float:
        return self._known.get(f"{self._kind} {part}", self._guess)


@dataclass
class Bench:
    """One run of several parts."""

    context: Context
    parts: Sequence[str]
    directory: Path
    progress: Progress
    began: str
    earlier: Report | None = None
    """To be kept but for the rows that are measured now."""
    rows: list[Row] = field(default_factory=list)

    def run(self) -> bool:
        """True: all parts ran; False: it was interrupted."""
        for part in self.parts:
            letters = [letter for letter in PARTS[part] if self.context.wants(letter)]
            whole = True
            try:
                for row in self._measure(part):
                    self.rows.append(row)
                    print(f"{row.letter}: {row.measured} (must be {row.target}): {row.verdict}", flush=True)
            except KeyboardInterrupt:
                self.write(complete=False)
                return False
            except Exception as error:  # noqa: BLE001 - whatever breaks one part must not cost the others
                traceback.print_exc()
                whole = False
                have = {row.letter for row in self.rows}
                self.rows += [failed(letter, error) for letter in letters if letter not in have]
            self.progress.done(whole)
            self.write(complete=True)
        return True

    def _measure(self, part: str) -> Iterator[Row]:
        self.progress.say(f"rows {', '.join(PARTS[part])}")
        module = importlib.import_module(f"bench.rows.{part}")
        left = {letter for letter in PARTS[part] if self.context.wants(letter)}
        with closing(module.rows(self.context)) as rows:
            for row in rows:
                if self.context.wants(row.letter):
                    yield row
                left.discard(row.letter)
                if not left:  # what else it would measure nobody asked for
                    break

    def write(self, *, complete: bool) -> None:
        report = Report(self.rows, machine.describe(), self.began, self.progress.seconds, self.context.rounds, self.context.quick, complete)
        if self.earlier is not None:
            measured = [replace(row, measured_at=self.began) for row in self.rows]
            kept = [row for row in self.earlier.rows if row.letter not in {new.letter for new in measured}]
            report = replace(self.earlier, rows=[*kept, *measured])
        replace(report, rows=sorted(report.rows, key=lambda row: row.letter)).write(self.directory)
        if trouble := plots.draw(self.rows, self.directory):
            print(trouble, file=sys.stderr)


def main() -> int:
    options = _options()
    parts = [part for part, letters in PARTS.items() if not options.only or options.only & set(letters)]
    kind = f"{'quick' if options.quick else 'full'} {options.rounds} {len(options.peers)} {''.join(sorted(options.only))}"
    cache = cache_directory()
    progress = Progress(cache / "durations.json", kind, parts, QUICK_GUESS if options.quick else GUESS)
    absent = install_all(options.peers, progress.say)
    peers = [peer for peer in options.peers if peer not in absent]
    context = Context(options.quick, options.rounds, cache, progress.say, peers, absent, options.only, options.whole_grid)
    began = datetime.now().astimezone().isoformat(" ", "minutes")
    bench = Bench(context, parts, options.out, progress, began, earlier(options.out) if options.add else None)
    complete = bench.run()
    print("", *headline(bench.rows), "", f"The whole report: {options.out / 'report.md'}", sep="\n")
    if not complete:
        return 130
    return 1 if any(row.measured == "failed" for row in bench.rows) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=_letters, default=frozenset(), metavar="A,C,H", help="rows that are wanted (default: all)")
    parser.add_argument("--quick", action="store_true", help="minutes instead of an hour: short runs, no peers unless they are named")
    parser.add_argument("--rounds", type=_count, help=f"how often everything is measured (default {ROUNDS}, with --quick {QUICK_ROUNDS})")
    parser.add_argument("--whole-grid", action="store_true", help="row F: against all 24 fixed settings, not the likely five; takes hours")
    parser.add_argument("--add", action="store_true", help="keep the rows that DIR has of an earlier run, but for those that are measured now")
    parser.add_argument("--out", type=Path, default=Path("bench/results"), metavar="DIR", help="where the report goes (default %(default)s)")
    parser.add_argument("--peers", type=_peers, metavar="LIST", help=f"all, none, or some of {', '.join(PEERS)} (default: all, with --quick none)")
    options = parser.parse_args()
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    options.peers = options.peers if options.peers is not None else () if options.quick else tuple(PEERS)
    return options


def _letters(text: str) -> frozenset[str]:
    letters = frozenset(text.upper().replace(",", "").replace(" ", ""))
    if unknown := letters - set(LETTERS):
        raise argparse.ArgumentTypeError(f"there is no row {', '.join(sorted(unknown))}; rows are {', '.join(LETTERS)}")
    return letters


def _peers(text: str) -> tuple[str, ...]:
    if text in ("all", "none"):
        return tuple(PEERS) if text == "all" else ()
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if unknown := [name for name in names if name not in PEERS]:
        raise argparse.ArgumentTypeError(f"there is no peer {', '.join(unknown)}; peers are {', '.join(PEERS)}")
    return names


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100:
        raise argparse.ArgumentTypeError("must be a whole number from 1 to 100")
    return int(text)


def _read_durations(path: Path) -> dict[str, float]:
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return {str(key): float(value) for key, value in known.items() if isinstance(value, int | float)} if isinstance(known, dict) else {}


def _clock(seconds: float) -> str:
    return f"{round(seconds) // 60}:{round(seconds) % 60:02}"


if __name__ == "__main__":
    sys.exit(main())
