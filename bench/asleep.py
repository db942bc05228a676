"""What the rows about sleeping models share: one caller on one connection, and getting a model to a known state first."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.models import BenchModel
from bench.servers import ServerFailed, Wakeful, until
from wakeful.loadgen.calls import Call

SETTLE_SECONDS = 0.25
"""Between putting a model to sleep and asking for it again: its process shall have ended, and its memory be given back."""


class Caller:
    """One connection that stays open, as a client library has it. Blocks."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, call: Call) -> float:
        """Seconds from the first byte sent to the last one of the answer. Raises ServerFailed unless that is 200."""
        began = time.perf_counter()
        self._socket.sendall(call.data)
        answer, missing = b"", 1
        while missing > 0:
            data = self._socket.recv(1 << 20)
            if not data:
                raise ServerFailed("the connection was closed before the answer was whole")
            answer += data
            head, found, body = answer.partition(b"\r\n\r\n")
            if found:
                length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                missing = length - len(body)
        took = time.perf_counter() - began
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise ServerFailed(f"no answer of the model: {answer[:300]!r}")
        return took

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.close()


class Warm:
    """A process that has imported ONNX Runtime and forks: what creating the stock session alone costs, with no server around it."""

    def __init__(self, model: Path, inputs: Sequence[tuple[str, str, Sequence[int], bytes]]) -> None:
        feeds = json.dumps([(name, dtype, list(shape), data.hex()) for name, dtype, shape, data in inputs])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.warm", str(model)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )
        self._say(feeds)

    def _say(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        return self._process.stdout.readline()

    def stock(self) -> tuple[float, float, int]:
        """Seconds to create the session, seconds to its first answer from there, and bytes that are its own."""
        created, first, private = json.loads(self._say("stock"))
        return float(created), float(first), int(private)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def warm_process(model: BenchModel) -> Warm:
    return Warm(model.path, [(name, array.dtype.str, array.shape, array.tobytes()) for name, array in model.feeds().items()])


def wait_prepared(server: Wakeful, model: str) -> None:
    """Until the fast-loading copy is there and nothing is being measured any more."""
    until(lambda: bool(server.events(kind="prepare", model=model)), f"{model} is prepared")
    until(lambda: len(server.pids()) <= 2 + len(awake(server)), "no errand is under way")


def awake(server: Wakeful) -> list[str]:
    models = server.call("POST", "/v2/repository/index", {"ready": True})[1]
    return [str(model["name"]) for model in models]


def put_to_sleep(server: Wakeful, model: str) -> None:
    status, answer = server.call("POST", f"/v2/repository/models/{model}/unload", {})
    if status != 200:
        raise ServerFailed(f"{model} does not go to sleep: {answer}")
    time.sleep(SETTLE_SECONDS)
