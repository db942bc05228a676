"""One manifest over another, as Kubernetes' strategic merge has it: maps by key, lists of named things by name, all else replaced."""

from collections.abc import Mapping, Sequence
from typing import Any

_NAMED_BY: Mapping[str, str] = {
    "containers": "name", "initContainers": "name", "volumes": "name", "env": "name", "volumeMounts": "mountPath", "ports": "containerPort",
    "imagePullSecrets": "name",
}


def overlaid(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` goes before; neither is changed."""
    made = dict(base)
    for key, value in over.items():
        here = base.get(key)
        if isinstance(value, Mapping):
            made[key] = overlaid(here if isinstance(here, Mapping) else {}, value)
        elif key in _NAMED_BY and isinstance(here, Sequence):
            made[key] = _joined(here, value, _NAMED_BY[key])
        else:
            made[key] = value
    return made


def _joined(base: Sequence[Mapping[str, Any]], over: Sequence[Mapping[str, Any]], key: str) -> list[dict[str, Any]]:
    """A thing of the same name is merged where it stands; others come after. What gives an env another source gives up the one that it had."""
    made = {one[key]: dict(one) for one in base}
    for one in over:
        name = one[key]
        known = made.get(name, {})
        if "value" in one or "valueFrom" in one:
            known = {"name": name}
        made[name] = overlaid(known, one)
    return list(made.values())
