"""The API server, as four calls (list, watch, patch, apply) and the two that some kinds need besides (get, create). Manifests are plain dicts.

lightkube is the transport and knows the ways to log in; nothing else of the controller imports it, so that another library can take its place.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ConfigError
from lightkube.generic_resource import GenericGlobalResource, GenericNamespacedResource, GenericNamespacedStatus, create_api_info
from lightkube.operators import exists
from lightkube.types import PatchType

from wakeful.cluster.groups import GROUP, SELDON_GROUP, VERSION

Manifest = dict[str, Any]

MANAGER: Final = "wakeful"
"""Field manager of what is applied."""
PAGE = 500
"""Objects of a list's page: 6 KB each at 50 placements."""
REQUEST_TIMEOUT = 10.0


class Kind(NamedTuple):
    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


MODEL = Kind(GROUP, VERSION, "Model", "models")
SERVER = Kind(GROUP, VERSION, "Server", "servers")
SELDON_MODEL = Kind(SELDON_GROUP, VERSION, "Model", "models")
SELDON_SERVER = Kind(SELDON_GROUP, VERSION, "Server", "servers")
POD = Kind("", "v1", "Pod", "pods")
SERVICE = Kind("", "v1", "Service", "services")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
SECRET = Kind("", "v1", "Secret", "secrets")
EVENT = Kind("", "v1", "Event", "events")
STATEFUL_SET = Kind("apps", "v1", "StatefulSet", "statefulsets")
BUDGET = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
AUTOSCALER = Kind("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
TOKEN_REVIEW = Kind("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False)
API_SERVICE = Kind("apiregistration.k8s.io", "v1", "APIService", "apiservices", namespaced=False)
ACCESS_REVIEW = Kind("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False)

APPLIED = {one.kind: one for one in (SERVICE, CONFIG_MAP, STATEFUL_SET, BUDGET)}
"""What is made from manifests."""

GONE = 410
CONFLICT = 409
NOT_FOUND = 404
FORBIDDEN = 403
UNREACHED = 0


class Refusal(Exception):
    """The API server said no (`code` is its HTTP status), or was not reached (`UNREACHED`)."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class NoAccess(Exception):
    """Neither a kubeconfig nor a pod's service account was found, or they cannot be read."""


class Listed(NamedTuple):
    objects: list[Manifest]
    version: str
    """Where a watch goes on from."""


class Api:
    """One namespace of an API server. All calls end within `REQUEST_TIMEOUT`, except `watch`, and raise nothing but `Refusal`."""

    def __init__(self, namespace: str | None, kubeconfig: str | None = None) -> None:
        """Without `kubeconfig`: the pod's service account, else the file that kubectl would take; without `namespace` the one that it names.
        Raises NoAccess."""
        try:
            config = KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()
            self._client = AsyncClient(config, namespace=namespace, timeout=httpx2.Timeout(REQUEST_TIMEOUT), trust_env=False)
        except (ConfigError, OSError, KeyError, ValueError) as error:
            raise NoAccess(f"{error}") from error
        self.namespace: str = namespace or self._client.namespace or "default"
        self._classes: dict[Kind, Any] = {}

    async def close(self) -> None:
        await self._client.close()

    async def list(self, kind: Kind, label: str | None = None) -> Listed:
        """All objects, or those that have the label."""
        with _translated():
            found = self._client.list(self._class(kind), namespace=self.namespace, chunk_size=PAGE, labels=_has(label))
            objects = [dict(one) async for one in found]
            return Listed(objects, found.resourceVersion)

    async def watch(self, kind: Kind, version: str, label: str | None = None, seconds: int = 25) -> AsyncIterator[tuple[str, Manifest]]:
        """Changes after `version`, as ("ADDED" | "MODIFIED" | "DELETED", object). The server ends a connection after `seconds` and another is made;
        what is silent for longer than the caller likes is the caller's to leave."""
        with _translated():
            changes: Any = self._client.watch(
                self._class(kind), namespace=self.namespace, resource_version=version, server_timeout=seconds, labels=_has(label)
            )
            try:
                async for change, one in changes:
                    yield change, one
            finally:
                await changes.aclose()

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Manifest | None:
        """None: there is no such object. `namespace`: another one than its own."""
        try:
            with _translated():
                return dict(await self._client.get(self._class(kind), name, **self._where(kind, namespace)))
        except Refusal as error:
            if error.code == NOT_FOUND:
                return None
            raise

    async def create(self, kind: Kind, body: Mapping[str, Any]) -> Manifest:
        made = self._class(kind)({"apiVersion": kind.api_version, "kind": kind.kind, **body})
        with _translated():
            return dict(await self._client.create(made))

    async def patch(self, kind: Kind, name: str, body: Mapping[str, Any], *, status: bool = False) -> Manifest:
        """Merge `body` into an object, or into its status. With `metadata.resourceVersion` in it, only if nobody was faster (else 409)."""
        resource = self._class(kind).Status if status else self._class(kind)
        with _translated():
            return dict(
                await self._client.patch(
                    resource, name, dict(body), patch_type=PatchType.MERGE, field_manager=MANAGER, **self._where(kind)
                )
            )

    async def apply(self, manifest: Manifest) -> Manifest:
        """Server-side apply of a whole object of a kind in `APPLIED`: fields that were ours and are not in it any more are removed."""
        resource = self._class(APPLIED[manifest["kind"]])
        with _translated():
            name = manifest["metadata"]["name"]
            return dict(
                await self._client.patch(
                    resource, name, manifest, namespace=self.namespace, patch_type=PatchType.APPLY, field_manager=MANAGER, force=True
                )
            )

    def _where(self, kind: Kind, namespace: str | None = None) -> dict[str, Any]:
        return {"namespace": namespace or self.namespace} if kind.namespaced else {}

    def _class(self, kind: Kind) -> Any:
        made = self._classes.get(kind)
        if made is None:
            info = create_api_info(kind.group, kind.version, kind.kind, kind.plural)
            base = GenericNamespacedResource if kind.namespaced else GenericGlobalResource
            status_info = create_api_info(kind.group, kind.version, kind.kind, kind.plural, verbs=["get", "patch", "put"])
            status_info.parent, status_info.action = status_info.resource, "status"
            status = type(f"{kind.kind}Status", (GenericNamespacedStatus,), {"_api_info": status_info})
            made = self._classes[kind] = type(kind.kind, (base,), {"_api_info": info, "Status": status})
        return made


def _has(label: str | None) -> dict[str, Any] | None:
    return {label: exists()} if label else None


@contextmanager
def _translated() -> Iterator[None]:
    """The errors of lightkube and of its transport, as ours."""
    try:
        yield
    except ApiError as error:
        raise Refusal(error.status.code or UNREACHED, error.status.message or f"{error.status.reason}") from error
    except httpx2.HTTPStatusError as error:
        raise Refusal(error.response.status_code, f"{error}") from error
    except (httpx2.HTTPError, OSError, ConfigError, msgspec.DecodeError) as error:
        raise Refusal(UNREACHED, f"the API server was not reached: {type(error).__name__} {error}".rstrip()) from error


async def unreachable_or(call: Any, seconds: float) -> Any:
    """A call with a deadline of its own: past it the API server counts as not reached."""
    try:
        async with asyncio.timeout(seconds):
            return await call
    except TimeoutError as error:
        raise Refusal(UNREACHED, f"the API server did not answer in {seconds:g} s") from error
