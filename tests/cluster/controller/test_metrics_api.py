"""custom.metrics.k8s.io: what is said of Models, Servers and pods, and how what is not known is refused. Against an API server: scenario 3."""

import asyncio
import re
from typing import Any

import pytest
import trustme

from wakeful.cluster.controller import metrics_api
from wakeful.cluster.controller.api import Kind, Manifest
from wakeful.cluster.controller.metrics_api import Caller, MetricsApi, Relay, caller_of
from wakeful.cluster.controller.metrics_values import METRICS, ROOT, Answer, answer
from wakeful.cluster.install import METRICS_SERVICE
from wakeful.cluster.planning.world import Agent, ModelEntry, ModelSpec, Placement, Replica, ServerEntry, ServerSpec, State, Use, World

NOW = 1_800_000_000.0
HERE = f"{ROOT}/v1beta2/namespaces/ml"


def world() -> World:
    """`cat` on two pods of triton, of which one drains it; `dog` beside it; `new` is still loading."""
    made = World()
    made.servers["triton"] = ServerEntry(ServerSpec("triton"))
    for number in range(2):
        first = {"cat": Use(lag=2.0, busy=0.25, rate=10.5), "dog": Use(lag=1.0, rate=4.0)}
        uses = {"cat": Use(lag=3.0, busy=0.5, rate=20.0)} if number else first
        agent = Agent(frozenset(), 1, 8080, None, NOW, use=uses)
        made.replicas[f"u{number}"] = Replica(f"u{number}", f"triton-{number}", "triton", number, ready=True, agent=agent)
    states = {"cat": (State.ROUTED, State.DRAINING), "dog": (State.ROUTED,), "new": (State.LOADING,)}
    for name, of in states.items():
        entry = made.models[name] = ModelEntry(ModelSpec(name, "file:///m", "r"))
        entry.placements = {f"u{at}": Placement(f"u{at}", f"triton-{at}", state, "r", NOW) for at, state in enumerate(of)}
    made.models["none"] = ModelEntry(ModelSpec("none", "file:///m", "r"))
    return made


def ask(path: str, made: World | None = None) -> Answer:
    return answer(made or world(), ["wakeful"], "ml", path, NOW)


def values(path: str) -> dict[str, str]:
    found = ask(path)
    assert found.code == 200, found
    assert found.body["kind"] == "MetricValueList"
    return {item["describedObject"]["name"]: item["value"] for item in found.body["items"]}


@pytest.mark.parametrize(("about", "value"), [
    ("models.wakeful.dev/cat/infer_rps", "30500m"), ("models.wakeful.dev/cat/infer_lag", "5000m"), ("models.wakeful.dev/cat/infer_busy", "750m"),
    ("models.wakeful.dev/dog/infer_busy", "0m"), ("servers.wakeful.dev/triton/infer_rps", "34500m"),
    ("servers.wakeful.dev/triton/infer_lag", "6000m"), ("models.wakeful.dev/none/infer_rps", "0m"),
])
def test_sums_over_all_copies(about: str, value: str) -> None:
    assert list(values(f"{HERE}/{about}").values()) == [value]


def test_a_value_is_as_autoscalers_expect_it() -> None:
    [item] = ask(f"{HERE}/models.wakeful.dev/cat/infer_rps").body["items"]
    assert item == {
        "describedObject": {"kind": "Model", "namespace": "ml", "name": "cat", "apiVersion": "wakeful.dev/v1alpha1"},
        "metric": {"name": "infer_rps"}, "timestamp": "2027-01-15T08:00:00Z", "value": "30500m",
    }


def test_pods_of_a_server() -> None:
    assert values(f"{HERE}/pods/*/infer_rps?labelSelector=wakeful.dev%2Fserver%3Dtriton") == {"triton-0": "14500m", "triton-1": "20000m"}
    assert values(f"{HERE}/pods/triton-1/infer_lag") == {"triton-1": "3000m"}
    assert values(f"{HERE}/pods/*/infer_rps?labelSelector=wakeful.dev%2Fserver%3Dother") == {}


@pytest.mark.parametrize(("path", "code", "word"), [
    (f"{HERE}/models.wakeful.dev/cat/rps", 404, "there is no metric rps; there are infer_rps"),
    (f"{HERE}/models.wakeful.dev/cow/infer_rps", 404, 'models.wakeful.dev "cow" not found'),
    (f"{HERE}/models.mlops.seldon.io/cat/infer_rps", 404, "no metrics of models.mlops.seldon.io"),
    (f"{HERE}/services/cat/infer_rps", 404, "no metrics of services"),
    (f"{HERE}/models.wakeful.dev/new/infer_rps", 404, "not enough is known yet"),
    (f"{HERE}/pods/cow/infer_rps", 404, 'pods "cow" not found'),
    (f"{HERE}/pods/*/infer_rps?labelSelector=app%3Dx", 400, "wakeful.dev/server=NAME alone, and the selector is app=x"),
    (f"{HERE}/models.wakeful.dev/cat/infer_rps?metricLabelSelector=a%3Db", 400, "has no labels"),
    (f"{ROOT}/v1beta2/namespaces/other/models.wakeful.dev/cat/infer_rps", 404, "namespace ml, and other was asked for"),
    (f"{ROOT}/v1beta2/namespaces", 404, "expected"), ("/openapi/v2", 404, "got /openapi/v2"),
])
def test_what_is_not_known_is_a_status(path: str, code: int, word: str) -> None:
    found = ask(path)
    assert (found.code, found.body["kind"], found.body["code"], found.body["status"]) == (code, "Status", code, "Failure")
    assert word in found.body["message"]


@pytest.mark.parametrize("silent", [("u0",), ("u1",), ("u0", "u1")])
def test_silent_agents_are_no_zero(silent: tuple[str, ...]) -> None:
    made = world()
    for uid in silent:
        made.replicas[uid].agent = None
    assert [ask(f"{HERE}/{about}/infer_rps", made).code for about in ("models.wakeful.dev/cat", "servers.wakeful.dev/triton")] == [404, 404]


def test_a_lost_pod_is_not_waited_for() -> None:
    made = world()
    made.replicas["u1"].agent, made.replicas["u1"].lost = None, True
    (item,) = ask(f"{HERE}/models.wakeful.dev/cat/infer_rps", made).body["items"]
    assert item["value"] == "10500m"


def test_what_there_is() -> None:
    assert ask(ROOT).body["preferredVersion"] == {"groupVersion": "custom.metrics.k8s.io/v1beta2", "version": "v1beta2"}
    names = {one["name"] for one in ask(f"{ROOT}/v1beta2").body["resources"]}
    assert names == {f"{about}/{metric}" for about in ("models.wakeful.dev", "servers.wakeful.dev", "pods") for metric in METRICS}


def test_who_may_ask() -> None:
    published: Any = {"data": {"requestheader-client-ca-file": "PEM", "requestheader-allowed-names": '["front-proxy-client"]'}}
    assert caller_of(published) == Caller("PEM", frozenset({"front-proxy-client"}))
    with pytest.raises(ValueError, match="has no requestheader-client-ca-file"):
        caller_of({"data": {}})


class Store:
    def __init__(self, service: Manifest | None) -> None:
        self.service, self.patches = service, 0
        self.authority = trustme.CA().cert_pem.bytes().decode()

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Manifest | None:
        if namespace is not None:
            return {"data": {"requestheader-client-ca-file": self.authority}}
        assert name == METRICS_SERVICE
        return self.service

    async def patch(self, kind: Kind, name: str, body: Manifest) -> Manifest:
        self.patches += 1
        return body


@pytest.mark.parametrize(("service", "word"), [
    (None, "there is no APIService"),
    ({"metadata": {"resourceVersion": "1"}, "spec": {"service": {"namespace": "monitoring", "name": "adapter"}}}, "served by monitoring/adapter"),
])
def test_anothers_apiservice_is_left_alone(service: Manifest | None, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_api, "CUSTOM_METRICS_LEADER", 0)
    told: list[str] = []

    async def main() -> None:
        heard = asyncio.Event()

        def complain(text: str) -> None:
            told.append(text)
            heard.set()

        store = Store(service)
        work = asyncio.ensure_future(MetricsApi(store, "127.0.0.1", "ml", ask, complain).run())
        async with asyncio.timeout(10):
            await heard.wait()
        work.cancel()
        await asyncio.wait([work])
        assert store.patches == 0

    asyncio.run(main())
    assert re.search(word, told[0])


def test_what_comes_to_a_follower_goes_on_to_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = ""

    async def main() -> tuple[bytes, bytes]:
        nonlocal leader

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(4))
            writer.close()

        async def asked() -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"ping")
            try:
                async with asyncio.timeout(10):
                    return await reader.read()
            except ConnectionResetError:
                return b""
            finally:
                writer.close()

        relay = Relay(lambda: leader)
        async with await asyncio.start_server(echo, "127.0.0.1", 0) as there, await asyncio.start_server(relay, "127.0.0.1", 0) as here:
            monkeypatch.setattr(metrics_api, "CUSTOM_METRICS_LEADER", there.sockets[0].getsockname()[1])
            port = here.sockets[0].getsockname()[1]
            before = await asked()
            leader = "127.0.0.1"
            return before, await asked()

    assert asyncio.run(main()) == (b"", b"ping")
