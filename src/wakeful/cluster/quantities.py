"""Quantities of Kubernetes."""

import re
from decimal import ROUND_CEILING, Decimal

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d{1,3})|([KMGTPE]i|[numkMGTPE]))?")
_UNITS = {
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), start=-3)},
}


def whole(quantity: str | int) -> int:
    """The next whole number: bytes of "100Ki", 2 of "1500m". Raises ValueError for what is no quantity."""
    match = _FORM.fullmatch(str(quantity).strip())
    if match is None:
        raise ValueError(f"{quantity!r} is no Kubernetes quantity, such as 100Ki or 2Gi")
    number, exponent, unit = match.groups()
    return int((Decimal(number + (exponent or "")) * _UNITS[unit or ""]).to_integral_value(ROUND_CEILING))
