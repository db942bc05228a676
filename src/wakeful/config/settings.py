"""The settings as the program uses them: frozen and grouped by their consumer. Times are seconds, sizes are bytes.

What people write (names, units, defaults, bounds) is in `schema.py`, which makes these objects; nothing else makes or changes them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import sha256
from pathlib import Path
from typing import Literal

from wakeful.config.problems import Problem


@dataclass(frozen=True, slots=True)
class Padding:
    """How requests of unequal length may merge: `axis` of every input that has it is filled up with `value`; `mask` names the input that tells
    real elements (1) from filled ones (0), if the model has one. With `buckets`, lengths in ascending order, every run is filled up to the next of
    them, so that the model sees few shapes; what is longer than the last stays as it is."""

    axis: int
    value: float = 0
    mask: str | None = None
    buckets: tuple[int, ...] = ()
    target: str | None = None
    """The only input that gets `value`, the others get 0; None: all get it."""
    budget: int | None = None
    """Most elements in a run, rows times length. Requests share it with those of about their length alone. None: any."""


@dataclass(frozen=True, slots=True)
class BatchingSettings:
    policy: Literal["adaptive", "timer"] = "adaptive"
    merge: Literal["auto", "on", "off"] = "auto"
    max_rows: int = 64
    """max_batch_size: rows of axis 0 in one run."""
    max_delay: float = 0.010
    """Seconds that the oldest row may wait for company."""
    target_p99: float | None = None
    """Seconds; None: no target."""
    pad: Padding | None = None


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    routing: Literal["least-queue", "round-robin", "random"] = "least-queue"
    queue_threshold: int = 8
    """autoscale_queue_threshold."""
    max_replicas: int = 0
    """0: no ceiling."""
    min_replicas: int = 0
    fixed: int | None = None
    """`replicas = n`: exactly n while awake; None: by load."""


@dataclass(frozen=True, slots=True)
class LifeSettings:
    idle_timeout: float = 300.0
    """Seconds; 0: never asleep by time."""
    min_residency: float = 10.0
    pinned: bool = False
    load_timeout: float = 120.0


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    queue_limit: int = 2048
    """Requests of one model that may wait."""
    request_timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class BackendSettings:
    device: str = "auto"
    threads: int = 0
    """Threads of one run; 0: decided per model."""
    prepare: Literal["auto", "off"] = "auto"
    memory_limit: int | None = None
    """Most bytes that all replicas of this model may hold together; None: no limit of its own."""


@dataclass(frozen=True, slots=True)
class DeclaredTensor:
    """An input or output, as another server's configuration has it."""

    name: str
    datatype: str
    """Of the Open Inference Protocol; empty where it is not said."""
    shape: tuple[int | None, ...]
    """None: any size."""


@dataclass(frozen=True, slots=True)
class ForeignSettings:
    """What has come of another server's configuration that lies in the model's directory."""

    file: Path
    honoured: tuple[str, ...]
    ignored: tuple[str, ...]
    """Each with the reason."""
    inputs: tuple[DeclaredTensor, ...] = ()
    outputs: tuple[DeclaredTensor, ...] = ()

    @property
    def parts(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        return ("honoured:", self.honoured), ("not honoured:", self.ignored)

    @property
    def account(self) -> str:
        """In one line, for people."""
        return f"{self.file.name}: " + "; ".join(f"{what} {', '.join(fields) or 'nothing'}" for what, fields in self.parts)


def rank(version: str) -> tuple[int, str]:
    """Orders versions: by their numbers, and those that are none before all others."""
    return (int(version), "") if version.isdecimal() else (0, version)


VersionPolicy = int | Literal["all"] | tuple[int, ...]
"""Which of a model's numbered versions are served: the newest so many, all, or those with these numbers."""


@dataclass(frozen=True, slots=True)
class TextSettings:
    """How a model takes texts, and what is made of its outputs."""

    tokenizer: Path
    """The tokenizer.json, absolute."""
    pooling: Literal["auto", "mean", "cls", "max", "last", "none"] = "auto"
    usual_pooling: Literal["mean", "cls", "max", "last"] = "mean"
    """What `auto` makes of a vector for each token."""
    normalize: bool = True
    max_tokens: int = 512
    truncate: Literal["right", "left", "refuse"] = "right"
    max_batch_tokens: int = 2048
    activation: Literal["sigmoid", "none"] = "sigmoid"
    """Of a cross-encoder's scores."""
    pad_id: int = 0
    vocabulary: int | None = None
    """Token ids are below this, if it is known."""

    @property
    def tokenizer_model(self) -> str:
        """Id of the model that the tokenizer is. It follows from the path alone, so that models share it that share the file."""
        file = self.tokenizer
        label = file.parent.name if file.name == "tokenizer.json" else file.stem
        digest = sha256(bytes(file)).hexdigest()[:8]
        return f"tokenizers/{re.sub(r'[^A-Za-z0-9_-]+', '-', label)[:64]}-{digest}"

    def padding(self) -> Padding:
        """Texts of about the same length share a run."""
        return Padding(1, self.pad_id, "attention_mask", target="input_ids", budget=self.max_batch_tokens)


@dataclass(frozen=True, slots=True)
class WarmupSettings:
    """A request that is run before a replica is ready."""

    data: Literal["zeros", "random"] = "zeros"
    rows: int = 1
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Of free dimensions, by name."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Of inputs, whole."""
    file: Path | None = None
    """Where the inputs are instead."""
    count: int = 1


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One model, or one version of it. `path` is absolute and exists when the configuration is loaded."""

    id: str
    path: Path
    """What a backend opens."""
    description: str | None = None
    backend: str = "onnx"
    batching: BatchingSettings = field(default_factory=BatchingSettings)
    replicas: ReplicaSettings = field(default_factory=ReplicaSettings)
    life: LifeSettings = field(default_factory=LifeSettings)
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    runtime: BackendSettings = field(default_factory=BackendSettings)
    text: TextSettings | None = None
    """None: it takes tensors alone."""
    warmup: tuple[WarmupSettings, ...] = ()
    scanned: bool = False
    """True when the model was found by looking into the models directory, so that a refresh may take it away."""
    home: Path | None = None
    """The directory that is the model, where its file lies in one of its own, with its versions."""
    version: str | None = None
    """None: the model has no versions."""
    versions: VersionPolicy = 1
    revision: str | None = None
    """Of a model that a cluster has sent: two revisions of it are here side by side while one takes the other's place. None: it was not sent."""
    declared: int | None = field(default=None, compare=False)
    """Bytes that a cluster says its first replica takes, until that is measured; None: as much as the file says."""
    foreign: ForeignSettings | None = field(default=None, compare=False)
    """Only told: what of it counts is among the other settings."""

    @property
    def place(self) -> Path:
        """The file or the directory that is the model."""
        return self.home or self.path

    @property
    def key(self) -> str:
        """The name that no other model has, and no other version or revision."""
        return ":".join(part for part in (self.id, self.version, self.revision) if part is not None)


@dataclass(frozen=True, slots=True)
class StepSettings:
    model: str
    """Its id, or that of another pipeline."""
    version: int | None = None
    """None: the newest."""
    name: str | None = None
    """For people; None: its number."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The model's own names to the pipeline's, where they are not the same."""
    outputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Models that are asked one after the other, as one."""

    id: str
    steps: tuple[StepSettings, ...]
    inputs: tuple[str, ...] | None = None
    """None: whatever steps take and no step makes."""
    outputs: tuple[str, ...] | None = None
    """None: what the last step makes."""
    description: str | None = None
    request_timeout: float = 30.0
    """Seconds for all steps together."""


@dataclass(frozen=True, slots=True)
class MemorySettings:
    limit: int | float | None = None
    """Bytes, or a fraction (0 to 1) of what the machine or container has; None: 85 % of it."""
    max_loaded_models: int | None = None
    """Replicas of all models together that may be loaded; None: no ceiling."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What processes with models may do: native code parses a stranger's file there."""

    network: bool = False
    new_privileges: bool = False
    core_dumps: bool = False
    largest_file: int | None = None
    """Bytes; None: any."""
    memory: int | None = None
    """Bytes of its own that one process may have; None: any."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Two files in PEM."""

    certificate: Path
    """With the chain behind it."""
    key: Path


@dataclass(frozen=True, slots=True)
class ServerSettings:
    host: str = "127.0.0.1"
    port: int = 8080
    """0: the system picks a free one."""
    grpc_port: int | None = 50051
    max_body: int = 64 * 1024 * 1024
    lame_duck: float = 0.0
    """Seconds of serving on after readiness is withdrawn."""
    grace: float = 4.0
    """Seconds for accepted requests to finish once the listeners are closed."""
    keep_alive: float = 75.0
    log_format: Literal["text", "json"] = "text"
    log_requests: bool = False
    insecure: bool = False
    """Somebody wants it to be open to other machines without authentication."""
    tls: TlsSettings | None = None
    """None: plain HTTP."""
    workers: WorkerSettings = field(default_factory=WorkerSettings)
    max_header: int = 32 * 1024
    max_connections: int | None = None
    """None: as many as descriptors allow."""
    client_timeout: float = 60.0
    """Seconds for a request to arrive whole, and for any byte of its answer to be taken."""
    max_upload: int = 2 * 1024**3
    """Bytes of a form with a model."""
    allowed_hosts: tuple[str, ...] = ()
    """Names under which browsers may use the dashboard."""


class Role(IntEnum):
    """What a caller may do; each may do all that those before it may."""

    READ_ONLY = 1
    """Look at models, events and statistics."""
    INFERENCE = 2
    """Run models, which wakes them."""
    ADMIN = 3
    """Load, unload, pin, refresh, upload."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    role: Role
    digest: bytes
    """SHA-256 of the key: the key itself is not kept."""
    name: str = ""
    """Whose key it is, for people."""


@dataclass(frozen=True, slots=True)
class JwtSettings:
    secret: bytes = field(repr=False)
    algorithm: Literal["HS256", "HS384", "HS512"] = "HS256"
    leeway: float = 60.0
    """Seconds by which clocks may differ."""
    issuer: str | None = None
    """None: any."""
    audience: str | None = None


@dataclass(frozen=True, slots=True)
class AuthSettings:
    enabled: bool = False
    """False: whoever reaches the port may do everything."""
    protect_metrics: bool = False
    keys: tuple[ApiKey, ...] = ()
    jwt: JwtSettings | None = None
    variables: tuple[str, ...] = ()
    """Environment variables that hold keys or secrets: not for processes with models."""


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """One topic of a broker whose messages are requests."""

    name: str
    broker: Literal["redis", "rabbitmq", "kafka"]
    endpoint: str = field(repr=False)
    """May hold a password: `problems.masked` is for people."""
    input_topic: str
    output_topic: str
    """Of answers to messages without `reply_to`."""
    error_topic: str
    """Dead letters."""
    consumer_group: str
    model_id: str | None = None
    """For messages that name no model; None: each has to."""
    auto_create_topics: bool = True
    concurrency: int = 16
    """Messages that may be in hand at a time."""
    partitions: int = 1
    format: Literal["json", "protobuf"] = "json"
    endpoint_env: str | None = None
    """The environment variable that had the endpoint: not for processes with models."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Of a daemon that belongs to a cluster: who it is there, and who says what it serves."""

    controllers: tuple[str, ...]
    """HOST:PORT of each."""
    server: str
    pod: str
    pod_uid: str
    namespace: str | None = None
    capabilities: frozenset[str] | None = None
    """None: the backends whose libraries are installed."""
    token_file: Path | None = None
    ca_file: Path | None = None
    """None: plain text."""
    socket: Path = Path("/run/wakeful/agent.sock")
    state_dir: Path = Path("/var/lib/wakeful")
    artifacts_dir: Path = Path("/var/lib/wakeful/artifacts")
    artifacts_limit: int | None = None
    """Bytes; None: what the file system has."""
    claims_dir: Path = Path("/mnt/claims")
    max_downloads: int = 4
    stats_period: float = 5.0
    """Seconds."""
    lag_threshold: float | None = None
    """None: as the controller says."""
    inactive: float | None = None
    """Seconds."""
    max_loads: int = 8
    grace: float = 120.0
    """Seconds from the drain's beginning to the kill."""


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """The cache of prepared models, learnt footprints and verdicts."""

    directory: Path
    limit: int = 10 * 1024**3


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything, once."""

    server: ServerSettings
    memory: MemorySettings
    cache: CacheSettings
    models: tuple[ModelSettings, ...]
    models_dir: Path | None
    pipelines: tuple[PipelineSettings, ...] = ()
    auth: AuthSettings = AuthSettings()
    streams: tuple[StreamSettings, ...] = ()
    cluster: ClusterSettings | None = None
    """None: the daemon is on its own."""
    files: tuple[Path, ...] = ()
    """Files that were read, for the start-up line."""
    defaults: ModelSettings = ModelSettings(id="", path=Path())
    """[defaults] in the form of a model without name: what a model gets that no [[models]] entry names."""
    warnings: tuple[Problem, ...] = ()
    """What is allowed and yet probably not meant."""
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Where a setting was said, by its key, as "server.port"; see `sources`."""
    unread: frozenset[Path] = frozenset()
    """Files and directories that could not be looked at: what is served of them stays."""

    @property
    def secret_variables(self) -> frozenset[str]:
        """Environment variables that hold keys, secrets or passwords: not for processes with models."""
        return frozenset(self.auth.variables).union(stream.endpoint_env for stream in self.streams if stream.endpoint_env)
