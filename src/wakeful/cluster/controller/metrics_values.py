"""What custom.metrics.k8s.io/v1beta2 says of Models, Servers and their pods, from what agents have reported. Pure.

All are sums over the copies that serve, means over an agent's last period: with a target of the type AverageValue the autoscaler divides them by its
count.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from wakeful.cluster.groups import GROUPS, METRICS_GROUP, METRICS_VERSION, VERSION, Dialect
from wakeful.cluster.planning.status import SERVER_LABEL
from wakeful.cluster.planning.world import Replica, State, Use, World

GROUP_VERSION = f"{METRICS_GROUP}/{METRICS_VERSION}"
ROOT = f"/apis/{METRICS_GROUP}"
METRICS: Mapping[str, Callable[[Use], float]] = {
    "infer_rps": lambda use: use.rate,
    "infer_lag": lambda use: use.lag,
    "infer_busy": lambda use: use.busy,
}
"""Requests a second; requests in flight; copies that were busy."""
Json = dict[str, Any]


class Answer(NamedTuple):
    code: int
    body: Json


class _Refused(Exception):
    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.answer = refusal(code, reason, message)


def refusal(code: int, reason: str, message: str) -> Answer:
    return Answer(code, {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code})


def answer(world: World, dialects: Iterable[Dialect], namespace: str, target: str, now: float) -> Answer:
    """`target`: path and query of a GET."""
    url = urlsplit(target)
    if url.path.rstrip("/") == ROOT:
        return Answer(200, _group())
    if url.path.rstrip("/") == f"{ROOT}/{METRICS_VERSION}":
        return Answer(200, _resources(dialects))
    try:
        return Answer(200, _values(world, tuple(dialects), namespace, url.path, parse_qs(url.query), now))
    except _Refused as refused:
        return refused.answer


def _group() -> Json:
    version = {"groupVersion": GROUP_VERSION, "version": METRICS_VERSION}
    return {"kind": "APIGroup", "apiVersion": "v1", "name": METRICS_GROUP, "versions": [version], "preferredVersion": version}


def _resources(dialects: Iterable[Dialect]) -> Json:
    objects = [f"{plural}.{GROUPS[dialect]}" for dialect in dialects for plural in ("models", "servers")]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION, "resources": [
        {"name": f"{described}/{metric}", "singularName": "", "namespaced": True, "kind": "MetricValueList", "verbs": ["get"]}
        for described in (*objects, "pods") for metric in METRICS
    ]}


def _values(
    world: World, dialects: tuple[Dialect, ...], namespace: str, path: str, query: Mapping[str, list[str]], now: float,
) -> Json:
    match [unquote(part) for part in path.removeprefix(f"{ROOT}/{METRICS_VERSION}/").split("/")]:
        case ["namespaces", asked, resource, name, metric]:
            pass
        case _:
            raise _Refused(404, "NotFound", f"expected {ROOT}/{METRICS_VERSION}/namespaces/NAMESPACE/RESOURCE/NAME/METRIC, got {path}")
    if asked != namespace:
        raise _Refused(404, "NotFound", f"these metrics are those of the namespace {namespace}, and {asked} was asked for")
    if metric not in METRICS:
        raise _Refused(404, "NotFound", f"there is no metric {metric}; there are {', '.join(METRICS)}")
    if query.get("metricLabelSelector", [""])[0]:
        raise _Refused(400, "BadRequest", f"the metric {metric} has no labels, and metricLabelSelector asks for some")
    found = dict(_pods(world, name, query) if resource == "pods" else _object(world, dialects, resource, name))
    kind, version = ("Pod", "v1") if resource == "pods" else _described(resource)
    time = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"kind": "MetricValueList", "apiVersion": GROUP_VERSION, "metadata": {}, "items": [
        {"describedObject": {"kind": kind, "namespace": namespace, "name": each, "apiVersion": version}, "metric": {"name": metric},
         "timestamp": time, "value": f"{round(1000 * sum(map(METRICS[metric], uses)))}m"}
        for each, uses in found.items()
    ]}


def _described(resource: str) -> tuple[str, str]:
    plural, _, group = resource.partition(".")
    return plural.removesuffix("s").capitalize(), f"{group}/{VERSION}"


def _object(world: World, dialects: Iterable[Dialect], resource: str, name: str) -> Iterator[tuple[str, list[Use]]]:
    plural, _, group = resource.partition(".")
    dialect = next((each for each in dialects if GROUPS[each] == group), None)
    if dialect is None or plural not in {"models", "servers"}:
        raise _Refused(404, "NotFound", f"there are no metrics of {resource}; there are some of models and servers of Wakeful, and of pods")
    model, server = (world.models.get(name), None) if plural == "models" else (None, world.servers.get(name))
    entry = model or server
    if entry is None or entry.spec.dialect != dialect:
        raise _Refused(404, "NotFound", f'{resource} "{name}" not found')
    if model is not None:
        uses = [use for _, use in _served(world, name)]
        unknown = (bool(model.placements) and not uses) or _is_partly_silent(map(world.replicas.get, model.placements))
    else:
        pods = {uid: replica for uid, replica in world.replicas.items() if replica.server == name}
        uses = [use for each in world.models for uid, use in _served(world, each) if uid in pods]
        unknown = _is_partly_silent(pods.values())
    if unknown:
        raise _Refused(404, "NotFound", f'not enough is known yet of {resource} "{name}": not every agent has spoken that may have it')
    yield name, uses


def _served(world: World, model: str) -> Iterator[tuple[str, Use]]:
    """Replica and use of each copy that requests go to and whose agent speaks; those on their way out still have some."""
    for uid, placement in world.models[model].placements.items():
        replica = world.replicas.get(uid)
        if placement.state in {State.ROUTED, State.DRAINING} and replica is not None and replica.agent is not None:
            yield uid, replica.agent.use.get(model, Use())


def _is_partly_silent(replicas: Iterable[Replica | None]) -> bool:
    """Is there a pod that serves some of it, and whose agent has not spoken? A sum without it would look like rest."""
    return any(one is not None and one.ready and not one.lost and one.agent is None for one in replicas)


_SELECTOR = re.compile(rf"{re.escape(SERVER_LABEL)}==?([-a-z0-9]+)")


def _pods(world: World, name: str, query: Mapping[str, list[str]]) -> Iterator[tuple[str, list[Use]]]:
    """By a pod's name, or `*` with the label that an autoscaler finds the pods of a Server by."""
    selector = query.get("labelSelector", [""])[0]
    server = _SELECTOR.fullmatch(selector)
    if name == "*" and server is None:
        raise _Refused(400, "BadRequest", f"pods are found here by {SERVER_LABEL}=NAME alone, and the selector is {selector or 'empty'}")
    pods = {
        uid: one.pod for uid, one in world.replicas.items()
        if one.agent is not None and (one.pod == name if server is None else one.server == server[1])
    }
    if not pods and name != "*":
        raise _Refused(404, "NotFound", f'pods "{name}" not found among those of Servers whose agents speak')
    uses: dict[str, list[Use]] = {pod: [] for pod in pods.values()}
    for model in world.models:
        for uid, use in _served(world, model):
            if uid in pods:
                uses[pods[uid]].append(use)
    yield from uses.items()
