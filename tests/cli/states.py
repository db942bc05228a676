"""Answers of the data door with fixed figures, those of the examples in the specification."""

from typing import Any

EVICTED = {
    "seq": 4811, "time": 50531.205, "kind": "evict", "model": "titles", "reason": "lru", "text": "freed 61 MiB, for search-embedder #2",
    "figures": {"bytes": 63963136, "reason": "lru", "wanted_by": "search-embedder"},
}
MIB = 1 << 20


def model(name: str, state: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "version": None, "key": name, "state": state, "reason": None, "pinned": False, "helps": False, "pipeline": False,
        "replicas": [], "max_replicas": None, "min_replicas": 0, "queue": 0, "running": 0, "requests_per_second": 0.0, "failures_per_second": 0.0,
        "p50": None, "p99": None, "rows_per_run": None, "done": 0, "failed": 0, "rows": 0, "runs": 0, "lat": [0] * 18, "private_bytes": 0,
        "shared_bytes": 0, "resident_bytes": 0, "measured": True, "sleeps_in": None, "wakes_in": None, "retry_in": None, "last_used": None,
        "error": None, "path": f"models/{name}.onnx", "backend": "onnx", "description": None, "merges": True, "batching": "on",
    } | more


def replicas(*states: str) -> list[dict[str, Any]]:
    return [
        {"index": index, "state": state, "pid": 4200 + index, "age_seconds": 10.0, "private_bytes": MIB, "copied": index > 0}
        for index, state in enumerate(states)
    ]


def state(*models: dict[str, Any], **more: Any) -> dict[str, Any]:
    states = [one["state"] for one in models]
    daemon = {
        "version": "0.4.0", "python": "3.12.1", "pid": 4121, "up_seconds": 10800.0, "condition": "ready", "cores": 2, "url": "http://127.0.0.1:8080",
        "grpc_port": 50051, "config": ["models/models.toml"],
        "models": {
            "total": len(models), "awake": len(states) - states.count("asleep") - states.count("failed"), "asleep": states.count("asleep"),
            "failed": states.count("failed"),
        },
        "memory": {"used": 490 * MIB, "budget": 512 * MIB, "machine": 20 << 30, "source": "memory_limit", "margin": 0},
        "requests_per_second": 815.1, "failures_per_second": 0.0, "p50": 0.0041, "p99": 0.012, "thrashing": 0, "restarts": 0,
        "streams": {"open": 0, "frames_dropped": 0}, "nurseries": [], "problems": [],
    } | more
    return {"wakeful": 1, "seq": 4811, "time": 50540.0, "daemon": daemon, "models": list(models), "last": EVICTED}


BUSY = model(
    "search-embedder", "busy", replicas=replicas("busy", "busy", "waking"), max_replicas=4, queue=12, running=3, requests_per_second=812.0,
    p50=0.0042, p99=0.012, resident_bytes=358 * MIB, rows_per_run=6.8, done=918233, runs=135034, last_used=0.0, reason="12 queued, 3 running",
)
PINNED = model(
    "fraud", "ready", replicas=replicas("ready"), max_replicas=1, pinned=True, requests_per_second=3.1, p50=0.0004, p99=0.0011,
    resident_bytes=14 * MIB, rows_per_run=1.0, done=1204, runs=1204, last_used=0.4, reason="pinned: it stays awake",
)
READY = model(
    "resnet50", "ready", replicas=replicas("ready"), max_replicas=2, p50=0.021, p99=0.034, resident_bytes=118 * MIB, sleeps_in=129.0, done=77,
    runs=70, last_used=171.0, reason="nothing to do",
)
ASLEEP = model("titles", "asleep", wakes_in=0.045, done=31, runs=31, last_used=242.0, reason="evicted: memory was needed for search-embedder")
FAILED = model(
    "legacy", "failed", retry_in=12.0, failed=3, last_used=20.0, error="opset 22 is newer than this runtime (21)",
    reason="opset 22 is newer than this runtime (21)",
)
NEVER = model("thumbnails", "asleep", reason="nobody has asked for it yet")
HELPER = model("titles-tokenizer", "ready", helps=True, replicas=replicas("ready"), resident_bytes=MIB, measured=False, backend="tokenizer")
EXAMPLE = state(BUSY, PINNED, READY, ASLEEP, FAILED, NEVER, HELPER)
