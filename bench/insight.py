"""What it costs that people look: the loop's time for a tick with many models and readers, and a server's throughput with streams open and without.

usage: python -m bench.insight [tick|streams] [--rounds N] [--seconds S] [--silent]
"""

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.servers import READY, until
from wakeful.clock import monotonic
from wakeful.config.load import Options, load
from wakeful.config.settings import ModelSettings
from wakeful.engine import Engine
from wakeful.insight import state
from wakeful.insight.stream import Stream
from wakeful.insight.watch import About, Watch
from wakeful.memory.budget import Memory
from wakeful.memory.supervisor import Standing, Supervisor, Tenant
from wakeful.models.file import ModelFile
from wakeful.models.model import Model, Surroundings
from wakeful.models.pipelines.pipelines import Pipelines
from wakeful.models.registry import Registry
from wakeful.prepared.knowledge import Knowledge
from wakeful.replicas.replica import Replica, State
from wakeful.runtime.messages import CONFINED
from wakeful.runtime.processes import Processes
from wakeful.telemetry.events import Events
from wakeful.telemetry.metrics import SUCCESS, Metrics

READERS = 5
TICKS = 200
RUNS_A_TICK = 100


class Sink:
    """A line that takes everything."""

    def __init__(self) -> None:
        self.bytes = 0

    @property
    def takes(self) -> bool:
        return True

    def push(self, data: bytes) -> bool:
        self.bytes += len(data)
        return True

    def end(self, data: bytes) -> None:
        self.push(data)


class House:
    """The objects of a daemon with so many models, without processes: those that are awake have a replica that is said to be ready."""

    def __init__(self, directory: Path, awake: int, asleep: int) -> None:
        async def nothing(*_: object) -> None:
            pass

        events, memory = Events(), Memory(1 << 34, 1 << 33, "a machine")
        supervisor, metrics, registry = Supervisor(1 << 33, None, lambda: memory, events), Metrics(), Registry()
        processes = Processes(lambda: 0, lambda *_: None, CONFINED)
        around = Surroundings(processes, supervisor, events, 2, lambda _: None, lambda work: work.close())
        knowledge = Knowledge(directory)
        self.awake: list[Model] = []
        for number in range(awake + asleep):
            settings = ModelSettings(f"model-{number:04}", directory / f"{number}.onnx", description="one of many")
            model = Model(settings, ModelFile(settings.path, "onnx", "none", knowledge, None), metrics.model(settings.id), around)
            registry.add(model)
            if number < awake:
                self._rouse(model, supervisor, number)
        self.engine = Engine(registry, Pipelines(nothing, events), supervisor, metrics, events, nothing, nothing)  # type: ignore[arg-type]  # no pipeline is made
        whole = load(Options(cache_dir=directory), {"HOME": str(directory)})
        self.watch = Watch(self.engine, About(lambda: whole, 2, memory, None, dict, lambda _: "", monotonic()))
        self.stream = Stream(self.watch)

    def _rouse(self, model: Model, supervisor: Supervisor, number: int) -> None:
        replica = Replica(number, 0, [], model.group)
        replica.state, replica.ready_at, replica.private_bytes, replica.measured = State.READY, monotonic(), 50 << 20, True
        model.group.replicas.append(replica)
        tenant = Tenant(
            model.key, 0, 50 << 20, least=0, primary=True, granted=lambda: None, refused=lambda _: None, evict=lambda _: None,
            standing=lambda: Standing(0.0, idle=True, pinned=False, min_residency=0.0),
        )
        supervisor.admit(tenant)
        self.awake.append(model)

    def work(self, busy: int) -> None:
        """What a second brings to some of those that are awake."""
        for model in self.awake[:busy]:
            stats = model.stats
            for _ in range(RUNS_A_TICK):
                stats.settled("http", SUCCESS, 0.003)
            stats.batch_rows.observe_all([4] * 20)
            stats.run_seconds.observe_all([0.002] * 20)

    async def tick(self) -> float:
        began = time.perf_counter()
        self.watch.second += 1
        await self.watch.tick()
        for tell in self.watch.on_tick:
            await tell()
        return time.perf_counter() - began


def measure_ticks() -> None:
    """Microseconds, medians; the loop's share of a second."""
    print("models       busy  readers   tick us   share    frame bytes   state us   state bytes")
    for awake, asleep in ((50, 0), (50, 950), (200, 800)):
        for busy, readers in ((0, 0), (awake, 0), (awake, READERS)):
            asyncio.run(_measure(awake, asleep, busy, readers))


async def _measure(awake: int, asleep: int, busy: int, readers: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        house = House(Path(scratch), awake, asleep)
        sinks = [Sink() for _ in range(readers)]
        await house.tick()
        for sink in sinks:
            house.stream.follow(sink)
        before = sinks[0].bytes if sinks else 0
        times = []
        for _ in range(TICKS):
            house.work(busy)
            times.append(await house.tick())
        median = statistics.median(times)
        size = (sinks[0].bytes - before) // TICKS if sinks else 0
        began = time.perf_counter()
        whole = msgspec.json.encode(state.state(house.watch))
        took = time.perf_counter() - began
        models = f"{awake:4} + {asleep:3}   {busy:4}  {readers:7}"
        print(f"{models}  {1e6 * median:8.0f}   {100 * median:.3f} %  {size:10}   {1e6 * took:8.0f}  {len(whole):10}", flush=True)


# ── streams ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def following(address: tuple[str, int], count: int, *, silent: bool) -> Iterator[None]:
    """`silent`: none of them ever reads."""
    socks = [socket.create_connection(address, timeout=60) for _ in range(count)]
    for sock in socks:
        sock.sendall(b"GET /wakeful/v1/stream HTTP/1.1\r\nhost: localhost\r\n\r\n")
    if not silent:
        for sock in socks:
            threading.Thread(target=_read, args=(sock,), daemon=True).start()
    try:
        yield
    finally:
        for sock in socks:
            sock.close()


def _read(sock: socket.socket) -> None:
    try:
        while sock.recv(1 << 16):
            pass
    except OSError:  # closed
        return


def measure_streams(rounds: int, seconds: float, *, silent: bool) -> None:
    """Each round with and without, one after the other, in turns of who is first: what is compared are neighbours."""
    ratios: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as scratch, subprocess.Popen(
        [sys.executable, "-m", "wakeful", "serve", "--demo", "--port", "0", "--no-grpc", "--cache-dir", scratch],
        stdout=(log := Path(scratch, "log").open("wb")), stderr=subprocess.STDOUT,
    ) as daemon:
        until(lambda: READY.search(Path(scratch, "log").read_bytes()) is not None, "the daemon is ready")
        ready = READY.search(Path(scratch, "log").read_bytes())
        assert ready
        host, port = ready[1].decode(), ready[2].decode()
        _load(f"http://{host}:{port}", 2.0)
        for number in range(rounds):
            found = {}
            for streams in (0, READERS) if number % 2 else (READERS, 0):
                with following((host, int(port)), streams, silent=silent):
                    found[streams] = _load(f"http://{host}:{port}", seconds)
            ratios.append((found[READERS][0] / found[0][0], found[READERS][1] / found[0][1]))
            words = (f"{what} {found[key][0]:7.0f}/s p99 {1e3 * found[key][1]:6.2f} ms" for what, key in (("without", 0), ("with", READERS)))
            print("   ".join(words), flush=True)
        daemon.terminate()
    log.close()
    for what, values in zip(("throughput", "p99"), zip(*ratios, strict=True), strict=True):
        print(f"{what} with {READERS} streams to without: median {statistics.median(values):.3f}, from {min(values):.3f} to {max(values):.3f}")


def _load(url: str, seconds: float) -> tuple[float, float]:
    """Answers a second, and p99 in seconds."""
    command = [sys.executable, "-m", "wakeful", "bench", url, "digits", "--connections", "8", "--duration", f"{seconds:g}", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)["data"]
    return float(told["requests_per_second"]), float(told["latency_ms"]["p99"]) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("tick", "streams"), nargs="?", default="tick")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--silent", action="store_true", help="the streams' readers never read")
    options = parser.parse_args()
    if options.what == "tick":
        measure_ticks()
    else:
        measure_streams(options.rounds, options.seconds, silent=options.silent)


if __name__ == "__main__":
    main()
