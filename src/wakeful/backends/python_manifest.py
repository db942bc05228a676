"""What stands beside a Python model's code: which class, which interpreter, which environment."""

import json
import os
import shutil
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from wakeful.errors import Unavailable

NATIVE_CODE, NATIVE_MANIFEST = "wakeful_model.py", "wakeful_model.toml"
SNOOZE_CODE, SNOOZE_MANIFEST = "snooze_model.py", "snooze_model.json"

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""They are read when a library is loaded."""

_KEYS = {"class": str, "python": str, "env": dict}


@dataclass(frozen=True, slots=True)
class Manifest:
    code: str
    """The file with the class, in the model's directory."""
    class_name: str = "Model"
    python: str = sys.executable
    """The interpreter, as a path."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables beside the daemon's."""
    tensor_format: Literal["numpy", "raw"] = "numpy"
    """SnoozeML: what the model wants its inputs as."""

    @property
    def snooze(self) -> bool:
        return self.code != NATIVE_CODE

    def environment(self, threads: int) -> dict[str, str]:
        """What it is to have beside the daemon's: its own, and how many threads the usual libraries may start."""
        return {**dict.fromkeys(THREAD_VARIABLES, str(threads)), **self.env}


def read_manifest(directory: Path) -> Manifest:
    """Of the directory's model; what is not written has its default. Raises Unavailable for one that is wrong, with the key."""
    if (directory / NATIVE_CODE).is_file():
        name, values = NATIVE_MANIFEST, _parsed(directory / NATIVE_MANIFEST)
        if unknown := values.keys() - _KEYS:
            raise Unavailable(f"{name}: {min(unknown)} is not known; there are {', '.join(sorted(_KEYS))}")
        _check(name, values, _KEYS)
        return Manifest(NATIVE_CODE, values.get("class", "Model"), _interpreter(name, values, directory), values.get("env", {}))
    name, values = SNOOZE_MANIFEST, _parsed(directory / SNOOZE_MANIFEST)
    _check(name, values, _KEYS | {"entrypoint": str, "tensor_format": str})
    format_: Any = values.get("tensor_format") or "numpy"
    if format_ not in ("numpy", "raw"):
        raise Unavailable(f'{name}: tensor_format must be "numpy" or "raw", got "{format_}"')
    python, env = _interpreter(name, values, directory), values.get("env") or {}
    return Manifest(values.get("entrypoint") or SNOOZE_CODE, values.get("class") or "Model", python, env, format_)


def _parsed(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"{path.name} cannot be read: {error}") from None
    try:
        values = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unavailable(f"{path.name} is not valid {path.suffix[1:].upper()}: {error}") from None
    if not isinstance(values, dict):
        raise Unavailable(f"{path.name} must be an object with keys")
    return {key: value for key, value in values.items() if value is not None}


def _check(name: str, values: Mapping[str, Any], keys: Mapping[str, type]) -> None:
    for key, kind in keys.items():
        value = values.get(key)
        if value is not None and not isinstance(value, kind):
            raise Unavailable(f"{name}: {key} must be {'text' if kind is str else 'a table'}, got {value!r}")
    for variable, value in (values.get("env") or {}).items():
        if not isinstance(value, str):
            raise Unavailable(f"{name}: env.{variable} must be text, got {value!r}")
        if not _is_variable(variable, value):
            raise Unavailable(f"{name}: env.{variable} cannot be a variable: no name is empty or has a \"=\", and neither it nor {value!r} a NUL")


def _is_variable(name: str, value: str) -> bool:
    """May a process have it in its environment?"""
    try:
        os.fsencode(name + value)
    except UnicodeEncodeError:
        return False
    return bool(name) and "=" not in name and "\0" not in name + value


def _interpreter(name: str, values: Mapping[str, Any], directory: Path) -> str:
    """As a path: one with a slash is relative to the model's directory, a bare name is looked up in PATH."""
    wanted = values.get("python")
    if not wanted:
        return sys.executable
    found = str(directory / wanted) if "/" in wanted else shutil.which(wanted)
    if found is None or not _is_variable("PATH", found) or not os.access(found, os.X_OK):
        raise Unavailable(f"{name}: the interpreter {wanted} is not there, or may not be executed")
    return found
