"""A request and its answer, as every layer between a front end and a replica sees them."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import msgspec

from wakeful.errors import WakefulError
from wakeful.tensors import Tensor

FOREVER = float("inf")


class InferRequest(msgspec.Struct, eq=False):
    """One caller's wish. A front end makes a subclass that knows how to write the answer; `batching.settling` settles it exactly once.

    A front end fills in the first group of fields. `left` may be set at any time: the caller has gone, and what has not begun is dropped.
    A Struct is made in a quarter of the time of a class with as many fields.
    """

    model: str
    inputs: Sequence[Tensor]
    arrived: float
    """Monotonic seconds."""
    deadline: float = FOREVER
    """Monotonic seconds."""
    outputs: Sequence[str] | None = None
    """Names of the wanted outputs in the wanted order; None: all, in the model's order."""
    id: str = ""
    parameters: Mapping[str, Any] | None = None
    coerce: bool = False
    """True when the front end knows no datatypes (SnoozeML): inputs are FP64 or FP32 and are cast to what the model declares."""
    protocol: str = ""
    """Front end, for the counters."""
    left: bool = False
    version: str = "1"
    """Set by the engine: who answers."""
    addressed: bool = False
    """Set by the engine: it was this very version that was asked for, so that no other one may answer."""

    # Owned by the layers below the front end.
    rows: int = 1
    group: Hashable = None
    """Requests of one group may share a run; None: runs alone."""
    attempts: int = 0
    """Runs of it that ended for lack of memory."""
    deaths: int = 0
    """Replicas that died while they ran it."""
    begun: bool = False
    """It is tried again, after a run of it or of its parts. What has never been in a run, or waits for its first, has it not."""
    settled: bool = False

    def answer(self, outputs: Sequence[Tensor], run_seconds: float) -> None:
        """Take the wanted outputs. Their data are views that are valid only during this call: encode or copy them now."""
        raise NotImplementedError

    def refuse(self, error: WakefulError) -> None:
        """Take the reason why there is no answer."""
        raise NotImplementedError

    def dropped(self) -> None:
        """It was settled with neither, as its caller has left."""
