"""Ray Serve: a proxy in front of replicas that are actors."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.peer import BATCH, INSIDE, Peer


class RayServe(Peer):
    name = "Ray Serve"
    key = "ray"
    choice = "@serve.batch"

    def __init__(
        self, models: Mapping[str, Path], replicas: int = 1, batch_seconds: float = 0.001, variables: Mapping[str, str] | None = None,
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
        return [self.python, str(INSIDE / "ray_app.py"), settings], {"RAY_USAGE_STATS_ENABLED": "0", **self.variables}
