"""A server that speaks the Open Inference Protocol over REST: where it is, which models it has, what they take."""

import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from wakeful.errors import InvalidInput, NotFound, Unavailable

PATIENCE = 30.0
"""Seconds for one question."""
MOST_NAMES = 20
"""Models that are listed in a message."""

Dimension = int | str
"""A free one is below 0, or has a name where the server tells it."""


class InputSpec(NamedTuple):
    """An input as the server describes it."""

    name: str
    datatype: str
    shape: tuple[Dimension, ...]


class Target(NamedTuple):
    """The address of a server."""

    host: str
    port: int
    prefix: str = ""
    """Path before /v2."""
    key: str = ""
    """Shown with every request, if there is one."""

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def authority(self) -> str:
        """As in a Host header."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Of every request."""
        return (("Authorization", f"Bearer {self.key}"),) if self.key else ()

    @property
    def url(self) -> str:
        return f"http://{self.authority}{self.prefix}"


def parse_url(text: str) -> Target:
    """ "localhost:8080", "http://[::1]:8080", "http://host/prefix". Raises InvalidInput."""
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # as whoever looks it up will
        parts.path.encode("ascii")
    except ValueError:
        host = None
    else:
        if parts.scheme != "http":
            raise InvalidInput(f"{text}: only http:// is spoken here, not {parts.scheme}://")
    if not host:
        raise InvalidInput.field("the server's address", "something like http://127.0.0.1:8080", repr(text))
    prefix = parts.path.rstrip("/")
    return Target(host, port or 80, prefix.removesuffix("/v2"))


def inputs_of(target: Target, model: str) -> tuple[InputSpec, ...]:
    """What the model takes. Raises NotFound, which names those that there are, or Unavailable."""
    status, body = _ask(target, "GET", f"/v2/models/{quote(model, safe='')}")
    if status == 404 or (status == 400 and b"unknown model" in body):  # as Triton says it
        raise NotFound(_unknown(target, model))
    if status != 200:
        raise Unavailable(f"{target.url} does not describe {model}: HTTP {status}{_reason(body)}")
    try:
        described = json.loads(body).get("inputs") or ()
        return tuple(InputSpec(one["name"], one["datatype"], tuple(_dimension(size) for size in one["shape"])) for one in described)
    except (ValueError, OverflowError, LookupError, TypeError, AttributeError):
        raise Unavailable(f"{target.url} does not describe {model} as the Open Inference Protocol has it: {body[:80]!r}") from None


def models_of(target: Target) -> tuple[str, ...]:
    """Names of the models, as far as the server tells them."""
    try:
        status, body = _ask(target, "POST", "/v2/repository/index")
        listed = json.loads(body) if status == 200 else []
        return tuple(sorted({str(one["name"]) for one in listed}))
    except (Unavailable, ValueError, LookupError, TypeError):
        return ()


def _unknown(target: Target, model: str) -> str:
    names = models_of(target)
    if not names:
        return f"{target.url} has no model {model}"
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{target.url} has no model {model}; it has {', '.join(names[:MOST_NAMES])}{more}"


def _dimension(size: Any) -> Dimension:
    return size if isinstance(size, str) else int(size)


def _ask(target: Target, method: str, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(target.host, target.port, timeout=PATIENCE)
    headers = dict(target.headers) | ({"Content-Type": "application/json"} if method == "POST" else {})
    try:
        connection.request(method, target.prefix + path, b"{}" if method == "POST" else None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except TimeoutError:
        raise Unavailable(f"{target.url} did not answer {method} {path} within {PATIENCE:g} s") from None
    except OSError as error:
        raise Unavailable(f"{target.url} cannot be reached: {(error.strerror or str(error)).lower()}") from None
    except http.client.HTTPException as error:
        raise Unavailable(f"{target.url} does not speak HTTP: {type(error).__name__} {str(error)[:60]}".rstrip()) from None
    finally:
        connection.close()


def _reason(body: bytes) -> str:
    try:
        return f", {json.loads(body)['error']}"
    except (ValueError, LookupError, TypeError):
        return ""
