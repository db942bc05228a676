"""LitServe: FastAPI in front of worker processes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.peer import BATCH, CORES, INSIDE, Peer


class LitServe(Peer):
    name = "LitServe"
    key = "litserve"
    choice = (
        "Batches of up to 64 with batch_timeout 1 ms, its fast queue (ZeroMQ), an API server a core, one worker. "
        "A second worker gave less with that queue; a timeout of 0.2 ms made no difference, and without one an idle worker spins on a core."
    )

    def __init__(
        self, models: Mapping[str, Path], workers: int = 1, api_servers: int = CORES, fast_queue: bool = True,
        batch_timeout: float = 0.001,
    ) -> None:
        super().__init__(models)
        self.options = {"workers": workers, "api_servers": api_servers, "fast_queue": fast_queue}
        self.batching = {"max_batch_size": BATCH, "batch_timeout": batch_timeout}

    def configure(self, port: int) -> tuple[Sequence[str], Mapping[str, str]]:
        settings = self.settings(port=port, batching=self.batching, **self.options)
        return [self.python, str(INSIDE / "litserve_app.py"), settings], {}
