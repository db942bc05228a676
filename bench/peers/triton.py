"""Triton: the server of the `nvidia-pytriton` package by itself, without that package's own proxy between it and the model."""

import json
import shutil
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.interface import Port, interface
from bench.peers.peer import BATCH, INSIDE, Peer, free_port

CONFIGURATION = """name: {name}
backend: "python"
max_batch_size: {batch}
input [{inputs}]
output [{outputs}]
instance_group [{{kind: KIND_CPU count: {instances}}}]
dynamic_batching {{}}
parameters [{{key: "path" value: {{string_value: {path}}}}}]
"""


class Triton(Peer):
    name = "Triton"
    key = "triton"
    python_all_through = False
    binary = True
    choice = (
        "Python backend with ONNX Runtime, one instance, dynamic batching with its defaults (no queue delay). "
        "A second instance gave about the same throughput at more CPU per request; a queue delay gained less than the spread of the runs "
        "and made lone requests slower."
    )

    def __init__(self, models: Mapping[str, Path], instances: int = 1, *, grpc: bool = False) -> None:
        super().__init__(models)
        self.instances = instances
        self.grpc_port = free_port() if grpc else 0

    def configure(self, port: int) -> tuple[Sequence[str], Mapping[str, str]]:
        repository = self.directory / "repository"
        for name, path in self.models.items():
            version = repository / name / "1"
            version.mkdir(parents=True)
            shutil.copy(INSIDE / "triton_model.py", version / "model.py")
            shutil.copy(INSIDE / "onnx_model.py", version)
            (version.parent / "config.pbtxt").write_text(configuration(name, path, self.instances))
        packages = self.home / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        server = packages / "pytriton" / "tritonserver"
        self._place_stub(server)
        over_grpc = ["--grpc-address", "127.0.0.1", "--grpc-port", str(self.grpc_port)] if self.grpc_port else ["--allow-grpc", "false"]
        command = [
            str(server / "bin" / "tritonserver"), "--model-repository", str(repository), "--backend-directory", str(server / "backends"),
            "--http-address", "127.0.0.1", "--http-port", str(port), *over_grpc, "--allow-metrics", "false",
            "--log-info", "false",
        ]
        # The stub, which is the model's interpreter, needs Python's own library. It finds packages by PATH alone and ignores PYTHONPATH.
        libraries = [str(packages / "nvidia_pytriton.libs"), sysconfig.get_config_var("LIBDIR") or ""]
        return command, {"LD_LIBRARY_PATH": ":".join(filter(None, libraries))}

    def _place_stub(self, server: Path) -> None:
        """The package has a stub for each Python; the backend looks for one beside itself."""
        stub = server / "backends" / "python" / "triton_python_backend_stub"
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        if not stub.exists():
            source = server / "python_backend_stubs" / version / stub.name
            if not source.exists():
                raise self.failed(f"has no stub for Python {version}")
            shutil.copy(source, stub)


def configuration(name: str, path: Path, instances: int) -> str:
    """config.pbtxt. JSON's way of writing text is protobuf's too."""
    model = interface(path)
    return CONFIGURATION.format(
        name=json.dumps(name), batch=BATCH, instances=instances, path=json.dumps(str(path)),
        inputs=", ".join(map(_port, model.inputs)), outputs=", ".join(map(_port, model.outputs)),
    )


def _port(port: Port) -> str:
    return f"{{name: {json.dumps(port.name)} data_type: TYPE_{port.datatype} dims: {list(port.dims)}}}"
