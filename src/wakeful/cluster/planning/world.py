"""What the planner thinks in: what is asked for (specs), what there is (replicas), and what was decided (placements, targets).

Times are seconds since the epoch, from a clock that never goes back within a process. Sizes are bytes. Shares are 0 to 1. Specs and placements are
frozen; entries and the world are changed by the controller's loop alone.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from wakeful.cluster.groups import Dialect
from wakeful.cluster.planning.ledger import Ledger

# ── what is asked for ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Bounds(NamedTuple):
    """Counts as they were written. None: not written, which is another thing than 0."""

    replicas: int | None = None
    minimum: int | None = None
    maximum: int | None = None

    @property
    def ranged(self) -> bool:
        """May the scheduler change the count? Only if one of the bounds was written."""
        return self.minimum is not None or self.maximum is not None


UNBOUND = Bounds()
ONE = Bounds(1)


@dataclass(frozen=True, slots=True)
class ScaleLimits:
    """Of one model: `spec.autoscaling` over its Server's `modelAutoscaling` over the agent's variables; see `thresholds`."""

    lag_threshold: float = 30.0
    """Requests in flight at one copy, mean of a period, from which on there are too few copies."""
    inactive: float = 600.0
    """Seconds without a request after which a copy is one too many."""
    stable: float = 300.0
    """Seconds since the last change of state that was not our own step, before the count may be raised."""
    up_cooldown: float = 15.0
    down_window: float = 300.0
    max_step: float = 1.0
    """Share of the present count by which it may grow in one step; always by one."""
    busy: float = 0.6
    """Highest share of time that the remaining copies may be busy after a step down."""
    hold: float = 60.0
    """Seconds that the gateway holds a request for a model that wakes from zero."""
    period: float = 5.0
    """Seconds between two reports of an agent: the count changes at most once in them."""


class Source(NamedTuple):
    """What one revision of a model is loaded from."""

    storage_uri: str
    backend: str | None = None
    """None: found by the files."""
    serving: Mapping[str, Any] = {}
    """The keys of [models.NAME]."""
    secret: str | None = None
    artifact: str = ""
    """Revision of its files; empty: nobody has found it yet."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    name: str
    storage_uri: str
    revision: str
    """Digest of all that a replica loads: the URI and the serving section. Another revision is loaded anew."""
    uid: str = ""
    generation: int = 0
    backend: str | None = None
    """None: found by the files."""
    requirements: frozenset[str] = frozenset()
    memory: int | None = None
    """Declared bytes; None: not declared."""
    server: str | None = None
    """Pinned to this Server."""
    bounds: Bounds = UNBOUND
    pinned: bool = False
    autoscaling: Mapping[str, float] = field(default_factory=dict)
    """What was written, by `ScaleLimits` field; `thresholds.read_thresholds` makes it."""
    serving: Mapping[str, Any] = field(default_factory=dict)
    """The keys of [models.NAME]."""
    secret: str | None = None
    dialect: Dialect = "wakeful"
    errors: tuple[str, ...] = ()
    """What is wrong with it beyond what the API server checks; such a spec is not loaded anew, only what serves already."""
    notes: tuple[str, ...] = ()
    """What was written and has no effect, although it is served."""

    @property
    def source(self) -> Source:
        return Source(self.storage_uri, self.backend, self.serving, self.secret)


@dataclass(frozen=True, slots=True)
class ServerSpec:
    name: str
    uid: str = ""
    generation: int = 0
    bounds: Bounds = ONE
    image: str | None = None
    capabilities: frozenset[str] | None = None
    """None: what the agents say."""
    resources: Mapping[str, Any] = field(default_factory=dict)
    overcommit: float = 1.0
    """Share of the capacity that may be registered beyond it."""
    grace: float = 120.0
    """terminationGracePeriodSeconds."""
    surge: int = 1
    config: Mapping[str, Any] = field(default_factory=dict)
    """The daemon's file."""
    cache: Mapping[str, Any] = field(default_factory=dict)
    model_autoscaling: Mapping[str, float] = field(default_factory=dict)
    """As `ModelSpec.autoscaling`, for its models that have not written it."""
    pod_template: Mapping[str, Any] = field(default_factory=dict)
    volume_claim_templates: tuple[Mapping[str, Any], ...] = ()
    dialect: Dialect = "wakeful"
    errors: tuple[str, ...] = ()
    """Such a Server stays as it is: its pods are not changed."""
    notes: tuple[str, ...] = ()


class Owner(StrEnum):
    """Who decides a count."""

    HPA = "HPA"
    """A HorizontalPodAutoscaler targets the object."""
    SCHEDULER = "Scheduler"
    """A bound is written, and no HPA targets it."""
    USER = "User"


@dataclass(frozen=True, slots=True)
class Scaling:
    """`status.scaling`: a count that was decided, kept over restarts."""

    owner: Owner
    target: int
    from_spec: str
    """`spec.replicas` when the target was decided ("" if not written): another value there resets the target."""
    last_step_time: float = 0.0
    last_step: str = ""
    """What was done and why, for people."""


# ── what there is ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Held(NamedTuple):
    """What an agent says of one model. What it does not say it has not."""

    state: Literal["loading", "ready", "failed", "finishing", "quiet"]
    """`ready` even if it sleeps. `finishing`: it was told to finish, and requests are still there; `quiet`: none for a second, it may be unloaded."""
    revision: str
    """What the state is about."""
    footprint: int = 0
    """Measured bytes: shared weights once, private ones of all of the daemon's replicas; 0: not measured yet."""
    error: str = ""
    artifact: str = ""
    """Revision of the files that were fetched."""
    artifact_bytes: int = 0
    serves: str = ""
    """While `revision` is loading or has failed: the one before that still answers requests there; empty: none does."""
    progress: int = 0
    """While it is loading: another number than before means that it gets on."""
    asleep: bool = False
    """It is ready, and has no memory until the next request. Nothing is decided by it: people are told."""

    @property
    def served(self) -> str:
        """The revision that answers requests there; empty: none does."""
        return self.serves if self.state in {"loading", "failed"} else self.revision


class Use(NamedTuple):
    """Of one model on one replica, over the agent's last period."""

    arrived: int = 0
    """Requests since the daemon began; never falls."""
    completed: int = 0
    lag: float = 0.0
    """Time-weighted mean of arrived - completed."""
    busy: float = 0.0
    """Share of time in which a run was active."""
    last_used: float = 0.0
    """When the last request arrived; 0: never."""
    rate: float = 0.0
    """Requests a second that arrived. Nothing is decided by it: autoscalers ask."""


@dataclass(slots=True)
class Agent:
    """What the agent of a server replica has said. Without one a replica is unknown: not chosen, and not unrouted."""

    capabilities: frozenset[str]
    capacity: int
    """Bytes that models may have there."""
    http_port: int
    grpc_port: int | None
    heard: float
    held: dict[str, Held] = field(default_factory=dict)
    use: dict[str, Use] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    """What its variables say of scaling, by `ScaleLimits` field."""
    seen: int | None = None
    """Version of what it is to have that it had heard when it spoke last; None: it does not say."""
    told: dict[str, int] = field(default_factory=dict)
    """With which version it was told what it now is to have of each model. Kept by who tells."""
    worked: float = 0.0
    """When it said last that some load there got on: others may wait for their turn."""

    def held_as_told(self, name: str) -> Held | None:
        """What it says of a model, if it has heard what it was last told of it: else it may speak of a copy that is on its way out."""
        if self.seen is not None and self.told.get(name, math.inf) > self.seen:
            return None
        return self.held.get(name)


@dataclass(slots=True)
class Replica:
    """A pod of a Server in one life: another life of the pod's name is another replica."""

    uid: str
    pod: str
    server: str
    ordinal: int
    ip: str | None = None
    ready: bool = False
    leaving_by: float | None = None
    """The pod is being deleted, and what it has must be elsewhere by then; None: it stays."""
    lost: bool = False
    """Its node is gone: nothing there answers."""
    released: bool = False
    """It was said that its pod may end."""
    http_port: int | None = None
    """As its container's port `http` says: for routes as long as its agent has not spoken to this leader, or is silent."""
    grpc_port: int | None = None
    agent: Agent | None = None

    @property
    def placeable(self) -> bool:
        """May it be given models?"""
        return self.ready and not self.lost and self.leaving_by is None and self.agent is not None


# ── what was decided ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class State(StrEnum):
    """Of a placement, as it is written to `status.placements`."""

    ASSIGNED = "Assigned"
    """Its agent is to load it."""
    LOADING = "Loading"
    """Its agent says that it does."""
    ROUTED = "Routed"
    """It is ready, and gateways are told to send requests."""
    DRAINING = "Draining"
    """Gateways are told to send no more; it is unloaded once all have acknowledged that and nothing is in flight."""
    FAILED = "Failed"
    """It did not load."""


class Placement(NamedTuple):
    """One copy of a model on one server replica."""

    replica: str
    """The pod's uid."""
    pod: str
    state: State
    revision: str
    since: float
    """When it came into this state."""
    tries: int = 0
    """Failed loads in a row."""
    error: str = ""
    previous: str = ""
    """Of a routed copy: the revision that serves there until `revision` is loaded."""
    progress: int = 0
    """Of the load that is under way there, as its agent said it last."""
    progressed: float = 0.0
    """When that number was another one before; 0: never."""

    @property
    def stood_since(self) -> float:
        """Since when nothing is seen to happen to it."""
        return max(self.since, self.progressed)


class Routing(NamedTuple):
    """What the gateways know of one model, as replica uids. A gateway that has been silent for 10 s is not waited for."""

    everywhere: frozenset[str] = frozenset()
    """Every gateway has acknowledged that requests go there."""
    anywhere: frozenset[str] = frozenset()
    """Some gateway may send requests there."""


class Endpoint(NamedTuple):
    """Where a gateway sends requests for one model on one replica."""

    replica: str
    ip: str
    http_port: int
    grpc_port: int | None


class Short(NamedTuple):
    """Why a model has fewer copies than it should."""

    missing: int
    since: float
    blocked: Mapping[str, Mapping[str, int]]
    """Server to filter ("memory", "requirements", "not ready", ...) to number of replicas that it kept out."""


@dataclass(slots=True)
class ModelEntry:
    """A model as the controller has it."""

    spec: ModelSpec
    scaling: Scaling | None = None
    hpa: bool = False
    """A HorizontalPodAutoscaler targets it."""
    placements: dict[str, Placement] = field(default_factory=dict)
    """By replica uid."""
    artifact: str = ""
    """Revision of the files, as the first agent found it; others must find the same."""
    artifact_bytes: int = 0
    resolved: str = ""
    """Revision of the spec for which the artifact was found: another one may find other files."""
    footprint: int = 0
    """Largest measured footprint of that artifact; 0: none yet."""
    short: Short | None = None
    retry_at: float = 0.0
    """After failed loads nowhere is tried before."""
    failures: int = 0
    changed: float = 0.0
    """Last change of its state that was not a step of our own."""
    wanted_until: float = 0.0
    """A request was held for it: it wakes from zero, and does not go back before."""
    calm_since: float | None = None
    """Since when the rule for fewer replicas holds without a break; None: it does not."""
    limited: str = ""
    """What kept the count from being raised, for the condition Scaling."""
    lacking: int = 0
    """Copies that the load asks for and that have no room: the target was not raised for them, but the Server may grow."""
    lacking_since: float = 0.0
    revision_failed: str = ""
    """A revision whose first copy failed: the one before serves on. Empty: none."""
    sources: Mapping[str, Source] = field(default_factory=dict)
    """By revision: what copies have, or would get in the place of one that failed, beside the spec's. In the order in which they were written."""
    gone: bool = False
    """The object is deleted: the entry goes with its last placement."""
    look_at: float = 0.0
    """The planner looks at it then, even if nothing has happened to it."""


@dataclass(slots=True)
class ServerEntry:
    spec: ServerSpec
    scaling: Scaling | None = None
    hpa: bool = False
    fits_since: float | None = None
    """Since when the models of the highest ordinal would fit elsewhere; None: they do not."""
    look_at: float = 0.0
    """The planner judges its count then."""


@dataclass(slots=True)
class World:
    """Everything the planner sees. One namespace."""

    models: dict[str, ModelEntry] = field(default_factory=dict)
    servers: dict[str, ServerEntry] = field(default_factory=dict)
    replicas: dict[str, Replica] = field(default_factory=dict)
    """By uid."""
    routing: dict[str, Routing] = field(default_factory=dict)
    """By model name."""
    gateways: int = 0
    """Gateways that are connected or were until a moment ago. 0: routes have nobody to wait for."""
    led_since: float = 0.0
    """When this controller became the leader: for a while after that, who has not said hello is unknown, not gone."""
    ledger: Ledger = field(default_factory=Ledger)
    """What follows from placements and footprints; the planner keeps it."""

    def is_available(self, model: str, placement: Placement) -> bool:
        """Does it serve, and does every gateway know?"""
        if placement.state is not State.ROUTED:
            return False
        routing = self.routing.get(model)
        return not self.gateways or (routing is not None and placement.replica in routing.everywhere)
