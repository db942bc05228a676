"""Ray Serve: replicas that are actors, behind its own proxy or behind the HAProxy that comes with it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.peer import BATCH, CORES, INSIDE, Peer


class RayServe(Peer):
    """As it is when nothing is said: its proxy is Python too."""

    name = "Ray Serve"
    key = "ray"
    choice = "@serve.batch of up to 64 rows within 0.2 ms, a replica a core behind its own proxy, which is the default."

    def __init__(self, models: Mapping[str, Path], replicas: int = CORES, batch_seconds: float = 0.0002) -> None:
        super().__init__(models)
        self.replicas = replicas
        self.batch_seconds = batch_seconds

    def configure(self, port: int) -> tuple[Sequence[str], Mapping[str, str]]:
        settings = self.settings(
            port=port, directory=str(self.directory), replicas=self.replicas, ongoing=4 * BATCH,
            batching={"max_batch_size": BATCH, "batch_wait_timeout_s": self.batch_seconds},
        )
        return [self.python, str(INSIDE / "ray_app.py"), settings], {"RAY_USAGE_STATS_ENABLED": "0"}


class RayServeBehindHAProxy(RayServe):
    """An option of its makers for throughput: what speaks HTTP is a server in C."""

    name = "Ray Serve behind HAProxy"
    key = "ray-haproxy"
    packages = "ray"
    python_all_through = False
    choice = (
        "@serve.batch of up to 64 rows within 0.2 ms, a replica a core behind the HAProxy (a server in C) that comes with it, "
        "RAY_SERVE_THROUGHPUT_OPTIMIZED. One replica gave less."
    )

    def configure(self, port: int) -> tuple[Sequence[str], Mapping[str, str]]:
        command, variables = super().configure(port)
        proxy = self.directory / "haproxy"
        return command, {
            **variables,
            "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
            "RAY_SERVE_ENABLE_HA_PROXY": "1",
            "RAY_SERVE_HAPROXY_NBTHREAD": str(CORES),
            "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",
            "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(proxy / "haproxy.cfg"),
            "RAY_SERVE_HAPROXY_SOCKET_PATH": str(proxy / "admin.sock"),
            "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(proxy),
            "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(proxy / "server-state"),
        }
