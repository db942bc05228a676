"""BentoML: a service with batchable endpoints."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.peer import BATCH, CORES, INSIDE, Peer


class BentoML(Peer):
    name = "BentoML"
    key = "bentoml"
    choice = (
        "Batchable endpoints of up to 64 rows with max_latency_ms 1000, a worker a core. One worker gave a little less. The latency is no "
        "waiting time but what it drops requests after: at 10 ms it refused nearly all of them under this load."
    )

    def __init__(self, models: Mapping[str, Path], workers: int = CORES, latency_ms: int = 1000) -> None:
        super().__init__(models)
        self.workers = workers
        self.latency_ms = latency_ms

    def configure(self, port: int) -> tuple[Sequence[str], Mapping[str, str]]:
        settings = self.settings(workers=self.workers, batching={"max_batch_size": BATCH, "max_latency_ms": self.latency_ms})
        command = [
            self.python, "-m", "bentoml", "serve", "bentoml_service:Models", "--working-dir", str(INSIDE),
            "--host", "127.0.0.1", "--port", str(port),
        ]
        return command, {"SETTINGS": settings, "BENTOML_HOME": str(self.directory / "home"), "BENTOML_DO_NOT_TRACK": "True"}
