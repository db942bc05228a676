"""docs/http.md, made from the table of routes: `python -m wakeful.frontends.http.route_reference > docs/http.md`."""

import sys

from wakeful.frontends.http.errors import Dialect
from wakeful.frontends.http.routes import Entry, table

_TITLES: dict[Dialect, str] = {"oip": "Open Inference Protocol", "snooze": "SnoozeML, and for both"}

_INTRODUCTION = """\
# HTTP

<!-- Made from src/wakeful/frontends/http/routes.py by `python -m wakeful.frontends.http.route_reference`; a test holds it up to date. -->

Names of models may hold slashes, as they are or as `%2F`. Double and trailing slashes do not count. Where there is GET there is HEAD. Models
have one version, `1`; paths may leave it out. Request bodies may be compressed (`content-encoding: gzip` or `deflate`) and chunked; `max_body`
counts inflated bytes. Errors are on [their own page](errors.md).
"""


def reference() -> str:
    """The whole page."""
    entries = table(None, lambda _: None)  # type: ignore[arg-type]  # no handler is called, so no engine is needed
    return "\n".join([_INTRODUCTION, *(_section(dialect, entries) for dialect in _TITLES)])


def _section(dialect: Dialect, entries: list[Entry]) -> str:
    rows = [f"| {entry.method} | `{entry.path}` | {entry.what} |" for entry in entries if entry.dialect == dialect]
    return "\n".join([f"## {_TITLES[dialect]}", "", "| method | path | what it does |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    sys.stdout.write(reference())
