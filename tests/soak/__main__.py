"""Mixed load, faults in random order, and reloads, for as long as one likes: `make soak MINUTES=30`. Ends with tables; status 1 if anything was
lost, wrong or left behind."""

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.daemon import Daemon, running, wait_until
from tests.faults.disks import mounted
from tests.soak.faults import BYSTANDER, FAULTS, VICTIMS, Stage, make_models, write_configuration
from tests.soak.growth import Holdings, grown, holdings, usual
from tests.soak.load import Load

CLIENTS = 16
CALM_SECONDS = 5.0
"""Of load without faults, at the beginning: what the bystander's callers are used to."""
WARM_UP = 180.0
"""Seconds after which nothing should grow any more; in a short run, a third of it."""
WINDOW = 120.0
"""Seconds over which what is held is looked at; in a short run, a third of it."""
LONGER = 3
DISK_MB = 96
"""Of the cache: twice what its one large model takes."""
PAUSE = (0.2, 1.5)
"""Seconds between faults."""


class Report:
    """What came of it."""

    def __init__(self, load: Load, faults: Counter[str], calm: list[float], grown: tuple[Holdings, Holdings], problems: list[str]) -> None:
        self.load, self.faults, self.calm, self.grown, self.problems = load, faults, calm, grown, problems

    def text(self) -> str:
        outcomes = sorted({outcome for ledger in self.load.ledgers.values() for outcome in ledger.outcomes})
        lines = ["| model | requests | " + " | ".join(outcomes) + " |", "|---|---|" + "---|" * len(outcomes)]
        for model, ledger in self.load.ledgers.items():
            for name, counts in ((model, ledger.outcomes), (f"{model}, across a fault", ledger.crossed)):
                lines.append(f"| {name} | {counts.total()} | {' | '.join(str(counts[outcome]) for outcome in outcomes)} |")
        lines += ["", "| fault | times |", "|---|---|", *(f"| {name} | {count} |" for name, count in sorted(self.faults.items()))]
        lines += ["", "| bad caller | times |", "|---|---|", *(f"| {name} | {count} |" for name, count in sorted(self.load.bad.items()))]
        begin, end = self.grown
        lines += ["", "| held by the daemon | after the warm-up | at the end |", "|---|---|---|"]
        lines += [f"| {name} | {before} | {after} |" for name, before, after in zip(Holdings._fields, begin, end, strict=True)]
        later = self.load.ledgers[BYSTANDER].seconds[len(self.calm):]
        lines += ["", f"The bystander's p99: {1e3 * p99(self.calm):.0f} ms without faults, {1e3 * p99(later):.0f} ms with them."]
        lines += ["", *(f"PROBLEM: {problem}" for problem in self.problems)]
        return "\n".join(lines)


def p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[-1] if len(seconds) > 1 else 0.0


@contextmanager
def _disk(path: Path) -> Iterator[Path | None]:
    """A small file system for the cache; None where none can be mounted."""
    with ExitStack() as stack:
        try:
            disk = stack.enter_context(mounted(path, f"size={DISK_MB}m"))
        except PermissionError:
            disk = None
        yield disk


def soak(directory: Path, seconds: float, seed: int, *, say: bool = False, strict: bool = False) -> Report:
    """`strict`, for a long run on a machine of its own: nothing may have grown, and the bystander's p99 may not become three times as long."""
    rng = random.Random(seed)
    make_models(directory)
    config = write_configuration(directory, 64)
    with _disk(directory / "daemon" / "cache") as disk, running(directory / "daemon", "--config", str(config), "--no-grpc") as daemon:
        wait_until(lambda: daemon.metric("wakeful_replicas", model=BYSTANDER, state="ready") == 1, "the bystander is loaded")
        daemon.infer(BYSTANDER, "x", [1, 2, 3, 4], [1, 4])
        daemon.wait_event("probe", BYSTANDER)
        stage = Stage(daemon, directory, set(daemon.replicas()), rng, disk)
        load = Load(daemon, [BYSTANDER, *VICTIMS], CLIENTS, seed)
        time.sleep(min(CALM_SECONDS, seconds / 3))
        calm = list(load.ledgers[BYSTANDER].seconds)
        faults: Counter[str] = Counter()
        begun = time.monotonic()
        held: list[tuple[float, Holdings]] = []
        while (passed := time.monotonic() - begun) < seconds:
            held.append((passed, holdings(daemon.process.pid)))
            fault = rng.choice(FAULTS)
            load.moments += 1
            why = fault(stage)
            load.moments += 1
            faults[fault.__name__.replace("_", " ") + (f", but {why}" if why else "")] += 1
            if say:
                requests = sum(one.outcomes.total() for one in load.ledgers.values())
                sys.stderr.write(f"\r{passed:6.0f} s  {faults.total()} faults, {requests} requests ")
            time.sleep(rng.uniform(*PAUSE))
        problems = [f"{name} hangs" for name in load.stop()]
        problems += _judged(daemon, load)
        warm, window = min(WARM_UP, seconds / 3), min(WINDOW, seconds / 3)
        first = usual([one for when, one in held if warm <= when <= warm + window] or [held[0][1]])
        last = usual([one for when, one in held if when >= seconds - window] or [held[-1][1]])
        if strict:
            problems += grown(first, last)
        if strict and p99(load.ledgers[BYSTANDER].seconds[len(calm):]) > LONGER * p99(calm):
            problems.append("the bystander was slowed down")
        if daemon.stop() != 0:
            problems.append("the daemon had to cut requests off")
    if "Traceback" in daemon.log:
        problems.append(f"a traceback in {daemon.log_path}")
    return Report(load, faults, calm, (first, last), problems)


def _judged(daemon: Daemon, load: Load) -> list[str]:
    problems = [f"{model}: {text}" for model, ledger in load.ledgers.items() for text in ledger.wrong]
    unhurt = load.ledgers[BYSTANDER].outcomes
    if set(unhurt) - {"200"}:
        problems.append(f"nobody touched the bystander, and yet: {dict(unhurt)}")
    if daemon.call("GET", "/health/ready")[0] != 200:
        problems.append("the daemon is not ready")
    for model in load.ledgers:
        try:
            wait_until(lambda model=model: daemon.infer(model, "x", [1, 2, 3, 4], [1, 4])[0] == 200, f"{model} answers again", 60)
            wait_until(lambda model=model: daemon.metric("wakeful_queue_requests", model=model) == 0, f"nothing waits for {model}", 60)
            wait_until(lambda: daemon.metric("wakeful_oldest_load_seconds") == 0, "no load is left", 60)
        except AssertionError as error:
            problems.append(str(error))
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        report = soak(Path(directory), 60 * options.minutes, options.seed, say=sys.stderr.isatty(), strict=True)
    print(report.text())
    sys.exit(bool(report.problems))


if __name__ == "__main__":
    main()
