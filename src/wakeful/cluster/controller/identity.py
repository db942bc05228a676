"""Whether agents and gateways are who they say: their projected token, shown to the API server once."""

from collections.abc import Awaitable, Callable, Iterable
from hashlib import sha256
from typing import Any, NamedTuple

import grpc

from wakeful.cluster.controller.api import TOKEN_REVIEW, Api, Refusal
from wakeful.cluster.install import GATEWAY
from wakeful.cluster.manifests import AUDIENCE
from wakeful.cluster.wire import ATTEND, Hello

POD_UID = "authentication.kubernetes.io/pod-uid"
AUTHORIZATION, SCHEME = "authorization", "Bearer "
"""Where gateways show theirs: Envoy has no other way."""
LEADS_NO_MORE = "this controller could not renew its Lease: another one may lead"
REMEMBERED = 4096
"""Tokens; more than a namespace has pods."""


class Bearer(NamedTuple):
    """Whose a token is."""

    account: str
    pods: tuple[str, ...]
    """Uids."""


class _Unknown(Exception):
    """Why it is nobody's that counts."""


class Identity:
    """Tokens that were found good are remembered by their digests, so that an agent can come back while the API server is away."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._good: dict[bytes, Bearer] = {}

    async def agent(self, hello: Hello) -> str:
        """Why the agent is refused; empty: it is the pod that it says."""
        try:
            bearer = await self._bearer("agent", hello.token)
        except _Unknown as error:
            return str(error)
        if bearer.pods != (hello.uid,):
            return f"the agent's token is bound to the pod {', '.join(bearer.pods) or '(none)'}, and it says that it is {hello.uid}"
        return ""

    async def gateway(self, metadata: Iterable[tuple[str, str | bytes]]) -> str:
        """Why the gateway that has sent this metadata is refused; empty: it is one of ours."""
        shown = next((str(value) for key, value in metadata if key == AUTHORIZATION), "")
        try:
            bearer = await self._bearer("gateway", shown.removeprefix(SCHEME).strip())
        except _Unknown as error:
            return str(error)
        if bearer.account != (wanted := self._account(GATEWAY)):
            return f"the gateway's token is {bearer.account}'s, and gateways are {wanted}"
        return ""

    async def _bearer(self, who: str, token: str) -> Bearer:
        """Raises _Unknown."""
        if not token:
            raise _Unknown(f"the {who} shows no token: its pod needs a projected one for the audience {AUDIENCE}")
        digest = sha256(token.encode()).digest()
        if (known := self._good.get(digest)) is not None:
            return known
        try:
            review = await self._api.create(TOKEN_REVIEW, {"spec": {"token": token, "audiences": [AUDIENCE]}})
        except Refusal as error:
            raise _Unknown(f"the {who}'s token could not be checked: {error}") from error
        bearer = self._judge(who, review.get("status") or {})
        while len(self._good) >= REMEMBERED:
            del self._good[next(iter(self._good))]
        self._good[digest] = bearer
        return bearer

    def _judge(self, who: str, status: dict[str, object]) -> Bearer:
        if not status.get("authenticated"):
            why = status.get("error") or "no reason given"
            raise _Unknown(f"the API server does not accept the {who}'s token for the audience {AUDIENCE}: {why}")
        user = status.get("user")
        assert isinstance(user, dict)
        account = str(user.get("username"))
        if not account.startswith(self._account("")):
            raise _Unknown(f"the {who}'s token is {account}'s, and this controller serves the namespace {self._api.namespace}")
        return Bearer(account, tuple((user.get("extra") or {}).get(POD_UID) or ()))

    def _account(self, name: str) -> str:
        return f"system:serviceaccount:{self._api.namespace}:{name}"


class Door(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpcio ships no types
    """Of the controller's server: lets gateways alone to what is theirs. Agents show their tokens in their first message."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        if details.method != ATTEND and (why := await self._identity.gateway(details.invocation_metadata)):
            return _refusing(grpc.StatusCode.UNAUTHENTICATED, why)
        return await continuation(details)


class Office(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpcio ships no types
    """Of the controller's server: takes no call when another one may lead. Those that came while this process stood still are taken in before it
    has looked at its Lease."""

    def __init__(self, leads: Callable[[], bool]) -> None:
        self._leads = leads

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        return await continuation(details) if self._leads() else _refusing(grpc.StatusCode.UNAVAILABLE, LEADS_NO_MORE)


def _refusing(code: grpc.StatusCode, why: str) -> Any:
    async def refuse(_: Any, context: Any) -> None:
        await context.abort(code, why)

    return grpc.stream_stream_rpc_method_handler(refuse)
