"""`wakeful serve`: start the daemon."""

import errno
import sys
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from wakeful.app import App
from wakeful.clock import monotonic
from wakeful.config.load import Options, load
from wakeful.config.problems import ConfigError
from wakeful.config.schema import OverrideTable
from wakeful.config.settings import Settings
from wakeful.frontends.http.server import bind

USAGE_ERROR = 2


def _described(key: str) -> str:
    return OverrideTable.model_fields[key].description or ""


def serve(
    config: Annotated[Path | None, typer.Option(help="models.toml or models.json.")] = None,
    models_dir: Annotated[Path | None, typer.Option(help=_described("models_dir"))] = None,
    host: Annotated[str | None, typer.Option(help=_described("host"))] = None,
    port: Annotated[int | None, typer.Option(help=_described("port"))] = None,
    grpc_port: Annotated[int | None, typer.Option(help=_described("grpc_port"))] = None,
    no_grpc: Annotated[bool, typer.Option("--no-grpc", help="Serve no gRPC.")] = False,
    demo: Annotated[bool, typer.Option("--demo", help="Also serve the demo models digits and demo-model.")] = False,
    api_key: Annotated[list[str] | None, typer.Option(help="ROLE:KEY; may be given several times.")] = None,
    jwt_secret: Annotated[str | None, typer.Option(help="Secret of signed tokens.")] = None,
    memory_limit: Annotated[str | None, typer.Option(help=_described("memory_limit"))] = None,
    max_loaded_models: Annotated[int | None, typer.Option(help=_described("max_loaded_models"))] = None,
    cache_dir: Annotated[Path | None, typer.Option(help=_described("cache_dir"))] = None,
    log_format: Annotated[str | None, typer.Option(help=_described("log_format"))] = None,
) -> None:
    """Start the daemon and serve until it is told to stop."""
    started = monotonic()
    try:
        settings = load(
            Options(
                config=config, models_dir=models_dir, host=host, port=port, grpc_port=grpc_port, no_grpc=no_grpc, demo=demo,
                api_keys=tuple(api_key or ()), jwt_secret=jwt_secret, memory_limit=memory_limit, max_loaded_models=max_loaded_models,
                cache_dir=cache_dir, log_format=log_format,
            )
        )
    except ConfigError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(USAGE_ERROR) from None
    uvloop.run(_serve(settings, started))


async def _serve(settings: Settings, started: float) -> None:
    server = settings.server
    try:
        sock = bind(server.host, server.port)
    except OSError as error:
        print(f"error: cannot listen on {server.host}:{server.port}: {error.strerror}", file=sys.stderr)
        if error.errno == errno.EADDRINUSE:
            print(f"hint: another program has it (ss -ltnp shows which); for a free one: wakeful serve --port 0", file=sys.stderr)
        raise typer.Exit(USAGE_ERROR) from None
    await App(settings, started).run(sock)
