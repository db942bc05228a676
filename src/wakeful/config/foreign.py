"""What a model's directory says of it in another server's words: read as keys of [[models]], with an account of what counts and what does not."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from wakeful.config.settings import DeclaredTensor

T = TypeVar("T", int, float, str, bool)

LARGEST = 2**64 - 1
"""Of whole numbers, either way."""
LONGEST_SHOWN = 100
_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


class Account:
    """Of one file. Whoever reads it tells what came of each field; what nobody has read does not count, and that is told too."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {}
        """Of [[models]]."""
        self.honoured: dict[str, tuple[str, ...]] = {}
        """Fields that count, with the keys that they became."""
        self.ignored: list[str] = []
        self.inputs: list[DeclaredTensor] = []
        self.outputs: list[DeclaredTensor] = []

    def honour(self, field: str, **keys: Any) -> None:
        """The field counts, by these keys."""
        self.honoured[field] = tuple(keys)
        self.keys |= keys

    def ignore(self, field: str, why: str) -> None:
        self.ignored.append(f"{field} ({why})")

    def refuse(self, key: str, why: str) -> None:
        """What would have become this key does not count after all."""
        del self.keys[key]
        for field in [field for field, keys in self.honoured.items() if key in keys]:
            del self.honoured[field]
            self.ignore(field, why)


def fields_of(values: Mapping[str, Any], read: Callable[[str, Any], Any] = lambda _, value: value) -> dict[str, list[Any]]:
    """JSON in the form that `Fields` takes: every field has all its values. `read` gives what a field's value stands for, where JSON has another
    word for it."""
    fields: dict[str, list[Any]] = {}
    for name, written in values.items():
        value = read(name, written)
        many = value if isinstance(value, list) else [value]
        fields[name] = [fields_of(one, read) if isinstance(one, dict) else one for one in many if one is not None]
    return fields


class Fields:
    """A message. Each field is taken by whoever knows it."""

    def __init__(self, values: Mapping[str, list[Any]], account: Account, path: str = "") -> None:
        self._values = dict(values)
        self._account = account
        self._path = path

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def one(self, name: str, kind: type[T]) -> T | None:
        """The value of a field; None if it is not there, or is of another kind, which is told."""
        values = self._values.pop(name, [])
        if not values:
            return None
        return self._checked(name, values[-1], kind)

    def many(self, name: str, kind: type[T]) -> list[T]:
        checked = [self._checked(name, value, kind) for value in self._values.pop(name, [])]
        return [value for value in checked if value is not None]

    def messages(self, name: str) -> "list[Fields]":
        """Each message of a field, to be read and then ended by `rest`."""
        found = []
        for value in self._values.pop(name, []):
            if isinstance(value, dict):
                found.append(Fields(value, self._account, f"{self._path}{name}."))
            else:
                self._account.ignore(f"{self._path}{name}", f"expected a message, got {_shown(value)}")
        return found

    def message(self, name: str) -> "Fields | None":
        return next(reversed(self.messages(name)), None)

    def rest(self, why: Mapping[str, str], unknown: str) -> None:
        """Tell of whatever nobody took; `why` has reasons by name, `unknown` is the reason for others."""
        for name in self._values:
            self._account.ignore(f"{self._path}{name}", why.get(name, unknown))
        self._values.clear()

    def _checked(self, name: str, value: Any, kind: type[T]) -> T | None:
        fits = type(value) is not int or abs(value) <= LARGEST
        if kind is float and type(value) is int and fits:
            return float(value)  # type: ignore[return-value]  # it is a float that was asked for
        if type(value) is not kind or not fits:
            self._account.ignore(f"{self._path}{name}", f"expected {_WORDS[kind]}{'' if fits else ' of 64 bits'}, got {_shown(value)}")
            return None
        return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
