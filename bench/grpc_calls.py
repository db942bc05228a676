"""Makes unary gRPC calls as fast as they are answered, in a process of its own.

usage: python -m bench.grpc_calls PORT MODEL CALLS SECONDS      so many calls at once for so long, over CHANNELS connections; prints a JSON object
"""

import json
import subprocess
import sys
import threading
import time
from typing import NamedTuple

from bench.models import MODELS
from bench.servers import Server

CHANNELS = 4
METHOD = "/inference.GRPCInferenceService/ModelInfer"


class Calls(NamedTuple):
    """What came of it."""

    answered: int
    per_second: float
    p50: float
    p99: float
    """Seconds."""
    cpu: float
    """Processor seconds of the server's processes for each call."""


def drive(server: Server, port: int, model: str, *, calls: int, seconds: float) -> Calls:
    """A closed loop."""
    before = server.tree_cpu()
    command = [sys.executable, "-m", "bench.grpc_calls", str(port), model, str(calls), str(seconds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=60 + 2 * seconds)
    spent = server.tree_cpu() - before
    said = json.loads(done.stdout)
    return Calls(said["count"], said["per_second"], said["p50"], said["p99"], spent / said["count"])


def main(port: int, model: str, calls: int, seconds: float) -> None:
    import grpc

    from wakeful.frontends.grpc.oip import Request

    request = Request(model_name=model)
    for name, datatype, shape, data in MODELS[model]().inputs(1):
        request.inputs.add(name=name, datatype=datatype, shape=shape)
        request.raw_input_contents.append(bytes(data))
    message = request.SerializeToString()
    own = [("grpc.use_local_subchannel_pool", 1)]  # or all channels would share one connection
    channels = [grpc.insecure_channel(f"127.0.0.1:{port}", options=own) for _ in range(CHANNELS)]
    took: list[float] = []
    began = time.monotonic()

    def ask(number: int) -> None:
        call = channels[number % CHANNELS].unary_unary(METHOD)
        while (sent := time.monotonic()) < began + seconds:
            call(message, timeout=60)
            took.append(time.monotonic() - sent)

    callers = [threading.Thread(target=ask, args=(number,)) for number in range(calls)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    whole = time.monotonic() - began
    took.sort()
    figures = {"count": len(took), "per_second": len(took) / whole, "p50": took[len(took) // 2], "p99": took[len(took) * 99 // 100]}
    print(json.dumps(figures))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
