"""The daemon as the verbs see it: where it is, with which key, and what its refusals mean for an exit status.

Imports nothing heavy: `wakeful ps` should answer as fast as `ls`.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from wakeful.cli import wire
from wakeful.cli.status import NO, NO_MODEL, NOT_ALLOWED, NOT_REACHABLE, UNAVAILABLE, WRONG_USE
from wakeful.cli.wire import query, quoted

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path

DEFAULT_URL = "http://127.0.0.1:8080"
URL_VARIABLE, KEY_VARIABLE = "WAKEFUL_URL", "WAKEFUL_API_KEY"
SECONDS = 10.0
"""For an answer that needs no work."""
PREFIX = "/wakeful/v1"
LONGEST_KEY = 65536
"""Characters that are read of a file."""
FORMAT = 1
"""Of what is below it; all of that says so."""

_BY_STATUS = {
    400: ("invalid_input", WRONG_USE), 401: ("unauthenticated", NOT_ALLOWED), 403: ("forbidden", NOT_ALLOWED), 404: ("not_found", NO_MODEL),
    409: ("conflict", NO), 413: ("too_large", WRONG_USE), 429: ("overloaded", UNAVAILABLE), 500: ("execution_failed", NO),
    503: ("unavailable", UNAVAILABLE), 504: ("timeout", UNAVAILABLE),
}
_KEY_HINT = f"{{}}: {KEY_VARIABLE}=..., or --key-file FILE"


class Failure(Exception):
    """Why a verb has no answer. `exit` is the program's exit status."""

    def __init__(self, code: str, message: str, status: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.exit, self.hint = code, message, status, hint


class Options(Protocol):
    """What says which daemon is meant."""

    url: str | None
    key_file: "Path | None"
    timeout: float


class Client:
    def __init__(self, address: wire.Address, key: str = "", seconds: float = SECONDS) -> None:
        self.address = address
        self.seconds = seconds
        self._headers = {"accept": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})

    def get(self, path: str, **values: object) -> Any:
        """Decoded JSON, which is an object. Raises Failure."""
        value = self._decoded(self.ask("GET", path + query(**values)))
        if path.startswith(PREFIX) and value.get("wakeful") != FORMAT:
            raise self._stranger(200)
        return value

    def post(self, path: str, body: Any = None) -> Any:
        import json  # noqa: PLC0415 - what only asks for health does without

        return self._decoded(self.ask("POST", path, b"" if body is None else json.dumps(body).encode()))

    def model(self, name: str, *, path: str = "", **values: object) -> Any:
        """GET of a model's route below the data door."""
        return self.get(f"{PREFIX}/models/{quoted(name)}{path}", **values)

    def ask(self, method: str, path: str, body: bytes = b"") -> wire.Answer:
        """Whatever the daemon answers. Raises Failure where nobody does."""
        headers = self._headers | ({"content-type": "application/json"} if method == "POST" else {})
        try:
            return wire.exchange(self.address, method, path, headers, body, self.seconds)
        except TimeoutError:
            text = f"{self.address} has not answered for {self.seconds:g} s"
            raise Failure("timeout", text, UNAVAILABLE, "--timeout SECONDS waits longer") from None
        except (OSError, ValueError) as error:
            raise _unreachable(self.address, error) from None

    def _decoded(self, answer: wire.Answer) -> Any:
        import json  # noqa: PLC0415

        try:
            value = json.loads(answer.body)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise self._stranger(answer.status)
        if answer.status < 300:
            return value
        raise self._refusal(answer.status, value)

    def _stranger(self, status: int) -> Failure:
        return Failure("unavailable", f"what answers at {self.address} is not Wakeful (status {status})", NOT_REACHABLE, _elsewhere())

    def _refusal(self, status: int, value: Mapping[str, Any]) -> Failure:
        if not isinstance(value.get("error"), str):
            return self._stranger(status)
        code, leaves = _BY_STATUS.get(status, ("unavailable", UNAVAILABLE))
        hint = _KEY_HINT.format("show a key" if status == 401 else "show another key") if leaves == NOT_ALLOWED else None
        return Failure(str(value.get("code") or code), value["error"], leaves, hint)


def client_of(arguments: "Namespace | Options") -> Client:
    """By the options that all these verbs have, and the environment. Raises Failure for what is no address, or no key."""
    url = getattr(arguments, "url", None) or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    try:
        address = wire.parse(url)
    except ValueError as error:
        raise Failure("invalid_input", f"{'--url' if arguments.url else URL_VARIABLE}: {error}", WRONG_USE) from None
    return Client(address, key_of(getattr(arguments, "key_file", None)), getattr(arguments, "timeout", None) or SECONDS)


def key_of(file: "Path | None") -> str:
    """Of the file, else of the environment: an option would show it to everybody on this machine."""
    if file is None:
        text = os.environ.get(KEY_VARIABLE, "").strip()
    else:
        try:
            with file.open(encoding="utf-8") as content:
                text = content.read(LONGEST_KEY).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Failure("invalid_input", f"--key-file {file}: {getattr(error, 'strerror', None) or error}", WRONG_USE) from None
    if not text.isascii() or not text.isprintable():
        raise Failure("invalid_input", "the key holds characters that a key cannot have", WRONG_USE)
    return text


def _unreachable(address: wire.Address, error: Exception) -> Failure:
    if isinstance(error, ConnectionRefusedError):
        return Failure("unreachable", f"no daemon at {address}", NOT_REACHABLE, _elsewhere())
    reason = getattr(error, "strerror", None) or str(error)
    return Failure("unreachable", f"{address} cannot be reached: {reason}", NOT_REACHABLE, _elsewhere())


def _elsewhere() -> str:
    return f"start one: wakeful serve; or name another: --url, {URL_VARIABLE}"
