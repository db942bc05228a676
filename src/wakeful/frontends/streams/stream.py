"""One stream: messages in, one engine verb, answers out, and only then acknowledged.

Whatever happens between taking a message and acknowledging it (a crash, a lost broker, a stop), the broker hands it out again. So each is answered
at least once.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from wakeful.clock import monotonic
from wakeful.config.problems import masked
from wakeful.config.settings import StreamSettings
from wakeful.engine import Engine
from wakeful.errors import ExecutionFailed, InvalidInput, Overloaded, TooLarge, Unavailable, WakefulError
from wakeful.frontends.http.elsewhere import here_or_elsewhere
from wakeful.frontends.http.infer import DECODED_HERE, ENCODED_HERE
from wakeful.frontends.streams.broker import Broker, Delivery, Undeliverable
from wakeful.frontends.streams.messages import Call, Form, failure
from wakeful.inference import FOREVER, InferRequest
from wakeful.telemetry.metrics import StreamStats
from wakeful.telemetry.units import show_bytes
from wakeful.tensors import Tensor

log = logging.getLogger(__name__)

DELIVERIES = 5
"""A message that was handed out more often, and never answered, takes down whoever has it: it becomes a dead letter, untried."""
PASSING = (Overloaded, Unavailable)
"""Errors that another try may not meet."""
PATIENCE = 30.0
"""Seconds of trying for a message that no model has set a limit for."""
RETRY_SECONDS, LONGEST_RETRY = 0.05, 2.0
"""The first pause before a request that was refused is made again, doubled each time up to the longest, unless the refusal asks for more."""
RECONNECT_SECONDS, LONGEST_RECONNECT = 0.25, 15.0
"""Likewise, before a broker that is not there is tried again."""


class StreamRequest(InferRequest, kw_only=True):
    done: "asyncio.Future[list[Tensor]]"

    def answer(self, outputs: Sequence[Tensor], run_seconds: float) -> None:
        if not self.done.done():
            self.done.set_result([output._replace(data=bytes(output.data)) for output in outputs])

    def refuse(self, error: WakefulError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Letter(NamedTuple):
    """What is published for a message."""

    topic: str
    payload: bytes
    id: str
    model: str


def pause_before_retry(error: WakefulError, attempt: int, left: float) -> float | None:
    """Seconds until a request that was refused is made again; None: not at all. `left`: seconds until the message's deadline."""
    if not isinstance(error, PASSING):
        return None
    pause = max(error.retry_after or 0.0, grown(RETRY_SECONDS, attempt, LONGEST_RETRY))
    return pause if pause < left else None


def grown(seconds: float, times: int, longest: float) -> float:
    """A pause that was doubled so many times."""
    return min(seconds * 2.0 ** min(times, 32), longest)


class Stream:
    """Everything runs in the event loop; `run` is its whole life."""

    def __init__(
        self, settings: StreamSettings, make_broker: Callable[[], Broker], form: Form, engine: Engine, stats: StreamStats, max_message: int
    ) -> None:
        self.settings = settings
        self.stats = stats
        self.gone = asyncio.Event()
        self._make_broker = make_broker
        self._form = form
        self._engine = engine
        self._max_message = max_message
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[Any] | None = None
        self._told = ""
        """The state that people were told last."""
        self._failures = 0
        """Tries to reach the broker since it answered last."""

    def stop(self) -> None:
        """Take no more messages, and end when those in hand are answered."""
        self._stopping.set()
        if not self.stats.connected:
            self.abandon()

    def abandon(self) -> None:
        """End now. What is in hand stays with the broker."""
        self._stopping.set()
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """Serve until told to stop. A broker that is not there is tried again, more and more rarely."""
        self._task = asyncio.current_task()
        broker: Broker | None = None
        try:
            while not self._stopping.is_set():
                try:
                    if broker is None:
                        broker = await asyncio.to_thread(self._make_broker)
                    await self._serve(broker)
                except Exception as error:  # noqa: BLE001 - every library has errors of its own, and all mean that the broker is lost
                    self._lost(error)
                    self._failures += 1
                    await self._sleep(grown(RECONNECT_SECONDS, self._failures - 1, LONGEST_RECONNECT))
        finally:
            self.stats.connected = False
            self.gone.set()

    # ── the broker ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _serve(self, broker: Broker) -> None:
        """One connection's life. Raises what ended it; messages in hand are dropped then, and come again."""
        try:
            await broker.open()
            self._connected()
            async with asyncio.TaskGroup() as group:
                await self._consume(broker, group)
        finally:
            self.stats.connected = False
            try:
                await broker.close()
            except Exception as error:  # noqa: BLE001 - it is lost anyway
                log.debug("closing the way to a broker: %s", error)

    async def _consume(self, broker: Broker, group: asyncio.TaskGroup) -> None:
        limit = self.settings.concurrency
        running: set[asyncio.Task[None]] = set()
        while not self._stopping.is_set():
            if len(running) >= limit:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                running = {task for task in running if not task.done()}
                continue
            for delivery in await broker.receive(limit - len(running)):
                running.add(group.create_task(self._handle(broker, delivery)))
            running = {task for task in running if not task.done()}
        for delivery in await broker.last():
            group.create_task(self._handle(broker, delivery))

    async def _handle(self, broker: Broker, delivery: Delivery) -> None:
        self.stats.consumed += 1
        self.stats.in_flight += 1
        try:
            letters = await self._letters(delivery)
            if letters is None:
                return
            for letter in letters:
                await self._publish(broker, letter)
            await broker.acknowledge(delivery)
        finally:
            self.stats.in_flight -= 1

    async def _publish(self, broker: Broker, letter: Letter) -> None:
        """What the broker does not take becomes a dead letter; but a topic of ours that it refuses is the operator's fault, not the sender's."""
        try:
            await broker.publish(letter.topic, letter.payload, letter.id)
        except (Undeliverable, TooLarge) as error:
            ours = letter.topic in (self.settings.output_topic, self.settings.error_topic)
            if ours and isinstance(error, Undeliverable):
                raise
            reason = error if isinstance(error, TooLarge) else InvalidInput(f"reply_to: nothing can be published to {letter.topic}: {error}")
            self.stats.errors[reason.code] += 1
            body = failure(letter.id, letter.model, reason, 0.0)
            topics = {self.settings.error_topic} | ({letter.topic} if self.settings.format == "json" and isinstance(error, TooLarge) else set())
            for topic in topics:
                await broker.publish(topic, body, letter.id)
        self.stats.published += 1

    def _connected(self) -> None:
        self.stats.connected = True
        self._failures = 0
        self._tell("connected", f"{masked(self.settings.endpoint)} answers: reading {self.settings.input_topic}")

    def _lost(self, error: BaseException) -> None:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        text = str(error) or type(error).__name__
        if secret := re.search(r"://[^:@/]*:([^\s]+)@", self.settings.endpoint):
            text = text.replace(secret[1], "...")
        self._tell("lost", f"{masked(self.settings.endpoint)} cannot be used, and is tried again until it can: {masked(text)}")

    def _tell(self, state: str, text: str) -> None:
        if state == self._told:
            return
        self._told = state
        name = self.settings.name
        self._engine.events.emit("stream", "", f"{name}: {text}", stream=name, broker=self.settings.broker, state=state)

    async def _sleep(self, seconds: float) -> None:
        """Ends early when the stream is told to stop."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass

    # ── one message ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _letters(self, delivery: Delivery) -> list[Letter] | None:
        """What is to be published for a message: its answer, or its error. None: nothing, as it stays with the broker."""
        arrived = monotonic()
        call, model = None, self.settings.model_id
        try:
            call = self._opened(delivery)
            model = call.model or model
            inputs = await self._decoded(call, delivery)
            if model is None:
                model = "unrouted"
                raise InvalidInput("model_id: the message names no model, and the stream has none for such messages")
        except WakefulError as error:
            self._engine.refused(model or "", "stream", error, monotonic() - arrived)
            return self._failed(call, model, error, arrived)
        except Exception:
            log.exception("a message could not be decoded")
            return self._failed(call, model, ExecutionFailed("internal error"), arrived)
        try:
            outputs = await self._infer(model, call, inputs, arrived)
            if outputs is None:
                return None
            encode = partial(self._form.answer, call, model, outputs, 1000 * (monotonic() - arrived))
            body = await here_or_elsewhere(encode, sum(len(output.data) for output in outputs), ENCODED_HERE)
        except WakefulError as error:
            return self._failed(call, model, error, arrived)
        except Exception:
            log.exception("an answer could not be encoded")
            return self._failed(call, model, ExecutionFailed("internal error"), arrived)
        return [Letter(call.reply_to or self.settings.output_topic, body, call.id, model)]

    def _opened(self, delivery: Delivery) -> Call:
        """The envelope. Raises the error of a message that is not looked into further."""
        if len(delivery.payload) > self._max_message:
            size, limit = show_bytes(len(delivery.payload)), show_bytes(self._max_message)
            raise TooLarge(f"the message has {size}, over the limit of {limit} (max_body)")
        if delivery.times > DELIVERIES + 1:  # even its envelope may be what is fatal
            raise self._poisonous(delivery)
        return self._form.open(delivery.payload)

    async def _decoded(self, call: Call, delivery: Delivery) -> tuple[Tensor, ...]:
        if delivery.times > DELIVERIES:
            raise self._poisonous(delivery)
        if call.fault is not None:
            raise call.fault
        if call.reply_to == self.settings.input_topic:
            raise InvalidInput("reply_to: the answer would be read as a request there")
        return await here_or_elsewhere(call.inputs, len(delivery.payload), DECODED_HERE)

    def _poisonous(self, delivery: Delivery) -> ExecutionFailed:
        name, times = self.settings.name, delivery.times - 1
        error = ExecutionFailed(f"the message was handed out {times} times and never answered: whoever takes it seems to die of it")
        self._engine.events.emit("stream", "", f"{name}: {error.message}; it becomes a dead letter, untried", stream=name, times=times, state="fatal")
        return error

    async def _infer(self, model: str, call: Call, inputs: tuple[Tensor, ...], arrived: float) -> list[Tensor] | None:
        """The outputs. What is refused for now is tried again until the deadline. None: the stream stops, and the message stays."""
        deadline = FOREVER if call.timeout is None else arrived + call.timeout
        for attempt in count():
            done: asyncio.Future[list[Tensor]] = asyncio.get_running_loop().create_future()
            request = StreamRequest(model, inputs, monotonic(), deadline, id=call.id, coerce=True, protocol="stream", done=done)
            try:
                self._engine.infer(request)
                return await done
            except WakefulError as error:
                deadline = min(deadline, request.deadline)  # the model's, which admission knows
                if deadline == FOREVER:
                    deadline = arrived + PATIENCE
                if self._stopping.is_set() and isinstance(error, PASSING):
                    return None
                pause = pause_before_retry(error, attempt, deadline - monotonic())
                if pause is None:
                    raise
                await self._sleep(pause)
                if self._stopping.is_set():
                    return None
            finally:
                request.left = True
        raise AssertionError  # for the type checker, to which `count` may end

    def _failed(self, call: Call | None, model: str | None, error: WakefulError, arrived: float) -> list[Letter]:
        """To the dead letters; and where the answer would have gone, unless that holds Protobuf, which has no room for an error."""
        self.stats.errors[error.code] += 1
        id = "unknown" if call is None else call.id
        model = model or "unknown"
        body = failure(id, model, error, 1000 * (monotonic() - arrived))
        topics = [self.settings.error_topic]
        if self.settings.format == "json":
            topics.append((call and call.reply_to) or self.settings.output_topic)
        return [Letter(topic, body, id, model) for topic in topics]
