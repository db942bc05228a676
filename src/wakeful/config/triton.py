"""`config.pbtxt`, as it lies in Triton's model repositories (triton-inference-server/common, model_config.proto)."""

from collections.abc import Collection

from wakeful.config.foreign import Account, Fields
from wakeful.config.kinds import SERVED
from wakeful.config.settings import DeclaredTensor
from wakeful.config.textproto import Message

FILE = "config.pbtxt"

PLATFORMS = {
    "onnxruntime_onnx": ("onnx",), "onnxruntime": ("onnx",),
    "fil": ("xgboost", "lightgbm"),
}
"""Triton's names of platforms and backends to ours."""
FOREST = {"xgboost_json": ("xgboost", "xgboost.json"), "xgboost_ubj": ("xgboost", "xgboost.ubj"), "lightgbm": ("lightgbm", "model.txt")}
"""Parameter `model_type` of its backend FIL, to our backend and the file's usual name."""
_WHY = {
    "ensemble_scheduling": "a chain of models is a table [[pipelines]] here",
    "sequence_batching": "requests have no state here: each is run by whatever replica is free",
    "optimization": "the model library's own optimisations are on",
    "response_cache": "answers are not kept",
    "model_transaction_policy": "each request has one answer",
    "batch_input": "inputs are given by callers, or filled up by `pad`",
    "batch_output": "outputs are what the model gives",
    "metric_tags": "labels come from names only",
    "cc_model_filenames": "one file serves every device",
    "model_operations": "no operators are loaded from libraries",
    "model_repository_agents": "nothing is run before a model is read",
    "model_metrics": "metrics are the same for all models",
    "runtime": "how a model is run follows from its file",
}
_KINDS = {"KIND_CPU": "cpu", "KIND_GPU": "cuda", "KIND_AUTO": "auto"}
"""Kinds of instances to devices."""
_UNKNOWN = "not known here"


def read(message: Message, name: str, backend: str, files: Collection[str], account: Account) -> None:
    """Account for the configuration of a model that is called `name`, whose versions have files of these names, which `backend` opens."""
    fields = Fields(message, account)
    given = fields.one("name", str)
    if given is not None and given != name:
        account.ignore(f"name: {given}", f"the model is called {name}, as its directory is")
    elif given is not None:
        account.honour("name")
    _platform(fields, backend, account)
    batched = _batch_size(fields, account)
    for one in fields.messages("input"):
        _tensor(one, account.inputs, account, batched=batched)
    for one in fields.messages("output"):
        _tensor(one, account.outputs, account, batched=batched)
    if account.inputs or account.outputs:
        account.honour("inputs and outputs (the file is held against them)")
    if (batching := fields.message("dynamic_batching")) is not None:
        _dynamic_batching(batching, account)
    _instances(fields.messages("instance_group"), account)
    _warmup(fields.messages("model_warmup"), account, batched=batched)
    if (policy := fields.message("version_policy")) is not None:
        _version_policy(policy, account)
    if (file := fields.one("default_model_filename", str)) in files:
        account.honour(f"default_model_filename: {file}")
    elif file:
        account.ignore(f"default_model_filename: {file}", f"the model's file is {', '.join(sorted(files))}")
    _parameters(fields.messages("parameters"), account)
    fields.rest(_WHY, _UNKNOWN)


def file_of(message: Message) -> tuple[tuple[str, ...], str | None]:
    """Names that the file in a version's directory may have, the best first, and the backend of one whose name does not tell."""
    named = _text(message, "default_model_filename")
    kind, usual = FOREST.get(_parameter(message, "model_type"), (None, ""))
    return tuple(name for name in (named, usual) if name and "/" not in name), kind


def platform_of(message: Message) -> str:
    return _text(message, "backend") or _text(message, "platform")


def _text(message: Message, field: str) -> str:
    value = next(reversed(message.get(field, [])), None)
    return value if isinstance(value, str) else ""


def _parameter(message: Message, key: str) -> str:
    for entry in message.get("parameters", []):
        if isinstance(entry, dict) and _text(entry, "key") == key:
            return "".join(_text(value, "string_value") for value in entry.get("value", []) if isinstance(value, dict))
    return ""


def _platform(fields: Fields, backend: str, account: Account) -> None:
    for field in ("platform", "backend"):
        given = fields.one(field, str)
        if not given:
            continue
        if backend in PLATFORMS.get(given, ()):
            account.honour(f"{field}: {given}")
        else:
            account.ignore(f"{field}: {given}", f"the file is one of {backend}; served are {SERVED}")


def _batch_size(fields: Fields, account: Account) -> bool:
    """Have the tensors that the configuration declares another axis 0, for the batch?"""
    rows = fields.one("max_batch_size", int)
    if rows is None:
        return False
    if rows > 0:
        account.honour(f"max_batch_size: {rows}", max_batch_size=rows)
    else:
        account.honour("max_batch_size: 0 (requests are not merged)", batching="off")
    return rows > 0


def _tensor(fields: Fields, into: list[DeclaredTensor], account: Account, *, batched: bool) -> None:
    name = fields.one("name", str) or ""
    datatype = (fields.one("data_type", str) or "").removeprefix("TYPE_")
    datatype = {"STRING": "BYTES"}.get(datatype, datatype)
    dims = fields.many("dims", int)
    if reshape := fields.message("reshape"):
        dims = reshape.many("shape", int)
        account.ignore(f"reshape of {name}", "callers send the shape that the file declares")
    fields.one("format", str)
    for flag in ("optional", "is_shape_tensor", "is_non_linear_format_io"):  # whatever they say, the file says it too
        fields.one(flag, bool)
    fields.rest({"allow_ragged_batch": "`pad` of [[models]] does that", "label_filename": "classification is not supported"}, _UNKNOWN)
    shape = tuple(None if size < 0 else size for size in dims)
    into.append(DeclaredTensor(name, datatype, (None, *shape) if batched else shape))


def _dynamic_batching(fields: Fields, account: Account) -> None:
    delay = fields.one("max_queue_delay_microseconds", int)
    if delay is not None:
        account.honour(f"max_queue_delay_microseconds: {delay}", max_batch_delay_ms=delay / 1000)
    if (policy := fields.message("default_queue_policy")) is not None:
        size = policy.one("max_queue_size", int)
        if size:
            account.honour(f"max_queue_size: {size}", queue_limit=size)
        policy.rest({}, "a request has one deadline: its own, or request_timeout_ms")
    fields.rest({
        "preferred_batch_size": "how many rows pay is learnt from the model's run times",
        "preserve_ordering": "each answer goes to its caller as soon as it is there",
    }, "requests have no priorities here; the oldest goes first")


def _instances(groups: list[Fields], account: Account) -> None:
    """The count is a ceiling: replicas beyond the first come under load, and leave when it is over."""
    count = 0
    devices = []
    for group in groups:
        gpus = group.many("gpus", int)
        count += max(group.one("count", int) or 1, 1) * max(len(gpus), 1)
        kind = group.one("kind", str) or ("KIND_GPU" if gpus else "KIND_AUTO")
        if kind in _KINDS:
            devices.append(f"cuda:{gpus[0]}" if gpus and kind == "KIND_GPU" else _KINDS[kind])
        else:
            account.ignore(f"instance_group.kind: {kind}", "the model does not choose its device itself")
        if len(gpus) > 1:
            account.ignore(f"instance_group.gpus: {gpus[1:]}", "all replicas of a model are on one device")
        group.one("name", str)
        group.rest({}, "replicas are started by load, on one device")
    if not groups:
        return
    account.honour(f"instance_group.count: {count} (replicas at most; they come by load)", max_replicas=count)
    if len(set(devices)) > 1:
        account.ignore(f"instance_group.kind of all but the first ({', '.join(devices[1:])})", "all replicas of a model are on one device")
    if devices and devices[0] != "auto":
        account.honour(f"instance_group.kind ({devices[0]})", device=devices[0])


def _warmup(requests: list[Fields], account: Account, *, batched: bool) -> None:
    """Each as an entry of `warmup`, with the whole shapes of its inputs."""
    entries = []
    for number, request in enumerate(requests, start=1):
        name = request.one("name", str) or str(number)
        rows, count = max(request.one("batch_size", int) or 1, 1), max(request.one("count", int) or 1, 1)
        shapes: dict[str, list[int]] = {}
        data, file = "zeros", ""
        for one in request.messages("inputs"):
            value = one.message("value")
            if value is None:
                continue
            value.one("data_type", str)
            shapes[one.one("key", str) or ""] = [rows, *value.many("dims", int)] if batched else value.many("dims", int)
            value.one("zero_data", bool)
            data = "random" if value.one("random_data", bool) else data
            file = value.one("input_data_file", str) or file
        request.rest({}, _UNKNOWN)
        if file:
            account.ignore(f"model_warmup {name}", f"{file} has no shape in it: `warmup` of [[models]] takes .npz and .json")
        else:
            entries.append({"data": data, "rows": rows, "shapes": shapes, "count": count})
    if entries:
        account.honour(f"model_warmup: {len(entries)} request{'s' * (len(entries) > 1)}", warmup=entries)


def _version_policy(fields: Fields, account: Account) -> None:
    if (latest := fields.message("latest")) is not None:
        count = max(latest.one("num_versions", int) or 1, 1)
        account.honour(f"version_policy.latest: {count}", versions=count)
    elif fields.message("all") is not None:
        account.honour("version_policy.all", versions="all")
    elif (specific := fields.message("specific")) is not None and (versions := specific.many("versions", int)):
        account.honour(f"version_policy.specific: {', '.join(map(str, versions))}", versions=versions)
    fields.rest({}, _UNKNOWN)


def _parameters(parameters: list[Fields], account: Account) -> None:
    for parameter in parameters:
        key = parameter.one("key", str) or ""
        value = parameter.message("value")
        text = (value.one("string_value", str) if value is not None else None) or ""
        if key == "model_type" and text in FOREST:
            account.honour(f"model_type: {text}")
        elif key == "intra_op_thread_count" and text.isdecimal() and int(text):
            account.honour(f"intra_op_thread_count: {text}", threads=int(text))
        else:
            account.ignore(f"parameters: {key}", "not known here")
