"""What is shown of a model, or of a pipeline, to whoever asks and over whatever protocol. To look at one is no use of it."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from wakeful.clock import monotonic
from wakeful.config.kinds import KINDS
from wakeful.models.model import Model
from wakeful.telemetry.metrics import ModelStats

State = Literal["asleep", "loading", "ready", "busy"]


class ShownStep(NamedTuple):
    """Of a pipeline: the model's own names to the pipeline's."""

    model: str
    version: int | None
    """None: the newest."""
    takes: Mapping[str, str]
    gives: Mapping[str, str]


class Portrait(NamedTuple):
    name: str
    version: str
    versions: tuple[str, ...]
    """All that are served under the name, oldest first."""
    state: State
    reason: str
    """Why it is not ready; empty for one that is."""
    merges: bool
    """Do its requests share runs?"""
    max_rows: int
    """Of one run, as far as memory allowed it."""
    batching: str
    """Why requests are merged, or are not."""
    path: str
    description: str | None
    pinned: bool
    idle_timeout: float
    """Seconds; 0: never asleep by time."""
    max_batch_size: int
    """By the settings."""
    max_delay: float
    """Seconds."""
    last_used: float | None
    """Seconds ago; None: never."""
    resident_bytes: int
    stats: ModelStats
    helps: bool = False
    """It only helps other models, as a tokenizer does: nobody asks for it by its name."""
    steps: tuple[ShownStep, ...] = ()
    """Of a pipeline whose models are known."""

    @property
    def ready(self) -> bool:
        return self.state in ("ready", "busy")

    @property
    def newest(self) -> bool:
        """Is it the one that the name alone stands for?"""
        return self.version == self.versions[-1]


def portrait(model: Model, versions: tuple[str, ...], resident_bytes: int) -> Portrait:
    settings, interface = model.settings, model.interface
    state = _state(model)
    return Portrait(
        name=model.id,
        version=model.version,
        versions=versions,
        state=state,
        reason="" if state in ("ready", "busy") else _why_not_ready(model),
        merges=interface.merges,
        max_rows=model.batcher.limits.max_rows,
        batching=f"not tested yet; {interface.verdict.reason}" if interface.undecided else interface.verdict.reason,
        path=str(settings.path),
        description=settings.description,
        pinned=model.pinned,
        idle_timeout=settings.life.idle_timeout,
        max_batch_size=settings.batching.max_rows,
        max_delay=settings.batching.max_delay,
        last_used=None if model.last_used is None else monotonic() - model.last_used,
        resident_bytes=resident_bytes,
        stats=model.stats,
        helps=KINDS[settings.backend].serves_models,
    )


def _state(model: Model) -> State:
    if model.group.ready():
        return "busy" if model.batcher.busy else "ready"
    return "loading" if model.group.starting else "asleep"


def _why_not_ready(model: Model) -> str:
    if model.group.starting:
        return "loading"
    error = model.backoff.error
    return "asleep; a request wakes it" if error is None else f"failed: {error.message}"
