"""Models that lie on a file system which this machine has already: file:// and pvc://."""

import asyncio
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote, urlsplit

from wakeful.cluster.agent.shelf import FetchFailed


class Found:
    """Nobody else takes it away, so there is nothing to release."""

    def __init__(self, path: Path, revision: str, nbytes: int) -> None:
        self.path, self.revision, self.nbytes = path, revision, nbytes

    def release(self) -> None:
        pass


class Nearby:
    def __init__(self, claims: Path) -> None:
        self._claims = claims

    async def fetch(self, uri: str, want_revision: str, secret: Mapping[str, str]) -> Found:
        del secret
        return await asyncio.to_thread(self._look, uri, want_revision)

    def _look(self, uri: str, want_revision: str) -> Found:
        parts = urlsplit(uri)
        if parts.scheme not in ("file", "pvc"):
            raise FetchFailed(f"{uri}: {parts.scheme}:// cannot be fetched")
        path = Path(unquote(parts.path)) if parts.scheme == "file" else self._claims / parts.netloc / unquote(parts.path).lstrip("/")
        if not path.exists():
            raise FetchFailed(f"{uri}: {path} does not exist")
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        digest, nbytes = sha256(), 0
        for file in files:
            data = file.read_bytes()
            digest.update(str(file.relative_to(path)).encode() + b"\0" + sha256(data).digest())
            nbytes += len(data)
        revision = f"sha256:{digest.hexdigest()}"
        if want_revision not in ("", revision):
            raise FetchFailed(f"{uri}: its files have the revision {revision}, and {want_revision} is wanted: they were changed")
        return Found(path, revision, nbytes)
