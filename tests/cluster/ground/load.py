"""Checked load: requests at a steady rate whatever the server does, each answer compared with what the model must give, each outcome counted.

It is an open loop: a request goes out when it is due, and its latency counts from then, so that a stall is in the latency of all that fell into it.
Over HTTP and gRPC in turn where both are asked for.
"""

import asyncio
import struct
import threading
import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Self

import aiohttp
import grpc.aio

from tests.cluster.ground.models import factor_of

TIMEOUT = 60.0
"""Seconds until an answer that does not come is counted as lost."""
HEADER = "wakeful-model"
METHOD = "/inference.GRPCInferenceService/ModelInfer"
OK = "ok"


class Answer(NamedTuple):
    due: float
    """Seconds from the beginning of the load."""
    seconds: float
    model: str
    outcome: str
    """`ok`, or what went wrong: status and text, exception, wrong numbers."""
    wire: str


class Load:
    """Runs in a thread of its own from `start` to `stop`. As a context manager: for the time of a block."""

    def __init__(
        self, http: str, models: Sequence[str], rate: float, *, grpc_address: str | None = None, wires: Sequence[str] = ("http",),
        headers: dict[str, str] | None = None, named: bool = True,
    ) -> None:
        """`named`: calls of gRPC name the model in their metadata, so that Envoy need not ask its helper."""
        assert "grpc" not in wires or grpc_address, "an address is needed for gRPC"
        self._http, self._grpc, self._models, self._rate, self._wires = http, grpc_address, models, rate, wires
        self._headers = headers or {}
        self._named = named
        self.answers: list[Answer] = []
        """Grows while it runs."""
        self.sent = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="load", daemon=True)
        self._failure: BaseException | None = None

    def start(self) -> Self:
        self._thread.start()
        return self

    __enter__ = start

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> Self:
        """Send no more, and wait for all answers. Then every request that was sent has an outcome."""
        self._stopping.set()
        self._thread.join(TIMEOUT + 10.0)
        if self._failure is not None:
            raise self._failure
        assert len(self.answers) == self.sent, f"{self.sent - len(self.answers)} requests have no outcome"
        return self

    # ── what came of it ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def outcomes(self) -> Counter[str]:
        return Counter(answer.outcome for answer in self.answers)

    @property
    def lost(self) -> dict[str, int]:
        """Outcomes other than a right answer, with how often."""
        return {outcome: count for outcome, count in self.outcomes.items() if outcome != OK}

    @property
    def good(self) -> int:
        return self.outcomes[OK]

    @property
    def worst(self) -> float:
        """The longest wait for a right answer, seconds."""
        return max((answer.seconds for answer in self.answers if answer.outcome == OK), default=0.0)

    def nothing_lost(self) -> None:
        """All that were sent so far and answered were answered rightly, and there were some."""
        assert self.answers, "nothing was answered"
        first = [answer for answer in self.answers if answer.outcome != OK][:3]
        assert not self.lost, f"{sum(self.lost.values())} of {len(self.answers)} were lost: {self.lost}; the first: {first}"

    # ── how it is made ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        try:
            connector = aiohttp.TCPConnector(limit=0)
            timeout = aiohttp.ClientTimeout(total=TIMEOUT)
            async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=self._headers) as session, asyncio.TaskGroup() as tasks:
                if self._grpc:
                    async with grpc.aio.insecure_channel(self._grpc) as channel:
                        await self._send(tasks, session, channel)
                else:
                    await self._send(tasks, session, None)
        except BaseException as error:  # noqa: BLE001 - of another thread: raised where the load is stopped
            self._failure = error

    async def _send(self, tasks: asyncio.TaskGroup, session: aiohttp.ClientSession, channel: "grpc.aio.Channel | None") -> None:
        begin = time.monotonic()
        flying: set[asyncio.Task[None]] = set()
        while not self._stopping.is_set():
            number = self.sent
            due = number / self._rate
            await asyncio.sleep(max(begin + due - time.monotonic(), 0.0))
            self.sent += 1
            task = tasks.create_task(self._one(number, due, begin, session, channel))
            flying.add(task)
            task.add_done_callback(flying.discard)
        if flying:
            await asyncio.wait(flying)

    async def _one(self, number: int, due: float, begin: float, session: aiohttp.ClientSession, channel: "grpc.aio.Channel | None") -> None:
        model = self._models[number % len(self._models)]
        wire = self._wires[number // len(self._models) % len(self._wires)]
        values = [float(number % 1000 + k) for k in range(4)]
        try:
            got = await (self._by_http(session, model, values) if wire == "http" else self._by_grpc(channel, model, values))
            outcome = OK if got == [factor_of(model) * value for value in values] else f"wrong numbers: {got} for {values}"
        except _Refused as refused:
            outcome = str(refused)
        except (aiohttp.ClientError, TimeoutError, grpc.aio.AioRpcError, ValueError, LookupError) as error:
            outcome = f"{type(error).__name__}: {error}"
        self.answers.append(Answer(due, time.monotonic() - begin - due, model, outcome, wire))

    async def _by_http(self, session: aiohttp.ClientSession, model: str, values: list[float]) -> list[float]:
        body = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": values}]}
        async with session.post(f"{self._http}/v2/models/{model}/infer", json=body) as answer:
            if answer.status != 200:
                raise _Refused(f"{answer.status} {(await answer.text())[:200]}")
            decoded = await answer.json()
            [output] = decoded["outputs"]
            data: list[float] = output["data"]
            return data if decoded["model_name"] == model else []

    async def _by_grpc(self, channel: "grpc.aio.Channel | None", model: str, values: list[float]) -> list[float]:
        from tritonclient.grpc import service_pb2

        assert channel is not None
        request = service_pb2.ModelInferRequest(
            model_name=model, inputs=[{"name": "x", "shape": [1, 4], "datatype": "FP32"}], raw_input_contents=[struct.pack("<4f", *values)]
        )
        call = channel.unary_unary(METHOD, service_pb2.ModelInferRequest.SerializeToString, service_pb2.ModelInferResponse.FromString)
        try:
            answer = await call(request, timeout=TIMEOUT, metadata=((HEADER, model),) if self._named else ())
        except grpc.aio.AioRpcError as error:
            raise _Refused(f"{error.code().name} {error.details()[:200]}") from None
        if answer.model_name != model:
            return []
        [output] = answer.outputs
        data = answer.raw_output_contents[0] if answer.raw_output_contents else struct.pack("<4f", *output.contents.fp32_contents)
        return list(struct.unpack("<4f", data))


class _Refused(Exception):
    """Another answer than the model's."""
