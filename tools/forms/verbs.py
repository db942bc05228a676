"""What the verbs print with --json: `data` of one object."""

from tools.forms.routes import CHECK, EVENT, EVENTS, EXPLAIN, PLAN, SETTING, STATE, STATES
from tools.forms.schema import (
    ANYTHING,
    BYTES,
    COUNT,
    FLAG,
    NUMBER,
    RATE,
    SECONDS,
    TEXT,
    Fields,
    Schema,
    by_name,
    inline,
    many,
    maybe,
    table,
    word,
)

_FAILED = inline({"code": (TEXT, ""), "message": (TEXT, "")})


def _change(title: str, meaning: str, fields: Fields) -> Schema:
    """Of some of its fields only what applies: an error, or what was done, or with --dry-run what would be."""
    one: Fields = {"model": (TEXT, "its key"), "error": (_FAILED, "why not; then nothing else"), **fields}
    return table(title, meaning, {
        "dry_run": (FLAG, "nothing was done"),
        "models": (many(inline(one, optional=[name for name in one if name != "model"])), "one after the other"),
    })


_DONE: Fields = {"seconds": (SECONDS, "that it took"), "changed": (FLAG, "false: it was so already")}
_HELD: Fields = {"bytes": (BYTES, "that it holds, or held"), "measured": (FLAG, "or expected")}
_PLAN: Fields = {"plan": (maybe(PLAN), "with --dry-run; null: it is awake already")}

_PROBLEM = inline({
    "severity": (word("error", "warning"), ""), "code": (TEXT, "unknown-key, wrong-type, ...: stable"), "message": (TEXT, ""),
    "file": (maybe(TEXT), "or words, as `option --port`"), "line": (maybe(COUNT), ""), "column": (maybe(COUNT), "1 for the first character"),
    "width": (maybe(COUNT), "characters that it is about"), "key": (TEXT, "with its table"), "hint": (maybe(TEXT), "what to write instead"),
})
_TWO_BYTES = inline({"shipped": (BYTES, ""), "prepared": (BYTES, "")})
_TWO_SECONDS = inline({"shipped": (SECONDS, ""), "prepared": (SECONDS, "")})
_COPY: Fields = {
    "model": (TEXT, "its key"),
    "result": (word("made", "kept", "compared", "removed", "none", "failed"), "what came of it"),
    "reason": (TEXT, "why there is no copy"),
    "bytes": (BYTES, "of the copy"), "equal": (FLAG, "whether it answers as the model does, but for rounding"),
    "difference": (maybe(NUMBER), "largest one of two elements"), "inputs": (COUNT, "made-up ones that were compared"), "remark": (maybe(TEXT), ""),
    "load_seconds": (_TWO_SECONDS, "of a load"), "private_bytes": (_TWO_BYTES, "of a replica"),
}

_MS = maybe({"type": "number", "minimum": 0, "x-unit": "ms"})
_MSS = (by_name(_MS), "p50, p90, p95, p99, and max or p99.9; null without answers")
_HISTOGRAM = (many(inline({"below_ms": (NUMBER, "upper bound"), "count": (COUNT, "of answers")})), "of latencies")
_FIGURES: Fields = {
    "requests": (COUNT, "that were due"), "ok": (COUNT, "that were answered well"), "requests_per_second": (RATE, "answered well"),
    "rows_per_second": (RATE, "likewise"), "latency_ms": _MSS,
    "errors": (many(inline({"status": (COUNT, "0: no answer"), "count": (COUNT, ""), "first": (TEXT, "text of the first one")})), "by status"),
}
_OWN: Fields = {
    "rows": (maybe(NUMBER), "of a run, on average"), "queue": (maybe(SECONDS), "in the queue, on average"),
    "run": (maybe(SECONDS), "of a run, on average"), "memory": (BYTES, "that the models held after it"),
}
_STEP: Fields = {
    "rate": (RATE, "that was to be made"), "due_per_second": (RATE, "that chance made of it"), "done_per_second": (RATE, "answered well meanwhile"),
    "rows_per_second": (RATE, "likewise"), "requests": (COUNT, "that were due"), "failed": (COUNT, "of these"),
    "kept": (FLAG, "whether the server kept up"), "generator_busy": (NUMBER, "share of a core that the generator used"), "latency_ms": _MSS,
    "spread": (maybe(NUMBER), "how far a third is from the mean of all three, as a share"),
    "own": (maybe(inline(_OWN)), "what a Wakeful says itself"), "histogram": _HISTOGRAM,
}
_RUN: Fields = {
    "title": (TEXT, "in words"), "url": (TEXT, "of the server"), "command": (many(TEXT), "arguments of the program"), **_FIGURES,
    "seconds": (SECONDS, "that were measured"), "interrupted": (FLAG, "by Ctrl-C"), "under_way": (COUNT, "calls, when it was interrupted"),
    "generator": (inline({
        "busy": (NUMBER, "share of a core that it used"), "cpu_seconds": (SECONDS, ""), "lag_p99_ms": (_MS, "how late it sent"),
    }), "wakeful bench itself"),
    "histogram": _HISTOGRAM,
    "over_time": (many(inline({
        "begin": (NUMBER, "seconds from the beginning"), "seconds": (SECONDS, "how long"), "answers": (COUNT, ""), "failures": (COUNT, ""),
        "p50_ms": (_MS, ""), "p99_ms": (_MS, ""),
    })), "in slices"),
    "models": (by_name(inline(_FIGURES)), "of each, where there are several"),
    "asserts": (many(inline({"assert": (TEXT, "bound"), "value": (maybe(NUMBER), "that was found"), "holds": (FLAG, "")})), "with --assert"),
    "about": (TEXT, "with --sweep: how it was measured"), "steps": (many(inline(_STEP)), "with --sweep: in the order in which they were tried"),
    "knee": (maybe(RATE), "with --sweep: the highest rate that was kept up"), "stable": (FLAG, "with --sweep: whether the knee can be believed"),
    "conclusion": (many(TEXT), "with --sweep: that in words"),
}

VERBS: dict[str, Schema] = {
    "ps": STATE,
    "events": EVENTS,
    "event": EVENT,
    "explain": EXPLAIN,
    "load": _change("load", "What came of each.", {**_DONE, **_HELD, **_PLAN}),
    "unload": _change("unload", "What came of each.", {
        **_DONE, "bytes": (BYTES, "that it has freed, or would"), "queue": (COUNT, "with --dry-run"), "running": (COUNT, "with --dry-run"),
    }),
    "pin": _change("pin", "What came of each.", {**_DONE, **_PLAN}),
    "unpin": _change("unpin", "What came of each.", {
        "changed": (FLAG, "false: it was not pinned"), "sleeps_in": (maybe(SECONDS), "if nobody asks for it"), "pinned": (FLAG, "with --dry-run"),
    }),
    "infer": table("infer", "One call.", {
        "model": (TEXT, "its key"), "seconds": (SECONDS, "from here to the answer"), "state_before": (word(*STATES), ""),
        "answer": (ANYTHING, "as the Open Inference Protocol has it"),
    }),
    "call": table("call", "The call of `infer --curl` or `--python`.", {"text": (TEXT, "command or program")}),
    "health": table("health", "Whether the daemon takes requests.", {"good": (FLAG, ""), "text": (TEXT, "ready, live, or why not")}),
    "check": table("check", "What is wrong with a configuration.", {
        "errors": (COUNT, ""), "warnings": (COUNT, ""), "problems": (many(_PROBLEM), "in the order of the file"),
        "models": (maybe(many(TEXT)), "keys of those that would be served; null where an error leaves it open"),
        "pipelines": (maybe(many(TEXT)), "likewise"),
    }),
    "config": table("settings", "The settings that count.", {"files": (many(TEXT), "that were read"), "settings": (many(SETTING), "")}),
    "doctor": table("checks", "Whether this machine can do it.", {"checks": (many(CHECK), "")}),
    "bench": table("run", "What came of a load; each load has some of these.", _RUN, optional=list(_RUN)),
    "prepare": table("copies", "What came of each model's copy.", {
        "models": (many(inline(_COPY, optional=[name for name in _COPY if name not in ("model", "result")])), "one after the other"),
    }),
    "version": table("version", "This program.", {"version": (TEXT, ""), "python": (TEXT, ""), "system": (TEXT, "")}),
}
"""By kind."""
FAILURE = table("failure", "Any verb that has no answer.", {
    "wakeful": ({"const": 1}, "the format"),
    "error": (inline({"code": (TEXT, "as the page on errors has it, or unreachable"), "message": (TEXT, ""), "hint": (maybe(TEXT), ""),
                      "exit": (COUNT, "the exit status")}), ""),
})


def envelope(kind: str, data: Schema) -> Schema:
    """The object that is printed."""
    return table("", "", {"wakeful": ({"const": 1}, "the format"), "kind": ({"const": kind}, "of the answer"), "data": (data, "the answer")})
