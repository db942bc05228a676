"""`wakeful infer`: one call of a model, with its own values or with made-up ones; or the call as others would write it."""

import json
import shlex
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator, Mapping
from typing import Any

from wakeful import clock
from wakeful.cli import infer_inputs
from wakeful.cli.change import Model, named
from wakeful.cli.client import KEY_VARIABLE, PREFIX, Client
from wakeful.cli.looks import Looks, printable
from wakeful.cli.output import Output, add_client_options, answered
from wakeful.cli.parser import DONE, Parser
from wakeful.cli.wire import quoted
from wakeful.telemetry.units import counted, show_seconds

SECONDS = 120.0
SHOWN_VALUES = 8


def add_arguments(parser: Parser) -> None:
    parser.usage = f"{parser.prog} MODEL [INPUT] [option ...]"
    parser.add_argument("model", metavar="MODEL", help="a name, or a name:version")
    what = 'zeros (default), random, or JSON, as it is, in a file or on stdin (-): a request, {"name": nested lists}, or lists for the only input'
    parser.add_argument("input", nargs="?", default="zeros", metavar="INPUT", help=what)
    parser.add_argument("--rows", type=_count, default=1, metavar="N", help="of made-up inputs: the first dimension where it is free (default 1)")
    parser.add_argument("--size", type=_count, default=1, metavar="N", help="of made-up inputs: other free dimensions (default 1)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of random inputs (default 0)")
    parser.add_argument("--values", type=_count, default=SHOWN_VALUES, metavar="N", help=f"of each output to show (default {SHOWN_VALUES})")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--curl", action="store_true", help="print the call as a curl command instead")
    form.add_argument("--python", action="store_true", help="print the call as a Python program instead")
    add_client_options(parser, seconds=SECONDS)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 1 << 31):
        raise ArgumentTypeError(f"expected a whole number above 0, got {text}")
    return int(text)


def run(arguments: Namespace) -> int:
    def work(client: Client, output: Output) -> int:
        model = named(arguments.model, client.get(f"{PREFIX}/state")["models"])
        path = path_of(model)
        request = request_of(arguments, client.get(path)["inputs"])
        if arguments.curl or arguments.python:
            text = (as_curl if arguments.curl else as_python)(f"{client.address}{path}/infer", request)
            output.result("call", {"text": text}, lambda _: [text])
            return DONE
        started = clock.monotonic()
        answer = client.post(f"{path}/infer", request)
        seconds = clock.monotonic() - started
        data = {"model": model["key"], "seconds": seconds, "state_before": model["state"], "answer": answer}
        output.result("infer", data, lambda looks: list(page(request, data, arguments.values, looks)))
        return DONE

    return answered(arguments, work)


def path_of(model: Model) -> str:
    """Of a version where one was named."""
    by_version = model["version"] is not None and model["key"] != model["name"]
    return f"/v2/models/{quoted(model['name'])}" + (f"/versions/{quoted(model['version'])}" if by_version else "")


def request_of(arguments: Namespace, inputs: list[dict[str, Any]]) -> dict[str, Any]:
    if arguments.input in infer_inputs.MADE_UP:
        return {"inputs": infer_inputs.made_up(inputs, arguments.input, arguments.rows, arguments.size, arguments.seed)}
    return infer_inputs.read(arguments.input, inputs)


def page(request: Mapping[str, Any], data: Mapping[str, Any], values: int, looks: Looks) -> Iterator[str]:
    answer = data["answer"]
    for label, tensors in (("in ", request["inputs"]), ("out", answer.get("outputs", []))):
        for tensor in tensors:
            yield looks.cut(f"{label}  {described(tensor, values)}", looks.width)
    woken = "; it slept before" if data["state_before"] == "asleep" else ""
    yield f"took {show_seconds(data['seconds'])}, from here to the answer{woken}"


def described(tensor: Mapping[str, Any], values: int) -> str:
    """ "logits FP32 [1, 10]  0.1 0.2 ... (10 values)"."""
    flat = list(_flat(tensor.get("data", [])))
    shown = " ".join(_value(value) for value in flat[:values])
    more = f" ... ({counted(len(flat), 'value')})" if len(flat) > values else ""
    return f"{printable(str(tensor.get('name')))} {tensor.get('datatype')} {tensor.get('shape')}  {shown}{more}"


def _flat(data: Any) -> Iterator[Any]:
    if isinstance(data, list):
        for part in data:
            yield from _flat(part)
    else:
        yield data


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else printable(json.dumps(value, ensure_ascii=False))


def as_curl(url: str, request: Mapping[str, Any]) -> str:
    """A command that can be pasted into a shell; the key, if there is one, stays in its variable."""
    body = shlex.quote(json.dumps(request, separators=(",", ":")))
    return f'curl -s {shlex.quote(url)} ${{{KEY_VARIABLE}:+-H "authorization: Bearer ${KEY_VARIABLE}"}} -d {body}'


def as_python(url: str, request: Mapping[str, Any]) -> str:
    """A program that needs nothing but Python."""
    return _PYTHON.format(request=repr(dict(request)), url=url, variable=KEY_VARIABLE)


_PYTHON = """\
import json
import os
import urllib.request

body = {request}
headers = {{"content-type": "application/json"}}
if key := os.environ.get("{variable}"):
    headers["authorization"] = f"Bearer {{key}}"
call = urllib.request.Request("{url}", json.dumps(body).encode(), headers)
with urllib.request.urlopen(call) as answer:
    for tensor in json.load(answer)["outputs"]:
        print(tensor["name"], tensor["datatype"], tensor["shape"], tensor["data"][:{shown}])""".replace("{shown}", str(SHOWN_VALUES))
