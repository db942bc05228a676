"""Values that people may write: sizes, shares, ids, roles, versions. Each is parsed here, or refused with a ValueError that says what it must be.

`schema.py` declares the keys that have them.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from wakeful.config.kinds import KINDS
from wakeful.config.settings import Role, VersionPolicy

SMALLEST_LIMIT = 64 * 1024
"""Bytes. A smaller limit is a number without its unit."""
LARGEST_VERSION = 2**63 - 1
"""Some number their versions by the clock."""
YEARS = 1e9
"""Upper bound of seconds, so that sums stay exact; 31 years."""

_DECIMAL = {f"{prefix}b": 1000**power for power, prefix in enumerate(("", "k", "m", "g", "t"))}
_BINARY = {f"{prefix}i{b}": 1024**power for power, prefix in enumerate("kmgt", start=1) for b in ("", "b")}
_UNITS = {"": 1, **_DECIMAL, **_BINARY}
_QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z]*|%)")
_LARGEST = 2**60

_ID = re.compile(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*")
_ROUTE_WORDS = frozenset({"infer", "ready", "versions", "load", "unload", "pin", "unpin", "stats", "config", "history", "explain"})


def parse_size(value: object) -> int:
    """Bytes of 4096, "512MB" (powers of 1000) or "4GiB" (powers of 1024; "4Gi" is understood)."""
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
        unit = _UNITS.get(match[2].lower()) if match else None
        if match is None or unit is None:
            raise ValueError('must be a size: bytes as a whole number, or text such as "512MB" or "4GiB"')
        size = int(Decimal(match[1]) * unit)
    if not 0 <= size <= _LARGEST:
        raise ValueError("must be a size from 0 to 1 EiB")
    return size


def parse_limit(value: object) -> int | float:
    """A size above 0 in bytes, or "80%" as the fraction 0.8."""
    if isinstance(value, str) and (match := _QUANTITY.fullmatch(value.strip())) and match[2] == "%":
        share = float(match[1]) / 100
        if not 0 < share <= 1:
            raise ValueError("must be above 0% and at most 100%")
        return share
    try:
        size = parse_size(value)
    except ValueError as error:
        raise ValueError(f'{error}, or a share such as "80%"') from None
    if 0 < size < SMALLEST_LIMIT:
        raise ValueError(f'must be at least {SMALLEST_LIMIT} bytes, got {size}; write "4GiB", or "80%" for a share')
    return _above_zero(size)


def _of_a_head(size: int) -> int:
    if not 1024 <= size <= 64 * 1024:
        raise ValueError("must be 1 to 64 KiB")
    return size


def _of_a_process(size: int) -> int:
    if size < 128 * 1024**2:
        raise ValueError("must be 128 MiB or more: so much a process takes without a model")
    return size


def _above_zero(size: int) -> int:
    if size == 0:
        raise ValueError("must be above 0 bytes")
    return size


def _parse_threads(value: object) -> int:
    count = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 9 else value
    if value == "auto":
        return 0
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 1024:
        raise ValueError('must be a whole number from 1 to 1024, or "auto"')
    return count


def _ascending(lengths: list[int]) -> list[int]:
    if sorted(set(lengths)) != lengths:
        raise ValueError("must ascend")
    return lengths


def _parse_versions(value: object) -> VersionPolicy:
    if value == "latest":
        return 1
    if value == "all":
        return "all"
    given = value if isinstance(value, list | tuple) else [value]
    numbers = [number for number in given if type(number) is int and 1 <= number <= LARGEST_VERSION]
    if not numbers or len(numbers) < len(given):
        raise ValueError('must be "latest", "all", how many of the newest, or an array of numbers from 1 on')
    return tuple(sorted(set(numbers))) if given is value else numbers[0]


def _off_is_none(value: object) -> object:
    return None if value is False or value in ("false", "off") else value


def check_id(value: str) -> str:
    """A model's id goes into addresses, file names and metrics, so it is plain."""
    if len(value) > 128:
        raise ValueError("must have at most 128 characters")
    if not _ID.fullmatch(value) or ".." in value or "." in value.split("/"):
        raise ValueError('must be letters, digits, ".", "_" and "-", in segments parted by "/", without ".."')
    if taken := _ROUTE_WORDS.intersection(value.split("/")[1:]):
        raise ValueError(f'must not have the segment "{min(taken)}" after a "/": an address would have two meanings')
    return value


BY_NAME = "auto"
"""A model whose backend follows from its file's name."""
BACKENDS = (BY_NAME, *(backend for backend, kind in KINDS.items() if kind.suffixes))


def _check_backend(value: str) -> str:
    if value not in BACKENDS:
        raise ValueError(f"must be one of {', '.join(map(repr, BACKENDS))}".replace("'", '"'))
    return value


ROLES: Mapping[str, Role] = {
    **dict.fromkeys(("read_only", "read", "readonly", "ro"), Role.READ_ONLY),
    **dict.fromkeys(("inference", "infer", "user"), Role.INFERENCE),
    **dict.fromkeys(("admin", "administrator"), Role.ADMIN),
}
"""Every spelling of a role, in any case."""


def parse_role(value: object) -> Role:
    role = ROLES.get(value.strip().lower()) if isinstance(value, str) else None
    if role is None:
        raise ValueError('must be "read_only", "inference" or "admin"')
    return role


def _by_comma(value: object) -> object:
    """A variable has no arrays."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _check_address(value: str) -> str:
    """HOST:PORT; an IPv6 address stands in brackets."""
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536 or (":" in host and not (host[0] == "[" and host[-1] == "]")):
        raise ValueError("must be HOST:PORT")
    return value


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _parse_broker(value: object) -> object:
    """In any case. SnoozeML's "mock" lives inside of its client."""
    if _lower(value) == "mock":
        raise ValueError('must be "redis", "rabbitmq" or "kafka" (a mock is served by the client itself, and needs no daemon)')
    return _lower(value)


Size = Annotated[int, BeforeValidator(parse_size)]
SizeAboveZero = Annotated[int, BeforeValidator(parse_size), AfterValidator(_above_zero)]
HeadSize = Annotated[int, BeforeValidator(parse_size), AfterValidator(_of_a_head)]
ProcessMemory = Annotated[int, BeforeValidator(parse_size), AfterValidator(_of_a_process)]
Limit = Annotated[int | float, BeforeValidator(parse_limit)]
Size0 = Annotated[int, Field(ge=0, le=2**31)]
Size1 = Annotated[int, Field(ge=1, le=2**31)]
"""Of a dimension."""
Lengths = Annotated[list[Size1], AfterValidator(_ascending)]
Threads = Annotated[int, BeforeValidator(_parse_threads)]
Versions = Annotated[Any, BeforeValidator(_parse_versions)]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
BackendName = Annotated[str, AfterValidator(_check_backend)]
ModelId = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), AfterValidator(check_id)]
OptionalPort = Annotated[Annotated[int, Field(ge=0, le=65535)] | None, BeforeValidator(_off_is_none)]
RoleName = Annotated[Role, BeforeValidator(parse_role)]
Broker = Annotated[Literal["redis", "rabbitmq", "kafka"], BeforeValidator(_parse_broker)]
Words = Annotated[list[Text], BeforeValidator(_by_comma)]
Addresses = Annotated[list[Annotated[Text, AfterValidator(_check_address)]], BeforeValidator(_by_comma)]
MessageFormat = Annotated[Literal["json", "protobuf"], BeforeValidator(_lower)]
