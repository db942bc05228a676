"""The raw limit: ONNX Runtime alone, without any server, in the best static configuration for the same cores.

Each process has one session and runs one batch after the other, with inputs that lie ready. What is searched: processes x threads, spinning or not,
rows in a batch. Nothing that serves strangers can be faster in the long run.
"""

import multiprocessing
import os
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Any, NamedTuple, Self

from bench import models
from wakeful.memory.budget import cpu_quota
from wakeful.replicas.threads import usable_cores

BATCHES = (1, 2, 4, 8, 16, 32, 64)
LEAST_RUNS = 2
"""A figure of fewer runs is none."""
WORSE = 0.9
"""Two batch sizes in a row below this share of the best: larger ones are not tried."""
FINALISTS, REPEATS = 3, 3
LONGEST = 12
"""A run that takes more than this part of the search is not tried."""
ANSWER_SECONDS = 120.0


class Configuration(NamedTuple):
    processes: int
    threads: int
    spinning: bool
    batch: int

    def __str__(self) -> str:
        return f"{self.processes} x {self.threads}{' spinning' if self.spinning else ''}, batch {self.batch}"


class Tried(NamedTuple):
    configuration: Configuration
    rows_per_second: float


def cores() -> int:
    """What this process and the servers may use."""
    return usable_cores(cpu_quota(), len(os.sched_getaffinity(0)))


def layouts(count: int) -> Iterator[tuple[int, int, bool]]:
    """Processes, threads each, spinning: all that fill the cores. One thread has nobody to spin for."""
    for processes in range(count, 0, -1):
        threads = count // processes
        if processes * threads == count:
            yield from ((processes, threads, spinning) for spinning in ((False, True) if threads > 1 else (False,)))


class RawLimit:
    """ONNX Runtime with one model in as many processes as there are cores. They sleep while they are not asked."""

    def __init__(self, model: str, count: int | None = None) -> None:
        self.model = model
        self.cores = count or cores()
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        models.MODELS[self.model]()  # made here, not once in each process
        self._workers = [_Worker(self.model) for _ in range(self.cores)]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for worker in self._workers:
            worker.stop()

    def search(self, budget: float) -> list[Tried]:
        """All that was tried in about so many seconds, the best one first: every layout and batch briefly, then the best again, several times
        in turn, because a brief figure is easily wrong."""
        began = time.monotonic()
        brief = max(budget / 40, 0.25)
        tried: list[Tried] = []
        for processes, threads, spinning in layouts(self.cores):
            best, worse = 0.0, 0
            for batch in BATCHES:
                if time.monotonic() - began > 0.5 * budget and tried:
                    break
                if best and batch * processes / best > budget / LONGEST:
                    break
                one = Configuration(processes, threads, spinning, batch)
                tried.append(Tried(one, rate := self.rate(one, brief)))
                best, worse = max(best, rate), worse + 1 if rate < WORSE * best else 0
                if worse == 2:
                    break
        tried.sort(key=lambda one: -one.rows_per_second)
        finalists, longer = [one.configuration for one in tried[:FINALISTS]], max(brief, 0.4 * budget / (FINALISTS * REPEATS))
        rates: dict[Configuration, list[float]] = {one: [] for one in finalists}
        for one in finalists * REPEATS:
            rates[one].append(self.rate(one, longer))
        again = [Tried(one, statistics.median(measured)) for one, measured in rates.items()]
        return sorted(again, key=lambda one: -one.rows_per_second) + tried[FINALISTS:]

    def rate(self, one: Configuration, seconds: float) -> float:
        """Rows per second of all processes together."""
        used = self._workers[: one.processes]
        for worker in used:
            worker.ask("open", one.threads, one.spinning)
        for worker in used:
            worker.answer()
        begin = time.monotonic() + 0.02
        for worker in used:
            worker.ask("run", one.batch, begin, seconds)
        answers: list[tuple[int, float]] = [worker.answer() for worker in used]
        return sum(count * one.batch / took for count, took in answers)

    def lone(self, threads: int, seconds: float, least: int = 5) -> float:
        """Seconds of a run of one row by itself: the median, nothing else going on."""
        worker = self._workers[0]
        worker.ask("open", threads, False)
        worker.answer()
        worker.ask("lone", seconds, least)
        times: list[float] = worker.answer()
        return statistics.median(times)


class _Worker:
    """A process that holds one session."""

    def __init__(self, model: str) -> None:
        context = multiprocessing.get_context("spawn")  # a library with threads must not be forked
        self._line, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(target=_work, args=(theirs, model), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, verb: str, *arguments: Any) -> None:
        self._line.send((verb, *arguments))

    def answer(self) -> Any:
        if not self._line.poll(ANSWER_SECONDS):
            raise TimeoutError(f"ONNX Runtime did not answer within {ANSWER_SECONDS:.0f} s")
        return self._line.recv()

    def stop(self) -> None:
        self._line.close()  # it ends by itself then
        self._process.join(5.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _work(line: Connection, model: str) -> None:
    """Answer until the other side is gone: open a session, run for a while, or run one by one."""
    chosen = models.MODELS[model]()
    session: Any = None
    opened: tuple[int, bool] | None = None
    try:
        while True:
            match line.recv():
                case ("open", int(threads), bool(spinning)):
                    if opened != (threads, spinning):
                        session, opened = None, (threads, spinning)
                        session = _session(str(chosen.path), threads, spinning)
                    line.send(None)
                case ("run", int(batch), float(begin), float(seconds)):
                    line.send(_run(session, chosen.feeds(batch), begin, seconds))
                case ("lone", float(seconds), int(least)):
                    line.send(list(_lone(session, chosen.feeds(1), seconds, least)))
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        return


def _session(path: str, threads: int, spinning: bool) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _run(session: Any, feeds: Mapping[str, Any], begin: float, seconds: float) -> tuple[int, float]:
    """Runs until the time is over, and the seconds that they took."""
    session.run(None, feeds)  # the first run of a shape allocates
    time.sleep(max(begin - time.monotonic(), 0))
    began, count = time.monotonic(), 0
    while (took := time.monotonic() - began) < seconds or count < LEAST_RUNS:
        session.run(None, feeds)
        count += 1
    return count, took


def _lone(session: Any, feeds: Mapping[str, Any], seconds: float, least: int) -> Iterator[float]:
    session.run(None, feeds)
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end or count < least:
        began = time.perf_counter()
        session.run(None, feeds)
        yield time.perf_counter() - began
        count += 1


def details(tried: Sequence[Tried], model: str) -> Iterable[dict[str, object]]:
    """Lines of a table."""
    return ({"model": model, "configuration": str(one.configuration), "rows/s": round(one.rows_per_second, 1)} for one in tried)
