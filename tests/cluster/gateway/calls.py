"""Plain requests, and their bodies."""

import json
import urllib.error
import urllib.request
from http.client import HTTPConnection
from typing import Any

import numpy as np


def body(values: np.ndarray) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "shape": list(values.shape), "datatype": "FP32", "data": values.ravel().tolist()}]}


def call(url: str, method: str, path: str, sent: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any, dict[str, str]]:
    """Status, decoded JSON and headers."""
    data = sent if sent is None or isinstance(sent, bytes) else json.dumps(sent).encode()
    request = urllib.request.Request(url + path, data=data, headers={"content-type": "application/json"} | (headers or {}), method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read() or b"null"), dict(answer.headers.items())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read() or b"null"), dict(error.headers.items())


def status_of(url: str) -> int:
    """Whatever the answer is."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            status: int = answer.status
            return status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def told_to_go(address: str) -> bool:
    """A caller who would keep his connection is answered, and is not to."""
    connection = HTTPConnection(address, timeout=30)
    try:
        connection.request("GET", "/v2/models/nobody")
        answer = connection.getresponse()
        assert answer.status == 404
        return answer.getheader("connection") == "close"
    finally:
        connection.close()
