"""Requests as bytes. They are built before anything is measured: what the generator does for each one while it runs is one `send`."""

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import orjson

from wakeful.errors import InvalidInput
from wakeful.tensors import DTYPES, Tensor, decode_strings

JSON = "application/json"
BINARY = "application/octet-stream"


class Call(NamedTuple):
    """A request that may be sent any number of times."""

    data: bytes
    """One whole HTTP/1.1 request, head and body; the connection stays open."""
    rows: int
    label: str
    """What results are grouped by: the model's name as a rule."""


def infer_call(
    host: str, model: str, inputs: Sequence[Tensor], *, binary: bool = False, path: str | None = None, label: str | None = None,
    headers: Sequence[tuple[str, str]] = (),
) -> Call:
    """An inference by the Open Inference Protocol. `binary`: inputs and outputs travel as binary data. `path` replaces that of the protocol,
    `headers` are sent too.

    Its rows are the size of the first input's axis 0.
    """
    path = path or infer_path(model)
    rows = inputs[0].shape[0] if inputs and inputs[0].shape else 1
    if not binary:
        body = b'{"inputs":[%b]}' % b",".join(_json_input(tensor) for tensor in inputs)
        return Call(post(host, path, body, JSON, *headers), rows, label or model)
    header = json.dumps({"inputs": [_binary_input(tensor) for tensor in inputs], "parameters": {"binary_data_output": True}}).encode()
    body = b"".join((header, *(tensor.data for tensor in inputs)))
    length = ("Inference-Header-Content-Length", str(len(header)))
    return Call(post(host, path, body, BINARY, length, *headers), rows, label or model)


def infer_path(model: str) -> str:
    return f"/v2/models/{quote(model, safe='')}/infer"


def post(host: str, path: str, body: bytes, content_type: str = JSON, *headers: tuple[str, str]) -> bytes:
    """A whole POST request."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _entry(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "shape": list(tensor.shape), "datatype": tensor.datatype}


def _binary_input(tensor: Tensor) -> dict[str, Any]:
    return _entry(tensor) | {"parameters": {"binary_data_size": len(tensor.data)}}


def _json_input(tensor: Tensor) -> bytes:
    return orjson.dumps(_entry(tensor) | {"data": _elements(tensor)}, option=orjson.OPT_SERIALIZE_NUMPY)


def _elements(tensor: Tensor) -> Any:
    """What orjson writes as a flat array of numbers or strings."""
    if tensor.datatype == "BYTES":
        return [element.decode() for element in decode_strings(tensor.data, math.prod(tensor.shape))]
    if tensor.datatype == "BF16":
        raise InvalidInput(f"{tensor.name}: BF16 has no form in JSON; send it as binary data")
    flat = np.frombuffer(tensor.data, DTYPES[tensor.datatype].numpy)
    return flat.astype(np.float32) if tensor.datatype == "FP16" else flat
