"""Ray Serve: HAProxy, which comes with it, in front of replicas that are actors."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.peer import BATCH, CORES, INSIDE, Peer


class RayServe(Peer):
    name = "Ray Serve"
    key = "ray"
    choice = (
        "@serve.batch of up to 64 rows within 0.2 ms, a replica a core behind the HAProxy that comes with it, "
        "RAY_SERVE_THROUGHPUT_OPTIMIZED. One replica gave less; with its own proxy, which is the default, "
        "it gave less than a tenth."
    )

    def __init__(
        self, models: Mapping[str, Path], replicas: int = CORES, batch_seconds: float = 0.0002, variables: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(models)
        self.replicas = replicas
        self.batch_seconds = batch_seconds
        self.variables = dict(variables or {})

    def configure(self, port: int) -> tuple[Sequence[str], Mapping[str, str]]:
        settings = self.settings(
            port=port, directory=str(self.directory), replicas=self.replicas, ongoing=4 * BATCH,
            batching={"max_batch_size": BATCH, "batch_wait_timeout_s": self.batch_seconds},
        )
        proxy = self.directory / "haproxy"
        return [self.python, str(INSIDE / "ray_app.py"), settings], {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
            "RAY_SERVE_ENABLE_HA_PROXY": "1",
            "RAY_SERVE_HAPROXY_NBTHREAD": str(CORES),
            "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",
            "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(proxy / "haproxy.cfg"),
            "RAY_SERVE_HAPROXY_SOCKET_PATH": str(proxy / "admin.sock"),
            "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(proxy),
            "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(proxy / "server-state"),
            **self.variables,
        }
