"""The one place where requests are settled: each exactly once, and none of them can harm another."""

import logging

from wakeful.batching import collate, parts
from wakeful.clock import monotonic
from wakeful.errors import ExecutionFailed, InvalidInput, TimedOut, WakefulError
from wakeful.inference import InferRequest
from wakeful.telemetry.metrics import SUCCESS, ModelStats
from wakeful.tensors import Tensor

log = logging.getLogger(__name__)

LEFT = "left"
"""Outcome of a request whose caller did not wait for the answer."""


class Settler:
    """Tells callers how their requests of one model ended, and counts it. What has been settled already is left alone."""

    def __init__(self, stats: ModelStats) -> None:
        self._stats = stats

    def answer(self, request: InferRequest, outputs: list[Tensor], seconds: float) -> None:
        """Settle one request with its outputs. Whatever its front end does, its neighbours are not touched."""
        if request.settled or request.left:
            self._settle(request, SUCCESS)
            return
        try:
            wanted = outputs if request.outputs is None else collate.wanted(request, outputs)
        except InvalidInput as error:
            self.refuse(request, error)
            return
        request.settled = True
        if request.protocol:  # as in _settle
            self._stats.settled(request.protocol, SUCCESS, monotonic() - request.arrived)
        try:
            request.answer(wanted, seconds)
        except Exception:
            log.exception("an answer for model %s could not be written", request.model)
            self._tell(request, ExecutionFailed("the answer could not be written"))

    def refuse(self, request: InferRequest, error: WakefulError) -> None:
        """Settle one request with an error. What refuses all that wait says of none that has run that it did not start."""
        if self._settle(request, error.code):
            self._tell(request, error.of_begun() if error.unstarted and parts.has_begun(request) else error)

    def drop(self, request: InferRequest, now: float) -> None:
        """Settle a request that is not run: its time was up, or its caller has left."""
        if request.deadline <= now:
            self.refuse(request, TimedOut(f"the deadline passed after {now - request.arrived:.3f} s in the queue"))
        else:
            self._settle(request, LEFT)

    def _tell(self, request: InferRequest, error: WakefulError) -> None:
        try:
            request.refuse(error)
        except Exception:
            log.exception("a refusal for model %s could not be written", request.model)

    def _settle(self, request: InferRequest, outcome: str) -> bool:
        """Mark a request as settled and count it; False when nobody waits for it any more."""
        if request.settled:
            return False
        request.settled = True
        if request.protocol:  # parts of a large request have none: the whole is counted
            self._stats.settled(request.protocol, LEFT if request.left else outcome, monotonic() - request.arrived)
        if not request.left:
            return True
        if isinstance(request, parts.Part):
            self._settle(request.origin, LEFT)
        else:
            request.dropped()
        return False
