"""From raw values to a table of the schema, with every fault in them told as a Problem."""

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from wakeful.config.locate import KeyPath, dotted
from wakeful.config.problems import Place, Problem
from wakeful.config.schema import SECRETS, TABLES, PadTable, Table, TextTable, WarmupTable, choices, keys_of

AnyTable = TypeVar("AnyTable", bound=Table)
_LONGEST_VALUE = 60
_NESTED: Mapping[str | int, tuple[str, type[Table]]] = {
    "pad": ("pad", PadTable), "text": ("[models.text]", TextTable), "warmup": ("[[models.warmup]]", WarmupTable),
}


def validate(
    table: type[AnyTable],
    values: Mapping[str, Any],
    title: str,
    place: Callable[[KeyPath], Place],
    report: list[Problem],
    *,
    base: KeyPath = (),
    strict: bool = True,
) -> AnyTable | None:
    """The table, or what of it is right, so that the checks that follow find their faults in the same go; None if a needed key is wrong.

    `title` names the table in messages, `base` is where it begins, and `place` knows where keys stand. `strict=False` takes numbers
    and booleans as text.
    """
    try:
        return table.model_validate(values, strict=strict)
    except ValidationError as error:
        details = error.errors(include_url=False)
    report.extend(_explain(detail, table, title, base, place) for detail in details)
    faulty = {str(detail["loc"][0]) for detail in details if detail["loc"]}
    try:
        return table.model_validate({key: value for key, value in values.items() if key not in faulty}, strict=strict)
    except ValidationError:
        return None


def shown(value: object) -> str:
    """A value as people would write it, not too long."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "an array"
    if isinstance(value, int) and value.bit_length() > 256:
        return "a very large number"  # Python refuses to print some of them
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, bool | str) else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like this one, in whatever case it is written."""
    plain = {candidate.lower().replace("_", "").replace("-", ""): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower().replace("_", "").replace("-", ""), plain, n=1, cutoff=0.7)
    return plain[found[0]] if found else None


def unknown_key(key: str, table: type[Table] | None, title: str, place: Place, full_key: str) -> Problem:
    """Names the nearest key of this table, or the table in which the key would be right. `table` None: the top of the file."""
    spelled = keys_of(table) if table else {}
    if key in spelled:
        return Problem("conflict", f"`{key}` and `{spelled[key]}` are the same setting, and both are given", place, full_key)
    homes = [home for home, other in TABLES.items() if key in keys_of(other)]
    near = nearest(key, [name for name in spelled if spelled[name] == name]) or nearest(key, spelled)
    hint = None
    if homes:
        hint = f"`{key}` belongs to {' or '.join(homes)}"
    elif near:
        hint = f"did you mean `{near}`?"
    elif far := nearest(key, (name for other in TABLES.values() for name in keys_of(other))):
        hint = f"did you mean `{far}` of {next(home for home, other in TABLES.items() if far in keys_of(other))}?"
    return Problem("unknown-key", f"`{key}` is not a setting{f' of {title}' if title else ''}", place, full_key, hint)


def _explain(detail: ErrorDetails, table: type[Table], title: str, base: KeyPath, place: Callable[[KeyPath], Place]) -> Problem:
    path: KeyPath = detail["loc"]
    key = next((part for part in reversed(path) if isinstance(part, str)), "")
    if len(path) > 1 and path[0] in _NESTED:
        title, table = _NESTED[path[0]]
    where, full_key = place((*base, *path)), dotted((*base, *path))
    kind, got = detail["type"], "something else" if key in SECRETS else shown(detail["input"])
    if kind == "extra_forbidden":
        return unknown_key(key, table, title, where, full_key)
    if kind == "missing":
        return Problem("missing-key", f"`{key}` is missing in {title}", where, full_key)
    if kind == "literal_error":
        words = choices(table, key)
        near = nearest(str(detail["input"]), words)
        message = f"`{key}` must be {_either(words)}, got {got}"
        return Problem("wrong-value", message, where, full_key, f'did you mean "{near}"?' if near else None)
    message = f"`{key}` {_requirement(detail)}, got {got}"
    return Problem(_code(kind), message, where, full_key, _type_hint(detail))


def _code(kind: str) -> str:
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number"):
        return "out-of-range"
    return "wrong-type" if kind.endswith(("_type", "_parsing", "int_from_float")) else "wrong-value"


_REQUIREMENTS = {
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text",
    "list_type": "must be an array",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "string_too_short": "must not be empty",
    "finite_number": "must be a finite number",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be {ge:g} or more",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be {le:g} or less",
    "string_pattern_mismatch": 'must be "auto", "cpu", "cuda" or "cuda:N"',  # device is the only key with a pattern
    "value_error": "{error}",
}


def _requirement(detail: ErrorDetails) -> str:
    wanted = _REQUIREMENTS.get(detail["type"])
    return wanted.format_map(detail.get("ctx", {})) if wanted else f"is wrong: {detail['msg']}"


def _type_hint(detail: ErrorDetails) -> str | None:
    value = detail["input"]
    if detail["type"] in ("int_type", "float_type") and isinstance(value, str) and value.strip().replace(".", "", 1).isdecimal():
        return f"write {value.strip()} without quotes"
    if detail["type"] == "bool_type" and value in ("true", "false"):
        return f"write {value} without quotes"
    if detail["type"] in ("int_type", "int_from_float") and isinstance(value, float) and value.is_integer() and abs(value) < 1e6:
        return f"write {int(value)}"
    return None


def _either(words: Iterable[str]) -> str:
    quoted = [f'"{word}"' for word in words if "_" not in word]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"
