"""Whether a controller can do its work here at all: said before it starts, rather than failing bit by bit later."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from wakeful.cluster.controller.api import (
    ACCESS_REVIEW,
    FORBIDDEN,
    MODEL,
    NOT_FOUND,
    SELDON_MODEL,
    SELDON_SERVER,
    SERVER,
    Api,
    Kind,
    Refusal,
)
from wakeful.cluster.install import RIGHTS, SELDON_RIGHTS, STORAGE_RIGHT, Install, Right


class Fault(NamedTuple):
    message: str
    hint: str


async def look(api: Api, install: Install) -> list[Fault]:
    """What is missing, the worst first; nothing: it can start. Raises Refusal when the API server is not reached."""
    kinds = [MODEL, SERVER, *([SELDON_MODEL, SELDON_SERVER] if install.seldon else [])]
    missing = [kind for kind in kinds if not await _is_known(api, kind)]
    if missing:
        flag = " --seldon" if any(kind.group == SELDON_MODEL.group for kind in missing) else ""
        names = ", ".join(str(kind) for kind in missing)
        return [Fault(f"the cluster does not know the kinds {names}", f"wakeful cluster crds{flag} | kubectl apply --server-side -f -")]
    rights = [*RIGHTS, *(SELDON_RIGHTS if install.seldon else ()), *([STORAGE_RIGHT] if install.storage_secrets else ())]
    refused = await _refused(api, rights)
    hint = f"wakeful cluster manifests has the Role and its binding for the namespace {api.namespace}"
    return [Fault(f"this account may not {what}", hint) for what in refused]


async def _is_known(api: Api, kind: Kind) -> bool:
    try:
        await api.list(kind)
    except Refusal as error:
        if error.code == NOT_FOUND:
            return False
        if error.code != FORBIDDEN:
            raise
    return True


async def _refused(api: Api, rights: Iterable[Right]) -> Sequence[str]:
    """Verbs and resources that the API server would refuse, and what each is for."""
    asked = [
        (right, resource, verb, name)
        for right in rights for resource in right.resources for verb in right.verbs for name in right.names or ("",)
    ]
    allowed = await asyncio.gather(*(_is_allowed(api, right.group, resource, verb, name) for right, resource, verb, name in asked))
    return [
        f"{verb} {resource}{'.' if right.group else ''}{right.group}{f' {name}' if name else ''} in the namespace {api.namespace} ({right.why})"
        for (right, resource, verb, name), good in zip(asked, allowed, strict=True) if not good
    ]


async def _is_allowed(api: Api, group: str, resource: str, verb: str, name: str) -> bool:
    resource, _, subresource = resource.partition("/")
    attributes = {
        "namespace": api.namespace, "verb": verb, "group": group, "resource": resource, "subresource": subresource, "name": name,
    }
    answer = await api.create(ACCESS_REVIEW, {"spec": {"resourceAttributes": attributes}})
    return bool((answer.get("status") or {}).get("allowed"))
