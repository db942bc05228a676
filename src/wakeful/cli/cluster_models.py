"""`wakeful cluster models`: as `kubectl get models`, with the reason beside each that is not as it should be."""

import shutil
import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wakeful.cli.cluster_access import add_access, with_api
from wakeful.cli.parser import DONE, Parser

if TYPE_CHECKING:
    from wakeful.cluster.controller.api import Api, Kind

HEAD = ("NAME", "READY", "STATE", "DESIRED", "AVAILABLE", "SERVER", "WHY")
UNSEEN = "no controller has looked at it: is one running in this namespace?"
GAP = "   "


def add_arguments(parser: Parser) -> None:
    add_access(parser)


def run(arguments: Namespace) -> int:
    async def show(api: "Api") -> int:
        from wakeful.cluster.controller.api import MODEL, SELDON_MODEL  # noqa: PLC0415 - an extra, and help does without

        models = [*await present(api, MODEL), *await present(api, SELDON_MODEL)]
        if not models:
            print(f"there is no Model in namespace {api.namespace}; --namespace NAME looks into another one", file=sys.stderr)
        else:
            print(table([HEAD, *map(row, sorted(models, key=name_of))], width_of_output()))
        return DONE

    return with_api(arguments, show)


async def present(api: "Api", kind: "Kind") -> list[dict[str, Any]]:
    """All objects of a kind; none where the cluster does not know the kind."""
    from wakeful.cluster.controller.api import NOT_FOUND, Refusal  # noqa: PLC0415 - see above

    try:
        return (await api.list(kind)).objects
    except Refusal as error:
        if error.code == NOT_FOUND:
            return []
        raise


def width_of_output() -> int | None:
    """Characters of a terminal's line; None for a file, which takes any."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def row(model: Mapping[str, Any]) -> tuple[str, ...]:
    status = model.get("status", {})
    if not status.get("conditions"):
        return (name_of(model), "Unknown", "", "", "", "", UNSEEN)
    return (
        name_of(model), condition(status, "Ready").get("status", "Unknown"), status.get("state", ""), str(status.get("desiredReplicas", "")),
        str(status.get("availableReplicas", "")), status.get("server", ""), why(model),
    )


def why(model: Mapping[str, Any]) -> str:
    """What is not as it should be, the worst first; empty if all is."""
    status = model.get("status", {})
    seen, generation = status.get("observedGeneration", 0), model["metadata"].get("generation", 0)
    if seen < generation:
        return f"its latest change (generation {generation}) has not been looked at yet"
    ready, placed = condition(status, "Ready"), condition(status, "Placed")
    scaling, valid = condition(status, "Scaling"), condition(status, "ConfigValid")
    if ready.get("status") == "False" or ready.get("reason") == "RevisionFailed":
        return str(ready["message"])
    if valid.get("status") == "False" or valid.get("reason") == "PartlyOfNoEffect":
        return str(valid["message"])
    if placed.get("status") == "False":
        return str(placed["message"])
    return str(scaling["message"]) if scaling.get("reason") == "Limited" else ""


def condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """{} if it is not there."""
    found: Mapping[str, Any] = next((one for one in status.get("conditions", ()) if one["type"] == kind), {})
    return found


def name_of(model: Mapping[str, Any]) -> str:
    return str(model["metadata"]["name"])


def table(rows: Iterable[Sequence[str]], width: int | None = None, gap: str = GAP) -> str:
    """Columns that line up. Only the last one is cut, where a line would be longer than `width`."""
    cells = [[" ".join(cell.split()) for cell in one] for one in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for one in cells:
        head = gap.join(f"{cell:<{size}}" for cell, size in zip(one[:-1], widths, strict=False))
        room = None if width is None else max(10, width - len(head) - len(gap))
        lines.append(f"{head}{gap}{_cut(one[-1], room)}".rstrip())
    return "\n".join(lines)


def _cut(text: str, room: int | None) -> str:
    return text if room is None or len(text) <= room else f"{text[: room - 1]}…"
