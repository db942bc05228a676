"""The one way to the settings: command line before environment before file before default. The only reader of os.environ."""

import difflib
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from wakeful.config.auth import auth_settings
from wakeful.config.cluster import SERVICE_LINK, VARIABLES, cluster_settings
from wakeful.config.document import Document, read_document
from wakeful.config.layouts import models_in
from wakeful.config.locate import KeyPath
from wakeful.config.models import configured_models, demo_models, expanded, report_broken_rules, scan_directory
from wakeful.config.pipelines import configured_pipelines
from wakeful.config.problems import ConfigError, Place, Problem, in_order
from wakeful.config.schema import SECTIONS, DefaultsTable, OverrideTable, ServerTable, Table, merged
from wakeful.config.service import SERVICE_VARIABLES, ServiceSettings, service_settings
from wakeful.config.settings import AuthSettings, CacheSettings, ModelSettings, Settings
from wakeful.config.sources import said_by
from wakeful.config.streams import stream_settings
from wakeful.config.text import with_tokenizers
from wakeful.config.validate import nearest, unknown_key, validate

_PREFIX = "WAKEFUL_"
_PATHS = ("cache_dir", "models_dir", "tls_cert", "tls_key")
"""Keys of [server]."""
_CLIENT_VARIABLES = {"WAKEFUL_URL"}


@dataclass(frozen=True, slots=True)
class Options:
    """The command line of `serve`; None: not given. Fields named as keys of [server] and [defaults] mean the same as those."""

    config: Path | None = None
    models_dir: Path | None = None
    host: str | None = None
    port: int | None = None
    grpc_port: int | None = None
    no_grpc: bool = False
    """Goes before grpc_port."""
    demo: bool = False
    api_keys: tuple[str, ...] = ()
    jwt_secret: str | None = None
    insecure: bool | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    max_body: str | None = None
    max_upload: str | None = None
    max_header: str | None = None
    max_connections: int | None = None
    allowed_hosts: str | None = None
    client_timeout_secs: float | None = None
    lame_duck_secs: float | None = None
    shutdown_grace_secs: float | None = None
    keep_alive_secs: float | None = None
    log_format: str | None = None
    log_requests: bool | None = None
    cache_dir: Path | None = None
    cache_limit: str | None = None
    worker_network: bool | None = None
    worker_new_privileges: bool | None = None
    worker_core_dumps: bool | None = None
    worker_largest_file: str | None = None
    worker_memory: str | None = None
    memory_limit: str | None = None
    max_loaded_models: int | None = None


def load(options: Options, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings, or a ConfigError that tells everything that is wrong at once. Reads files and changes nothing."""
    environ = os.environ if environ is None else environ
    home = Path(environ.get("HOME") or Path.home())
    report: list[Problem] = []
    flags, variables = _overrides(options, environ, report)
    overrides = _with_absolute_paths({**variables, **flags}, Path.cwd(), home)
    document, files = _document(options.config, overrides.get("models_dir"), report)
    server, defaults = tables(document, overrides, home, report)
    models_dir = Path(server["models_dir"]) if server.get("models_dir") else None
    template = merged(defaults, {}).settings(Path())
    config_dir = Path(document.name).absolute().parent
    directories = (models_dir, config_dir) if models_dir else (config_dir,)
    models = configured_models(document, defaults, directories, home, report)
    unread: set[Path] = set()
    if models_dir is not None:
        found, unread = _scanned(models_dir, template, models, report)
        models += found
    if options.demo:
        models += demo_models(template, models)
    pipelines = configured_pipelines(document, models, template.admission.request_timeout, report)
    _check_ceiling(document, defaults, models, report)
    table = ServerTable.model_construct(None, **server)
    auth = auth_settings(document, options.api_keys, options.jwt_secret, environ, report)
    streams = stream_settings(document, {model.id for model in models} | {pipeline.id for pipeline in pipelines}, environ, report)
    cluster = cluster_settings(document, environ, report)
    if models_dir is None:
        _tell_neighbours(config_dir, models, report)
    _check_exposure(document, table, auth, report)
    _check_certificate(document, table, report)
    if any(problem.severity == "error" for problem in report):
        raise ConfigError(in_order(report))
    cache = Path(table.cache_dir) if table.cache_dir else _cache_directory(environ, home)
    return Settings(
        server=table.settings(),
        memory=defaults.memory_settings(),
        cache=CacheSettings(cache, table.cache_limit),
        models=tuple(with_tokenizers(models)),
        models_dir=models_dir,
        pipelines=pipelines,
        auth=auth,
        streams=streams,
        cluster=cluster,
        files=files,
        defaults=template,
        warnings=tuple(in_order(report)),
        sources=said_by(document, flags, variables, _PREFIX),
        unread=frozenset(unread),
    )


def take_service() -> ServiceSettings:
    """What the service manager said to this process. Its variables are taken out of the environment: no child shall speak in our name."""
    service = service_settings(os.environ)
    for name in SERVICE_VARIABLES:
        os.environ.pop(name, None)
    return service


# Command line and environment --------------------------------------------------------------------------------------------------------


def _overrides(options: Options, environ: Mapping[str, str], report: list[Problem]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the command line and, below it, the environment say."""
    written: dict[str, Any] = {
        field.name: getattr(options, field.name)
        for field in fields(options)
        if field.name in OverrideTable.model_fields and getattr(options, field.name) is not None
    }
    written |= {key: str(value) for key, value in written.items() if isinstance(value, Path)}
    if options.no_grpc:
        written["grpc_port"] = False
    flags = validate(OverrideTable, written, "the command line", _option_place, report, strict=False)
    variables = validate(OverrideTable, _environment(environ, report), "the environment", _variable_place, report, strict=False)
    return _given(flags), _given(variables)


def _environment(environ: Mapping[str, str], report: list[Problem]) -> dict[str, str]:
    """WAKEFUL_HOST, WAKEFUL_MEMORY_LIMIT and so on by key; an empty variable counts as absent."""
    known = {f"{_PREFIX}{key.upper()}": key for key in OverrideTable.model_fields}
    values = {}
    for name, text in environ.items():
        if not name.startswith(_PREFIX) or not text or name in _CLIENT_VARIABLES or name in VARIABLES:
            continue
        if name in known and not SERVICE_LINK.match(text):
            values[known[name]] = text
        elif problem := _odd_variable(name, text, known):
            report.append(problem)
    return values


def _odd_variable(name: str, text: str, known: Mapping[str, str]) -> Problem | None:
    """A warning about a variable that is probably meant for us and that we do not obey."""
    place = Place(f"environment variable {name}")
    if name in known:
        hint = "Kubernetes sets it for a Service of that name; enableServiceLinks: false in the pod ends that"
        return Problem("ignored", f"{name}={text} is no setting and is ignored", place, hint=hint, severity="warning")
    if name == "WAKEFUL_API_KEY":
        hint = 'keys of callers go into [[auth.api_keys]]: key_env = "WAKEFUL_API_KEY"'
        return Problem("ignored", f"{name} by itself protects nothing", place, hint=hint, severity="warning")
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    if not near:
        return None
    return Problem("unknown-key", f"{name} is no setting and is ignored", place, hint=f"did you mean {near[0]}?", severity="warning")


def _option_place(path: KeyPath) -> Place:
    return Place(f"option --{str(path[0]).replace('_', '-')}")


def _variable_place(path: KeyPath) -> Place:
    return Place(f"environment variable {_PREFIX}{str(path[0]).upper()}")


# File --------------------------------------------------------------------------------------------------------------------------------


def _document(config: Path | None, models_dir: str | None, report: list[Problem]) -> tuple[Document, tuple[Path, ...]]:
    """The file that --config names, else models.toml or models.json in the models directory, else an empty one in the working directory."""
    if config is None and models_dir is not None:
        present = [path for path in (Path(models_dir, "models.toml"), Path(models_dir, "models.json")) if path.exists()]
        if len(present) > 1:
            message = f"{present[1]} is ignored, because {present[0].name} is there too"
            report.append(Problem("ignored", message, Place(str(present[1])), severity="warning"))
        config = present[0] if present else None
    if config is None:
        return Document("models.toml"), ()
    document = read_document(config)
    if isinstance(document, Problem):
        report.append(document)
        return Document(str(config)), ()
    return document, (config,)


def tables(
    document: Document, overrides: Mapping[str, Any], home: Path, report: list[Problem]
) -> tuple[dict[str, Any], DefaultsTable]:
    """[server] and [defaults] of the file with the overrides over them; all that is at the top of the file is looked at here."""
    report.extend(_unknown_section(document, key) for key in document.values if key not in SECTIONS)
    server = _with_absolute_paths(_given(_section(document, "server", ServerTable, report)), Path(document.name).parent, home)
    server |= {key: value for key, value in overrides.items() if key in ServerTable.model_fields}
    _check_ports(document, server, report)
    defaults = _section(document, "defaults", DefaultsTable, report) or DefaultsTable()
    report_broken_rules(document, merged(defaults, {}), ("defaults",), defaults.given(), report)
    bounds = {key: value for key, value in overrides.items() if key not in ServerTable.model_fields}
    return server, defaults.model_copy(update=bounds)


def _section(document: Document, name: str, table: type[Table], report: list[Problem]) -> Any:
    values = document.values.get(name, {})
    if not isinstance(values, dict):
        hint = f"write [{name}], in single brackets"
        report.append(Problem("wrong-type", f"`{name}` must be one table", document.place((name,)), name, hint))
        return None
    return validate(table, values, f"[{name}]", document.place, report, base=(name,))


def _unknown_section(document: Document, key: str) -> Problem:
    if isinstance(document.values[key], dict | list) and (near := nearest(key, SECTIONS)):
        brackets = f"[[{near}]]" if near in ("models", "pipelines", "streams") else f"[{near}]"
        return Problem("unknown-table", f"`{key}` is not a table of this file", document.place((key,)), key, f"did you mean {brackets}?")
    return unknown_key(key, None, "", document.place((key,)), key)


def _check_exposure(document: Document, server: ServerTable, auth: AuthSettings, report: list[Problem]) -> None:
    """Whoever reaches the port may use the models, and put them to sleep: that must be wanted."""
    if not is_exposed(server.host, auth, insecure=server.insecure):
        return
    place = document.place(("server", "host")) if ("server", "host") in document else Place("option --host")
    hint = "add [[auth.api_keys]] or --api-key ROLE:KEY, or say --insecure where the network itself keeps strangers out"
    report.append(Problem("open", f"{server.host} is reached from other machines, and there is no authentication", place, "server.host", hint))


def is_exposed(host: str, auth: AuthSettings, *, insecure: bool) -> bool:
    """Would everybody who reaches this address get in, and nobody has said that this is meant?"""
    return not auth.enabled and not insecure and is_reached_by_others(host)


def is_reached_by_others(host: str) -> bool:
    """Is this more than a loopback address?"""
    try:
        return not ip_address(host).is_loopback
    except ValueError:  # a name
        return host.lower() != "localhost"


def _check_certificate(document: Document, server: ServerTable, report: list[Problem]) -> None:
    given = {key: value for key in ("tls_cert", "tls_key") if (value := getattr(server, key))}
    for key, path in given.items():
        place = document.place(("server", key)) if ("server", key) in document else _option_place((key,))
        if len(given) == 1:
            other = "tls_key" if key == "tls_cert" else "tls_cert"
            report.append(Problem("conflict", f"`{key}` is of no use without `{other}`", place, f"server.{key}", f"give `{other}` too, or neither"))
        elif not Path(path).is_file():
            report.append(Problem("missing-file", f"{path} does not exist, or is no file", place, f"server.{key}"))
    if len(given) == 2 and all(Path(path).is_file() for path in given.values()):
        from wakeful.config.certificates import context_of  # noqa: PLC0415 - imports OpenSSL, which most starts need not wait for

        try:
            context_of(Path(given["tls_cert"]), Path(given["tls_key"]))
        except OSError as error:
            place = document.place(("server", "tls_cert")) if ("server", "tls_cert") in document else _option_place(("tls_cert",))
            report.append(Problem("certificate", str(error), place, "server.tls_cert"))


def _check_ports(document: Document, server: Mapping[str, Any], report: list[Problem]) -> None:
    table = ServerTable.model_construct(None, **server)
    if table.port == table.grpc_port != 0:
        written = [path for path in (("server", "grpc_port"), ("server", "port")) if path in document]
        place = document.place(written[0]) if written else Place("option --port")
        report.append(Problem("conflict", f"port and grpc_port are both {table.port}", place, "server.grpc_port"))


# Models ------------------------------------------------------------------------------------------------------------------------------


def _scanned(
    models_dir: Path, template: ModelSettings, models: list[ModelSettings], report: list[Problem]
) -> tuple[list[ModelSettings], set[Path]]:
    if not models_dir.is_dir():
        what = "is not a directory" if models_dir.exists() else "does not exist"
        hint = f"name the directory that it lies in: --models-dir {shlex.quote(str(models_dir.parent))}" if models_dir.exists() else None
        report.append(Problem("models-dir", f"the models directory {models_dir} {what}", Place("option --models-dir"), hint=hint))
        return [], set()
    try:
        return scan_directory(models_dir, template, models, report)
    except OSError as error:
        report.append(Problem("models-dir", f"the models directory {models_dir} cannot be read: {error.strerror}", Place("option --models-dir")))
        return [], set()


def _tell_neighbours(directory: Path, models: list[ModelSettings], report: list[Problem]) -> None:
    """A model that is missed may lie beside the file: it is served only if the directory is named."""
    missed = [problem.message for problem in report if problem.code in ("unknown-model", "missing-model")]
    if not missed:
        return
    served = {model.home or model.path for model in models}
    try:
        found = [one.id for one in models_in(directory, []).found if one.home.absolute() not in served]
    except OSError:
        return
    if names := [name for name in found if any(f"`{name}`" in message for message in missed)]:
        message = f"{', '.join(names)}: in {directory}, which is not given as the models directory, and so not served"
        report.append(Problem("models-dir", message, hint=f"--models-dir {shlex.quote(str(directory))}", severity="warning"))


def _check_ceiling(document: Document, defaults: DefaultsTable, models: list[ModelSettings], report: list[Problem]) -> None:
    """Replicas that never leave must not fill the ceiling, or no other model could ever be loaded."""
    ceiling = defaults.max_loaded_models
    kept = {model.id: max(model.replicas.min_replicas, (model.replicas.fixed or 1) if model.life.pinned else 0) for model in models}
    total = sum(kept.values())
    if ceiling is not None and (total > ceiling or (total == ceiling and 0 in kept.values())):
        message = f"max_loaded_models is {ceiling}, and pinned and min_replicas keep {total} loaded: no other model can ever be"
        report.append(Problem("conflict", message, document.place(("defaults", "max_loaded_models")), severity="warning"))


# Paths -------------------------------------------------------------------------------------------------------------------------------


def _given(table: Table | None) -> dict[str, Any]:
    return table.given() if table is not None else {}


def _with_absolute_paths(given: dict[str, Any], base: Path, home: Path) -> dict[str, Any]:
    paths = {key: str((base / expanded(given[key], home)).absolute()) for key in _PATHS if given.get(key)}
    return given | paths


def _cache_directory(environ: Mapping[str, str], home: Path) -> Path:
    """As the XDG base directory specification has it: a relative XDG_CACHE_HOME counts as absent."""
    base = Path(environ.get("XDG_CACHE_HOME") or "")
    return (base if base.is_absolute() else home / ".cache") / "wakeful"
