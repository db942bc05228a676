"""What the routes below /wakeful/v1 answer."""

from tools.forms.schema import (
    ANYTHING,
    BYTES,
    COUNT,
    FLAG,
    NUMBER,
    RATE,
    SECONDS,
    TEXT,
    TIME,
    WHOLE,
    Fields,
    Schema,
    by_name,
    inline,
    many,
    maybe,
    table,
    word,
)
from wakeful.insight.history import COUNTERS, GAUGES, SPANS
from wakeful.telemetry.event_kinds import MEANINGS
from wakeful.telemetry.metrics import LATENCY_BOUNDS

FORMAT: Fields = {"wakeful": ({"const": 1}, "the format; fields are added, and never come to mean something else")}
STATES = ("asleep", "waking", "ready", "busy", "draining", "failed")
LATENCIES = many(COUNT, len(LATENCY_BOUNDS))
_BOUNDS = ", ".join(f"{bound:g}" for bound in LATENCY_BOUNDS)
_FLOW: Fields = {
    "requests_per_second": (RATE, "that were answered well, over the last minute or what there is of it"),
    "failures_per_second": (RATE, "the same of failures"),
    "p50": (maybe(SECONDS), "that half of the requests of the last minute took at most"),
    "p99": (maybe(SECONDS), "that 99 % of them took at most"),
}

EVENT = table("event", "One decision of the daemon, or something that happened to it.", {
    "seq": (COUNT, "its number; a daemon counts from 1"),
    "time": (TIME, "when"),
    "kind": (word(*MEANINGS), "what it is about: see the page on events"),
    "model": (TEXT, "of which model, by its key; empty: of the daemon"),
    "reason": (maybe(TEXT), "in one word"),
    "text": (TEXT, "as people read it"),
    "figures": (by_name(ANYTHING), "that decided it, by name: see the page on events"),
})

_REPLICA = inline({
    "index": (COUNT, "its place; 0 is the first"),
    "state": (word("waiting", "waking", "ready", "busy", "draining", "dead"), "`waiting` is for memory"),
    "pid": (maybe(COUNT), "of its process"),
    "age_seconds": (SECONDS, "since it was begun"),
    "private_bytes": (BYTES, "that it alone holds"),
    "copied": (FLAG, "whether it is a copy of a live one"),
})

MODEL = table("model", "A model, a version of one, or a pipeline.", {
    "name": (TEXT, "as callers name it"),
    "version": (maybe(TEXT), "of a numbered one"),
    "key": (TEXT, "name or name:version; no two are the same"),
    "state": (word(*STATES), "of all its replicas together"),
    "reason": (TEXT, "why it is so"),
    "pinned": (FLAG, "never put to sleep"),
    "helps": (FLAG, "only for other models, as a tokenizer"),
    "pipeline": (FLAG, "several models that are asked as one"),
    "replicas": (many(_REPLICA), "those that live"),
    "max_replicas": (maybe(COUNT), "most of them; null: no ceiling"),
    "min_replicas": (COUNT, "fewest of them"),
    "queue": (COUNT, "requests that wait"),
    "running": (COUNT, "requests that run"),
    **_FLOW,
    "rows_per_run": (maybe(NUMBER), "on average of the last minute"),
    "done": (COUNT, "requests that were answered well, since the daemon began"),
    "failed": (COUNT, "requests that were not"),
    "rows": (COUNT, "that were run"),
    "runs": (COUNT, "of the model"),
    "lat": (LATENCIES, f"requests by how long they took, since the daemon began; upper bounds in seconds: {_BOUNDS}, the last takes all above"),
    "private_bytes": (BYTES, "of its replicas, all together"),
    "shared_bytes": (BYTES, "mapped by all of them"),
    "resident_bytes": (BYTES, "that count against the budget"),
    "measured": (FLAG, "whether that is measured, or expected"),
    "sleeps_in": (maybe(SECONDS), "if nobody asks for it"),
    "wakes_in": (maybe(SECONDS), "how long its last wake took"),
    "retry_in": (maybe(SECONDS), "until a load is tried again that has failed"),
    "last_used": (maybe(SECONDS), "ago"),
    "error": (maybe(TEXT), "why the last load has failed"),
    "path": (TEXT, "of its file or directory; empty for a pipeline"),
    "backend": (TEXT, "what opens it"),
    "description": (maybe(TEXT), "of the settings"),
    "merges": (FLAG, "whether requests are merged"),
    "batching": (TEXT, "why, or why not"),
})

MEMORY = inline({
    "used": (BYTES, "by models"),
    "budget": (BYTES, "that all of them may hold"),
    "machine": (BYTES, "that the machine or container has"),
    "source": (TEXT, "where the budget comes from"),
    "margin": (BYTES, "that is left free beside"),
})

DAEMON = table("daemon", "The daemon itself.", {
    "version": (TEXT, "of Wakeful"), "python": (TEXT, "version of Python"), "pid": (COUNT, "of its process"),
    "up_seconds": (SECONDS, "since it began"),
    "condition": (word("ready", "starting", "stopping"), "whether it takes requests"),
    "cores": (COUNT, "that it may use"),
    "url": (TEXT, "where it listens"),
    "grpc_port": (maybe(COUNT), "of gRPC"),
    "config": (many(TEXT), "files that it has read"),
    "models": (inline({
        "total": (COUNT, "without pipelines"), "awake": (COUNT, "with a replica"), "asleep": (COUNT, "without"),
        "failed": (COUNT, "whose load failed"),
    }), "how many there are"),
    "memory": (MEMORY, "of models"),
    **_FLOW,
    "thrashing": (COUNT, "models that were needed again right after their eviction"),
    "restarts": (COUNT, "of replicas and nurseries that died"),
    "streams": (inline({"open": (COUNT, "that follow"), "frames_dropped": (COUNT, "that a slow reader did not get")}), "of server-sent events"),
    "nurseries": (many(inline({"library": (TEXT, "backend"), "pid": (maybe(COUNT), "of its process")})), "that fork replicas"),
    "problems": (many(inline({
        "code": (TEXT, "in one word"), "text": (TEXT, "in a sentence"), "hint": (maybe(TEXT), "what to do"),
    })), "that somebody should see to"),
})

STATE = table("state", "The daemon and all models, as they are now. `snapshot` of the stream has the same.", {
    **FORMAT, "seq": (COUNT, "number of the newest event"), "time": (TIME, "now"), "daemon": (DAEMON, "itself"),
    "models": (many(MODEL), "all of them"),
    "last": (maybe(EVENT), "the newest event that changed who is awake"),
})

SETTING = inline({
    "key": (TEXT, "as server.port"), "value": (ANYTHING, "that counts; a secret is shown as ***"),
    "source": (TEXT, "default, file:line, an option, a variable, a file beside the model, learnt"),
})
_TENSOR = inline({"name": (TEXT, ""), "datatype": (TEXT, "as the Open Inference Protocol has it"), "shape": (many(WHOLE), "-1: free")})

ONE_MODEL = table("one model", "A model with all that is known of it.", {
    **FORMAT, "time": (TIME, "now"), "model": (MODEL, "as in the list"),
    "signature": (maybe(inline({"inputs": (many(_TENSOR), ""), "outputs": (many(_TENSOR), "")})), "null until it was opened for the first time"),
    "settings": (many(SETTING), "all of them, without a table before the key"),
    "batches": (many(inline({"rows": (maybe(COUNT), "at most; null: more"), "count": (COUNT, "of runs")})), "sizes of runs of the last minute"),
    "cost": (maybe(inline({"a": (NUMBER, "seconds of a run"), "b": (NUMBER, "seconds more for each row")})), "learnt: a run takes a + b·rows"),
    "max_batch_size": (COUNT, "that counts now, in rows; 0 for a pipeline"),
    "events": (many(EVENT), "of it, the last 20"),
})

_COLUMNS: Schema = inline({name: (many(maybe(NUMBER)), "") for name in (*COUNTERS, *GAUGES)})
_CHANGES = many(inline({
    "t": (TIME, "when"), "state": (word(*STATES), "from then on"),
    "reason": (maybe(TEXT), "a letter: i idle, l for memory, o out of memory, m by hand, ..."),
}))
_HISTORY: Fields = {
    **FORMAT, "step": ({"enum": [span.step for span in SPANS.values()]}, "seconds of a step"), "from": (TIME, "begin of the first step"),
    "series": (_COLUMNS, "oldest first, null where nothing is known. Counts are of the step: " + ", ".join(COUNTERS)
               + "; of the others it is the largest value: " + ", ".join(GAUGES)),
    "lat": (many(maybe(LATENCIES)), "requests by how long they took, of each step; null where that is not kept"),
}
HISTORY = table("history", "The daemon over the last 5 minutes, hour or day.", {
    **_HISTORY, "memory": (by_name(many(maybe(NUMBER))), "bytes by model, of those that held most"),
    "others": (maybe(many(NUMBER)), "bytes of all others; null where there are none"),
    "states": (by_name(_CHANGES), "by model, how it changed"),
})
MODEL_HISTORY = table("history of a model", "A model over the last 5 minutes, hour or day.", {**_HISTORY, "states": (_CHANGES, "how it changed")})

PLAN = table("plan", "What a load would need, and who would have to go for it.", {
    "needs": (BYTES, "for the load"), "measured": (FLAG, "or estimated by the file"), "free": (WHOLE, "bytes of the budget"),
    "budget": (BYTES, "of all models"),
    "evict": (many(inline({"key": (TEXT, "model"), "bytes": (BYTES, "that it holds"), "text": (TEXT, "why it")})), "who would go, in order"),
    "keep": (many(inline({"key": (TEXT, "model"), "text": (TEXT, "why not")})), "who would be passed over"),
    "possible": (FLAG, "whether there would be room"),
    "retry_in": (maybe(SECONDS), "until there may be"),
    "text": (TEXT, "as people read it"), "seconds": (maybe(SECONDS), "that the wake would take"),
})
EXPLAIN = table("explanation", "Why a model is as it is; with `wake=1` what a request would bring about.", {
    **FORMAT, "model": (TEXT, "its key"), "state": (word(*STATES), ""), "since": (maybe(TIME), "when it became so"),
    "lines": (many(inline({"label": (TEXT, "because, batching, hint, ..."), "text": (TEXT, "")})), "the account"),
    "text": (TEXT, "the whole as people read it"),
    "event": (maybe(EVENT), "that made it so, if it is kept"),
    "plan": (maybe(PLAN), "for a model that sleeps, if it was asked for"),
})
EVENTS = table("events", "The newest events, newest last.", {
    **FORMAT, "first": (COUNT, "number of the oldest that is kept"), "events": (many(EVENT), ""),
})
CONFIG = table("config", "The settings that count; of models what is not as for all.", {
    **FORMAT, "files": (many(TEXT), "that were read"), "settings": (many(SETTING), ""),
})
CHECK = inline({
    "level": (word("ok", "warn", "fail"), ""), "name": (TEXT, "of what"), "text": (TEXT, "how it is"), "hint": (maybe(TEXT), "what to do"),
})
DOCTOR = table("doctor", "Whether this machine can do it.", {**FORMAT, "checks": (many(CHECK), "")})
ACCESS = table("access", "What the caller's key allows.", {
    **FORMAT, "role": (word("admin", "inference", "read_only", "none"), ""), "open": (FLAG, "whether nobody needs a key"),
})
ERROR = table("error", "Any route of this prefix that refuses.", {
    "error": (TEXT, "as people read it"), "code": (TEXT, "as the page on errors has it"),
})
TICK = table("tick", "Of the stream, once a second: what has changed.", {
    "seq": (COUNT, "number of the newest event"), "t": (TIME, "now"), "mem": (MEMORY, ""), "daemon": (inline(_FLOW), "rates"),
    "models": (by_name(maybe(MODEL | {"required": []})), "by key, the fields that are not as they were; null: it is gone"),
})
GAP = table("gap", "Of the stream: frames were left out, and a snapshot follows.", {"from": (COUNT, "number of an event"), "to": (COUNT, "likewise")})
BYE = table("bye", "Of the stream: it ends.", {"reason": (word("stopping", "expired"), "")})

ROUTES: dict[str, tuple[str, Schema]] = {
    "state": ("GET /wakeful/v1/state", STATE),
    "model": ("GET /wakeful/v1/models/{model}", ONE_MODEL),
    "explain": ("GET /wakeful/v1/models/{model}/explain", EXPLAIN),
    "model-history": ("GET /wakeful/v1/models/{model}/history", MODEL_HISTORY),
    "history": ("GET /wakeful/v1/history", HISTORY),
    "events": ("GET /wakeful/v1/events", EVENTS),
    "config": ("GET /wakeful/v1/config", CONFIG),
    "doctor": ("GET /wakeful/v1/doctor", DOCTOR),
    "access": ("GET /wakeful/v1/access", ACCESS),
    "error": ("any of them", ERROR),
    "stream-tick": ("GET /wakeful/v1/stream: tick", TICK),
    "stream-event": ("GET /wakeful/v1/stream: event", EVENT),
    "stream-gap": ("GET /wakeful/v1/stream: gap", GAP),
    "stream-bye": ("GET /wakeful/v1/stream: bye", BYE),
}
"""By the name of the file."""
