"""How people may write Models and Servers. Each dialect reads manifests of one group; behind it there is one kind of spec.

`DIALECTS` has them by name. What Seldon's tools wait for is added to a status by `as_told`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from wakeful.cluster.dialects import seldon, wakeful
from wakeful.cluster.groups import GROUPS, Dialect
from wakeful.cluster.planning.world import ModelSpec, ServerSpec


class Reader(NamedTuple):
    """`model` and `server` take manifests as the API server has them, validated by its schema."""

    group: str
    model: Callable[[Mapping[str, Any]], ModelSpec]
    server: Callable[[Mapping[str, Any]], ServerSpec]


DIALECTS: Mapping[Dialect, Reader] = {
    "wakeful": Reader(GROUPS["wakeful"], wakeful.model, wakeful.server),
    "seldon": Reader(GROUPS["seldon"], seldon.model, seldon.server),
}
_ALSO_CALLED = {"Model": "ModelReady", "Server": "StatefulSetReady"}
"""Type of the condition beside Ready in Seldon's statuses."""


def as_told(dialect: Dialect, kind: Literal["Model", "Server"], status: Mapping[str, Any]) -> dict[str, Any]:
    """A status as this dialect's users know it."""
    if dialect == "wakeful":
        return dict(status)
    ready = [{**condition, "type": _ALSO_CALLED[kind]} for condition in status["conditions"] if condition["type"] == "Ready"]
    return {**status, "conditions": [*status["conditions"], *ready]}
