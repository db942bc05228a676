"""Inputs that end the process of their model. Each is refused for a while, so that a caller who tries again does not take down one more."""

from collections.abc import Sequence
from hashlib import blake2b

from wakeful.clock import monotonic
from wakeful.errors import ExecutionFailed
from wakeful.inference import InferRequest
from wakeful.tensors import Tensor

SECONDS = 600.0
"""How long an input is refused. What the model was killed for may have had another reason, however much speaks against it."""
MOST = 64
"""Inputs that are remembered."""


class Culprits:
    """Of one model and one state of its file. False while there are none, so that a healthy model pays nothing."""

    def __init__(self) -> None:
        self._until: dict[bytes, tuple[float, str]] = {}
        """Digest of an input to the time until which it is refused, and why. The oldest first."""
        self._layouts: set[tuple[object, ...]] = set()
        """Names, types and shapes of all that were ever in it: what looks different needs no digest."""

    def __bool__(self) -> bool:
        return bool(self._until)

    def clear(self) -> None:
        self._until.clear()
        self._layouts.clear()

    def add(self, request: InferRequest, reason: str) -> str:
        """Refuse this input from now on. Returns words that say so."""
        digest = _digest(request.inputs)
        self._until.pop(digest, None)  # the oldest come first
        if len(self._until) == MOST:
            del self._until[next(iter(self._until))]
        self._until[digest] = monotonic() + SECONDS, reason
        self._layouts.add(_layout(request.inputs))
        return f"; the same input is refused for {SECONDS:.0f} s"

    def check(self, request: InferRequest) -> None:
        """Raises ExecutionFailed for an input that is known to end the process. It is not `unstarted`: a gateway would offer it to
        the other replicas, and end their processes too."""
        if _layout(request.inputs) not in self._layouts:
            return
        digest, now = _digest(request.inputs), monotonic()
        until, reason = self._until.get(digest, (0.0, ""))
        if until > now:
            text = f"{reason} whenever it ran this input, which is not tried again"
            raise ExecutionFailed(text, retry_after=until - now)
        if reason:
            del self._until[digest]
        if not self._until:
            self.clear()


def describe(request: InferRequest) -> str:
    """What somebody needs in order to find the request again: its id, what it held, and a digest of that."""
    inputs = ", ".join(f"{tensor.name} {tensor.datatype} {list(tensor.shape)}" for tensor in request.inputs)
    return f"request {request.id!r} with {inputs}, digest {_digest(request.inputs).hex()[:16]}"


def _layout(inputs: Sequence[Tensor]) -> tuple[object, ...]:
    return tuple((tensor.name, tensor.datatype, tuple(tensor.shape)) for tensor in inputs)


def _digest(inputs: Sequence[Tensor]) -> bytes:
    digest = blake2b(digest_size=16)
    for tensor in inputs:
        digest.update(f"{tensor.name} {tensor.datatype} {list(tensor.shape)} ".encode())
        digest.update(tensor.data)
    return digest.digest()
