"""The Open Inference Protocol (KServe V2) over REST: inference bodies, JSON alone or with the binary tensor extension; and what the repository
calls take, as `tritonclient.http` sends them.

Decisions where the protocol leaves room: NaN and the infinities are null in a JSON answer and refused in a JSON request; FP16 is taken and
given as JSON numbers, BF16 is given so but taken as binary data only; keys that are not known are ignored, as the protocol asks;
extensions that are known and not supported (shared memory, classification) are refused. Where a body was compressed, lengths are those
of the inflated body.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any

import msgspec

from wakeful.errors import InvalidInput
from wakeful.frontends import oip_bodies, raw_data
from wakeful.frontends.http import numbers
from wakeful.frontends.http.json_body import NOT_PARSED, explain_body, parse
from wakeful.tensors import DTYPES, Buffer, Tensor

Binary = bool | frozenset[str]
"""Which outputs are wanted as binary data: all, none, or those of these names."""

Shape = Annotated[tuple[Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)], ...], msgspec.Meta(max_length=64)]
Scalar = str | int | float | bool


class Infer(msgspec.Struct, frozen=True):
    """An inference request."""

    inputs: tuple[Tensor, ...]
    """Binary data are views of the body."""
    outputs: tuple[str, ...] | None = None
    """Wanted outputs in the wanted order; None: all."""
    binary: Binary = False
    id: str = ""
    parameters: dict[str, Scalar] | None = None
    """What remains when the front end has taken its own: `timeout` and `binary_data_output`."""
    timeout: int | None = None
    """Microseconds."""


class _InputParameters(msgspec.Struct):
    binary_data_size: Annotated[int, msgspec.Meta(ge=0)] | None = None
    shared_memory_region: Any = None


class _Input(msgspec.Struct):
    name: str
    shape: Shape
    datatype: str
    data: msgspec.Raw = msgspec.Raw()
    parameters: _InputParameters | None = None


class _OutputParameters(msgspec.Struct):
    binary_data: bool | None = None
    classification: int | None = None
    shared_memory_region: Any = None


class _Output(msgspec.Struct):
    name: str
    parameters: _OutputParameters | None = None


class _Request(msgspec.Struct):
    inputs: list[_Input]
    outputs: list[_Output] | None = None
    id: str | None = None
    parameters: dict[str, Scalar] | None = None


_decode_request = msgspec.json.Decoder(_Request).decode


# ── request ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def decode_infer(body: Buffer, json_length: int | None = None) -> Infer:
    """Decode a request. `json_length` is the Inference-Header-Content-Length: where the JSON ends and binary data begin; None: all is JSON.

    Raises InvalidInput with the path of the field, before anything of the declared size is allocated.
    """
    binary: memoryview | None = None
    if json_length is not None:
        if not 0 <= json_length <= len(body):
            raise InvalidInput.field("Inference-Header-Content-Length", f"at most the body's {len(body)} bytes", json_length)
        view = memoryview(body)
        body, binary = view[:json_length], view[json_length:]
    try:  # parse() written out: this runs for every request
        request = _decode_request(body)
    except NOT_PARSED as error:
        raise explain_body(error, body) from None
    given = request.inputs
    if binary is None and len(given) == 1 and given[0].parameters is None:
        inputs: tuple[Tensor, ...] = (_decode_json_input(given[0], "inputs[0]"),)
    else:
        inputs = _decode_inputs(given, binary)
    if request.outputs is None and request.parameters is None:
        return Infer(inputs, None, False, request.id or "")
    return _with_options(inputs, request)


def _decode_json_input(given: _Input, path: str) -> Tensor:
    datatype, raw = given.datatype, given.data
    if datatype not in DTYPES:
        raise InvalidInput.field(f"{path}.datatype", "one of " + ", ".join(DTYPES), repr(datatype))
    if not raw:
        raise InvalidInput.field(f"{path}.data", "an array, or parameters.binary_data_size", "neither")
    shape = given.shape
    data = numbers.decode(raw, datatype, shape, path)
    return tuple.__new__(Tensor, (given.name, datatype, shape, data))  # half the time of Tensor(...)


def _decode_inputs(given: list[_Input], binary: memoryview | None) -> tuple[Tensor, ...]:
    inputs: list[Tensor] = []
    seen: dict[str, int] = {}
    offset, end = 0, len(binary or b"")
    for index, one in enumerate(given):
        path = f"inputs[{index}]"
        if (first := seen.setdefault(one.name, index)) != index:
            raise InvalidInput.field(f"{path}.name", "a name of its own", f"{one.name!r} again, as in inputs[{first}]")
        parameters = one.parameters
        if parameters is not None and parameters.shared_memory_region is not None:
            raise InvalidInput(f"{path}.parameters.shared_memory_region: shared memory is not supported")
        if parameters is None or (size := parameters.binary_data_size) is None:
            inputs.append(_decode_json_input(one, path))
            continue
        if binary is None:
            raise InvalidInput(f"{path}.parameters.binary_data_size: given without the header Inference-Header-Content-Length")
        if size > end - offset:
            raise InvalidInput.field(f"{path}.parameters.binary_data_size", f"at most the {end - offset} bytes that are left", size)
        inputs.append(_binary_input(one, binary[offset : offset + size], path))
        offset += size
    if offset != end:
        raise InvalidInput.field("request", f"{offset} bytes of binary data, the sum of binary_data_size", end)
    return tuple(inputs)


def _binary_input(given: _Input, data: memoryview, path: str) -> Tensor:
    dtype = raw_data.known(given.datatype, path)
    if given.data:
        raise InvalidInput(f"{path}.data: given together with parameters.binary_data_size")
    raw_data.check(dtype, given.shape, data, f"{path}.data", f"{path}.parameters.binary_data_size")
    return Tensor(given.name, dtype.name, given.shape, data)


def _with_options(inputs: tuple[Tensor, ...], request: _Request) -> Infer:
    parameters = request.parameters or {}
    timeout = parameters.pop("timeout", 0)
    if type(timeout) is not int or not 0 <= timeout < 2**63:
        raise InvalidInput.field("parameters.timeout", "microseconds as a whole number of 63 bits", timeout)
    binary = parameters.pop("binary_data_output", False)
    if not isinstance(binary, bool):
        raise InvalidInput.field("parameters.binary_data_output", "true or false", repr(binary))
    outputs, chosen = _wanted(request.outputs, binary) if request.outputs else (None, binary)
    return Infer(inputs, outputs, chosen, request.id or "", parameters or None, timeout or None)


def _wanted(outputs: list[_Output], all_binary: bool) -> tuple[tuple[str, ...], Binary]:
    names: dict[str, bool] = {}
    for index, output in enumerate(outputs):
        path, binary = f"outputs[{index}]", all_binary
        if output.name in names:
            raise InvalidInput.field(f"{path}.name", "a name of its own", f"{output.name!r} again")
        if (parameters := output.parameters) is not None:
            if parameters.classification:
                raise InvalidInput(f"{path}.parameters.classification: classification is not supported")
            if parameters.shared_memory_region is not None:
                raise InvalidInput(f"{path}.parameters.shared_memory_region: shared memory is not supported")
            if parameters.binary_data is not None:
                binary = parameters.binary_data
        names[output.name] = binary
    chosen = frozenset(name for name, binary in names.items() if binary)
    return tuple(names), len(chosen) == len(names) or (chosen or False)


# ── answer ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def encode_infer(model: str, version: str, id: str, outputs: Sequence[Tensor], binary: Binary = False) -> tuple[bytes, int | None]:
    """The body, and its Inference-Header-Content-Length where binary data follow the JSON. The outputs' data are copied.

    Raises ExecutionFailed where strings that are not UTF-8 are to become JSON.
    """
    if binary:
        return _encode_mixed(model, version, id, outputs, binary)
    closing = _closing(id) if id else b"}"
    if len(outputs) == 1:
        name, datatype, shape, data = outputs[0]
        return b"%b%b}]%b" % (_until_data(model, version, name, datatype, shape), numbers.encode(data, datatype, shape, name), closing), None
    entries = [
        b'%b,"data":%b}' % (_output(name, datatype, shape), numbers.encode(data, datatype, shape, name))
        for name, datatype, shape, data in outputs
    ]
    return b"%b%b]%b" % (_opening(model, version), b",".join(entries), closing), None


def _encode_mixed(model: str, version: str, id: str, outputs: Sequence[Tensor], binary: Binary) -> tuple[bytes, int | None]:
    entries: list[bytes] = []
    attached: list[Buffer] = []
    for name, datatype, shape, data in outputs:
        entry = _output(name, datatype, shape)
        if binary is True or (binary and name in binary):
            entries.append(b'%b,"parameters":{"binary_data_size":%d}}' % (entry, len(data)))
            attached.append(data)
        else:
            entries.append(b'%b,"data":%b}' % (entry, numbers.encode(data, datatype, shape, name)))
    header = b"%b%b]%b" % (_opening(model, version), b",".join(entries), _closing(id))
    return b"".join((header, *attached)), len(header) if attached else None


@lru_cache(maxsize=1024)
def _opening(model: str, version: str) -> bytes:
    return b'{"model_name":%b,"model_version":%b,"outputs":[' % (msgspec.json.encode(model), msgspec.json.encode(version))


@lru_cache(maxsize=4096)
def _until_data(model: str, version: str, name: str, datatype: str, shape: tuple[int, ...]) -> bytes:
    """All that comes before the data of an answer's only output."""
    return b'%b%b,"data":' % (_opening(model, version), _output(name, datatype, shape))


@lru_cache(maxsize=4096)
def _output(name: str, datatype: str, shape: tuple[int, ...]) -> bytes:
    """An entry of `outputs` up to its data."""
    return msgspec.json.encode({"name": name, "datatype": datatype, "shape": shape})[:-1]


def _closing(id: str) -> bytes:
    return b',"id":%b}' % msgspec.json.encode(id) if id else b"}"


# ── repository ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _IndexRequest(msgspec.Struct):
    ready: bool = False


class _ControlRequest(msgspec.Struct):
    parameters: dict[str, Any] | None = None


_decode_index = msgspec.json.Decoder(_IndexRequest).decode
_decode_control = msgspec.json.Decoder(_ControlRequest).decode


def decode_repository_index(body: Buffer) -> bool:
    """Are only the models wanted that are ready? An empty body asks for all."""
    return bool(body) and parse(_decode_index, body).ready


def decode_load(body: Buffer) -> dict[str, Any] | None:
    """The settings that a load brings along; None if it brings none. Its body may be empty."""
    return oip_bodies.load_override(_control_parameters(body))


def decode_unload(body: Buffer) -> None:
    """Check an unload's body, which may be empty. No model depends on another, so `unload_dependents` changes nothing."""
    _control_parameters(body)


def _control_parameters(body: Buffer) -> dict[str, Any]:
    return (parse(_decode_control, body).parameters or {}) if body else {}
