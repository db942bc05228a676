"""Strict JSON bodies: what msgspec refuses becomes an InvalidInput that names the field.

Where a key is given twice the last one counts, as in nearly every JSON parser.
"""

import json
import math
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from wakeful.errors import InvalidInput
from wakeful.tensors import Buffer

T = TypeVar("T")

NOT_PARSED = (msgspec.DecodeError, RecursionError)

EXPLAINED = 64 * 1024
"""Longest malformed body that is parsed a second time, slowly, to find the field to blame."""


def parse(decode: Callable[[Buffer], T], body: Buffer) -> T:
    """Decode a whole body. Raises InvalidInput with the path of the field, as `inputs[0].shape`."""
    try:
        return decode(body)
    except NOT_PARSED as error:
        raise explain_body(error, body) from None


def explain_body(error: Exception, body: Buffer) -> InvalidInput:
    """Why `decode(body)` raised one of NOT_PARSED."""
    if isinstance(error, msgspec.ValidationError):
        return explain(error)
    if isinstance(error, msgspec.DecodeError):
        return _explain_malformed(error, body)
    return InvalidInput("request: nested too deeply")


def explain(error: Exception, root: str = "") -> InvalidInput:
    """msgspec's text, "Expected `int`, got `str` - at `$.inputs[0].shape[1]`", in our form. `root` is the path of what was decoded."""
    what, _, path = str(error).removeprefix("Object ").partition(" - at `$")
    place = (root + path.rstrip("`")).lstrip(".") or "request"
    return InvalidInput(f"{place}: {what if what.startswith('JSON') else what[:1].lower() + what[1:]}")


def _explain_malformed(error: Exception, body: Buffer) -> InvalidInput:
    """What is not JSON although some writers produce it (NaN, Infinity, lone surrogates) is found by a parser that takes it."""
    if not body:
        return InvalidInput.field("request", "a JSON object", "an empty body")
    if len(body) <= EXPLAINED:
        try:
            culprit = _not_json(json.loads(bytes(body)), "")
        except (ValueError, RecursionError):
            culprit = None
        if culprit is not None:
            return culprit
    what = str(error).removeprefix("JSON is malformed: ")
    return InvalidInput(f"request: JSON is malformed: {what[:1].lower()}{what[1:]}")


def _not_json(value: Any, path: str) -> InvalidInput | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else InvalidInput.field(path, "a finite number", value)
    if isinstance(value, str):
        return None if value.isascii() or not _has_surrogate(value) else InvalidInput.field(path, "Unicode text", "a lone surrogate")
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        inner = f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}".lstrip(".")
        if (culprit := _not_json(part, inner)) is not None:
            return culprit
    return None


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
