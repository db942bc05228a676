"""What people read when the daemon starts: a short page on a terminal, the same as log lines anywhere else."""

import os
import platform
import socket
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from wakeful import __version__
from wakeful.app import App
from wakeful.config.kinds import KINDS, library_of
from wakeful.config.models import DEMO_DIR
from wakeful.config.settings import MemorySettings, ModelSettings, Settings
from wakeful.frontends.http.server import url_of
from wakeful.memory.budget import DEFAULT_SHARE, Memory, cpu_quota, read_memory
from wakeful.telemetry.units import counted, show_bytes

WIDTH = 80
LABEL = 11
TRY_BODY = '{"inputs":[{"name":"input","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}'
DEMO = "demo-model"
MOST_NAMES = 6


class Row(NamedTuple):
    label: str
    text: str
    wrap: bool = True
    """False: a command, which must stay on one line to be pasted."""


def tell(app: App, sockets: Sequence[socket.socket]) -> None:
    """Say what starts here and with what: on stderr if that is a terminal, else in the log. `sockets`: of HTTP, and of gRPC if there is one."""
    settings, sock = app.settings, sockets[0]
    rows = [
        Row("config", config_text(settings)),
        Row("machine", f"{cores_text(app.cores)}, {budget_text(settings.memory, app.supervisor.budget, read_memory())}"),
        Row("listen", listen_text(sockets, settings)),
        *exposure(sock, settings),
        *models_rows(settings),
        *first_steps(settings, url_of(sock, secure=settings.server.tls is not None)),
    ]
    title = f"Wakeful {__version__}   Python {platform.python_version()}   {library_of(settings.defaults.backend)}   pid {os.getpid()}"
    if sys.stderr.isatty() and settings.server.log_format == "text":
        print("\n".join([title, *page(rows)]), file=sys.stderr)
    else:
        for label, text, _ in (Row("", title.replace("   ", ", ")), *rows):
            app.log.write("start", label, text)


def page(rows: Iterable[Row]) -> list[str]:
    lines = []
    for label, text, wrap in rows:
        pieces = textwrap.wrap(text, WIDTH - LABEL, break_long_words=False, break_on_hyphens=False) if wrap else [text]
        lines += [f"  {(label if number == 0 else ''):<{LABEL - 2}}{piece}" for number, piece in enumerate(pieces)]
    return lines


def config_text(settings: Settings) -> str:
    """Where the settings come from, and how many models they name."""
    files = ", ".join(map(_short, settings.files))
    places = Counter(_origin(model, settings.models_dir) for model in settings.models)
    counts = [f"{count} {origin}" for origin, count in places.items()]
    pipelines = f"; pipelines: {len(settings.pipelines)}" if settings.pipelines else ""
    return f"{files or 'no file, defaults'}; models: {', '.join(counts) or 'none yet'}{pipelines}"


def _origin(model: ModelSettings, models_dir: Path | None) -> str:
    if KINDS[model.backend].serves_models:
        return "of their tokenizers"
    if model.scanned and models_dir is not None:
        return f"found in {_short(models_dir)}"
    return "of the demonstration" if _is_demo(model) else "configured"


def _is_demo(model: ModelSettings) -> bool:
    return model.path.parent == DEMO_DIR


def _short(path: Path) -> str:
    """As seen from the working directory, if it lies there."""
    absolute = path.absolute()
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(path)


def cores_text(cores: int) -> str:
    quota, there = cpu_quota(), os.cpu_count() or cores
    reason = f" (the quota is {quota:g}, the machine has {there})" if quota is not None and quota < there else ""
    return counted(cores, "core") + (reason or (f" (of the machine's {there})" if there > cores else ""))


def budget_text(settings: MemorySettings, budget: int, machine: Memory) -> str:
    whole = f"{show_bytes(machine.limit)} ({machine.source})"
    if isinstance(settings.limit, int):
        return f"memory budget {show_bytes(budget)} by memory_limit; there is {whole}"
    share = DEFAULT_SHARE if settings.limit is None else settings.limit
    return f"memory budget {show_bytes(budget)}, {share:.0%} of {whole}{'' if settings.limit is None else ', by memory_limit'}"


def listen_text(sockets: Sequence[socket.socket], settings: Settings) -> str:
    url = url_of(sockets[0], secure=settings.server.tls is not None)
    text = f"{url} (page {url}/ui/, /metrics)"
    if len(sockets) == 1:
        return text
    return f"{text}, gRPC {url_of(sockets[1]).removeprefix('http://')}"


def models_rows(settings: Settings) -> list[Row]:
    """Which models begin how. What is wrong with one of them shows when it is looked at."""
    models = {model.key: model for model in settings.models if not KINDS[model.backend].serves_models}
    pinned = [key for key, model in models.items() if model.life.pinned]
    asleep = [key for key in models if key not in pinned]
    words = [f"{len(asleep)} asleep ({_few(asleep)})"] if asleep else []
    words += [f"{len(pinned)} pinned, waking ({_few(pinned)})"] if pinned else []
    return [Row("models", ", ".join(words))] if words else []


def _few(names: Sequence[str]) -> str:
    more = f", {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def exposure(sock: socket.socket, settings: Settings) -> list[Row]:
    """Who can reach it, where that is more than this machine, and who may use it."""
    rows = []
    host = ip_address(sock.getsockname()[0])
    if not host.is_loopback:
        where = "every address of this machine" if host.is_unspecified else str(host)
        what = "" if settings.auth.enabled else ": whoever reaches it may use these models (--insecure)"
        plain = "" if settings.server.tls else "; what is sent can be read on the way, without tls_cert"
        rows.append(Row("reach", f"{where}{what}{plain}"))
    if settings.auth.enabled:
        count, roles = len(settings.auth.keys), ", ".join(role.name.lower() for role in sorted({key.role for key in settings.auth.keys}))
        ways = [f"a key ({roles})" if count == 1 else f"one of {count} keys ({roles})"] if count else []
        ways += ["a token"] if settings.auth.jwt else []
        rows.append(Row("callers", f"need {' or '.join(ways)}; health is open"))
    return rows


def first_steps(settings: Settings, url: str) -> list[Row]:
    """A request that is answered: for those who have models, what the first of them takes; for others, and then how to bring one."""
    curl = "curl -s -H 'authorization: Bearer KEY'" if settings.auth.enabled else "curl -s"
    own = "every model in DIR: wakeful serve --models-dir DIR"
    if any(model.id == DEMO and _is_demo(model) for model in settings.models):
        attempt = Row("try", f"{curl} {url}/v2/models/{DEMO}/infer -d '{TRY_BODY}'", wrap=False)
        return [attempt, Row("next", f"your own models, {own}")] if all(map(_is_demo, settings.models)) else [attempt]
    if settings.models:
        first = next(model for model in settings.models if not KINDS[model.backend].serves_models)
        return [Row("try", f"{curl} {url}/v2/models/{quote(first.id)}", wrap=False)]
    attempt = Row("try", f"{curl} {url}/v1/models", wrap=False)
    if settings.models_dir is None:
        return [attempt, Row("next", f"{own}; or two small ones: --demo")]
    then = Row("", f"{curl} -X POST {url}/v1/models/refresh", wrap=False)
    return [attempt, Row("next", f"put an .onnx file into {_short(settings.models_dir)}, and"), then]
