"""What a gateway costs: its routes, a request's way through it, a wake from zero, and its connections. A real Envoy, real daemons, the real services.

usage: python -m bench.cluster_gateway [routes] [requests] [wake] [connections]      all of them unless some are named
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np

from tests import onnx_models
from tests.cluster.gateway.calls import body, call
from tests.cluster.ground.controller import Controller
from tests.cluster.ground.envoy import Envoy
from tests.cluster.ground.gateway import GatewayPod
from tests.daemon import Daemon, wait_until
from wakeful.cluster.planning.world import Endpoint
from wakeful.cluster.wire import WakeTold
from wakeful.loadgen.calls import Call, infer_call
from wakeful.loadgen.driver import closed
from wakeful.tensors import Tensor

MODELS = 1000
SERVERS = 50
ROW = np.array([[1, 2, 3, 4]], np.float32)
SECONDS = 5.0
WAKES = 20
MB = 1 << 20


def main() -> None:
    parts: dict[str, Callable[[Path], None]] = {"routes": routes, "requests": requests, "wake": wake, "connections": connections}
    for name in sys.argv[1:] or parts:
        with tempfile.TemporaryDirectory() as directory:
            print(f"── {name}", flush=True)
            parts[name](Path(directory))


@contextmanager
def gateway(directory: Path, controller: Controller) -> Iterator[GatewayPod]:
    pod = GatewayPod(directory / "gateway", controller.address)
    try:
        yield pod
    finally:
        pod.stop()
        controller.stop()


# ── routes ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def routes(directory: Path) -> None:
    """The first push, one change, and a server lost, each until Envoy has acknowledged it."""
    for copies in (3, SERVERS):
        for grpc in (None, 9000):
            controller = Controller()
            with gateway(directory, controller) as pod:
                _routes(controller, pod.envoy, copies, grpc)


def _routes(controller: Controller, envoy: Envoy, copies: int, grpc: int | None) -> None:
    before = envoy.resident()
    all_routes = {f"m{n}": tuple(_server((n + k) % SERVERS, grpc) for k in range(copies)) for n in range(MODELS)}
    first = _took(controller, all_routes)
    resident = envoy.resident()
    changes = []
    for n in range(50):
        all_routes = all_routes | {f"m{n}": all_routes[f"m{n}"][:-1]}
        changes.append(_took(controller, all_routes))
    without = {name: tuple(one for one in members if one.replica != "uid-7") for name, members in all_routes.items()}
    moved = sum(without[name] != all_routes[name] for name in without)
    lost = _took(controller, without)
    print(
        f"{MODELS} models x {copies}, {'HTTP and gRPC' if grpc else 'HTTP'}: first push {first:.2f} s, "
        f"Envoy {resident // MB} MB (empty {before // MB}); one change {median(changes) * 1e3:.1f} ms; "
        f"a server lost ({moved} models) {lost:.2f} s", flush=True,
    )


def _server(number: int, grpc: int | None) -> Endpoint:
    return Endpoint(f"uid-{number}", f"127.9.0.{number + 1}", 8000, grpc)


def _took(controller: Controller, wanted: Mapping[str, Sequence[Endpoint]]) -> float:
    """Seconds until everything is acknowledged, as the controller's loop sees it."""

    def settled() -> bool:
        routing = controller.discovery.routing()
        return all(
            (one := routing.get(name)) is not None and one.everywhere == uids and one.anywhere == uids for name, uids in expected.items()
        )

    expected = {name: frozenset(one.replica for one in members) for name, members in wanted.items()}
    was = controller.changes
    began = time.perf_counter()
    controller.set_routes({name: tuple(members) for name, members in wanted.items()})
    seen = -1
    while True:
        if controller.changes != seen:
            seen, last = controller.changes, time.perf_counter()
            if seen != was and settled():
                return last - began
        time.sleep(0.0001)


# ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def requests(directory: Path) -> None:
    """The same request to the daemon itself, through Envoy, and through Envoy and the helper (its body names the model)."""
    daemon, controller = _daemon(directory), Controller()
    try:
        with gateway(directory, controller) as pod:
            controller.settle({"dog": (_endpoint(daemon),)})
            tensor = Tensor("x", "FP32", (1, 4), ROW.tobytes())
            for callers in (1, 16):
                rates = {}
                for name, port in (("direct", daemon.port), ("gateway", pod.envoy.port)):
                    asked = infer_call(f"127.0.0.1:{port}", "dog", [tensor], binary=True)
                    rates[name] = _load(name, ("127.0.0.1", port), asked, callers, daemon, pod.envoy)
                print(f"  c={callers}: {rates['gateway'] / rates['direct']:.2f} of the direct rate", flush=True)
    finally:
        daemon.stop()


def _load(name: str, address: tuple[str, int], asked: Call, callers: int, daemon: Daemon, envoy: Envoy) -> float:
    before = _cpu(daemon.process.pid), envoy.cpu()
    results = closed(address, [asked], connections=callers, seconds=SECONDS, warmup=1.0)
    after, count = (_cpu(daemon.process.pid), envoy.cpu()), results.throughput() * (SECONDS + 1.0)
    share = [(now - then) / count * 1e6 for now, then in zip(after, before, strict=True)]
    print(
        f"  c={callers} {name}: {results.throughput():.0f} requests/s, p50 {results.percentile(50) * 1e3:.2f} ms, "
        f"p99 {results.percentile(99) * 1e3:.2f} ms; CPU a request: daemon {share[0]:.0f} us, Envoy {share[1]:.0f} us", flush=True,
    )
    return results.throughput()


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ── wake ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def wake(directory: Path) -> None:
    """What the gateway adds to a wake from zero: the model that is awake in its daemon, and the controller routes it."""
    daemon, controller = _daemon(directory), Controller()
    try:
        with gateway(directory, controller) as pod, ThreadPoolExecutor(50) as pool:
            controller.settle({"dog": (_endpoint(daemon),)})
            direct = median(_once(pod.url) for _ in range(WAKES))
            alone, fifty = (median(_wake(controller, pod, daemon, pool, callers) for _ in range(WAKES)) for callers in (1, 50))
            print(f"awake {direct * 1e3:.1f} ms; decided to answered: one held {alone * 1e3:.1f} ms, all of 50 {fifty * 1e3:.1f} ms", flush=True)
    finally:
        daemon.stop()


def _wake(controller: Controller, pod: GatewayPod, daemon: Daemon, pool: ThreadPoolExecutor, callers: int) -> float:
    """Seconds from the controller's decision that the model is ready to the last answer."""
    controller.settle({})
    controller.answer("dog", WakeTold("waking"))
    asking = [pool.submit(_once, pod.url) for _ in range(callers)]
    wait_until(lambda: pod.held() == callers, "all are held")
    began = time.perf_counter()
    controller.settle({"dog": (_endpoint(daemon),)})
    controller.answer("dog", WakeTold("routed"))
    for one in asking:
        one.result()
    return time.perf_counter() - began


def _once(url: str) -> float:
    began = time.perf_counter()
    status, answer, _ = call(url, "POST", "/v2/models/dog/infer", body(ROW))
    assert status == 200, answer
    return time.perf_counter() - began


# ── connections ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def connections(directory: Path) -> None:
    """Each model has its own connections: 10,000 requests over 1,000 models on three daemons, 64 at a time; and what is left of them."""
    daemons, controller = [_daemon(directory / str(n)) for n in range(3)], Controller()
    try:
        with gateway(directory, controller) as pod:
            controller.settle({f"m{n}": tuple(map(_endpoint, daemons)) for n in range(MODELS)})
            tensor = Tensor("x", "FP32", (1, 4), ROW.tobytes())
            calls = [infer_call(pod.address, f"m{n}", [tensor], binary=True) for n in range(MODELS)]
            before = pod.envoy.resident(), [_resident(daemon) for daemon in daemons], [_cpu(daemon.process.pid) for daemon in daemons]
            closed(("127.0.0.1", pod.envoy.port), calls, connections=64, seconds=60.0, most=10 * MODELS)
            ended, peak = time.monotonic(), _upstream(pod.envoy)
            after = pod.envoy.resident(), [_resident(daemon) for daemon in daemons]
            print(
                f"{peak} connections to 3 daemons; Envoy {before[0] // MB} -> {after[0] // MB} MB; "
                f"a daemon {before[1][0] // MB} -> {after[1][0] // MB} MB", flush=True,
            )
            burnt = [_cpu(daemon.process.pid) for daemon in daemons]
            time.sleep(5)
            idle = sum(_cpu(daemon.process.pid) - one for daemon, one in zip(daemons, burnt, strict=True))
            wait_until(lambda: _upstream(pod.envoy) == 0, "idle connections are closed", 60)
            waited = time.monotonic() - ended
            print(f"idle they cost the three daemons {idle / 5 * 100:.1f} % of a core; all are closed {waited:.0f} s later", flush=True)
    finally:
        for daemon in daemons:
            daemon.stop()


def _upstream(envoy: Envoy) -> int:
    stats = json.loads(envoy.get("/stats?format=json&filter=model/.*upstream_cx_active"))["stats"]
    return sum(one.get("value", 0) for one in stats)


def _resident(daemon: Daemon) -> int:
    return int(Path(f"/proc/{daemon.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# ── shared ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _daemon(directory: Path) -> Daemon:
    models = directory / "models"
    models.mkdir(parents=True)
    onnx_models.times(models / "dog.onnx", 2.0)
    return Daemon(directory / "daemon", "--host", "127.0.0.1", "--models-dir", str(models))


def _endpoint(daemon: Daemon) -> Endpoint:
    return Endpoint(f"uid-{daemon.port}", daemon.host, daemon.port, int(daemon.grpc.rpartition(":")[2]))


if __name__ == "__main__":
    main()
