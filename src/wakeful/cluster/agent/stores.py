"""Where models are kept, by the scheme of their URI. Each store lists what there is and brings one file after the other; nothing else knows of it.

    gs:// s3:// az://     fsspec, a file or all that is below a prefix
    http:// https://      fsspec, one file
    file:///path          a path in the pod
    pvc://claim/path      a path in a persistent volume claim that the Server mounts
    oci://registry/…      an artifact as oras makes them (`oci`)

Imported by the process that fetches alone: the daemon has no cloud's library.
"""

import importlib
import json
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from wakeful.cluster.agent.fetching import Order

MOST_FILES = 10_000
_CHUNK = 1 << 20
SECRET_KEYS: Mapping[str, frozenset[str]] = {
    "s3": frozenset({"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"}),
    "gs": frozenset({"GOOGLE_CREDENTIALS", "GOOGLE_CLOUD_PROJECT"}),
    "az": frozenset({
        "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_CONNECTION_STRING",
        "AZURE_STORAGE_CLIENT_ID", "AZURE_STORAGE_CLIENT_SECRET", "AZURE_STORAGE_TENANT_ID",
    }),
    "http": frozenset({"HTTP_AUTHORIZATION"}),
    "https": frozenset({"HTTP_AUTHORIZATION"}),
    "oci": frozenset({"OCI_USERNAME", "OCI_PASSWORD"}),
}
"""What a Secret may hold, by scheme. No other key is taken: a variable such as PYTHONPATH would be a way into the process."""
EXTRAS = {"s3": ("s3fs", "wakeful[s3]"), "gs": ("gcsfs", "wakeful[gcs]"), "az": ("adlfs", "wakeful[azure]"), "oci": ("oras", "wakeful[oci]"),
          "http": ("aiohttp", "wakeful[cluster]"), "https": ("aiohttp", "wakeful[cluster]")}
"""The library of a scheme, and what brings it."""


class Unfetchable(Exception):
    """What is asked for is not there, is refused, or cannot be had in this image: the message says which and what to do."""


class Entry(NamedTuple):
    """One file of a model."""

    path: str
    """Where it goes, below the artifact."""
    key: str
    """What its store calls it."""
    size: int | None
    """Bytes; None: the store does not tell before."""
    tag: str
    """Changes with the content: an ETag, a generation, a digest. Empty: the store has none."""


class Listing(NamedTuple):
    entries: tuple[Entry, ...]
    name: str = ""
    """Of what is the model, where the URI is one file (or one packed directory); else empty: all of it is."""

    @property
    def nbytes(self) -> int:
        return sum(entry.size or 0 for entry in self.entries)

    @property
    def state(self) -> str:
        """The same as long as the store says that nothing has changed; empty where it does not say."""
        if not all(entry.tag for entry in self.entries):
            return ""
        return json.dumps(sorted((entry.path, entry.size, entry.tag) for entry in self.entries))


class Store(Protocol):
    """Errors of its library pass through; `Unfetchable` is what is known to be wrong."""

    def listing(self) -> Listing: ...

    def bring(self, entry: Entry, target: Path, came: Callable[[int], None]) -> None:
        """Write the file. `came` hears of each piece, in bytes."""


def open_store(order: Order) -> Store:
    """Raises Unfetchable."""
    parts = urlsplit(order.uri)
    check_secret(parts.scheme, order.secret)
    if parts.scheme == "file":
        if parts.netloc:
            raise Unfetchable(f"file:// has three slashes and no host: file:///{parts.netloc}{parts.path}")
        path = Path(unquote(parts.path))
        return Folder(path.parent, path.name)
    if parts.scheme == "pvc":
        claim = Path(order.claims) / parts.netloc
        if not parts.netloc or parts.netloc.startswith(".") or not claim.is_dir():
            raise Unfetchable(
                f"the claim {parts.netloc!r} is not mounted at {claim}: add it to the Server's podTemplate, as a volume with that mountPath"
            )
        return Folder(claim, unquote(parts.path).strip("/"))
    if parts.scheme not in EXTRAS:
        raise Unfetchable(f"a model's URI begins with {', '.join(f'{scheme}://' for scheme in ('file', 'pvc', *EXTRAS))}, not with {parts.scheme}://")
    module, extra = EXTRAS[parts.scheme]
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise Unfetchable(f"{parts.scheme}:// needs the library {module}, which this image has not ({error}): pip install '{extra}'") from None
    if parts.scheme == "oci":
        from wakeful.cluster.agent.oci import Registry  # noqa: PLC0415 - needs a library of its own

        return Registry(order.uri.removeprefix("oci://"), order.secret)
    return Remote(order.uri, parts.scheme, order.secret)


def check_secret(scheme: str, secret: Mapping[str, str]) -> None:
    allowed = SECRET_KEYS.get(scheme, frozenset())
    for key in secret:
        if key not in allowed:
            known = f"has {', '.join(sorted(allowed))}" if allowed else "needs none"
            raise Unfetchable(f"the Secret's key {key} means nothing to {scheme}://, which {known}")


def check_paths(entries: tuple[Entry, ...]) -> None:
    """Names come from strangers: each must stay below the artifact, and none may be a file and a directory at once. Raises Unfetchable."""
    if not entries:
        raise Unfetchable("there is nothing at this URI")
    if len(entries) > MOST_FILES:
        raise Unfetchable(f"there are {len(entries)} files, and a model has at most {MOST_FILES}: is the URI that of a whole bucket?")
    files: set[str] = set()
    directories: set[str] = set()
    for entry in entries:
        parts = entry.path.split("/")
        if not all(parts) or any(part in (".", "..") for part in parts) or not entry.path.isprintable() or "\\" in entry.path:
            raise Unfetchable(f"the object {entry.path!r} has a name that may lead out of the model's directory, or cannot be a file's")
        directories.update(str(parent) for parent in PurePosixPath(entry.path).parents)
        files.add(entry.path)
    if len(files) < len(entries) or files & directories:
        raise Unfetchable(f"{(sorted(files & directories) or ['a name'])[0]} is there twice, as two files or as a file and a directory")


# ── by fsspec ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Remote:
    def __init__(self, uri: str, scheme: str, secret: Mapping[str, str]) -> None:
        os.environ.update(secret)  # where these libraries look
        fsspec: Any = importlib.import_module("fsspec")
        self._files = fsspec.filesystem(scheme, use_listings_cache=False, skip_instance_cache=True, **_options(scheme, secret))
        self._root = uri if scheme.startswith("http") else uri.partition("://")[2].rstrip("/")
        self._single = scheme.startswith("http")

    def listing(self) -> Listing:
        name = (unquote(urlsplit(self._root).path) if self._single else self._root).rpartition("/")[2]
        if self._single and not name:
            raise Unfetchable("the URI names no file: over http a model is a single one, such as https://host/fraud.onnx")
        info = self._files.info(self._root)
        if self._single or info["type"] == "file":
            return Listing((Entry(name, self._root, info.get("size"), _tag(info)),), name)
        found = self._files.find(self._root, detail=True, withdirs=False)
        below = {key.removeprefix(self._root).removeprefix("/"): one for key, one in found.items()}
        return Listing(tuple(
            Entry(path, f"{self._root}/{path}", one["size"], _tag(one)) for path, one in below.items()
            if one["size"] or not (path == "" or path.endswith("/"))  # markers that consoles make for "folders"
        ))

    def bring(self, entry: Entry, target: Path, came: Callable[[int], None]) -> None:
        callbacks: Any = importlib.import_module("fsspec.callbacks")
        so_far = 0

        def on_change(_size: int | None, value: int, **_: object) -> None:
            nonlocal so_far
            came(value - so_far)
            so_far = value

        self._files.get_file(entry.key, str(target), callback=callbacks.Callback(hooks={"came": on_change}))


def _tag(info: Mapping[str, Any]) -> str:
    return str(next((info[key] for key in ("generation", "ETag", "etag", "Content-MD5") if info.get(key)), ""))


def _options(scheme: str, secret: Mapping[str, str]) -> dict[str, Any]:
    """What fsspec's class of a scheme is to be told beyond the variables."""
    if scheme == "s3":  # without any credentials a public bucket is still to be had; gcsfs comes to that by itself
        session: Any = importlib.import_module("botocore.session")
        return {"anon": session.get_session().get_credentials() is None}
    if scheme == "gs" and "GOOGLE_CREDENTIALS" in secret:
        try:
            return {"token": json.loads(secret["GOOGLE_CREDENTIALS"])}
        except ValueError:
            raise Unfetchable("the Secret's key GOOGLE_CREDENTIALS is not the JSON of a service account's key") from None
    if scheme.startswith("http"):
        headers = {"Authorization": secret["HTTP_AUTHORIZATION"]} if "HTTP_AUTHORIZATION" in secret else {}
        return {"headers": headers, "client_kwargs": {"trust_env": True}}  # the pod's proxy
    return {}


# ── in the pod ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Folder:
    """A file, or all that is below a directory, of a file system in the pod. Copied, so that a change there cannot reach a model that is served."""

    def __init__(self, root: Path, path: str) -> None:
        self._root = root
        """What is above is trusted; below it nothing that is a link is followed."""
        self._path = path

    def listing(self) -> Listing:
        descriptor = self._open(self._path)
        try:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):
                name = self._path.rpartition("/")[2]
                return Listing((_entry(name, self._path, status),), name)
            if not stat.S_ISDIR(status.st_mode):
                raise Unfetchable(f"{self._root / self._path} is neither a file nor a directory")
            return Listing(tuple(self._below(descriptor)))
        finally:
            os.close(descriptor)

    def _below(self, descriptor: int) -> list[Entry]:
        entries = []
        for home, directories, files, home_descriptor in os.fwalk(".", dir_fd=descriptor, follow_symlinks=False):
            for name in (*directories, *files):
                path = f"{home}/{name}".removeprefix("./")
                status = os.stat(name, dir_fd=home_descriptor, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    entries.append(_entry(path, f"{self._path}/{path}".strip("/"), status))
                elif not stat.S_ISDIR(status.st_mode):
                    what = "a link" if stat.S_ISLNK(status.st_mode) else "no file"
                    raise Unfetchable(f"{path} is {what}: a model consists of files and directories")
                if len(entries) > MOST_FILES:
                    return entries
        return entries

    def bring(self, entry: Entry, target: Path, came: Callable[[int], None]) -> None:
        with open(self._open(entry.key), "rb") as source, target.open("wb") as copy:
            while data := source.read(_CHUNK):
                copy.write(data)
                came(len(data))

    def _open(self, path: str) -> int:
        """Step by step, so that no link anywhere on the way leads elsewhere."""
        descriptor = os.open(self._root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in PurePosixPath(path).parts or (".",):
            if part == "..":
                os.close(descriptor)
                raise Unfetchable("the URI has .. in its path")
            above = descriptor
            try:
                descriptor = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=above)
            except OSError as error:
                if stat.S_ISLNK(_mode(part, above)):
                    raise Unfetchable(f"{part} in the path is a link, which is not followed") from None
                raise OSError(error.errno, error.strerror, str(self._root / path)) from None
            finally:
                os.close(above)
        return descriptor


def _mode(name: str, directory: int) -> int:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except OSError:
        return 0


def _entry(path: str, key: str, status: os.stat_result) -> Entry:
    return Entry(path, key, status.st_size, f"{status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}")
