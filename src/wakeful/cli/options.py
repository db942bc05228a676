"""The options of `serve`, one for each key of the configuration's schema: a key that is added there is an option here."""

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from wakeful.config.load import Options
from wakeful.config.reference import shown_default
from wakeful.config.schema import BudgetTable, OverrideTable, ServerTable, choices

MODELS = ("models_dir",)
"""Keys of [server] that stand among the options about models."""
KEY_HELP = "a key that callers may show, for read_only, inference or admin; repeatable. Others on this machine can read it here: a file is better"
METAVARS = {"host": "ADDRESS", "port": "PORT", "grpc_port": "PORT", "memory_limit": "SIZE|N%", "max_loaded_models": "N"}


def add_options(parser: argparse.ArgumentParser, *, config: bool = True) -> None:
    """Declare all options. `config=False`: the file is named in another way."""
    models = parser.add_argument_group("models")
    if config:
        models.add_argument("--config", type=Path, metavar="FILE", help="models.toml or models.json")
    for key in MODELS:
        _add(models, key, ServerTable.model_fields[key])
    models.add_argument("--demo", action="store_true", help="serve the models digits and demo-model as well")
    memory = parser.add_argument_group("memory")
    for key, field in BudgetTable.model_fields.items():
        _add(memory, key, field)
    server = parser.add_argument_group("server")
    for key, field in ServerTable.model_fields.items():
        if key not in MODELS:
            _add(server, key, field)
    server.add_argument("--no-grpc", action="store_true", help="the same as --grpc-port false")
    server.add_argument("--api-key", action="append", dest="api_keys", metavar="ROLE:KEY", help=KEY_HELP)
    server.add_argument("--jwt-secret", metavar="SECRET", help="take tokens that are signed with it; others on this machine can read it here")


def options_of(arguments: argparse.Namespace) -> Options:
    """What was given, as it was written: the configuration checks it together with everything else."""
    given = {field.name: value for field in fields(Options) if (value := getattr(arguments, field.name, None)) is not None}
    return Options(**given | {"api_keys": tuple(given.get("api_keys", ()))})


def _add(group: argparse._ArgumentGroup, key: str, field: FieldInfo) -> None:
    flag = f"--{key.replace('_', '-')}"
    text = _help(key, field)
    if field.annotation is bool:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
    else:
        group.add_argument(flag, metavar=_metavar(key, field), help=text)


def _metavar(key: str, field: FieldInfo) -> str:
    extra: Any = field.json_schema_extra
    if words := choices(OverrideTable, key):
        return "|".join(words)
    if key.endswith("_dir"):
        return "DIR"
    return METAVARS.get(key) or {"size": "SIZE"}.get(extra["form"]) or {"s": "SECONDS"}.get(extra["unit"]) or "VALUE"


def _help(key: str, field: FieldInfo) -> str:
    default = shown_default(key, field)
    text = f"{field.description}" + ("" if default == "-" else f" (default {default})")
    return text.replace("`", "").replace('"', "").replace("%", "%%")
