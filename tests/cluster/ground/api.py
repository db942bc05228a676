"""The API server as the ground speaks to it: objects are plain dictionaries. Not the controller's library, so that both cannot be wrong together."""

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import httpx2

Object = dict[str, Any]

WATCH_SECONDS = 20
RETRY_SECONDS = 0.2
TIMEOUT = httpx2.Timeout(5.0)
SILENCE = httpx2.Timeout(5.0, read=WATCH_SECONDS + 5.0)


class ApiError(Exception):
    """The API server has refused; `code` is HTTP's, `reason` such as NotFound or Invalid."""

    def __init__(self, code: int, status: Mapping[str, Any]) -> None:
        super().__init__(status.get("message", f"HTTP {code}"))
        self.code = code
        self.reason: str = status.get("reason", "")
        self.message: str = status.get("message", "")
        self.fields = [cause.get("field", "") for cause in (status.get("details") or {}).get("causes", ())]
        """Which fields are at fault."""


OFFLINE = (httpx2.HTTPError, ssl.SSLError)
"""The API server cannot be reached, or was cut off."""


class Api:
    """One identity towards one API server. May be used by several threads."""

    def __init__(self, url: str, token: str, authority: str) -> None:
        self.url, self.token, self.authority = url, token, authority
        context = ssl.create_default_context(cadata=authority)
        self._client = httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, verify=context, timeout=TIMEOUT, trust_env=False)
        self._kinds: dict[tuple[str, str], tuple[str, bool]] = {}

    def close(self) -> None:
        self._client.close()

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json", **query: str) -> Object:
        """What the API server answers. Raises ApiError, or one of OFFLINE."""
        content = None if body is None else json.dumps(body).encode()
        answer = self._client.request(method, path, content=content, params=query, headers={"Content-Type": kind})
        decoded = _decoded(answer)
        if answer.status_code >= 400:
            raise ApiError(answer.status_code, decoded)
        return decoded

    def path(self, version: str, kind: str, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """Of an object, or of all of a kind. What a kind is called in paths is asked for once."""
        if (version, kind) not in self._kinds:
            base = self._base(version)
            for found in self.call("GET", base)["resources"]:
                if "/" not in found["name"]:
                    self._kinds[version, found["kind"]] = found["name"], found["namespaced"]
        plural, namespaced = self._kinds[version, kind]
        inside = f"/namespaces/{namespace}" if namespaced and namespace else ""
        return "/".join(part for part in (f"{self._base(version)}{inside}/{plural}", name, subresource) if part)

    @staticmethod
    def _base(version: str) -> str:
        return f"/apis/{version}" if "/" in version else f"/api/{version}"

    def path_of(self, thing: Object, subresource: str = "") -> str:
        metadata = thing["metadata"]
        return self.path(thing["apiVersion"], thing["kind"], metadata.get("namespace"), metadata["name"], subresource)

    def apply(self, thing: Object, manager: str = "test", **query: str) -> Object:
        """Server-side apply; an unknown field is an error."""
        return self.call(
            "PATCH", self.path_of(thing), thing, "application/apply-patch+yaml", fieldManager=manager, force="true", fieldValidation="Strict", **query
        )

    def merge(self, path: str, patch: Object) -> Object:
        return self.call("PATCH", path, patch, "application/merge-patch+json")

    def get(self, path: str) -> Object | None:
        """None: there is none."""
        try:
            return self.call("GET", path)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def list(self, path: str, **query: str) -> list[Object]:
        items: list[Object] = self.call("GET", path, **query)["items"]
        return items

    def delete(self, path: str, **options: Any) -> None:
        """`options` of DeleteOptions, such as gracePeriodSeconds. What is gone already is no error."""
        try:
            self.call("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})
        except ApiError as error:
            if error.code not in (404, 409):  # 409: another life of that name
                raise

    def follow(self, path: str, stopped: threading.Event, gone: Callable[[str], None], **query: str) -> Iterator[Object]:
        """All objects of a path now and whenever one changes, whatever happens to the API server. `gone`: told the uid of what is deleted."""
        known: set[str] = set()
        while not stopped.is_set():
            try:
                listed = self.call("GET", path, **query)
                present = {item["metadata"]["uid"] for item in listed["items"]}
                for uid in known - present:
                    gone(uid)
                known = present
                yield from listed["items"]
                for change in self._watch(path, listed["metadata"]["resourceVersion"], stopped, query):
                    uid = change["object"]["metadata"]["uid"]
                    if change["type"] == "DELETED":
                        known.discard(uid)
                        gone(uid)
                    else:
                        known.add(uid)
                        yield change["object"]
            except (ApiError, *OFFLINE):
                stopped.wait(RETRY_SECONDS)

    def _watch(self, path: str, version: str, stopped: threading.Event, query: Mapping[str, str]) -> Iterator[Object]:
        while not stopped.is_set():
            params = {**query, "watch": "true", "resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS), "allowWatchBookmarks": "true"}
            with self._client.stream("GET", path, params=params, timeout=SILENCE) as answer:
                if answer.status_code >= 400:
                    raise ApiError(answer.status_code, json.loads(answer.read()))
                for line in answer.iter_lines():
                    change = json.loads(line)
                    if change["type"] == "ERROR":
                        raise ApiError(change["object"].get("code", 500), change["object"])
                    version = change["object"]["metadata"]["resourceVersion"]
                    if stopped.is_set():
                        return
                    if change["type"] != "BOOKMARK":
                        yield change


def _decoded(answer: httpx2.Response) -> Object:
    try:
        decoded: Object = answer.json()
    except ValueError:
        decoded = {"message": answer.text}
    return decoded


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def condition_of(thing: Object | None, kind: str) -> Object:
    """A condition of an object's status; one with status Unknown where there is none."""
    conditions: Sequence[Object] = ((thing or {}).get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == kind), {"type": kind, "status": "Unknown", "reason": "", "message": "not there"})
