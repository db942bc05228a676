"""Requests that are under way at the same time, without a thread for each."""

import http.client
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.daemon import Daemon, wait_until

BINARY = "application/octet-stream"
JSON_LENGTH = "Inference-Header-Content-Length"


class Question(NamedTuple):
    """A request of any dialect."""

    path: str
    body: bytes
    headers: Mapping[str, str] = MappingProxyType({})


class Answer(NamedTuple):
    status: int
    json_length: int | None
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body[: self.json_length])

    def output(self, name: str | None = None) -> list[Any]:
        """Data of an output; without a name, of the only one."""
        assert self.status == 200, self.body
        outputs = {output["name"]: output["data"] for output in self.json["outputs"]}
        data: list[Any]
        if name is None:
            (data,) = outputs.values()
        else:
            data = outputs[name]
        return data


def oip(model: str, *inputs: dict[str, Any], **more: Any) -> Question:
    """In the Open Inference Protocol."""
    return Question(f"/v2/models/{model}/infer", json.dumps({"inputs": inputs, **more}).encode())


def tensor(name: str, shape: Sequence[int], data: Sequence[Any], datatype: str = "FP32") -> dict[str, Any]:
    return {"name": name, "shape": list(shape), "datatype": datatype, "data": list(data)}


def declared(name: str, datatype: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape)}


def binary(model: str, tensors: Sequence[dict[str, Any]], chunks: Sequence[bytes], **more: Any) -> Question:
    """With binary data in both directions."""
    inputs = [tensor | {"parameters": {"binary_data_size": len(chunk)}} for tensor, chunk in zip(tensors, chunks, strict=True)]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}} | more).encode()
    headers = {JSON_LENGTH: str(len(head)), "Content-Type": BINARY}
    return Question(f"/v2/models/{model}/infer", head + b"".join(chunks), headers)


def ask_together(daemon: Daemon, questions: Sequence[Question]) -> list[Answer]:
    """Send all, each over a connection of its own, before any answer is read."""
    connections = [http.client.HTTPConnection(daemon.host, daemon.port, timeout=60) for _ in questions]
    try:
        for connection in connections:
            connection.connect()
        for connection, question in zip(connections, questions, strict=True):
            connection.request("POST", question.path, question.body, question.headers)
        return [receive(connection) for connection in connections]
    finally:
        for connection in connections:
            connection.close()


def ask(daemon: Daemon, question: Question) -> Answer:
    with closing(send(daemon, question)) as connection:
        return receive(connection)


def send(daemon: Daemon, question: Question) -> http.client.HTTPConnection:
    """Over a connection of its own, from which the answer may be received later, or never."""
    connection = http.client.HTTPConnection(daemon.host, daemon.port, timeout=60)
    connection.request("POST", question.path, question.body, question.headers)
    return connection


def send_and_see_taken(daemon: Daemon, question: Question) -> http.client.HTTPConnection:
    """As `send`; when this returns the daemon has accepted the connection, or has ended."""
    connection = send(daemon, question)
    port = connection.sock.getsockname()[1]
    wait_until(lambda: daemon.process.poll() is not None or port in daemon.connections(), "it is taken")
    return connection


def receive(connection: http.client.HTTPConnection) -> Answer:
    response = connection.getresponse()
    length = response.getheader(JSON_LENGTH)
    return Answer(response.status, None if length is None else int(length), response.read())
