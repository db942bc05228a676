"""Manifests as YAML. PyYAML comes with `wakeful[cluster]`."""

from collections.abc import Iterable
from typing import Any

import yaml

Manifest = dict[str, Any]


class _Plain(yaml.SafeDumper):
    """Without anchors, which people do not expect in a manifest; texts of several lines as such."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Plain.add_representer(str, _text)


def written(objects: Iterable[Manifest | list[Manifest]]) -> str:
    """One document an object, or a list of changes (JSON patch)."""
    return yaml.dump_all(objects, Dumper=_Plain, sort_keys=False, width=140, allow_unicode=True)


def read(text: str) -> list[Manifest]:
    """The objects of a file, those of Lists among them. Raises ValueError, with the line where there is one."""
    try:
        found = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    whole = [item for document in found for item in _items(document)]
    for number, document in enumerate(whole, start=1):
        if not isinstance(document, dict) or not {"apiVersion", "kind", "metadata"} <= document.keys():
            raise ValueError(f"document {number} is no object of Kubernetes: apiVersion, kind and metadata are expected")
        if not isinstance(document["metadata"], dict) or not isinstance(document["metadata"].get("name"), str):
            raise ValueError(f"document {number}, a {document['kind']}, has no metadata.name")
    return whole


def _items(document: Any) -> list[Any]:
    if isinstance(document, dict) and str(document.get("kind", "")).endswith("List") and isinstance(document.get("items"), list):
        return list(document["items"])
    return [document]
