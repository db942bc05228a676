"""A host's file as a Server and its Models: `wakeful cluster manifests FILE`."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from wakeful.cluster.documents import Manifest
from wakeful.cluster.groups import GROUP, VERSION
from wakeful.cluster.schemas import NOT_OF_A_SERVER
from wakeful.config.document import Document
from wakeful.config.effective import differences, model_keys
from wakeful.config.settings import ModelSettings, Settings

_FROM_THE_PLACE = frozenset({"id", "path", "backend", "pinned", "text", "versions", "warmup"})
"""Keys of a model that was found by looking: of its own Model, or seen again wherever its files are."""
_SAME = f"{GROUP}/{VERSION}"


class Hosted(NamedTuple):
    objects: tuple[Manifest, ...]
    errors: tuple[str, ...]
    """Why these objects would not serve what the file does."""
    notes: tuple[str, ...]


def hosted(document: Document, settings: Settings, server: str, storage: str | None) -> Hosted:
    """`document` is the file as written, `settings` what came of it; `storage` is where the models' files are in the cluster, None: as here."""
    errors: list[str] = []
    notes = _left_out(document.values)
    config = _config(document.values, errors, notes)
    objects = [{"apiVersion": _SAME, "kind": "Server", "metadata": {"name": server}, "spec": {"config": config} if config else {}}]
    written = {entry["id"].strip(): entry for entry in document.values.get("models", [])}
    names: dict[str, str] = {}
    for model in _newest(settings.models):
        name = _name(model.id, names, errors, notes)
        uri = _uri(model, written.get(model.id), storage, settings, notes)
        objects.append({"apiVersion": _SAME, "kind": "Model", "metadata": {"name": name}, "spec": _spec(model, written.get(model.id), uri, settings)})
    return Hosted(tuple(objects), tuple(errors), tuple(notes))


def _newest(models: Iterable[ModelSettings]) -> list[ModelSettings]:
    """One of all versions of a model; tokenizers of others are none."""
    return list({model.id: model for model in models if model.backend != "tokenizer"}.values())


def _left_out(values: Mapping[str, Any]) -> list[str]:
    reasons = {"pipelines": "their models may be on different servers", "streams": "each server would take messages for models that it has not"}
    return [f"{table}: not in a cluster: {why}" for table, why in reasons.items() if values.get(table)]


def _config(values: Mapping[str, Any], errors: list[str], notes: list[str]) -> dict[str, Any]:
    server = dict(values.get("server", {}))
    for key in sorted(NOT_OF_A_SERVER & server.keys()):
        notes.append(f"server.{key}: left out, it follows from the pod")
        del server[key]
    auth = values.get("auth", {})
    secret = [f"auth.api_keys[{index}].key" for index, key in enumerate(auth.get("api_keys", ())) if "key" in key]
    secret += ["auth.jwt.secret"] if "secret" in auth.get("jwt", {}) else []
    errors += [f"{place}: a secret does not belong into a manifest; write {place.rpartition('.')[2]}_env, and set the variable from a Secret in "
               "spec.podTemplate" for place in secret]
    tables = {"server": server, "defaults": values.get("defaults", {}), "auth": auth}
    return {name: dict(keys) for name, keys in tables.items() if keys}


def _name(model: str, names: dict[str, str], errors: list[str], notes: list[str]) -> str:
    """A name that may stand in a header."""
    name = re.sub("[^a-z0-9]+", "-", model.lower()).strip("-")[:63].rstrip("-") or "model"
    if name != model:
        notes.append(f"the model {model} is called {name} in the cluster, in requests as well")
    if (other := names.setdefault(name, model)) != model:
        errors.append(f"the models {other} and {model} would both be called {name}; give one of them another id")
    return name


def _uri(model: ModelSettings, entry: Mapping[str, Any] | None, storage: str | None, settings: Settings, notes: list[str]) -> str:
    place = model.place.absolute()
    if storage is None:
        notes.append(f"the model {model.id}: {place} has to be in every pod; --storage says where its files are in the cluster")
        return f"file://{place}"
    if settings.models_dir is not None and place.is_relative_to(settings.models_dir):
        return f"{storage.rstrip('/')}/{place.relative_to(settings.models_dir)}"
    path = place.name if entry is None or entry["path"].startswith(("/", "~", "..")) else entry["path"].strip().removeprefix("./")
    return f"{storage.rstrip('/')}/{path}"


def _spec(model: ModelSettings, entry: Mapping[str, Any] | None, uri: str, settings: Settings) -> dict[str, Any]:
    if entry is None:
        usual, own = model_keys(settings.defaults), model_keys(model)
        keys = {key: own[key] for key in differences(usual, own) if key not in _FROM_THE_PLACE and own.get(key) is not None}
    else:
        keys = {key: value for key, value in entry.items() if key not in ("id", "path", "backend", "pinned")}
    pinned = model.life.pinned and not settings.defaults.life.pinned
    backend = None if entry is None or entry.get("backend") in (None, "auto") else entry["backend"]
    spec: dict[str, Any] = {"storageUri": uri, "backend": backend, "pinned": pinned, "serving": keys}
    return {key: value for key, value in spec.items() if value}
