"""Tells gateways where requests go: Envoy's aggregated discovery service, incremental, on the controller's gRPC server.

A cluster's endpoints have a version that names their replicas, so a new leader learns from what an Envoy says that it has where it sends requests.
Envoy knows no epoch, so the end of a leader's time is kept here: nothing is sent unless it surely leads, by its own clock, whatever it has
slept through. What was under way to the socket by then reaches an Envoy at most a keepalive's time later (9 s, then it has left the connection), and
for longer than that, `book.PATIENCE`, the next leader counts each gateway as one that may send to all that its predecessor had routed.

Of several streams that come under one name each is a gateway of its own, until the older ones have ended.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import grpc
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DeltaDiscoveryResponse

from wakeful.clock import Clock, monotonic
from wakeful.cluster.controller.delta import Client, Kind, Push, Resource
from wakeful.cluster.controller.identity import LEADS_NO_MORE
from wakeful.cluster.planning import book
from wakeful.cluster.planning.effects import Note
from wakeful.cluster.planning.world import Endpoint, Routing

_PREFIX = "type.googleapis.com/"
_URLS: dict[Kind, str] = {"clusters": _PREFIX + Cluster.DESCRIPTOR.full_name, "endpoints": _PREFIX + ClusterLoadAssignment.DESCRIPTOR.full_name}
_KINDS = {url: kind for kind, url in _URLS.items()}
_SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

REFUSED_AGAIN = 5.0
"""Seconds after which a push that an Envoy has refused is tried again."""
TICK = 1.0
"""Seconds between looks at who is silent."""
IDLE = 15
"""Seconds after which an unused connection to a replica is closed: each model has its own."""
CONNECT_MS = 500
UNLIMITED = 100_000
"""Envoy's limits of requests and connections a cluster: the daemon is who refuses, and says why."""

Changed = Callable[[frozenset[str]], None]


class Discovery:
    """The book, the resources and the streams. All of it belongs to the controller's loop."""

    def __init__(self, changed: Changed, note: Callable[[Note], None], leads: Callable[[], bool], now: Clock = monotonic) -> None:
        """`changed` gets the models whose `routing` has changed; `note` what people should know; `leads`: nobody else can lead now."""
        self._changed, self._note, self._leads, self._now = changed, note, leads, now
        self._book = book.Book()
        self._routes: dict[str, tuple[Endpoint, ...]] = {}
        self._catalog: dict[Kind, dict[str, Resource]] = {"clusters": {}, "endpoints": {}}
        self._gate = asyncio.Event()
        self._streams: dict[str, _Stream] = {}

    def routing(self) -> dict[str, Routing]:
        """Where gateways send requests, by model; who is not in it is routed nowhere."""
        return self._book.routing

    @property
    def gateways(self) -> frozenset[str]:
        """Those whose acknowledgement is waited for."""
        return self._book.gateways

    def set_routes(self, routes: Mapping[str, tuple[Endpoint, ...]]) -> None:
        """Where requests are to go, of all models. Only what is different is told."""
        models = {model for model in {*routes, *self._routes} if routes.get(model, ()) != self._routes.get(model, ())}
        touched: set[str] = set()
        told: frozenset[str] = frozenset()
        for model in models:
            before, after = book.clusters(model, self._routes.get(model, ())), book.clusters(model, routes.get(model, ()))
            for name in before.keys() - after.keys():
                del self._catalog["clusters"][name], self._catalog["endpoints"][name]
            for name, endpoints in after.items():
                self._catalog["clusters"].setdefault(name, cluster(name))
                self._catalog["endpoints"][name] = assignment(name, endpoints)
            touched |= before.keys() | after.keys()
            told |= self._book.set_routes(model, after)
        self._routes = dict(routes)
        for stream in self._streams.values():
            stream.changed(touched)
        self._tell(told)

    def open(self, inherited: Mapping[str, frozenset[str]]) -> None:
        """The routes are complete: answer gateways. Before that they keep what they have; a first answer without their clusters would remove them.

        `inherited`: whom the predecessor may have routed, as uids a model. Until gateways had the time to connect they may still be used.
        """
        self._tell(self._book.inherit(inherited, self._now()))
        self._gate.set()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self._tell(self._book.tick(self._now()))

    def add_to(self, server: grpc.aio.Server) -> None:
        method = grpc.stream_stream_rpc_method_handler(
            self._serve, request_deserializer=DeltaDiscoveryRequest.FromString, response_serializer=DeltaDiscoveryResponse.SerializeToString,
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {"DeltaAggregatedResources": method}),))

    # ── a stream ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _serve(self, requests: AsyncIterator[DeltaDiscoveryRequest], context: grpc.aio.ServicerContext) -> None:
        stream = _Stream(Client(self._catalog))
        try:
            async with asyncio.TaskGroup() as tasks:
                writer = tasks.create_task(self._write(stream, context))
                async for request in requests:
                    self._take(stream, request, context.peer())
                writer.cancel()
        except* _LeadsNoMore:
            stream.over = True
        finally:
            if stream.joined:
                del self._streams[stream.name]
                self._tell(self._book.left(stream.name, self._now()))
        if stream.over:
            await context.abort(grpc.StatusCode.UNAVAILABLE, LEADS_NO_MORE)

    def _take(self, stream: "_Stream", request: DeltaDiscoveryRequest, peer: str) -> None:
        stream.name = stream.name or self._free_name(request.node.id or peer)
        kind = _KINDS.get(request.type_url)
        if kind is None:
            return
        if request.response_nonce:
            self._answered(stream, request)
        has = request.initial_resource_versions
        if kind == "endpoints":
            stream.has = {name: replicas(version) for name, version in has.items()}
        if stream.client.asked(kind, request.resource_names_subscribe, request.resource_names_unsubscribe, has) and not stream.joined:
            stream.name = self._free_name(stream.name)
            stream.joined, self._streams[stream.name] = True, stream
            self._tell(self._book.joined(stream.name, stream.has, self._now()))
        stream.kick.set()

    def _free_name(self, name: str) -> str:
        return name if name not in self._streams else next(free for n in range(2, 1 << 30) if (free := f"{name} ({n})") not in self._streams)

    def _answered(self, stream: "_Stream", request: DeltaDiscoveryRequest) -> None:
        refused = request.HasField("error_detail")
        push = stream.client.answered(request.response_nonce, refused)
        if push is None:
            return
        if not refused:
            self._tell(self._book.accepted(stream.name, push.nonce, _taken(push, stream.client), self._now()))
            return
        asyncio.get_running_loop().call_later(REFUSED_AGAIN, stream.again, push)
        self._tell(self._book.refused(stream.name, push.nonce, self._now()))
        names = ", ".join([*push.resources, *push.removed][:3])
        self._note(Note("Pod", stream.name, "Warning", "RoutesRefused", (
            f"its Envoy refused {len(push.resources) + len(push.removed)} {push.kind} ({names}, ...): {request.error_detail.message[:500]}; "
            "nothing is unloaded that it may still use; are controller and gateway of one version?"
        )))

    async def _write(self, stream: "_Stream", context: grpc.aio.ServicerContext) -> None:
        await self._gate.wait()
        while True:
            await stream.kick.wait()
            stream.kick.clear()
            if stream.joined:
                for push in stream.client.pushes():
                    if not self._leads():
                        raise _LeadsNoMore
                    self._tell(self._book.sent(stream.name, push.nonce, _sent(push), self._now()))
                    await context.write(_response(push))

    def _tell(self, models: frozenset[str]) -> None:
        if models:
            self._changed(models)


class _LeadsNoMore(Exception):
    """Another one may lead."""


class _Stream:
    def __init__(self, client: Client) -> None:
        self.over = False
        self.client = client
        self.name = ""
        self.joined = False
        self.has: dict[str, frozenset[str]] = {}
        self.kick = asyncio.Event()

    def changed(self, names: Iterable[str]) -> None:
        self.client.changed(names)
        self.kick.set()

    def again(self, push: Push) -> None:
        self.client.again(push)
        self.kick.set()


def _sent(push: Push) -> dict[str, frozenset[str]]:
    """What a push says of who is used, by cluster."""
    return dict.fromkeys(push.removed, frozenset()) | {
        name: replicas(resource.version) for name, resource in push.resources.items() if push.kind == "endpoints"
    }


def _taken(push: Push, client: Client) -> dict[str, frozenset[str]]:
    """What follows from its acknowledgement."""
    versions = {name: client.endpoints(name) for name in push.resources}
    return dict.fromkeys(push.removed, frozenset()) | {name: replicas(version) for name, version in versions.items() if version is not None}


def _response(push: Push) -> DeltaDiscoveryResponse:
    response = DeltaDiscoveryResponse(type_url=_URLS[push.kind], nonce=push.nonce, removed_resources=push.removed)
    for name, (version, encoded) in push.resources.items():
        added = response.resources.add(name=name, version=version)
        added.resource.type_url, added.resource.value = _URLS[push.kind], encoded
    return response


# ── resources ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def assignment(name: str, endpoints: Iterable[Endpoint]) -> Resource:
    """A cluster's endpoints. Its version names the replicas after the digest of their addresses: see `replicas`."""
    grpc_too = name == book.grpc_cluster(book.model_of(name))
    message = ClusterLoadAssignment(cluster_name=name)
    locality = message.endpoints.add()
    members = sorted(endpoints, key=lambda endpoint: endpoint.replica)
    for endpoint in members:
        address = locality.lb_endpoints.add().endpoint.address.socket_address
        address.address, address.port_value = endpoint.ip, (endpoint.grpc_port or 0) if grpc_too else endpoint.http_port
    encoded = _encode(message)
    return Resource(" ".join((_digest(encoded), *(endpoint.replica for endpoint in members))), encoded)


def replicas(version: str) -> frozenset[str]:
    """Whom the endpoints of this version are."""
    return frozenset(version.split()[1:])


def cluster(name: str) -> Resource:
    """How Envoy treats a model's replicas: least requests; nobody is sent away by a limit of Envoy's; a replica that three connections in a row
    could not reach is left out for a second, and for longer each time."""
    message = Cluster(name=name, type=Cluster.EDS, lb_policy=Cluster.LEAST_REQUEST, ignore_health_on_host_removal=True)
    message.eds_cluster_config.eds_config.ads.SetInParent()
    message.eds_cluster_config.eds_config.resource_api_version = 2
    message.connect_timeout.FromMilliseconds(CONNECT_MS)
    message.common_lb_config.healthy_panic_threshold.value = 1.0  # per cent: try those left out only when all are
    limits = message.circuit_breakers.thresholds.add()
    for limit in (limits.max_connections, limits.max_pending_requests, limits.max_requests):
        limit.value = UNLIMITED
    limits.retry_budget.budget_percent.value = 100.0
    limits.retry_budget.min_retry_concurrency.value = 1000
    message.typed_extension_protocol_options[_OPTIONS].Pack(_protocol(grpc_too=name == book.grpc_cluster(book.model_of(name))))
    _eject(message.outlier_detection)
    encoded = _encode(message)
    return Resource(_digest(encoded), encoded)


def _protocol(*, grpc_too: bool) -> HttpProtocolOptions:
    options = HttpProtocolOptions()
    options.common_http_protocol_options.idle_timeout.FromSeconds(IDLE)
    explicit = options.explicit_http_config
    (explicit.http2_protocol_options if grpc_too else explicit.http_protocol_options).SetInParent()
    return options


def _eject(outliers: Any) -> None:
    """Only what could not connect counts: a model's own errors are no fault of its replica. Values of 0 and of a million turn a rule off."""
    outliers.split_external_local_origin_errors = True
    outliers.consecutive_local_origin_failure.value = 3
    outliers.consecutive_5xx.value = outliers.consecutive_gateway_failure.value = 1_000_000
    outliers.enforcing_success_rate.value = outliers.enforcing_local_origin_success_rate.value = 0
    outliers.interval.FromMilliseconds(200)
    outliers.base_ejection_time.FromMilliseconds(1000)
    outliers.max_ejection_percent.value = 90


def _encode(message: Any) -> bytes:
    encoded: bytes = message.SerializeToString(deterministic=True)
    return encoded


def _digest(encoded: bytes) -> str:
    return hashlib.blake2b(encoded, digest_size=8).hexdigest()
