"""Settings that a load brings along: Triton's model configuration as JSON, as `config.pbtxt` has it, and keys of [[models]]."""

from collections.abc import Mapping
from typing import Any

from wakeful.config import triton
from wakeful.config.beside import with_keys
from wakeful.config.document import Document
from wakeful.config.foreign import Account, fields_of
from wakeful.config.problems import Problem
from wakeful.config.schema import ModelTable
from wakeful.config.settings import ModelSettings
from wakeful.errors import InvalidInput

SOURCE = "parameters.config"
_BOTH = frozenset({"max_batch_size", "backend"})
"""Keys of [[models]] that are read as Triton's, where they mean the same."""
_NOT_OURS = {
    "input": "what a model takes follows from its file", "output": "what a model gives follows from its file",
    "version_policy": "which versions are served is the repository's",
}
_MAPS = ("parameters", "inputs")
_LONG = frozenset({"dims", "shape", "max_queue_delay_microseconds", "default_timeout_microseconds"})
"""Fields of 64 bits, which protobuf writes as text."""


def with_override(settings: ModelSettings, config: Mapping[str, Any]) -> tuple[ModelSettings, Account]:
    """`settings` with what `config` says otherwise, and what came of each of its fields. Raises InvalidInput for values that cannot be."""
    account = _Strict()
    own = {key: value for key, value in config.items() if key in ModelTable.model_fields and key not in _BOTH}
    for key in own:
        account.honour(key)
    for key, why in _NOT_OURS.items():
        if key in config:
            account.ignore(key, why)
    rest = {key: value for key, value in config.items() if key not in own and key not in _NOT_OURS}
    try:
        triton.read(fields_of(rest, _read), settings.id, settings.backend, {settings.path.name}, account)
    except RecursionError:
        raise InvalidInput(f"{SOURCE}: it is nested too deep") from None
    report: list[Problem] = []
    made = with_keys(settings, account.keys | own, Document(SOURCE), report)
    if made is None:
        faults = [f"{problem.message}{f' ({problem.hint})' if problem.hint else ''}" for problem in report if problem.severity == "error"]
        raise InvalidInput(f"{SOURCE}: {'; '.join(faults)}")
    return made, account


class _Strict(Account):
    """A file that lies there is read as far as it goes; who sends a configuration hears what is wrong with it."""

    def ignore(self, field: str, why: str) -> None:
        if why.startswith("expected "):
            raise InvalidInput(f"{SOURCE}: {field}: {why}")
        super().ignore(field, why)


def _read(name: str, value: object) -> object:
    """A map is its entries, as in protobuf."""
    if name in _MAPS and isinstance(value, dict):
        return [{"key": key, "value": inner} for key, inner in value.items()]
    if name in _LONG:
        return [_number(one) for one in value] if isinstance(value, list) else _number(value)
    return value


def _number(value: object) -> object:
    return int(value) if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 20 else value
