"""Makes unary gRPC calls as fast as they are answered, by nghttp2's h2load.

A client in Python takes more processor time for a call than any of the servers: none of them is ever busy then, and what is measured is how
often they wake. Debian has h2load in its package nghttp2-client.
"""

import re
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import grpc

from bench.models import MODELS
from bench.servers import Server, ServerFailed
from wakeful.frontends.grpc.oip import Request

CHANNELS = 4
METHOD = "/inference.GRPCInferenceService/ModelInfer"
SUCCEEDED = re.compile(r"(\d+) succeeded, (\d+) failed, (\d+) errored")
TOOK = re.compile(r"finished in ([\d.]+)(us|ms|s),")
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


class Calls(NamedTuple):
    """What came of it."""

    answered: int
    per_second: float
    p50: float
    p99: float
    """Seconds."""
    cpu: float
    """Processor seconds of the server's processes for each call."""


def drive(server: Server, port: int, model: str, *, calls: int, count: int) -> Calls:
    """A closed loop: so many calls at once, over CHANNELS connections, until `count` are answered. Raises ServerFailed where one is not."""
    message = _message(model)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        channel.unary_unary(METHOD)(message, timeout=60)  # h2load knows no gRPC: an error is an answer to it
    with tempfile.TemporaryDirectory() as directory:
        body, log = Path(directory, "body"), Path(directory, "log")
        body.write_bytes(struct.pack(">?I", False, len(message)) + message)
        before = server.tree_cpu()
        said = _load(port, calls, count, body, log)
        spent = server.tree_cpu() - before
        took = sorted(int(line.split()[2]) / 1e6 for line in log.read_text().splitlines())
    succeeded, seconds = SUCCEEDED.search(said), TOOK.search(said)
    if succeeded is None or seconds is None or int(succeeded[1]) != count:
        raise ServerFailed(f"{server.name}: not all of {count} calls were answered:\n{said}")
    return Calls(count, count / (float(seconds[1]) * UNITS[seconds[2]]), took[count // 2], took[count * 99 // 100], spent / count)


def _message(model: str) -> bytes:
    request = Request(model_name=model)
    for name, datatype, shape, data in MODELS[model]().inputs(1):
        request.inputs.add(name=name, datatype=datatype, shape=shape)
        request.raw_input_contents.append(bytes(data))
    message: bytes = request.SerializeToString()
    return message


def _load(port: int, calls: int, count: int, body: Path, log: Path) -> str:
    command = [
        "h2load", f"--requests={count}", f"--clients={CHANNELS}", f"--max-concurrent-streams={calls // CHANNELS}", "--threads=1", f"--data={body}",
        "--header=content-type: application/grpc", "--header=te: trailers", f"--log-file={log}", f"http://127.0.0.1:{port}{METHOD}",
    ]
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True, timeout=300).stdout
    except FileNotFoundError:
        raise ServerFailed("h2load, which makes the calls, is missing: install nghttp2-client") from None
    except subprocess.CalledProcessError as error:
        raise ServerFailed(f"h2load has failed: {error.stdout}") from error
