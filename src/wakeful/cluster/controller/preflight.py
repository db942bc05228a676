"""Whether a controller can do its work here at all: said before it starts, rather than failing bit by bit later."""

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

from wakeful.cluster.controller.api import (
    ACCESS_REVIEW,
    FORBIDDEN,
    MODEL,
    NOT_FOUND,
    POD,
    SELDON_MODEL,
    SELDON_SERVER,
    SERVER,
    Api,
    Kind,
    Refusal,
)
from wakeful.cluster.install import COMPONENT, Right, cluster_rights_of, rights_of
from wakeful.cluster.manifests import Install


class Fault(NamedTuple):
    message: str
    notes: tuple[tuple[str, str], ...]


async def look(api: Api, install: Install) -> Fault | None:
    """What is missing; None: it can start. Raises Refusal when the API server is not reached."""
    kinds = [MODEL, SERVER, *([SELDON_MODEL, SELDON_SERVER] if install.seldon else [])]
    if missing := [kind for kind in kinds if not await _is_known(api, kind)]:
        flag = " --seldon" if any(kind.group == SELDON_MODEL.group for kind in missing) else ""
        hint = ("hint", f"wakeful cluster crds{flag} | kubectl apply --server-side -f -")
        return Fault(f"the cluster does not know the kinds {', '.join(map(str, missing))}", (hint,))
    if refused := [
        note
        for namespace, rights in ((api.namespace, rights_of(install)), ("", cluster_rights_of(install)))
        for right in rights async for note in _refused(api, right, namespace)
    ]:
        hint = ("hint", f"wakeful cluster manifests -n {api.namespace} has the roles and their bindings")
        return Fault(f"this account has not the rights that it needs in the namespace {api.namespace}", (*refused, hint))
    return None


async def own_image(api: Api, pod: str | None) -> str:
    """Of this controller's container, wherever an overlay has set it; outside of pods the usual one. Raises Refusal."""
    try:
        pods = (await api.list(POD, COMPONENT)).objects if pod else []
    except Refusal as error:
        if error.code != FORBIDDEN:  # `look` says which rights are missing
            raise
        pods = []
    containers = (container for one in pods if one["metadata"]["name"] == pod for container in one["spec"]["containers"])
    return next((container["image"] for container in containers if container["name"] == "controller"), Install().image)


async def _is_known(api: Api, kind: Kind) -> bool:
    try:
        await api.list(kind)
    except Refusal as error:
        if error.code == NOT_FOUND:
            return False
        if error.code != FORBIDDEN:
            raise
    return True


async def _refused(api: Api, right: Right, namespace: str) -> AsyncIterator[tuple[str, str]]:
    """Verbs and resources that the API server would refuse, and what they are for. Without a namespace: in all of them."""
    for resource in right.resources:
        asked = [(verb, name) for verb in right.verbs for name in right.names or ("",)]
        allowed = await asyncio.gather(*(_is_allowed(api, namespace, right.group, resource, verb, name) for verb, name in asked))
        verbs = dict.fromkeys(verb for (verb, _), good in zip(asked, allowed, strict=True) if not good)
        if verbs:
            group = f".{right.group}" if right.group else ""
            yield f"{', '.join(verbs)} {resource}{group}{''.join(f' {name}' for name in right.names)}", right.why


async def _is_allowed(api: Api, namespace: str, group: str, resource: str, verb: str, name: str) -> bool:
    resource, _, subresource = resource.partition("/")
    attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": resource, "subresource": subresource, "name": name}
    answer = await api.create(ACCESS_REVIEW, {"spec": {"resourceAttributes": attributes}})
    return bool((answer.get("status") or {}).get("allowed"))
