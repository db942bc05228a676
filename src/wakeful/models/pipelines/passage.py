"""One request's way through a pipeline. Nothing here waits: each step is a request of its own, whose answer begins the steps behind it."""

from collections.abc import Callable, Sequence

from wakeful.batching.settling import Settler
from wakeful.clock import monotonic
from wakeful.errors import ExecutionFailed, TimedOut, WakefulError
from wakeful.inference import InferRequest
from wakeful.models.pipelines.plan import Plan, of_step
from wakeful.telemetry.metrics import STEP
from wakeful.tensors import Tensor


class StepRequest(InferRequest, kw_only=True):
    """What a step asks of its model. It waits, merges and fails as any other request does.

    It has arrived when the step began, so that limits and delays of its model count its own time. The deadline is the caller's.
    """

    passage: "Passage"
    index: int

    @property  # type: ignore[misc]  # nobody sets it: whoever leaves, leaves the pipeline
    def left(self) -> bool:
        return self.passage.over

    @left.setter
    def left(self, _: bool) -> None:
        """Set by the constructor only."""

    def answer(self, outputs: Sequence[Tensor], run_seconds: float) -> None:
        self.passage.done(self.index, outputs, run_seconds)

    def refuse(self, error: WakefulError) -> None:
        self.passage.failed(self.index, error)

    def dropped(self) -> None:
        self.passage.drop()


class Passage:
    """Settles its caller's request once. The steps' requests know it, and not the other way round: together they would keep the tensors in memory
    until the garbage collector comes."""

    __slots__ = ("request", "_infer", "_missing", "_plan", "_refused", "_seconds", "_settler", "_tensors", "_under_way", "_waits")

    def __init__(self, request: InferRequest, plan: Plan, settler: Settler, infer: Callable[[InferRequest, str | None], None]) -> None:
        self.request = request
        self._plan = plan
        self._settler = settler
        self._infer = infer
        self._tensors = {tensor.name: tensor for tensor in request.inputs}
        """What the caller gave and steps have made, by the pipeline's names."""
        self._waits = [step.waits for step in plan.steps]
        self._missing = len(plan.steps)
        self._under_way = 0
        self._seconds = 0.0
        self._refused = False
        """It was not taken, and whoever raised that settles it."""

    def begin(self) -> None:
        """Start the first steps. Raises the error of one that is not taken; the others are dropped then."""
        for index in self._plan.first:
            try:
                self._start(index)
            except WakefulError as error:
                self._refused = True
                raise self._named(index, error) from None

    @property
    def over(self) -> bool:
        """Nobody waits for what is still to come."""
        return self._refused or self.request.left or self.request.settled

    def done(self, index: int, outputs: Sequence[Tensor], seconds: float) -> None:
        """A step has its outputs, which are valid during this call only: what is wanted later is copied, and what the last step made is not."""
        step = self._plan.steps[index]
        self._under_way -= 1
        self._missing -= 1
        self._seconds += seconds
        last = not self._missing
        made = {tensor.name: tensor for tensor in outputs}
        if lost := [own for own, _ in step.gives if own not in made]:
            self._settler.refuse(self.request, self._named(index, ExecutionFailed(f"it gave no {lost[0]!r}")))
            return
        for own, shared in step.gives:
            tensor = made[own]
            self._tensors[shared] = Tensor(shared, tensor.datatype, tensor.shape, tensor.data if last else bytes(tensor.data))
        if last:
            answer = [self._tensors[spec.name] for spec in self._plan.signature.outputs]
            self._settler.answer(self.request, answer, self._seconds)
            return
        for other in step.before:
            self._waits[other] -= 1
            if not self._waits[other]:
                self._go_on(other)

    def failed(self, index: int, error: WakefulError) -> None:
        self._under_way -= 1
        self._settler.refuse(self.request, self._named(index, error))

    def drop(self) -> None:
        """A step was dropped, as nobody waits for it: the caller has left, unless another step has failed before."""
        self._under_way -= 1
        if not self._refused:
            self._settler.drop(self.request, monotonic())

    def _go_on(self, index: int) -> None:
        request, now = self.request, monotonic()
        if request.left:
            self._settler.drop(request, now)
        if request.settled:
            return
        try:
            if request.deadline <= now:
                raise TimedOut(f"the deadline passed after {now - request.arrived:.3f} s, before it began")
            self._start(index)
        except WakefulError as error:
            self._settler.refuse(self.request, self._named(index, error))

    def _start(self, index: int) -> None:
        step, request, tensors = self._plan.steps[index], self.request, self._tensors
        inputs = [
            tensors[shared] if own == shared else Tensor(own, *tensors[shared][1:])
            for own, shared in step.takes if shared in tensors  # what is optional may not be
        ]
        begun = StepRequest(
            step.model, inputs, monotonic(), request.deadline, id=request.id, parameters=request.parameters, protocol=STEP, passage=self, index=index,
        )
        self._infer(begun, step.version)
        self._under_way += 1

    def _named(self, index: int, error: WakefulError) -> WakefulError:
        untouched = not self._under_way and self._missing == len(self._plan.steps)
        return of_step(self._plan.steps[index].label, error, unstarted=untouched)
