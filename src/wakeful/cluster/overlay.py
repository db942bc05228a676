"""One manifest over another, as Kubernetes' strategic merge has it: maps by key, lists of named things by name, all else replaced."""

from collections.abc import Mapping, Sequence
from typing import Any

_NAMED_BY: Mapping[str, str] = {
    "containers": "name", "initContainers": "name", "volumes": "name", "env": "name", "volumeMounts": "mountPath", "ports": "containerPort",
    "imagePullSecrets": "name",
}

_ONE_SOURCE = frozenset({"env", "volumes"})


def overlaid(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` goes before; neither is changed."""
    made = dict(base)
    for key, value in over.items():
        here = base.get(key)
        if isinstance(value, Mapping):
            made[key] = overlaid(here if isinstance(here, Mapping) else {}, value)
        elif key in _NAMED_BY and isinstance(here, Sequence):
            made[key] = _joined(here, value, key)
        else:
            made[key] = value
    return made


def _joined(base: Sequence[Mapping[str, Any]], over: Sequence[Mapping[str, Any]], listed: str) -> list[dict[str, Any]]:
    """A thing of the same name is merged where it stands; others come after. Of a variable and a volume there is one source, the later."""
    key = _NAMED_BY[listed]
    made = {one[key]: dict(one) for one in base}
    for one in over:
        known = made.get(one[key], {})
        made[one[key]] = dict(one) if listed in _ONE_SOURCE else overlaid(known, one)
    return list(made.values())
