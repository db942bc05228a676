"""What agents, gateways and the controller say to each other: MessagePack in gRPC streams of the service `wakeful.cluster.v1.Controller`.

Unknown fields are ignored and new ones have defaults, so that versions n and n - 1 understand each other. Each message carries what it needs to be
taken twice: agents get what they are to have, not commands.
"""

from typing import Any, Literal

import msgspec

PROTOCOL = 1
"""Agents and controllers may differ by one."""
SERVICE = "wakeful.cluster.v1.Controller"
ATTEND = f"/{SERVICE}/Attend"
"""Stream both ways: FromAgent up, ToAgent down."""
WAKE = f"/{SERVICE}/Wake"
"""One WakeAsk, a stream of WakeTold until the model is routed, or cannot be."""
MODELS = f"/{SERVICE}/Models"
"""One ModelsAsk, one ModelsTold."""


class Message(msgspec.Struct, tag_field="t", frozen=True, array_like=False, omit_defaults=True):
    """Base: a map with its kind under `t`."""


# ── agent to controller ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class HeldNow(msgspec.Struct, frozen=True, array_like=True):
    """`planning.world.Held`."""

    state: Literal["loading", "ready", "failed", "finishing", "quiet"]
    revision: str
    footprint: int = 0
    error: str = ""
    artifact: str = ""
    artifact_bytes: int = 0
    serves: str = ""
    progress: int = 0
    asleep: bool = False


class UseNow(msgspec.Struct, frozen=True, array_like=True):
    """`planning.world.Use`."""

    arrived: int = 0
    completed: int = 0
    lag: float = 0.0
    busy: float = 0.0
    last_used: float = 0.0
    rate: float = 0.0


class Hello(Message, tag="hello", frozen=True):
    """First on a stream: who this is and all that it has."""

    protocol: int
    pod: str
    uid: str
    server: str
    http_port: int
    grpc_port: int | None
    capabilities: list[str]
    capacity: int
    version: str
    epoch: int = 0
    """Highest that this agent has obeyed."""
    held: dict[str, HeldNow] = {}
    use: dict[str, UseNow] = {}
    limits: dict[str, float] = {}
    """What its variables say of scaling, by `ScaleLimits` field name."""
    token: str = ""
    """Projected service-account token for the audience `wakeful`."""
    seen: int | None = None
    """0: reports will tell `Report.seen`, and on this stream nothing was heard yet. None: an agent from before, whose reports do not."""


class Report(Message, tag="report", frozen=True):
    """What has changed since the last one. `gone`: models it has no more."""

    held: dict[str, HeldNow] = {}
    gone: list[str] = []
    use: dict[str, UseNow] = {}
    capacity: int | None = None
    seen: int | None = None
    """Version of the `Desired` that was obeyed when this was said, where it is another than in the last one."""


class Trigger(Message, tag="trigger", frozen=True):
    """A threshold was crossed: sent at once, beside the report that shows it."""

    model: str
    kind: Literal["lag", "inactive"]


class DrainAsked(Message, tag="drain", frozen=True):
    """The pod's PreStop hook has called. Nothing moves unless the pod is really being deleted."""


FromAgent = Hello | Report | Trigger | DrainAsked

# ── controller to agent ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Wanted(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model that a replica is to have."""

    revision: str
    storage_uri: str
    backend: str | None = None
    serving: dict[str, Any] = {}
    pinned: bool = False
    finish: bool = False
    """No gateway sends it requests any more: serve stragglers, then say `quiet`."""
    artifact: str = ""
    """The files must have this revision; empty: any, this agent is the first."""
    secret: dict[str, str] = {}
    """Keys of its storage, kept in memory alone."""
    lag_threshold: float | None = None
    """None: it is not scaled by the scheduler, and no trigger is sent."""
    inactive: float | None = None
    memory: int | None = None
    """Bytes that one copy is declared to take; None: as much as its files say, until it is measured."""


class Adopt(Message, tag="adopt", frozen=True):
    """The answer to Hello. Agents refuse a lower epoch than one they have obeyed."""

    epoch: int
    protocol: int


class Desired(Message, tag="desired", frozen=True):
    """What the replica is to have. `base` 0: this is all; else it is a change of the version `base`, and who has another says hello again.

    It is answered by a report that names `version`, even if nothing has changed: what was said before may be about a copy that is to go.
    """

    epoch: int
    version: int
    base: int = 0
    models: dict[str, Wanted] = {}
    gone: list[str] = []


class Refused(Message, tag="refused", frozen=True):
    """The stream ends: the agent is not who it says, or speaks another protocol."""

    why: str


class Released(Message, tag="released", frozen=True):
    """Nothing has to wait for this pod any more: PreStop may return."""


ToAgent = Adopt | Desired | Refused | Released

# ── gateway and controller ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class WakeAsk(Message, tag="wake", frozen=True):
    """A request came for a model that no cluster of Envoy has."""

    model: str


class WakeTold(Message, tag="told", frozen=True):
    """`routed`: send it again through Envoy. `unknown`, `off` and `failed` are final.

    `message` of `waking`: why it has no place yet; empty: it has one, or is looked at in a moment.
    """

    state: Literal["unknown", "off", "waking", "routed", "failed"]
    message: str = ""
    near: list[str] = []
    """Names that are almost this one."""
    hold: float = 60.0
    """Seconds to wait for `routed`."""


class ModelsAsk(Message, tag="models", frozen=True):
    """Somebody wants to know which models there are."""


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """Of one model, what its status says in short."""

    name: str
    state: str
    """`status.state`."""
    serves: bool
    """A request is answered without waiting for a new copy."""
    reason: str = ""
    """Why it does not, or not as it should."""


class ModelsTold(Message, tag="standings", frozen=True):
    """All models of the namespace, by name."""

    models: list[Standing] = []
    guards: dict[str, str] = {}
    """By Server that asks its callers for keys: a model that is routed there, through which it can be asked about a caller; empty: there is none."""
