"""Models in an OCI registry, as `oras push` puts them there: a layer for each file, with its name as title; a directory is a packed layer."""

import hashlib
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from wakeful.cluster.agent.stores import MOST_FILES, Entry, Listing, Unfetchable, check_paths

_TITLE = "org.opencontainers.image.title"
_PACKED = "application/vnd.oci.image.layer.v1.tar+gzip"
_UNPACK = "io.deis.oras.content.unpack"
_MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.artifact.manifest.v1+json")
_CHUNK = 1 << 20
_LOOPBACK = ("localhost", "127.", "[::1]")
"""Registries there are spoken to without TLS, as every client of OCI does."""


class Registry:
    def __init__(self, reference: str, secret: Mapping[str, str]) -> None:
        import oras.container  # noqa: PLC0415 - what is not asked for need not be installed
        import oras.provider  # noqa: PLC0415 - see above

        host, _, rest = reference.partition("/")
        if not rest:
            raise Unfetchable(f"an OCI reference is oci://registry/repository:tag, and {host} is only its first part")
        self._container = oras.container.Container(reference)
        self._registry = oras.provider.Registry(insecure=host.startswith(_LOOPBACK))
        if secret:
            self._registry.auth.set_basic_auth(secret.get("OCI_USERNAME", ""), secret.get("OCI_PASSWORD", ""))
        self._packed: set[str] = set()
        """Digests of layers that are directories."""

    def listing(self) -> Listing:
        manifest = self._registry.get_manifest(self._container, allowed_media_type=list(_MANIFESTS))
        layers: list[Mapping[str, Any]] = manifest.get("layers") or manifest.get("blobs") or []
        entries = []
        for layer in layers:
            notes = layer.get("annotations") or {}
            if _TITLE not in notes:
                raise Unfetchable(f"layer {layer.get('digest')} has no title: images of containers hold no model here, push it by `oras push`")
            if notes.get(_UNPACK) == "true" or layer.get("mediaType") == _PACKED:
                self._packed.add(layer["digest"])
            entries.append(Entry(notes[_TITLE], layer["digest"], layer["size"], layer["digest"]))
        return Listing(tuple(entries), entries[0].path if len(entries) == 1 else "")

    def bring(self, entry: Entry, target: Path, came: Callable[[int], None]) -> None:
        """A blob that is not what its digest says is refused."""
        algorithm, _, expected = entry.key.partition(":")
        if algorithm != "sha256":
            raise Unfetchable(f"{entry.path}: the digest {entry.key[:80]} is not by sha256")
        content = hashlib.sha256()
        with self._registry.get_blob(self._container, entry.key, stream=True) as answer, target.open("wb") as file:
            answer.raise_for_status()
            for data in answer.iter_content(_CHUNK):
                content.update(data)
                file.write(data)
                came(len(data))
        if content.hexdigest() != expected:
            raise Unfetchable(f"{entry.path}: the registry's bytes have the digest sha256:{content.hexdigest()}, not {entry.key}")
        if entry.key in self._packed:
            packed = target.with_name(f".{expected}")
            target.rename(packed)
            _unpack(packed, target)
            packed.unlink()


def _unpack(packed: Path, directory: Path) -> None:
    """Files and directories alone. Names begin with the directory's own name."""
    with tarfile.open(packed) as archive:
        members = [member for member in archive if not member.isdir()]
        if odd := next((member for member in members if not member.isfile()), None):
            raise Unfetchable(f"{odd.name!r} in {directory.name} is a link or a device: a model consists of files and directories")
        if len(members) > MOST_FILES:
            raise Unfetchable(f"{directory.name} holds {len(members)} files, and a model has at most {MOST_FILES}")
        names = {member: member.name.removeprefix("./").removeprefix(f"{directory.name}/") for member in members}
        check_paths(tuple(Entry(name, "", member.size, "") for member, name in names.items()))
        for member, name in names.items():
            place = directory / name
            place.parent.mkdir(parents=True, exist_ok=True)
            source = archive.extractfile(member)
            assert source is not None  # it is a file
            with source, place.open("wb") as file:
                while data := source.read(_CHUNK):
                    file.write(data)
