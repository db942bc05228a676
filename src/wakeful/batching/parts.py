"""A request larger than one run may be: cut into parts that take turns with other callers, and rejoined in order."""

import logging
from collections import deque
from collections.abc import Callable, Sequence

from wakeful.errors import WakefulError
from wakeful.inference import InferRequest
from wakeful.tensors import DTYPES, Tensor, element_count, string_offsets

log = logging.getLogger(__name__)


def row_slices(tensor: Tensor, counts: Sequence[int]) -> list[Tensor]:
    """Cut a tensor along axis 0 into pieces of `counts` rows, without copying."""
    trailing = tensor.shape[1:]
    data = memoryview(tensor.data)
    if DTYPES[tensor.datatype].itemsize:
        stride = len(data) // tensor.shape[0]
        bounds = [row * stride for row in range(tensor.shape[0] + 1)]
    else:
        elements = element_count(trailing)
        offsets = string_offsets(data, tensor.shape[0] * elements)
        bounds = offsets[::elements] if elements else [0] * (tensor.shape[0] + 1)
    pieces, row = [], 0
    for count in counts:
        pieces.append(Tensor(tensor.name, tensor.datatype, (count, *trailing), data[bounds[row] : bounds[row + count]]))
        row += count
    return pieces


class Part(InferRequest, kw_only=True):
    """Some rows of a large request. It is queued like any other request; when it is taken, the next part is queued behind the others."""

    whole: "Parted"
    index: int

    @property
    def origin(self) -> InferRequest:
        return self.whole.origin

    @property  # type: ignore[misc]  # nobody sets it: whoever leaves, leaves the whole
    def left(self) -> bool:
        return self.whole.origin.left or self.whole.origin.settled

    @left.setter
    def left(self, _: bool) -> None:
        """Set by the constructor only."""

    def answer(self, outputs: Sequence[Tensor], run_seconds: float) -> None:
        self.whole.part_done(self, outputs, run_seconds)

    def refuse(self, error: WakefulError) -> None:
        self.whole.refuse(error)


def outermost(request: InferRequest) -> InferRequest:
    """What the caller sent."""
    while isinstance(request, Part):
        request = request.origin
    return request


def continues(request: InferRequest) -> bool:
    """Have other parts of the same request been served already?"""
    return isinstance(request, Part) and (request.index > 0 or continues(request.origin))


def has_begun(request: InferRequest) -> bool:
    """May a run of it, or of another part of the same request, have had effects? Of what waits, or has waited until now."""
    return request.begun or (isinstance(request, Part) and (request.index > 0 or has_begun(request.origin)))


def from_the_beginning(request: InferRequest) -> InferRequest:
    """What the caller sent, to be served anew by another model or file: what parts of it gave so far is forgotten."""
    begun = has_begun(request)
    while isinstance(request, Part):
        request.whole.give_up()
        request = request.origin
    request.begun |= begun
    return request


class Parted:
    """The collector of one large request's parts."""

    def __init__(
        self,
        origin: InferRequest,
        limit: int,
        submit: Callable[[InferRequest], None],
        answer: Callable[[InferRequest, list[Tensor], float], None],
        refuse: Callable[[InferRequest, WakefulError], None],
    ) -> None:
        self.origin = origin
        counts = [limit] * (origin.rows // limit)
        if origin.rows % limit:
            counts.append(origin.rows % limit)
        pieces = [row_slices(tensor, counts) for tensor in origin.inputs]
        self._waiting = deque((count, [piece[index] for piece in pieces]) for index, count in enumerate(counts))
        """Rows and inputs of parts that are not queued yet. A part knows its whole, and not the other way round: together they would keep the
        request's body in memory until the garbage collector comes, which is seldom."""
        self._answers: list[list[Tensor] | None] = [None] * len(counts)
        self._missing = len(counts)
        self._over = False
        """True once nothing comes of the parts any more: the request is served otherwise."""
        self._seconds = 0.0
        self._submit = submit
        self._answer = answer
        self._refuse = refuse

    def submit_next(self) -> None:
        """Queue the next part, if there is one and somebody still waits for it."""
        origin = self.origin
        if self._waiting and not origin.left and not origin.settled:
            index = len(self._answers) - len(self._waiting)
            rows, inputs = self._waiting.popleft()
            self._submit(Part(
                origin.model, inputs, origin.arrived, origin.deadline, parameters=origin.parameters, rows=rows, group=origin.group,
                attempts=origin.attempts, deaths=origin.deaths, whole=self, index=index,
            ))

    def give_up(self) -> None:
        """Whatever still comes of the parts is nobody's."""
        self._over = True
        self._waiting.clear()

    def part_done(self, part: Part, outputs: Sequence[Tensor], run_seconds: float) -> None:
        if self._over:
            return
        if any(tensor.shape[:1] != (part.rows,) for tensor in outputs):
            self._run_in_one()
            return
        self._answers[part.index] = [tensor._replace(data=bytes(tensor.data)) for tensor in outputs]
        self._missing -= 1
        self._seconds += run_seconds
        if self._missing == 0:
            self._finish()

    def refuse(self, error: WakefulError) -> None:
        if not self._over:
            self._refuse(self.origin, error)

    def _finish(self) -> None:
        answers = [answer for answer in self._answers if answer is not None]
        joined = []
        for pieces in zip(*answers, strict=True):
            first = pieces[0]
            if any(piece.shape[1:] != first.shape[1:] for piece in pieces):
                self._run_in_one()
                return
            joined.append(first._replace(shape=(self.origin.rows, *first.shape[1:]), data=b"".join(piece.data for piece in pieces)))
        self._answer(self.origin, joined, self._seconds)

    def _run_in_one(self) -> None:
        """What the model gives is not by rows after all. Its answer to the whole is the right one, and what its parts gave would not make it."""
        log.error("the outputs of parts of a request for model %s cannot be put together: it is run whole", self.origin.model)
        self.give_up()
        self.origin.begun, self.origin.group = True, None
        self._submit(self.origin)
