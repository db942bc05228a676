"""MLServer: a custom runtime with adaptive batching."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.peer import BATCH, Peer, free_port


class MLServer(Peer):
    name = "MLServer"
    key = "mlserver"
    choice = (
        "Custom runtime, adaptive batching of up to 64 rows within 0.2 ms, in the main process (parallel_workers 0). "
        "One or two parallel workers, and longer batching times, gave less throughput and slower lone requests."
    )

    def __init__(self, models: Mapping[str, Path], parallel_workers: int = 0, batch_seconds: float = 0.0002) -> None:
        super().__init__(models)
        self.parallel_workers = parallel_workers
        self.batch_seconds = batch_seconds

    def configure(self, port: int) -> tuple[Sequence[str], Mapping[str, str]]:
        (self.directory / "settings.json").write_text(json.dumps({
            "host": "127.0.0.1", "http_port": port, "grpc_port": free_port(), "metrics_endpoint": None, "debug": False,
            "parallel_workers": self.parallel_workers,
        }))
        for name, path in self.models.items():
            folder = self.directory / name
            folder.mkdir()
            (folder / "model-settings.json").write_text(json.dumps({
                "name": name, "implementation": "mlserver_model.Onnx", "max_batch_size": BATCH, "max_batch_time": self.batch_seconds,
                "parameters": {"uri": str(path)},
            }))
        return [str(self.home / "bin" / "mlserver"), "start", str(self.directory)], {}
