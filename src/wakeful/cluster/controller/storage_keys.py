"""Keys of models' storage, from the Secrets that were made for that. They are kept in memory, and go to agents over TLS alone."""

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from wakeful.cluster.controller.api import FORBIDDEN, SECRET, Kind, Manifest, Refusal

LABEL = "wakeful.dev/storage"
"""Without it a Secret is not read: who may write Models could have any other one shown to his daemons."""
REFRESH = 60.0
"""Seconds after which a Secret is read again."""


class Store(Protocol):
    async def get(self, kind: Kind, name: str) -> Manifest | None: ...


class StorageKeys:
    """`changed` hears the name of each Secret of which something else is known now."""

    def __init__(self, store: Store, changed: Callable[[str], None], complain: Callable[[str], None]) -> None:
        self._store, self._changed, self._complain = store, changed, complain
        self._keys: dict[str, Mapping[str, str] | None] = {}
        self._wrong: dict[str, str] = {}
        self._news = asyncio.Event()

    def get(self, secret: str) -> Mapping[str, str] | None:
        """None: not known yet, or not to be had: `why_not`."""
        if secret not in self._keys:
            self._keys[secret] = None
            self._news.set()
        return self._keys[secret]

    def why_not(self, secret: str) -> str:
        """For people; empty: there are keys, or nobody has looked yet."""
        return self._wrong.get(secret, "")

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(REFRESH if self._keys else None):
                    await self._news.wait()
                wanted: Iterable[str] = [name for name, keys in self._keys.items() if keys is None]
            except TimeoutError:
                wanted = list(self._keys)
            self._news.clear()
            for name in wanted:
                await self._read(name)

    async def _read(self, name: str) -> None:
        try:
            keys, wrong = _keys_of(name, await self._store.get(SECRET, name))
        except Refusal as error:
            allow = "; Secrets are allowed at installation, by --storage-secrets" if error.code == FORBIDDEN else ""
            keys, wrong = self._keys[name], f"the Secret {name} could not be read: {error}{allow}"
        if wrong and self._wrong.get(name) != wrong:
            self._complain(wrong)
        before = (self._keys[name], self._wrong.get(name, ""))
        self._keys[name], self._wrong[name] = keys, wrong
        if before != (keys, wrong):
            self._changed(name)


def _keys_of(name: str, secret: Manifest | None) -> tuple[Mapping[str, str] | None, str]:
    if secret is None:
        return None, f"there is no Secret {name}, which spec.secretName names"
    if LABEL not in (secret["metadata"].get("labels") or {}):
        return None, f"the Secret {name} has no label {LABEL}, without which its keys are not handed out: kubectl label secret {name} {LABEL}=true"
    try:
        return {key: base64.b64decode(text, validate=True).decode() for key, text in (secret.get("data") or {}).items()}, ""
    except (binascii.Error, UnicodeDecodeError):
        return None, f"the Secret {name} holds something else than text"
