"""docs/configuration.md, made from the schema: `python -m wakeful.config.reference > docs/configuration.md`."""

import sys
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from wakeful.config.schema import (
    ApiKeyTable,
    AuthTable,
    BudgetTable,
    ClusterTable,
    JwtTable,
    ModelTable,
    PadTable,
    PipelineTable,
    ServerTable,
    StepTable,
    StreamTable,
    TextTable,
    TuningTable,
    WarmupTable,
)
from wakeful.config.settings import Role

EXAMPLE = """\
[server]
port = 8080
grpc_port = false                # HTTP only

[defaults]                       # for every model
idle_timeout_secs = 300          # asleep after five quiet minutes
max_batch_size = 16
max_batch_delay_ms = 5
memory_limit = "80%"             # of the machine or container, for all models together

[[models]]
id = "fraud"
path = "fraud.onnx"
pinned = true                    # always loaded

[[models]]
id = "search/embedder"           # a "/" groups names
path = "embedder.onnx"
max_batch_size = 64              # instead of the default
max_replicas = 4                 # a burst may start up to four
target_p99_ms = 50
pad = { axis = 1, value = 0, mask = "attention_mask", buckets = [32, 128] }
"""

_INTRODUCTION = f"""\
# Configuration

<!-- Made from src/wakeful/config/schema.py by `python -m wakeful.config.reference`; a test holds it up to date. -->

Nothing has to be configured: `wakeful serve --models-dir DIR` serves every [model](models.md) in `DIR` under its name. A `models.toml` (or
`models.json`) there is used; `--config FILE` names another. JSON has the same tables and keys.

```toml
{EXAMPLE}```

A model inherits every key of `[defaults]` that it does not set. A model that was found by looking takes further
keys from a file beside it, `fraud.onnx.toml` beside `fraud.onnx`. What is said on the command line goes before the environment, then comes
the file, then the default. Every mistake is shown at once, with its line, and nothing starts. `wakeful check FILE --show` writes out what
counts in the end.

`kill -HUP` makes a running daemon read it again. Models whose settings are the same are not touched; a changed one finishes what it runs,
and what waits for it goes on under the new settings; a removed one takes no more requests. So it is with streams. Keys of callers count from
then on. `[server]`, the cache and the bounds of the whole daemon take a restart, which the log says. A file with a mistake changes nothing.

Times end in `_secs` or `_ms` and may have fractions. Sizes are bytes, or text such as `"512MB"` (powers of 1000) and `"4GiB"` (powers
of 1024).

`wakeful config show` lists every setting that counts with where it comes from: a line, an option, a variable or the default. Editors complete and
check the file by its [schema](reference/models.schema.json), which `wakeful config schema` prints: `#:schema models.schema.json` as the first line.
"""
_WARMUP = """\
Requests that are run, one table after the other, before a replica is ready. See [Warming up](models.md#warming-up).
"""
_BOTH = """\
Keys for one model, and in `[defaults]` for all of them. A model that sets `replicas` drops the `min_replicas` and `max_replicas` of
`[defaults]`, and the other way round."""
_TEXT = """\
For models that are given texts, through `/v1/embeddings` and `/v1/rerank`; see [models](models.md#text-embeddings-and-reranking). Where a
`tokenizer.json` lies beside the model this table may be left out. It belongs to the `[[models]]` above it."""
_OPTIONS = """\
Each key is also an option (`--max-body 64MiB`) and a variable (`WAKEFUL_MAX_BODY=64MiB`), and so are the two of the next table."""
_BOUNDS = "Bounds of the whole daemon. The keys of the table for `[defaults]` and `[[models]]` below work here too."
_PIPELINES = """\
Models that callers ask as one; [how they are chained](models.md#pipelines). Each step is batched, scaled and put to sleep by the settings of
its model."""
_AUTH = """\
Without this table, and without `--api-key` and `--jwt-secret`, whoever reaches the port may do everything; so an address that other
machines reach is refused then, unless `insecure` is set. Callers send `Authorization: Bearer KEY`, or `X-API-Key: KEY`. What each role may
do is on the page of [routes](http.md); health is open to all.

```toml
[[auth.api_keys]]
name = "shop"
role = "inference"
key_env = "SHOP_KEY"             # or key = "..."

[auth.jwt]
secret_env = "TOKEN_SECRET"      # tokens hold {"exp": 1893456000, "role": "inference"}
```

A variable is what it was when the daemon began, so keys that change while it runs belong into the file."""
_KEYS = """\
One table a key, with `key` or `key_env`. Only its SHA-256 is kept. Names of roles are taken in any case, and `read`, `readonly`, `ro`,
`infer`, `user` and `administrator` too. `--api-key ROLE:KEY` adds one."""
_JWT = """\
JSON web tokens, with `secret` or `secret_env`. A token needs `exp`; `nbf` counts where it is there; the role is the highest of `role` and
`roles`, and `read_only` without one that is known. `--jwt-secret SECRET` goes before the file."""
_STREAMS = """\
One table a topic of a broker: each of its messages is a request, and the [answers](clients.md#messages-redis-rabbitmq-kafka) go to another
topic. All keys have defaults. Each broker needs its library: `pip install 'wakeful[redis]'`, `[rabbitmq]` or `[kafka]`.

```toml
[[streams]]
broker = "redis"
endpoint = "redis://127.0.0.1:6379"
input_topic = "fraud.requests"
output_topic = "fraud.answers"
model_id = "fraud"
```"""
_CLUSTER = """\
For a pod of a cluster's [Server](../README.md): what it serves beside its own models, a controller says. The manifests of a Server write all of this.
Each key is also a variable (`WAKEFUL_CLUSTER_CONTROLLERS=a:9100,b:9100`). `POD_NAME`, `POD_UID` and `POD_NAMESPACE` are read for `pod`, `pod_uid` and
`namespace`, and for the last figures Seldon's names too: `SELDON_MODEL_INFERENCE_LAG_THRESHOLD` for `lag_threshold`,
`SELDON_MODEL_INACTIVE_SECONDS_THRESHOLD` for `inactive_secs`, `SELDON_SCALING_STATS_PERIOD_SECONDS` for `stats_period_secs`; and the same names that
begin with `WAKEFUL_`. Variables go before the file. Where no controller is named, the table says nothing."""
_NUMBERS = {int: "whole number", float: "number", bool: "`true` or `false`", str: "text"}


def reference() -> str:
    """The whole page."""
    own = {key: field for key, field in ModelTable.model_fields.items() if key not in TuningTable.model_fields}
    sections = [
        _INTRODUCTION,
        _section("`[server]`", _OPTIONS, dict(ServerTable.model_fields)),
        _section("`[defaults]`", _BOUNDS, dict(BudgetTable.model_fields)),
        _section("`[[models]]`", "`id` and `path` are needed.", own),
        _section("`[defaults]` and `[[models]]`", _BOTH, dict(TuningTable.model_fields)),
        _section("`pad`", "Only for models in which filled-up elements do not change the answer.", dict(PadTable.model_fields)),
        _section("`[models.text]`", _TEXT, dict(TextTable.model_fields)),
        _section("`[[models.warmup]]`", _WARMUP, dict(WarmupTable.model_fields)),
        _section("`[[pipelines]]`", _PIPELINES, dict(PipelineTable.model_fields)),
        _section("`steps`", "Tables in `steps` of `[[pipelines]]`.", dict(StepTable.model_fields)),
        _section("`[auth]`", _AUTH, dict(AuthTable.model_fields)),
        _section("`[[auth.api_keys]]`", _KEYS, dict(ApiKeyTable.model_fields)),
        _section("`[auth.jwt]`", _JWT, dict(JwtTable.model_fields)),
        _section("`[[streams]]`", _STREAMS, dict(StreamTable.model_fields)),
        _section("`[cluster]`", _CLUSTER, dict(ClusterTable.model_fields)),
    ]
    return "\n".join(sections)


def _section(title: str, text: str, keys: dict[str, FieldInfo]) -> str:
    rows = [f"| `{key}` | {_type(field)} | {shown_default(key, field)} | {field.description} |" for key, field in keys.items()]
    return "\n".join([f"## {title}", "", text, "", "| key | type | default | meaning |", "|---|---|---|---|", *rows, ""])


def _type(field: FieldInfo) -> str:
    extra: Any = field.json_schema_extra
    words = [extra["form"] or _annotation(field), _bounds(field), extra["unit"]]
    return ", ".join(filter(None, words)).replace("|", "\\|")


def _annotation(field: FieldInfo) -> str:
    kind: Any = field.annotation
    if get_origin(kind) is Literal:
        *words, last = (f"`{word}`" for word in get_args(kind))
        return f"{', '.join(words)} or {last}"
    kinds = [part for part in get_args(kind) or (kind,) if part is not NoneType]
    kind = getattr(kinds[0], "__origin__", kinds[0])
    return _NUMBERS[kind]


def _bounds(field: FieldInfo) -> str:
    """Lower bounds; the upper ones only catch mistaken units, except of ports."""
    for bound in field.metadata:
        if getattr(bound, "gt", None) is not None:
            return f"above {bound.gt:g}"
        if getattr(bound, "ge", None):
            return f"{bound.ge:g} or more"
    return ""


def shown_default(key: str, field: FieldInfo) -> str:
    """As people would write it; "-" where there is none."""
    default = field.default
    if field.is_required():
        return "needed"
    if default is None:
        return "-"
    if key == "threads":
        return '`"auto"`'
    if isinstance(default, Role):
        return f"`{default.name.lower()}`"
    if default in ("", [], {}):
        return "-"
    extra: Any = field.json_schema_extra
    if extra["form"] == "size":
        return f'`"{_size(default)}"`'
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f'`"{default}"`' if isinstance(default, str) else f"`{default:g}`"


def _size(size: int) -> str:
    for unit, power in (("GiB", 3), ("MiB", 2), ("KiB", 1)):
        if size % 1024**power == 0:
            return f"{size // 1024**power}{unit}"
    return str(size)


if __name__ == "__main__":
    sys.stdout.write(reference())
