"""Every way to ask a model, each by the client that is made for it: arrays by name in, arrays by name out."""

from collections.abc import Callable

import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from snoozeml import SnoozeClient

from tests.daemon import Daemon

Arrays = dict[str, np.ndarray]
Ask = Callable[[Daemon, str, Arrays], Arrays]


def triton(module: object, *, binary: bool | None = None) -> Ask:
    """Over HTTP, or over gRPC, which has one form."""
    form = {} if binary is None else {"binary_data": binary}

    def ask(daemon: Daemon, model: str, arrays: Arrays) -> Arrays:
        with module.InferenceServerClient(daemon.grpc if binary is None else f"{daemon.host}:{daemon.port}") as client:  # type: ignore[attr-defined]
            inputs = []
            for name, array in arrays.items():
                datatype = {np.dtype(np.float32): "FP32", np.dtype(np.int64): "INT64"}.get(array.dtype, "BYTES")
                inputs.append(module.InferInput(name, array.shape, datatype))  # type: ignore[attr-defined]
                inputs[-1].set_data_from_numpy(array, **form)
            names = [output["name"] for output in daemon.call("GET", f"/v2/models/{model}")[1]["outputs"]]
            wanted = [module.InferRequestedOutput(name, **form) for name in names]  # type: ignore[attr-defined]
            answer = client.infer(model, inputs, outputs=wanted)
            return {name: answer.as_numpy(name) for name in names}

    return ask


def snooze(*, grpc: bool) -> Ask:
    def ask(daemon: Daemon, model: str, arrays: Arrays) -> Arrays:
        with SnoozeClient(http_endpoint=daemon.url, grpc_endpoint=daemon.grpc, use_grpc=grpc) as client:
            answer = client.infer(model, {name: array.astype(np.float32) for name, array in arrays.items()})
            return {output.name: np.asarray(output.data) for output in answer.outputs}

    return ask


OIP: dict[str, Ask] = {
    "http, json": triton(triton_http, binary=False), "http, binary": triton(triton_http, binary=True), "grpc": triton(triton_grpc),
}
SNOOZE: dict[str, Ask] = {"snooze http": snooze(grpc=False), "snooze grpc": snooze(grpc=True)}
