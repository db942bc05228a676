"""Agents and gateways show whose they are. The API server is a table of tokens."""

import asyncio
from typing import Any

import pytest

from wakeful.cluster.controller.api import TOKEN_REVIEW, UNREACHED, Kind, Manifest, Refusal
from wakeful.cluster.controller.identity import Identity
from wakeful.cluster.wire import PROTOCOL, Hello

SERVERS, GATEWAYS = "system:serviceaccount:ml:wakeful-server", "system:serviceaccount:ml:wakeful-gateway"


class Api:
    namespace = "ml"

    def __init__(self) -> None:
        self.tokens: dict[str, tuple[str, list[str]]] = {
            "agent": (SERVERS, ["u1"]), "unbound": (SERVERS, []), "gateway": (GATEWAYS, ["g1"]),
            "foreign": ("system:serviceaccount:other:wakeful-gateway", ["u1"]), "person": ("jane", []),
        }
        self.away = False
        self.reviews = 0

    async def create(self, kind: Kind, body: Manifest) -> Manifest:
        assert kind == TOKEN_REVIEW
        assert body["spec"]["audiences"] == ["wakeful"]
        self.reviews += 1
        if self.away:
            raise Refusal(UNREACHED, "no answer")
        if (found := self.tokens.get(body["spec"]["token"])) is None:
            return {"status": {"error": "it has expired"}}
        account, pods = found
        return {"status": {"authenticated": True, "user": {"username": account, "extra": {"authentication.kubernetes.io/pod-uid": pods}}}}


class Stage:
    def __init__(self) -> None:
        self.api = Api()
        self.identity = Identity(self.api)  # type: ignore[arg-type]  # what it uses of it

    def agent(self, token: str, uid: str = "u1") -> str:
        return asyncio.run(self.identity.agent(Hello(PROTOCOL, "triton-0", uid, "triton", 8080, None, [], 1, "1", token=token)))

    def gateway(self, *metadata: tuple[str, Any]) -> str:
        return asyncio.run(self.identity.gateway(metadata))


@pytest.mark.parametrize(("token", "why"), [
    ("agent", ""),
    ("", "the agent shows no token: its pod needs a projected one for the audience wakeful"),
    ("old", "the API server does not accept the agent's token for the audience wakeful: it has expired"),
    ("unbound", "the agent's token is bound to the pod (none), and it says that it is u1"),
    ("gateway", "the agent's token is bound to the pod g1, and it says that it is u1"),
    ("foreign", "the agent's token is system:serviceaccount:other:wakeful-gateway's, and this controller serves the namespace ml"),
])
def test_an_agent_is_the_pod_that_its_token_is_bound_to(token: str, why: str) -> None:
    assert Stage().agent(token) == why


@pytest.mark.parametrize(("metadata", "why"), [
    ([("user-agent", "envoy"), ("authorization", "Bearer gateway")], ""),
    ([], "the gateway shows no token: its pod needs a projected one for the audience wakeful"),
    ([("authorization", "Bearer ")], "the gateway shows no token: its pod needs a projected one for the audience wakeful"),
    ([("authorization", "Bearer old")], "the API server does not accept the gateway's token for the audience wakeful: it has expired"),
    ([("authorization", "Bearer agent")], f"the gateway's token is {SERVERS}'s, and gateways are {GATEWAYS}"),
    ([("authorization", "Bearer person")], "the gateway's token is jane's, and this controller serves the namespace ml"),
])
def test_a_gateway_has_the_gateways_account(metadata: list[tuple[str, str]], why: str) -> None:
    assert Stage().gateway(*metadata) == why


def test_who_was_known_comes_back_while_the_api_server_is_away_and_nobody_else_does() -> None:
    stage = Stage()
    assert stage.agent("agent") == stage.gateway(("authorization", "Bearer gateway")) == ""
    stage.api.away = True
    assert stage.agent("agent") == stage.gateway(("authorization", "Bearer gateway")) == ""
    assert stage.agent("agent", uid="u2") == "the agent's token is bound to the pod u1, and it says that it is u2"
    assert stage.agent("unbound") == "the agent's token could not be checked: no answer"
    assert stage.api.reviews == 3
