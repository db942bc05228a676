"""What a plan wants done: its only answer. `apply` carries out what changes the world, the controller's loop all that others hear of."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from wakeful.cluster.planning.world import Placement, Scaling


class Put(NamedTuple):
    """Make a placement, or bring it into another state. What agents and gateways are told follows from the placements."""

    model: str
    placement: Placement


class Drop(NamedTuple):
    """The copy is gone, or nobody has to wait for it."""

    model: str
    replica: str


class SetTarget(NamedTuple):
    """Written to the model's status before any agent is told."""

    model: str
    scaling: Scaling


class ScaleServer(NamedTuple):
    server: str
    scaling: Scaling


class Mark(NamedTuple):
    """Change fields of a model's or server's entry that only the planner reads: timers, shortfalls."""

    kind: Literal["model", "server"]
    name: str
    fields: Mapping[str, Any]


class Release(NamedTuple):
    """A leaving replica has nothing more to wait for: its pod may end."""

    replica: str


class Forget(NamedTuple):
    """The model was deleted, and its last copy has gone."""

    model: str


class Note(NamedTuple):
    """An event for people, on the object it concerns."""

    kind: Literal["Model", "Server", "Pod"]
    name: str
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


Effect = Put | Drop | SetTarget | ScaleServer | Mark | Release | Forget | Note
