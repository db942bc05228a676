"""A request and its answer, as every layer between a front end and a replica sees them."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from wakeful.errors import WakefulError
from wakeful.tensors import Tensor

FOREVER = float("inf")


class InferRequest:
    """One caller's wish. A front end makes a subclass that knows how to write the answer; `batching.settling` settles it exactly once.

    A front end fills in the first group of fields. `left` may be set at any time: the caller has gone, and what has not begun is dropped.
    """

    __slots__ = (
        "model", "inputs", "outputs", "id", "parameters", "deadline", "arrived", "coerce", "protocol", "left",
        "rows", "group", "attempts", "settled",
    )

    def __init__(
        self,
        model: str,
        inputs: Sequence[Tensor],
        *,
        arrived: float,
        outputs: Sequence[str] | None = None,
        id: str = "",
        parameters: Mapping[str, Any] | None = None,
        deadline: float = FOREVER,
        coerce: bool = False,
        protocol: str = "",
    ) -> None:
        self.model = model
        self.inputs = inputs
        self.outputs = outputs
        """Names of the wanted outputs in the wanted order; None: all, in the model's order."""
        self.id = id
        self.parameters = parameters
        self.deadline = deadline
        """Monotonic seconds."""
        self.arrived = arrived
        """Monotonic seconds."""
        self.coerce = coerce
        """True when the front end knows no datatypes (SnoozeML): inputs are FP64 or FP32 and are cast to what the model declares."""
        self.protocol = protocol
        """Front end, for the counters."""
        self.left = False

        # Owned by the layers below the front end.
        self.rows = 1
        self.group: Hashable = None
        """Requests of one group may share a run; None: runs alone."""
        self.attempts = 0
        """Replicas that died while they ran it."""
        self.settled = False

    def answer(self, outputs: Sequence[Tensor], run_seconds: float) -> None:
        """Take the wanted outputs. Their data are views that are valid only during this call: encode or copy them now."""
        raise NotImplementedError

    def refuse(self, error: WakefulError) -> None:
        """Take the reason why there is no answer."""
        raise NotImplementedError
