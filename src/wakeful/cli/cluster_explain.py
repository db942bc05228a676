"""`wakeful cluster explain MODEL`: what the Model, its Servers and their events say together."""

from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from wakeful import clock
from wakeful.cli.cluster_access import add_access, with_api
from wakeful.cli.cluster_models import UNSEEN, condition, name_of, present, table
from wakeful.cli.parser import DONE, NO, Parser, complain
from wakeful.telemetry.units import show_bytes, show_seconds

if TYPE_CHECKING:
    from wakeful.cluster.controller.api import Api, Kind

Manifest = Mapping[str, Any]

MOST_EVENTS = 10
INDENT = "  "


def add_arguments(parser: Parser) -> None:
    parser.usage = "wakeful cluster explain MODEL [option ...]"
    parser.add_argument("model", metavar="MODEL", help="name of the Model")
    add_access(parser)


def run(arguments: Namespace) -> int:
    async def show(api: "Api") -> int:
        from wakeful.cluster.controller.api import EVENT, MODEL, SELDON_MODEL, SELDON_SERVER, SERVER  # noqa: PLC0415 - an extra

        model = await _get(api, (MODEL, SELDON_MODEL), arguments.model)
        if model is None:
            hint = "wakeful cluster models lists them; --namespace NAME looks into another one"
            complain(f"there is no Model {arguments.model} in namespace {api.namespace}", ("hint", hint))
            return NO
        servers = [*await present(api, SERVER), *await present(api, SELDON_SERVER)]
        events = (await api.list(EVENT)).objects
        print(explained(model, servers, events, clock.wall()))
        return DONE

    return with_api(arguments, show)


async def _get(api: "Api", kinds: Iterable["Kind"], name: str) -> Manifest | None:
    for kind in kinds:
        if (found := await api.get(kind, name)) is not None:
            return found
    return None


def explained(model: Manifest, servers: Sequence[Manifest], events: Iterable[Manifest], now: float) -> str:
    """The whole page, nothing cut. `now` is in seconds since 1970."""
    status = model.get("status", {})
    parts = [headline(model), facts(model, servers, now)]
    if status.get("conditions"):
        parts.append(section("conditions", [[one["type"], one["status"], one["reason"], one["message"]] for one in status["conditions"]]))
    parts += [
        section("copies", [copy_row(one, now) for one in status.get("placements", ())]),
        section("servers", [[name_of(one), server_line(model, one)] for one in sorted(servers, key=name_of)], "there is none in this namespace"),
        section("events", event_rows(model, events, now), "none is kept: the API server forgets them after an hour"),
    ]
    return "\n\n".join(part for part in parts if part)


def headline(model: Manifest) -> str:
    status = model.get("status", {})
    if not status.get("conditions"):
        return f"{name_of(model)}: {UNSEEN}"
    where = f" on {status['server']}" if status.get("server") else ""
    served = f"{status.get('availableReplicas', 0)} of {status.get('desiredReplicas', 0)} serve{where}"
    text = f"{name_of(model)}: {status.get('state', 'Unknown')}, {served}"
    seen, generation = status.get("observedGeneration", 0), model["metadata"].get("generation", 0)
    late = f"\nThis is of generation {seen}; the Model has been changed since then, and generation {generation} has not been looked at yet."
    return text + (late if seen < generation else "")


def facts(model: Manifest, servers: Sequence[Manifest], now: float) -> str:
    spec, status = model["spec"], model.get("status", {})
    rows = [["from", spec["storageUri"]]]
    artifact = status.get("artifact", {})
    if artifact:
        size = f"{show_bytes(artifact['bytes'])}, " if artifact.get("bytes") else ""
        rows.append(["artifact", f"{size}{artifact.get('revision', 'revision not known yet')}"])
    rows.append(["memory", _memory(spec, artifact)])
    if spec.get("requirements"):
        rows.append(["requires", ", ".join(sorted(spec["requirements"]))])
    rows.append(["count", _count(spec, status.get("scaling", {}))])
    scaling = status.get("scaling", {})
    if scaling.get("lastStep"):
        rows.append(["last step", f"{ago(scaling.get('lastStepTime'), now)}: {scaling['lastStep']}"])
    if "minReplicas" in spec or "maxReplicas" in spec:
        rows.append(["thresholds", _thresholds(model, servers)])
    return _indented(table(rows, gap=INDENT))


def _memory(spec: Manifest, artifact: Manifest) -> str:
    measured = f"{show_bytes(artifact['footprintBytes'])} measured" if artifact.get("footprintBytes") else "not measured yet"
    return f"{measured}, {spec['memory']} declared" if "memory" in spec else f"{measured}, none declared"


def _count(spec: Manifest, scaling: Manifest) -> str:
    written = [f"{key} {spec[key]}" for key in ("replicas", "minReplicas", "maxReplicas") if key in spec]
    said = f"the manifest says {', '.join(written)}" if written else "the manifest says nothing of it"
    owners = {"HPA": "by a HorizontalPodAutoscaler", "Scheduler": "by load, between the bounds", "User": "by the manifest"}
    return f"{scaling['target']}, {owners.get(scaling.get('owner', ''), 'by nobody')}; {said}" if "target" in scaling else said


def _thresholds(model: Manifest, servers: Sequence[Manifest]) -> str:
    """As far as manifests tell: what variables of pods say is known to the controller alone."""
    from wakeful.cluster.planning.thresholds import KEYS, limits_of, read_thresholds  # noqa: PLC0415 - help does without

    home = model.get("status", {}).get("server") or model["spec"].get("server")
    server = next((one for one in servers if name_of(one) == home), {})
    own, _ = read_thresholds(model["spec"].get("autoscaling", {}), "")
    shared, _ = read_thresholds(server.get("spec", {}).get("modelAutoscaling", {}), "")
    figures = asdict(limits_of(own, shared, {}))
    return ", ".join(f"{name} {figures[key.field] / key.unit:g}" for name, key in KEYS.items())


def copy_row(placement: Manifest, now: float) -> list[str]:
    notes = [f"revision {placement['revision']}"] if placement.get("revision") else []
    if placement.get("previous"):
        notes.append(f"{placement['previous']} serves meanwhile")
    if placement.get("tries"):
        notes.append(f"{placement['tries']} {'try' if placement['tries'] == 1 else 'tries'} failed")
    if placement.get("error"):
        notes.append(placement["error"])
    return [placement["replica"], placement["state"], ago(placement.get("since"), now), ", ".join(notes)]


def server_line(model: Manifest, server: Manifest) -> str:
    """How it stands, and what of that keeps the Model away, as far as objects tell."""
    spec, status = server.get("spec", {}), server.get("status", {})
    against = []
    pin = model["spec"].get("server")
    if pin not in (None, name_of(server)):
        against.append(f"the Model is pinned to {pin}")
    if "capabilities" in spec and (lacking := sorted(set(model["spec"].get("requirements", ())) - set(spec["capabilities"]))):
        against.append(f"it has not {', '.join(lacking)}")
    ready = condition(status, "Ready")
    text = str(ready["message"]) if ready else "no controller has looked at it"
    memory = status.get("memory", {})
    if memory.get("capacityBytes"):
        text += (
            f"; of {show_bytes(memory['capacityBytes'])} for models {show_bytes(memory.get('registeredBytes', 0))} are registered and "
            f"{show_bytes(memory.get('activeBytes', 0))} in use"
        )
    degraded = condition(status, "Degraded")
    if degraded.get("status") == "True":
        text += f"; degraded: {degraded['message']}"
    return f"not for it, since {' and '.join(against)}; {text}" if against else text


def event_rows(model: Manifest, events: Iterable[Manifest], now: float) -> list[list[str]]:
    """Of this Model in this life, the latest last."""
    name, uid = name_of(model), model["metadata"].get("uid")
    own = [one for one in events if _is_of(one.get("involvedObject", {}), name, uid)]
    own.sort(key=lambda one: one.get("lastTimestamp") or "")
    return [
        [ago(one.get("lastTimestamp"), now), f"x{one['count']}" if one.get("count", 1) > 1 else "", one.get("type", ""), one.get("reason", ""),
         one.get("message", "")]
        for one in own[-MOST_EVENTS:]
    ]


def _is_of(subject: Manifest, name: str, uid: str | None) -> bool:
    return subject.get("kind") == "Model" and subject.get("name") == name and subject.get("uid", uid) == uid


def ago(time: str | None, now: float) -> str:
    """Of a time as Kubernetes writes it: "4m 02s ago"."""
    from wakeful.cluster.planning.conditions import seconds_of  # noqa: PLC0415 - help does without

    return f"{show_seconds(max(0.0, round(now - seconds_of(time))))} ago" if time else ""


def section(title: str, rows: Sequence[Sequence[str]], otherwise: str = "") -> str:
    """Empty where there is nothing to say."""
    if not rows:
        return f"{title}\n{INDENT}{otherwise}" if otherwise else ""
    return f"{title}\n{_indented(table(rows, gap=INDENT))}"


def _indented(text: str) -> str:
    return "\n".join(f"{INDENT}{line}" for line in text.splitlines())
