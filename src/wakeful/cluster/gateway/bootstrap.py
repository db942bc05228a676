"""Envoy's file: what is the same for every model. Clusters and endpoints come from the controller.

A request's cluster is found by its name, without a table of routes: absence of the cluster means that the model is routed nowhere, and the helper
has the request.
"""

import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from wakeful.cluster.planning.book import grpc_cluster, http_cluster

HELPER, HELPER_GRPC, CONTROLLER, ADMIN = "wakeful-helper", "wakeful-helper/grpc", "wakeful-controller", "wakeful-admin"
MODEL_HEADERS = ("wakeful-model", "seldon-model")
"""Name the model of a request whose path does not."""

LARGEST_RETRIED = 8 << 20
"""Bytes of a body that is kept for another try. Larger ones have one."""
_STREAM_IDLE = "3600s"
"""After so long without a byte either way nobody is there any more. Models take what they take; deadlines are the daemon's."""
_RECONNECT = {"base_interval": "0.2s", "max_interval": "2s"}
"""Envoy's own pauses grow to 30 s: longer than a new leader waits for gateways before it counts without them."""
_TYPES = "type.googleapis.com/envoy.extensions."
UNSTARTED = "x-wakeful-unstarted"
"""Said by daemons to Envoy, which tries another one. What the helper sees of it has been to all of them, and is not passed on."""
_TOKEN = "token"  # noqa: S105 - a name
_RESOLVER = {
    "name": "envoy.network.dns_resolver.getaddrinfo",
    "typed_config": {"@type": _TYPES + "network.dns_resolver.getaddrinfo.v3.GetAddrInfoDnsResolverConfig"},
}
"""The system's. Envoy's usual one keeps what it has found for up to a minute; after an upgrade nobody of the old controllers is left."""


HELPER_ALIVE = "/helper"
"""At the port for figures: 200 while the helper answers."""


class Address(NamedTuple):
    host: str
    port: int


LISTEN, STATS = Address("0.0.0.0", 8080), Address("0.0.0.0", 9902)  # noqa: S104 - who may reach the pod is the network policy's
TOKEN_SOURCE = Path("/etc/envoy/token.json")
LOOPBACK = "127.0.0.1"
ADMIN_ADDRESS, HELPER_ADDRESS, HELPER_GRPC_ADDRESS = Address(LOOPBACK, 9901), Address(LOOPBACK, 8081), Address(LOOPBACK, 8082)


@dataclass(frozen=True, slots=True)
class Gateway:
    """What differs from gateway to gateway."""

    node: str
    """Its name among all gateways, at one time; the pod's."""
    controllers: tuple[Address, ...]
    """Names or addresses of all controllers, of which the leader listens. A name may have many addresses."""
    listen: Address = LISTEN
    admin: Address = ADMIN_ADDRESS
    stats: Address | None = STATS
    """/ready for probes, HELPER_ALIVE and /stats/prometheus; all else of Envoy's admin interface stays on loopback."""
    helper: Address = HELPER_ADDRESS
    helper_grpc: Address = HELPER_GRPC_ADDRESS
    ca: Path | None = None
    """Certificates that vouch for the controller; None: plain text."""
    controller_name: str | None = None
    """What the controller's certificate says; None: the name that it was reached by."""
    token: Path | None = None
    """Shows the controller whose the gateway is, over TLS alone. It is renewed while the gateway runs."""
    token_source: Path = TOKEN_SOURCE
    """A file with `render_token`, by which Envoy finds the token."""


def render(gateway: Gateway) -> str:
    """JSON is YAML, and what Envoy reads."""
    return json.dumps(bootstrap(gateway), indent=1) + "\n"


def render_token(token: Path) -> str:
    """What makes Envoy read the token, and again when it is renewed: a file in the form of its secret discovery service. A secret in Envoy's own
    file would be read once."""
    source = {"filename": str(token.absolute()), "watched_directory": {"path": str(token.absolute().parent)}}
    secret = {"@type": _TYPES + "transport_sockets.tls.v3.Secret", "name": _TOKEN, "generic_secret": {"secret": source}}
    return json.dumps({"resources": [secret]}, indent=1) + "\n"


def bootstrap(gateway: Gateway) -> dict[str, Any]:
    listeners = [_listener("requests", gateway.listen, _connections("requests", _requests_route()))]
    if gateway.stats is not None:
        listeners.append(_listener("stats", gateway.stats, _connections("stats", *_stats_routes())))
    return {
        "node": {"id": gateway.node, "cluster": "wakeful-gateway"},
        "admin": {"address": _address(gateway.admin)},
        "stats_config": {"stats_matcher": {"inclusion_list": {"patterns": [{"safe_regex": {"regex": _STATS}}]}}},
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC", "transport_api_version": "V3", "set_node_on_first_message_only": True,
                "grpc_services": [{"envoy_grpc": {"cluster_name": CONTROLLER, "retry_policy": {"retry_back_off": _RECONNECT}}}],
            },
            "cds_config": {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "5s"},
        },
        "static_resources": {
            "listeners": listeners,
            "clusters": [
                _controller(gateway),
                _static(HELPER, gateway.helper, {"http_protocol_options": {}}),
                _static(HELPER_GRPC, gateway.helper_grpc, {"http2_protocol_options": {}}),
                _static(ADMIN, gateway.admin, {"http_protocol_options": {}}),
            ],
        },
    }


_STATS = (
    r"(server|listener_manager|cluster_manager|control_plane|listener|http)\..*"
    rf"|cluster\.({HELPER}|{CONTROLLER}).*"
    r"|cluster\.model/.*\.(membership_(total|healthy)|upstream_(rq_(total|retry|retry_overflow|active)|cx_(total|active|connect_fail))"
    r"|outlier_detection\.ejections_active)"
)
"""A cluster of Envoy's has some 150 counts, and each model two clusters: those that are kept."""

# ── the way of a request ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

_MODEL = " or ".join(f'headers:get("{name}")' for name in MODEL_HEADERS)
LUA = f"""\
function envoy_on_route(route)
  local headers = route:headers()
  local model = {_MODEL}
  if not model then
    local path = headers:get(":path") or ""
    model = string.match(path, "^/v[12]/models/([^/?]+)") or string.match(path, "^/openai/v1/models/([^/?]+)")
  end
  local grpc = string.find(headers:get("content-type") or "", "application/grpc", 1, true) == 1
  if model and not string.find(model, "/", 1, true) then
    local cluster = "{http_cluster('" .. model .. "')}"
    if grpc then cluster = "{grpc_cluster('" .. model .. "')}" end
    if route:getCluster(cluster) then return cluster end
  end
  if grpc then return "{HELPER_GRPC}" end
  return "{HELPER}"
end
"""
"""What stands in Envoy for a table of routes."""


def _requests_route() -> dict[str, Any]:
    lua = {"@type": _TYPES + "router.cluster_specifiers.lua.v3.LuaConfig", "source_code": {"inline_string": LUA}, "default_cluster": HELPER}
    return {
        "match": {"prefix": "/"},
        "request_body_buffer_limit": LARGEST_RETRIED,
        "route": {
            "timeout": "0s", "idle_timeout": _STREAM_IDLE,
            "inline_cluster_specifier_plugin": {"extension": {"name": "lua", "typed_config": lua}},
            "retry_policy": _RETRIES,
        },
    }


_RETRIES = {
    "retry_on": "connect-failure,refused-stream,retriable-headers",
    "retriable_headers": [{"name": UNSTARTED, "string_match": {"exact": "1"}}],
    "num_retries": 3,
    "retry_back_off": {"base_interval": "0.005s", "max_interval": "0.1s"},
    "retry_host_predicate": [{
        "name": "previous", "typed_config": {"@type": _TYPES + "retry.host.previous_hosts.v3.PreviousHostsPredicate"},
    }],
    "host_selection_retry_max_attempts": 10,
}
"""Only of what surely has not run anywhere: the daemon swears to that in a header. Another replica each time."""
_NOBODY = {
    "filter": {"response_flag_filter": {"flags": ["UH"]}},
    "headers_to_add": [{"header": {"key": "retry-after", "value": "1"}}],
    "body_format_override": {"json_format": {
        "error": "the gateway: no server replica takes requests for the model at this moment; try again. The Model's status says why",
    }},
}
"""The last replica was taken off while a request was being tried again: what it had answered is lost by then."""
_OUTGROWN = {
    "filter": {"status_code_filter": {"comparison": {"op": "EQ", "value": {"default_value": 507, "runtime_key": "gateway.outgrown"}}}},
    "status_code": 503,
    "headers_to_add": [{"header": {"key": name, "value": "1"}} for name in ("retry-after", UNSTARTED)],
    "body_format_override": {"json_format": {
        "error": "the gateway: a server replica could not be reached, and more of the body has come than is kept for another; nothing has run: "
                 "send it again",
    }},
}
"""Envoy's word for a body that has outgrown what it keeps while it waits for the next try. No replica has a byte of it by then."""


def _stats_routes() -> list[dict[str, Any]]:
    own = [{"match": {"path": path}, "route": {"cluster": ADMIN}} for path in ("/ready", "/stats/prometheus")]
    return [*own, {"match": {"path": HELPER_ALIVE}, "route": {"cluster": HELPER, "prefix_rewrite": "/v2/health/live"}}]


def _connections(name: str, *routes: dict[str, Any]) -> dict[str, Any]:
    """Envoy's HTTP connection manager. What Envoy itself answers has the form of the daemon's errors."""
    return {
        "@type": _TYPES + "filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "codec_type": "AUTO",
        "generate_request_id": False,
        "use_remote_address": True,
        "server_header_transformation": "PASS_THROUGH",
        "request_headers_timeout": "10s",
        "stream_idle_timeout": _STREAM_IDLE,
        "local_reply_config": {"mappers": [_NOBODY, _OUTGROWN], "body_format": {"json_format": {"error": "the gateway: %LOCAL_REPLY_BODY%"}}},
        "route_config": {"name": name, "virtual_hosts": [{"name": name, "domains": ["*"], "routes": list(routes)}]},
        "http_filters": [{
            "name": "router", "typed_config": {"@type": _TYPES + "filters.http.router.v3.Router", "suppress_envoy_headers": True},
        }],
    }


# ── pieces ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _address(address: Address) -> dict[str, Any]:
    return {"socket_address": {"address": address.host, "port_value": address.port}}


def _listener(name: str, address: Address, manager: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "address": _address(address), "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}]}


def _static(name: str, address: Address, protocol: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name, "type": "STATIC", "connect_timeout": "1s",
        "circuit_breakers": {"thresholds": [dict.fromkeys(("max_connections", "max_pending_requests", "max_requests"), 100_000)]},
        "load_assignment": _members(name, [address]), "typed_extension_protocol_options": _protocol(protocol),
    }


def _members(name: str, addresses: Sequence[Address]) -> dict[str, Any]:
    return {"cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(address)}} for address in addresses]}]}


def _protocol(explicit: dict[str, Any], **more: Any) -> dict[str, Any]:
    name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    return {name: {"@type": f"type.googleapis.com/{name}", "explicit_http_config": explicit, **more}}


def _shows_token(source: Path) -> list[dict[str, Any]]:
    """Filters of a cluster that add the header `authorization` to what is sent there."""
    found = {"name": _TOKEN, "sds_config": {"path_config_source": {"path": str(source)}, "resource_api_version": "V3"}}
    credential = {"@type": _TYPES + "http.injected_credentials.generic.v3.Generic", "header_value_prefix": "Bearer ", "credential": found}
    injector = {
        "@type": _TYPES + "filters.http.credential_injector.v3.CredentialInjector", "overwrite": True,
        "credential": {"name": "generic", "typed_config": credential},
    }
    codec = {"@type": _TYPES + "filters.http.upstream_codec.v3.UpstreamCodec"}
    return [{"name": name, "typed_config": config} for name, config in (("token", injector), ("codec", codec))]


def _controller(gateway: Gateway) -> dict[str, Any]:
    """A controller that has died without a word is noticed within 10 s, so that Envoy looks for the next. It takes no more than
    a ping every 5 s."""
    shown = {} if gateway.token is None or gateway.ca is None else {"http_filters": _shows_token(gateway.token_source)}
    made = {
        "name": CONTROLLER, "connect_timeout": "1s", "type": "STATIC" if all(map(_is_ip, gateway.controllers)) else "STRICT_DNS",
        "load_assignment": _members(CONTROLLER, gateway.controllers), "typed_dns_resolver_config": _RESOLVER,
        "typed_extension_protocol_options": _protocol({
            "http2_protocol_options": {"connection_keepalive": {"interval": "6s", "timeout": "3s"}},
        }, **shown),
    }
    if gateway.ca is not None:
        name = gateway.controller_name or gateway.controllers[0].host
        made["transport_socket"] = {"name": "tls", "typed_config": {
            "@type": _TYPES + "transport_sockets.tls.v3.UpstreamTlsContext",
            "sni": name,
            "common_tls_context": {"alpn_protocols": ["h2"], "validation_context": {
                "trusted_ca": {"filename": str(gateway.ca)},
                "match_typed_subject_alt_names": [{"san_type": "IP_ADDRESS" if _is_ip(Address(name, 0)) else "DNS", "matcher": {"exact": name}}],
            }},
        }}
    return made


def _is_ip(address: Address) -> bool:
    try:
        ipaddress.ip_address(address.host)
    except ValueError:
        return False
    return True
