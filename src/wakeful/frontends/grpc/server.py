"""The door to gRPC: which library serves it, and who may pass."""

from collections.abc import Callable, Sequence
from typing import Protocol

from wakeful.errors import TooLarge, Unavailable, WakefulError
from wakeful.frontends.access import Access
from wakeful.frontends.grpc.call import Call, Method
from wakeful.frontends.tls import Certificate
from wakeful.telemetry.units import show_bytes


class Front(Protocol):
    """A library that serves gRPC."""

    library: str

    async def start(self, address: str) -> None: ...

    @property
    def busy(self) -> int: ...

    def close_listeners(self) -> None: ...

    async def close(self) -> None: ...


class GrpcServer:
    def __init__(
        self, methods: Sequence[Method], access: Access, refused: Callable[[WakefulError], None], max_body: int, patience: float,
        certificate: Certificate | None, *, strangers: bool,
    ) -> None:
        """`refused` is told why a caller may not have what it asks for. `patience`: seconds for a caller to take an answer of a stream. `strangers`:
        may anybody reach this port?"""
        self._access = access
        self._refused = refused
        self._max_body = max_body
        self._closing = False
        self._front = _front(methods, self.take, max_body, patience, certificate, strangers=strangers)

    @property
    def library(self) -> str:
        """What serves it."""
        return self._front.library

    def admit_by(self, access: Access) -> None:
        """Go over to other rules for who may call."""
        self._access = access

    async def start(self, host: str, port: int) -> None:
        await self._front.start(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")

    def take(self, call: Call, message: bytes) -> None:
        """Check a call, and hand it to its method's handler."""
        method = call.method
        try:
            if method.role is not None:
                if not self._access.open:
                    self._check(call)
                if self._closing:
                    raise Unavailable("the server is stopping", unstarted=True)
            if len(message) > self._max_body:
                raise TooLarge(f"the message has {show_bytes(len(message))}, the limit is {show_bytes(self._max_body)} (max_body)")
            method.handler(call, message)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller hears of it, and the log if it is a fault of ours
            call.fail(error)

    def _check(self, call: Call) -> None:
        assert call.method.role is not None
        try:
            self._access.check(call.credentials(), call.method.role)
        except WakefulError as error:
            self._refused(error)
            raise

    @property
    def busy(self) -> int:
        """Calls that are on their way in, not answered, or whose answers are on their way out."""
        return self._front.busy

    def close_listeners(self) -> None:
        """Refuse what comes from now on, and finish what is here."""
        self._closing = True
        self._front.close_listeners()

    async def close(self) -> None:
        """Close what is left, its last answer taken or not."""
        await self._front.close()


def _front(
    methods: Sequence[Method], take: Callable[[Call, bytes], None], max_body: int, patience: float, certificate: Certificate | None, *,
    strangers: bool,
) -> Front:
    """pygrpc-native takes a third of grpcio's processor time for a call; but it knows no TLS, and has anybody's message of any size in memory
    before we can refuse it."""
    if certificate is None and not strangers:
        try:
            from wakeful.frontends.grpc.native import NativeFront  # noqa: PLC0415 - may be missing
        except ImportError:
            pass
        else:
            return NativeFront(methods, take, max_body, patience)
    from wakeful.frontends.grpc.aio import AioFront  # noqa: PLC0415 - the other one is enough mostly

    return AioFront(methods, take, max_body, patience, certificate)
