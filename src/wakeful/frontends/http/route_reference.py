"""docs/http.md, made from the table of routes: `python -m wakeful.frontends.http.route_reference > docs/http.md`."""

import sys
from typing import get_args

from wakeful.frontends.http.openapi import described
from wakeful.frontends.http.routes import Entry, table
from wakeful.frontends.wording import Dialect
from wakeful.telemetry.events import Kind

_TITLES: dict[Dialect, str] = {"oip": "Open Inference Protocol", "snooze": "SnoozeML, and for all", "openai": "OpenAI", "wakeful": "Wakeful"}

_INTRODUCTION = """\
# HTTP

<!-- Made from src/wakeful/frontends/http/routes.py by `python -m wakeful.frontends.http.route_reference`; a test holds it up to date. -->

Names of models may hold slashes, as they are or as `%2F`. Double and trailing slashes do not count. Where there is GET there is HEAD. A
path without a version means the newest; a model without [numbered ones](models.md#versions) has the version `1`. Request bodies may be
compressed (`content-encoding: gzip` or `deflate`) and chunked; `max_body` counts inflated bytes. Errors are on [their own page](errors.md).

Where [`[auth]`](configuration.md#auth) is on, a caller needs the role of the table or a higher one: `read_only`, `inference`, `admin`.
Without a valid key or token the answer is 401 whatever the path, with too low a role 403. `/metrics` needs `admin` with `protect_metrics`.
"""

_PAGES = """\
## Dashboard

`/ui/` is a page for browsers, and `/` leads them there; its files need no key, and what it shows comes from the routes above by the reader's.

A page of another site can make its visitor's browser ask this server. So `/ui/`, `/wakeful/`, what changes something, and whatever comes with an
`Origin` is answered only where `Host` is an address, `localhost`, a name under `.local` or without a dot, the configured `host`, or one of
[`allowed_hosts`](configuration.md#server); and what changes something only where `Origin`, if there is one, is the same. Else the answer is 403.
Whoever shows a valid key or token is no such page, and is not asked.
"""

_BODIES = """\
## Bodies

Those below `/v2` are the [Open Inference Protocol](https://github.com/kserve/open-inference-protocol)'s, for example (`data` flat or nested):

```json
{"inputs": [{"name": "features", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}
```

`POST /v1/models/{model}/infer` takes the same without `datatype`, and answers so:

```json
{"model_id": "fraud", "outputs": [{"name": "score", "shape": [1, 1], "data": [0.97]}], "duration_ms": 1.2}
```

Bodies of the other POSTs may be empty. Texts go to `/v1/embeddings` and `/v1/rerank`: see [clients](clients.md#openais-client).
`GET /v1/models` is a bare array, as SnoozeML's client needs it, and an object of OpenAI's for whoever sends `x-stainless-lang`, as its client
libraries do; `/openai/v1/models` is that object for everybody.
"""

_EVENTS = f"""\
## Events

An event has a number (`seq`), a time (seconds since 1970), a kind, a model (empty for the whole server), the text of its line in the log, and
the text's figures. The latest thousand are kept. Kinds:
{", ".join(f"`{kind}`" for kind in get_args(Kind))}.
"""


def reference() -> str:
    """The whole page."""
    entries = described(table(None, lambda _: None), secured=True)  # type: ignore[arg-type]  # no handler is called, so no engine is needed
    return "\n".join([_INTRODUCTION, *(_section(dialect, entries) for dialect in _TITLES), _PAGES, _BODIES, _EVENTS])


def _section(dialect: Dialect, entries: list[Entry]) -> str:
    rows = [f"| {entry.method} | `{entry.path}` | {_who(entry)} | {entry.what} |" for entry in entries if entry.dialect == dialect]
    return "\n".join([f"## {_TITLES[dialect]}", "", "| method | path | role | what it does |", "|---|---|---|---|", *rows, ""])


def _who(entry: Entry) -> str:
    return f"`{entry.role.name.lower()}`" if entry.role is not None else "anybody"


if __name__ == "__main__":
    sys.stdout.write(reference())
