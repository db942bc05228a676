"""Fifty models under budgets that are too small for them, for as long as one likes: `python -m tests.thrash --seconds 60`. Ends with a table;
status 1 if a request failed, or if somebody was evicted who should not have been."""

import argparse
import http.client
import json
import random
import re
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from tests.crowd import Auditor, Crowd, ask
from tests.daemon import Daemon, wait_until
from tests.soak.load import Ledger
from tests.thrash.judge import most_loads, unlawful
from tests.thrash.park import GROWTH, TIMEOUT, Case, Park
from wakeful.memory.supervisor import TURN_PATIENCE

CASES = (
    Case("one fits", 50, 1),
    Case("one fits, skewed", 50, 1, skewed=True),
    Case("a tenth fits", 50, 5),
    Case("half fit", 50, 25, pinned=3, never_idle=2),
    Case("half fit, skewed", 50, 25, skewed=True, pinned=3, never_idle=2),
    Case("all but one fit", 50, 49, pinned=3, never_idle=2),
    Case("a large one among small ones", 41, 4, large=1, never_idle=1),
    Case("two large, one fits", 2, 1, large=2),
    Case("two large, one fits, never idle", 2, 1, large=2, never_idle=2, clients=0),
)


class Roaming:
    """Clients that ask one model after the other, until `stop`."""

    def __init__(self, daemon: Daemon, case: Case, seed: int) -> None:
        self.ledger = Ledger()
        self._daemon, self._case = daemon, case
        self._enough = threading.Event()
        order = random.Random(seed).sample(range(case.models), case.models)
        self._weights = [1 / (1 + rank) if case.skewed else 1.0 for rank in order]
        self._threads = [
            threading.Thread(target=self._ask_on, args=(number, random.Random(f"{seed} {number}")), daemon=True) for number in range(case.clients)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join(2 * TIMEOUT)
            assert not thread.is_alive(), f"a client hangs:\n{self._daemon.log}"

    def _ask_on(self, number: int, rng: random.Random) -> None:
        connection = http.client.HTTPConnection(self._daemon.host, self._daemon.port, timeout=1.5 * TIMEOUT)
        asked = 0
        while not self._enough.is_set():
            asked += 1
            (model,) = rng.choices(self._case.ids, self._weights)
            question = [float(1000 * number + asked), 1.0, 2.0, 3.0]
            begun = time.monotonic()
            try:
                status, body = ask(connection, model, question, [1, 4])
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.ledger.note("no answer", f"{type(error).__name__}: {error}")
                connection.close()
                continue
            right = status == 200 and body["outputs"][0]["data"] == question
            self.ledger.note(str(status), "" if right else f"{model}: {status} {body}", time.monotonic() - begun if right else None)
            time.sleep(rng.expovariate(100.0))
        connection.close()


class Report(NamedTuple):
    case: Case
    seconds: float
    requests: int
    waits: Sequence[float]
    """Seconds from question to answer."""
    loads: int
    most_loads: float
    """That the minimum residency allows."""
    evictions: int
    busy: int
    """Evictions of those that had something to do, for one that had waited for its turn."""
    victims: int
    """Of one load, at most."""
    room: float
    """Seconds that a load waited for room, at most."""
    problems: list[str]

    def row(self) -> str:
        minutes = self.seconds / 60
        return (
            f"| {self.case.name} | {self.case.fit} of {self.case.models} | {self.case.residency:.1f} | {self.requests} | {len(self.problems)} "
            f"| {1e3 * statistics.median(self.waits):.0f} / {1e3 * max(self.waits):.0f} | {self.room:.1f} "
            f"| {self.loads / minutes:.0f} of {self.most_loads / minutes:.0f} | {self.evictions} | {self.busy} | {self.victims} |"
        )


HEAD = (
    "| case | room for | minimum residency, s | requests | problems | median / longest, ms | longest wait for room, s | loads a minute, of what "
    "the residency allows | evictions | of busy ones | most for one load |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def thrash(park: Park, directory: Path, case: Case, seconds: float, seed: int) -> Report:
    """Serve this traffic and judge by what the daemon says of itself."""
    with park.serving(directory, case) as daemon:
        for model in case.ids[: case.pinned]:
            daemon.wait_event("load", model)
        begun = time.monotonic()
        with Auditor(daemon, 0.1) as auditor, ExitStack() as stack:
            crowds = [stack.enter_context(Crowd(daemon, model, clients=1)) for model in case.kept_busy]
            roaming = Roaming(daemon, case, seed)
            time.sleep(seconds)
            roaming.stop()
        passed = time.monotonic() - begun
        problems = [*roaming.ledger.wrong, *(text for crowd in crowds for text in (*crowd.wrong, *crowd.errors))]
        if auditor.most > park.budget(case) + GROWTH:
            problems.append(f"{auditor.most} bytes were resident of {park.budget(case)}")
        problems += _left_behind(daemon, case)
        assert daemon.stop() == 0
    events = _events(daemon)
    evictions = [event for event in events if event["kind"] == "evict"]
    loads = [event for event in events if event["kind"] == "load" and "how" in event]
    problems += unlawful(evictions)
    allowed = most_loads(park.budget(case), min(park.bytes[case.size(number)] for number in range(case.models)), passed, case.residency)
    if len(loads) > allowed:
        problems.append(f"{len(loads)} loads")
    room = max((load["room_seconds"] for load in loads), default=0.0)
    slowest = max((load["seconds"] - load["room_seconds"] for load in loads), default=0.0)
    turns = case.clients + case.never_idle + case.pinned
    if room > turns * (TURN_PATIENCE + case.residency + 4 * slowest):
        problems.append(f"a load waited {room} s for room")
    waits = roaming.ledger.seconds or [0.0]
    requests = roaming.ledger.outcomes.total() + sum(crowd.statuses.total() for crowd in crowds)
    by_load = Counter((event["wanted_by"], event["waited_seconds"]) for event in evictions).values()
    busy = sum(event["busy"] for event in evictions)
    return Report(case, passed, requests, waits, len(loads), allowed, len(evictions), busy, max(by_load, default=0), room, problems)


def _events(daemon: Daemon) -> list[dict[str, Any]]:
    return [json.loads(line) for line in daemon.log.splitlines() if line.startswith("{")]


def _left_behind(daemon: Daemon, case: Case) -> list[str]:
    """What the gauges still say when nobody asks any more, and when all models have been put to sleep."""

    def zero(*gauges: str) -> bool:
        pattern = re.compile(rf"^(?:{'|'.join(gauges)}) (\S+)$", re.MULTILINE)
        return not any(map(float, pattern.findall(daemon.call("GET", "/metrics")[1].decode())))

    under_way = r'wakeful_queue_requests\S+|wakeful_oldest_load_seconds|wakeful_replicas\S+state="(?:waiting|starting|draining)"\S+'
    try:
        wait_until(lambda: zero(under_way), "nothing waits or goes")
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda model: daemon.call("POST", f"/v2/repository/models/{model}/unload"), case.ids))
        wait_until(lambda: zero(r"wakeful_resident_bytes\S+", r"wakeful_replicas\S+"), "nothing is resident")
    except AssertionError as error:
        return [str(error)]
    return []


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.thrash", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose name begins so")
    options = parser.parse_args()
    chosen = [case for case in CASES if case.name.startswith(options.only)]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        park = Park(directory)
        park.measure()
        reports = [thrash(park, directory / f"daemon-{number}", case, options.seconds, options.seed) for number, case in enumerate(chosen)]
    print(HEAD, *(report.row() for report in reports), sep="\n")
    problems = [f"PROBLEM: {report.case.name}: {problem}" for report in reports for problem in report.problems]
    print("", *problems, sep="\n")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
