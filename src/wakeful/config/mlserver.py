"""`model-settings.json`, as MLServer has it beside each model (mlserver/settings.py)."""

import re
from collections.abc import Mapping
from typing import Any

from wakeful.config.foreign import Account, Fields, fields_of
from wakeful.config.kinds import KINDS, SERVED, kind_of
from wakeful.config.settings import DeclaredTensor

FILE = "model-settings.json"

RUNTIMES = {
    "mlserver_xgboost.XGBoostModel": "xgboost", "mlserver_lightgbm.LightGBMModel": "lightgbm", "mlserver_catboost.CatboostModel": "catboost",
}
"""MLServer's implementations to our backends."""
SKLEARN = "mlserver_sklearn.SKLearnModel"
"""Its models are pickles, which are programs: none is opened here."""
USUAL_FILES = {
    "xgboost": ("model.bst", "model.json", "model.ubj"), "lightgbm": ("model.bst", "model.txt"), "catboost": ("model.cbm", "model.bin"),
}
"""Which MLServer looks for where no `uri` names one."""
_VERSION = re.compile(r"[A-Za-z0-9._-]{1,64}")
_WHY = {
    "parallel_workers": "replicas come by load", "warm_workers": "replicas come by load", "cache_enabled": "answers are not kept",
    "platform": "it follows from the file", "versions": "each version has its own settings",
}
_UNKNOWN = "not known here"


def read(values: Mapping[str, Any], account: Account) -> None:
    """Account for a model's settings. `name`, `implementation` and where the file is have been read by whoever has found it."""
    fields = Fields(fields_of(values), account)
    account.honour(f"name: {fields.one('name', str)}")
    implementation = fields.one("implementation", str) or ""
    if implementation in RUNTIMES:
        account.honour(f"implementation: {implementation}")
    elif implementation:
        account.ignore(f"implementation: {implementation}", "the file is served by what its name says")
    if (parameters := fields.message("parameters")) is not None:
        if parameters.one("uri", str):
            account.honour("parameters.uri")
        version = parameters.one("version", str)
        if version and version_of(values) == version:
            account.honour(f"parameters.version: {version}")
        elif version:
            account.ignore(f"parameters.version: {version}", "an address cannot hold it")
        parameters.rest({}, _UNKNOWN)
    _batching(fields, account)
    for name, into in (("inputs", account.inputs), ("outputs", account.outputs)):
        for tensor in fields.messages(name):
            shape = tuple(None if size < 0 else size for size in tensor.many("shape", int))
            into.append(DeclaredTensor(tensor.one("name", str) or "", tensor.one("datatype", str) or "", shape))
            tensor.rest({}, "the file tells what it takes")
    if account.inputs or account.outputs:
        account.honour("inputs and outputs (the file is held against them)")
    fields.rest(_WHY, _UNKNOWN)


def file_of(values: Mapping[str, Any]) -> tuple[tuple[tuple[str, ...], str | None], str]:
    """Names that the model's file may have, and the backend of one whose name does not tell; and why there is none that can be opened."""
    implementation, parameters = values.get("implementation"), values.get("parameters")
    uri = parameters.get("uri") if isinstance(parameters, dict) else None
    backend = RUNTIMES.get(str(implementation))
    names = (uri,) if isinstance(uri, str) and uri else USUAL_FILES.get(backend or "", ())
    why_not = ""
    if implementation == SKLEARN:
        why_not = f"{implementation} opens pickles, which are programs, and none is opened here; convert the model to ONNX"
    elif names and "://" in names[0]:
        why_not = f"{names[0]} is elsewhere; put the file beside {FILE}"
    elif backend is not None and backend not in KINDS:
        why_not = f"models of {backend} are not served here"
    elif implementation and backend is None and not (names and kind_of(names[0])):
        why_not = f"{implementation} is not served here; {', '.join(RUNTIMES)} are, and files of {SERVED}"
    return (names, backend), why_not


def version_of(values: Mapping[str, Any]) -> str | None:
    """The model's version, if it has one that an address can hold."""
    parameters = values.get("parameters")
    version = parameters.get("version") if isinstance(parameters, dict) else None
    return version if isinstance(version, str) and _VERSION.fullmatch(version) and version not in (".", "..") else None


def _batching(fields: Fields, account: Account) -> None:
    rows, seconds = fields.one("max_batch_size", int), fields.one("max_batch_time", float)
    if rows is not None and rows > 1:
        account.honour(f"max_batch_size: {rows}", max_batch_size=rows)
    elif rows is not None:
        account.honour(f"max_batch_size: {rows} (requests are not merged)", batching="off")
    if seconds is not None:
        account.honour(f"max_batch_time: {seconds:g}", max_batch_delay_ms=1000 * seconds)
