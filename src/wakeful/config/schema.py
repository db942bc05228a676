"""What people may write: every key with its meaning, unit, bounds and default, declared once.

Parsing, error messages, command-line options and docs/configuration.md all read these declarations. The tables are made into the frozen
settings of `settings.py`; `values.py` knows how values are written, `load.py` reads files and environment, and `rules.py` knows which values do
not go together.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from wakeful.config.settings import (
    AdmissionSettings,
    BackendSettings,
    BatchingSettings,
    LifeSettings,
    MemorySettings,
    ModelSettings,
    Padding,
    ReplicaSettings,
    Role,
    ServerSettings,
    StepSettings,
    TlsSettings,
    WarmupSettings,
    WorkerSettings,
)
from wakeful.config.values import (
    BACKENDS,
    BY_NAME,
    YEARS,
    Addresses,
    BackendName,
    Broker,
    HeadSize,
    Lengths,
    Limit,
    MessageFormat,
    ModelId,
    OptionalPort,
    ProcessMemory,
    RoleName,
    Size,
    Size0,
    Size1,
    SizeAboveZero,
    Text,
    Threads,
    Versions,
    Words,
)


def setting(default: Any, meaning: str, *, unit: str = "", form: str = "", **rest: Any) -> Any:
    """One key. `unit` and `form` (how the type is written where the annotation does not tell) are for the reference."""
    return Field(default, description=meaning, json_schema_extra={"unit": unit, "form": form}, **rest)


class Table(BaseModel):
    """Base of all tables: no unknown key, no silent conversion, no change afterwards."""

    # Building a validator takes longer than all else in this module; help, and most tables of a run, need none.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=True)

    def given(self) -> dict[str, Any]:
        """The keys that were written, with their parsed values."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}


class PadTable(Table):
    """pad = { axis = 1, value = 0, mask = "attention_mask", buckets = [32, 128] }"""

    axis: int = setting(..., "the axis that is filled up; axis 0 is the batch", ge=1, le=32)
    value: float = setting(0.0, "what it is filled with")
    mask: Text | None = setting(None, "input that tells real elements (1) from filled ones (0)")
    buckets: Lengths = setting([], "every run is filled up to the next of these lengths; what is longer stays as it is", form="lengths, ascending")

    def padding(self) -> Padding:
        return Padding(self.axis, self.value, self.mask, tuple(self.buckets))


class TextTable(Table):
    """[models.text]"""

    tokenizer: Text | None = setting(
        None, "the `tokenizer.json`, relative to the model's file; absent: the one beside it", form="path",
    )
    pooling: Literal["auto", "mean", "cls", "max", "last", "none"] = setting(
        "auto", "what is made of an output with a vector for each token; `auto`: as `1_Pooling` says, else `mean`; `none`: there must be one a text",
    )
    normalize: bool = setting(True, "embeddings get length 1")
    max_tokens: int | None = setting(
        None, "longest text; absent: as the files beside the model say, else 512", unit="tokens", ge=1, le=1_000_000,
    )
    truncate: Literal["right", "left", "refuse"] = setting("right", "which end of a longer text is cut off, or whether it is refused")
    max_batch_tokens: int = setting(
        2048, "most tokens in a run, filled-up ones among them; a longer text has a run of its own", unit="tokens", ge=1, le=100_000_000,
    )
    activation: Literal["sigmoid", "none"] | None = setting(
        None, "what is made of a cross-encoder's scores; absent: as `config.json` says, else `sigmoid`", form="`sigmoid` or `none`",
    )


class WarmupTable(Table):
    """[[models.warmup]]"""

    data: Literal["zeros", "random"] = setting("zeros", "what the inputs hold; random whole numbers are 0 and 1")
    rows: int = setting(1, "size of axis 0, where it is free", ge=1, le=1_000_000)
    sizes: dict[str, Size1] = setting({}, "sizes of the other free dimensions, by their names in the model", form="`{ L = 128 }`")
    shapes: dict[str, list[Size0]] = setting(
        {}, "whole shapes of inputs, by their names: for dimensions without a name", form="`{ image = [1, 3, 224, 224] }`")
    file: Text | None = setting(None, "inputs instead of those above: `.npz`, or `.json` as the Open Inference Protocol has it; beside the model")
    count: int = setting(1, "how often it is run", ge=1, le=1000)

    def warmup(self, base: Path) -> WarmupSettings:
        shapes = {name: tuple(shape) for name, shape in self.shapes.items()}
        return WarmupSettings(self.data, self.rows, self.sizes, shapes, None if self.file is None else base / self.file, self.count)


class TuningTable(Table):
    """Keys that work in [defaults] for all models and in [[models]] for one."""

    max_batch_size: int = setting(64, "most rows in one run; reaching it sends the batch at once", unit="rows", ge=1, le=1_000_000)
    max_batch_delay_ms: float = setting(
        10.0, "longest time that the oldest request waits for company; `max_delay_ms` is understood too", unit="ms", ge=0, le=600_000,
        validation_alias=AliasChoices("max_batch_delay_ms", "max_delay_ms"),
    )
    batch_policy: Literal["adaptive", "timer"] = setting("adaptive", "`adaptive` leaves earlier where waiting does not pay; `timer` never does")
    batching: Literal["auto", "on", "off"] = setting("auto", "`auto` merges requests where the model is proven to allow it")
    target_p99_ms: float | None = setting(None, "latency that 99 % of requests should stay under", unit="ms", gt=0, le=3_600_000)
    pad: PadTable | None = setting(None, "lets requests of unequal length merge by filling them up", form="`{axis, value, mask, buckets}`")

    routing_strategy: Literal["least-queue", "round-robin", "random", "least_queue", "round_robin"] = setting(
        "least-queue", "which replica gets a request", form="`least-queue`, `round-robin` or `random`",
    )
    autoscale_queue_threshold: int = setting(8, "a queue longer than this on every replica starts one more", unit="requests", ge=1, le=1_000_000)
    max_replicas: int = setting(0, "ceiling of replicas; 0: no ceiling", ge=0, le=1024)
    min_replicas: int = setting(0, "replicas that are kept whatever happens", ge=0, le=1024)
    replicas: int | None = setting(None, "exactly this many while awake, instead of by load", ge=1, le=1024)

    idle_timeout_secs: float = setting(300.0, "sleep after so long without a request; 0: never by time", unit="s", ge=0, le=YEARS)
    min_residency_secs: float = setting(10.0, "no eviction before a model has been loaded so long", unit="s", ge=0, le=YEARS)
    pinned: bool = setting(False, "loaded at start and never put to sleep")
    load_timeout_secs: float = setting(120.0, "a load that takes longer has failed", unit="s", gt=0, le=86_400)

    queue_limit: int = setting(2048, "requests that may wait; more are refused at once", unit="requests", ge=1, le=10_000_000)
    request_timeout_ms: float = setting(30_000.0, "a request is given up after so long", unit="ms", gt=0, le=86_400_000)

    device: str = setting(
        "auto", "where the model runs", form="`auto`, `cpu`, `cuda` or `cuda:N`", pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$",
    )
    threads: Threads = setting(0, "threads of one run", form='whole number or `"auto"`')
    prepare: Literal["auto", "off"] = setting("auto", "keep an optimised copy that loads faster")

    def batching_settings(self) -> BatchingSettings:
        pad = None if self.pad is None else self.pad.padding()
        target = None if self.target_p99_ms is None else self.target_p99_ms / 1000
        return BatchingSettings(self.batch_policy, self.batching, self.max_batch_size, self.max_batch_delay_ms / 1000, target, pad)

    def replica_settings(self) -> ReplicaSettings:
        routing: Any = self.routing_strategy.replace("_", "-")
        return ReplicaSettings(routing, self.autoscale_queue_threshold, self.max_replicas, self.min_replicas, self.replicas)

    def life_settings(self) -> LifeSettings:
        return LifeSettings(self.idle_timeout_secs, self.min_residency_secs, self.pinned, self.load_timeout_secs)

    def admission_settings(self) -> AdmissionSettings:
        return AdmissionSettings(self.queue_limit, self.request_timeout_ms / 1000)


class BudgetTable(Table):
    """Keys of [defaults] that bound the whole daemon."""

    memory_limit: Limit | None = setting(
        None, "memory that all models together may use; absent: 85 % of what the machine or container has", form='size or share (`"80%"`)',
    )
    max_loaded_models: int | None = setting(None, "replicas of all models together that may be loaded; absent: no ceiling", ge=1, le=1_000_000)


class DefaultsTable(TuningTable, BudgetTable):
    """[defaults]"""

    def memory_settings(self) -> MemorySettings:
        return MemorySettings(self.memory_limit, self.max_loaded_models)


class ModelTable(TuningTable):
    """[[models]]"""

    id: ModelId = setting(..., "name in addresses and metrics: letters, digits, `.` `_` `-`, in segments parted by `/`")
    path: Text = setting(..., "the file, or the directory that is the model, relative to the models directory if there is one, else to this file")
    versions: Versions = setting(
        1, "which numbered versions of a model's directory are served", form='`"latest"`, `"all"`, how many of the newest, or an array of numbers',
    )
    backend: BackendName = setting(
        BY_NAME, "what opens the file; `auto`: what its name says, else ONNX", form=", ".join(f"`{name}`" for name in BACKENDS))
    description: str | None = setting(None, "shown to people")
    memory_limit: SizeAboveZero | None = setting(None, "memory that all replicas of this model together may use", form="size")
    text: TextTable | None = setting(None, "how it takes texts: the table `[models.text]`", form="table")
    warmup: list[WarmupTable] = setting([], "requests that are run before a replica is ready", form="tables `[[models.warmup]]`")

    def settings(self, path: Path, backend: str = "onnx") -> ModelSettings:
        return ModelSettings(
            id=self.id,
            path=path,
            description=self.description,
            backend=backend,
            versions=self.versions,
            batching=self.batching_settings(),
            replicas=self.replica_settings(),
            life=self.life_settings(),
            admission=self.admission_settings(),
            warmup=tuple(table.warmup(path if path.is_dir() else path.parent) for table in self.warmup),
            runtime=BackendSettings(self.device, self.threads, self.prepare, self.memory_limit),
        )


class StepTable(Table):
    """An entry of `steps` in [[pipelines]]"""

    model: Text = setting(..., "id of the model, or of another pipeline")
    version: int | None = setting(None, "one of its numbered versions; absent: the newest", ge=1)
    name: Text | None = setting(None, "what errors call the step; absent: its number")
    inputs: dict[str, Text] = setting({}, "where names differ: the model's name of an input, and the pipeline's", form='`{ text = "TEXT" }`')
    outputs: dict[str, Text] = setting({}, "likewise of outputs", form='`{ ids = "input_ids" }`')

    def settings(self) -> StepSettings:
        return StepSettings(self.model, self.version, self.name, self.inputs, self.outputs)


class PipelineTable(Table):
    """[[pipelines]]"""

    id: ModelId = setting(..., "its name, of the same kind as a model's")
    steps: list[Any] = setting(..., "the models, with the keys of the next table; one runs as soon as what it takes is there", form="array of tables")
    inputs: list[Text] | None = setting(None, "what callers give; absent: whatever steps take and no step makes", form="array of texts")
    outputs: list[Text] | None = setting(None, "what callers get; absent: what the last step makes", form="array of texts")
    description: str | None = setting(None, "shown to people")
    request_timeout_ms: float | None = setting(
        None, "a request is given up after so long, all steps together; absent: as in `[defaults]`", unit="ms", gt=0, le=86_400_000)


class ServerTable(Table):
    """[server]"""

    host: Text = setting("127.0.0.1", "address to listen on; `0.0.0.0` for every network")
    insecure: bool = setting(False, "listen where others reach it although there is no authentication")
    tls_cert: Text | None = setting(None, "certificate in PEM, with the chain behind it: HTTPS instead of HTTP")
    tls_key: Text | None = setting(None, "its key in PEM, without password")
    port: int = setting(8080, "HTTP port; 0: any free one", ge=0, le=65535)
    grpc_port: OptionalPort = setting(50051, "gRPC port; `false`: no gRPC", form="whole number or `false`")
    max_body: SizeAboveZero = setting(64 * 1024**2, "largest body of a request, inflated", form="size")
    max_upload: SizeAboveZero = setting(2 * 1024**3, "largest upload of a model, which is written to disk as it comes", form="size")
    max_header: HeadSize = setting(32 * 1024, "largest head of a request, 1 to 64 KiB", form="size")
    max_connections: int | None = setting(None, "most open connections; absent: three quarters of the descriptors that the system allows", ge=1)
    allowed_hosts: Words = setting(
        [], "names under which browsers reach it, as behind a proxy; addresses, `localhost`, `*.local` and names without a dot need not be listed",
        form="array of texts or parted by commas",
    )
    client_timeout_secs: float = setting(
        60.0, "a client may take so long to send a request whole, and to take any byte of its answer", unit="s", gt=0, le=86_400)
    lame_duck_secs: float = setting(0.0, "goes on serving so long after it stopped being ready, before it stops", unit="s", ge=0, le=3600)
    shutdown_grace_secs: float = setting(4.0, "accepted requests may take so long to finish when it stops", unit="s", ge=0, le=3600)
    keep_alive_secs: float = setting(75.0, "an idle connection is closed after so long", unit="s", gt=0, le=86_400)
    log_format: Literal["text", "json"] = setting("text", "form of log lines")
    log_requests: bool = setting(False, "a log line per request")
    cache_dir: Text | None = setting(None, "directory of prepared models; absent: `wakeful` in the user's cache directory")
    cache_limit: Size = setting(10 * 1024**3, "largest cache", form="size")
    worker_network: bool = setting(False, "whether processes with models may use the network: a model that was made to call home cannot, without")
    worker_new_privileges: bool = setting(False, "whether they may gain rights, by programs with set-user-id")
    worker_core_dumps: bool = setting(False, "whether one that crashes leaves its memory on disk, callers' data with it")
    worker_largest_file: SizeAboveZero | None = setting(
        None, "largest file that they may write; prepared copies are as large as their models, and buffers of answers count too", form="size")
    worker_memory: ProcessMemory | None = setting(
        None, "memory of its own that one of them may have, weights that are not mapped from the cache among it; 128 MiB or more", form="size")
    models_dir: Text | None = setting(
        None, "directory in which every file of a known kind (`*.onnx`, `*.xgb.json`, ...), and every directory with one or with a "
        "`wakeful_model.py` in it, is a model of that name")

    def settings(self) -> ServerSettings:
        return ServerSettings(
            self.host, self.port, self.grpc_port, self.max_body, self.lame_duck_secs, self.shutdown_grace_secs, self.keep_alive_secs,
            self.log_format, self.log_requests, self.insecure,
            TlsSettings(Path(self.tls_cert), Path(self.tls_key)) if self.tls_cert and self.tls_key else None,
            WorkerSettings(self.worker_network, self.worker_new_privileges, self.worker_core_dumps, self.worker_largest_file, self.worker_memory),
            self.max_header, self.max_connections, self.client_timeout_secs, self.max_upload,
            tuple(self.allowed_hosts),
        )


class OverrideTable(ServerTable, BudgetTable):
    """What the environment and the command line may say: [server], and the daemon's bounds of [defaults]."""


class AuthTable(Table):
    """[auth]"""

    enabled: bool = setting(True, "whether callers must show a key or a token; `false`: everybody may do everything")
    protect_metrics: bool = setting(False, "whether `/metrics` needs one too, of role `admin`")


class ApiKeyTable(Table):
    """[[auth.api_keys]]"""

    role: RoleName = setting(Role.INFERENCE, "what its holder may do", form="`read_only`, `inference` or `admin`")
    key: Text | None = setting(None, "the key itself")
    key_env: Text | None = setting(None, "environment variable of the daemon that has it")
    name: str = setting("", "whose key it is")


class JwtTable(Table):
    """[auth.jwt]"""

    algorithm: Literal["HS256", "HS384", "HS512"] = setting("HS256", "the only one that tokens may be signed with")
    secret: Text | None = setting(None, "what tokens are signed with")
    secret_env: Text | None = setting(None, "environment variable of the daemon that has it")
    leeway_secs: float = setting(60.0, "clocks may differ by so much", unit="s", ge=0, le=3600)
    issuer: Text | None = setting(None, "`iss` of every token; absent: any")
    audience: Text | None = setting(None, "`aud` of every token; absent: any")


class StreamTable(Table):
    """[[streams]]"""

    name: Text = setting("default-stream", "what events and metrics call it; no two streams share one")
    broker: Broker = setting("redis", "what kind of server it is")
    endpoint: Text = setting("redis://127.0.0.1:6379", "where it is: `redis://`, `rediss://`, `amqp://`, `amqps://`, or `HOST:PORT,...` of Kafka")
    endpoint_env: Text | None = setting(None, "environment variable of the daemon that has the endpoint, for one with a password")
    input_topic: Text = setting("snooze.requests", "Redis stream, queue or topic with requests")
    model_id: Text | None = setting(None, "model for messages that name none; absent: each has to")
    output_topic: Text = setting("snooze.responses", "where answers go to messages without `reply_to`")
    error_topic: Text = setting("snooze.dlq", "where every error goes, as JSON: the dead letters")
    consumer_group: Text = setting("snoozeml-group", "daemons of one group share the messages")
    auto_create_topics: bool = setting(True, "whether topics that are missing are created")
    concurrency: int = setting(16, "most messages in hand at a time; further ones stay with the broker", unit="messages", gt=0, le=10_000)
    partitions: int = setting(1, "partitions of topics that are created in Kafka", gt=0, le=10_000)
    format: MessageFormat = setting("json", "form of requests and answers")


class ClusterTable(Table):
    """[cluster]"""

    controllers: Addresses = setting(
        [], "the controller's pods, of which one leads; absent: this daemon is on its own", form="`HOST:PORT`, array of texts or parted by commas")
    server: Text | None = setting(None, "name of the Server that this pod belongs to")
    pod: Text | None = setting(None, "the pod's name")
    pod_uid: Text | None = setting(None, "the pod's uid: another life of the pod is another server")
    namespace: Text | None = setting(None, "the pod's namespace")
    capabilities: Words | None = setting(
        None, "what models may require of this server; absent: the backends whose libraries are installed", form="array of texts or parted by commas")
    token_file: Text | None = setting(None, "file with the token that shows the controller who this is; read again for each connection")
    ca_file: Text | None = setting(None, "certificates in PEM that the controller's is signed by; absent: plain text, for one machine alone")
    socket: Text = setting("/run/wakeful/agent.sock", "Unix socket on which `wakeful cluster drain` is heard")
    state_dir: Text = setting(
        "/var/lib/wakeful", "directory of what the controller wanted last, which outlives the container: with it a restart needs no controller",
        form="path")
    artifacts_dir: Text | None = setting(
        None, "directory of fetched models, which several pods may share; absent: `artifacts` in `state_dir`", form="path")
    artifacts_limit: SizeAboveZero | None = setting(None, "most that fetched models may take there; absent: what the file system has", form="size")
    claims_dir: Text = setting("/mnt/claims", "where persistent volume claims are mounted, each in a directory of its name, for `pvc://CLAIM/PATH`")
    max_downloads: int = setting(4, "models that are fetched at once; others wait", ge=1, le=1024)
    stats_period_secs: float = setting(5.0, "figures of use are made, compared with thresholds and reported so often", unit="s", ge=0.05, le=3600)
    lag_threshold: float | None = setting(
        None, "requests of a model in flight here, on average, from which on it needs more replicas; absent: as the controller says",
        unit="requests", gt=0, le=1_000_000)
    inactive_secs: float | None = setting(
        None, "seconds without a request after which a replica of a model is one too many; absent: as the controller says",
        unit="s", gt=0, le=YEARS)
    max_loads: int = setting(8, "models that are fetched and loaded for the first time at once; others wait", ge=1, le=1024)
    grace_secs: float = setting(
        120.0, "the pod's `terminationGracePeriodSeconds`: a drain ends before, and at half of it where no controller leads",
        unit="s", ge=1, le=86_400)


SECRETS = frozenset({"key", "secret"})
"""Keys whose values no message repeats."""


TABLES: dict[str, type[Table]] = {
    "[server]": ServerTable, "[defaults]": DefaultsTable, "[[models]]": ModelTable, "[models.text]": TextTable,
    "[[pipelines]]": PipelineTable, "steps": StepTable, "[[streams]]": StreamTable,
    "[auth]": AuthTable, "[[auth.api_keys]]": ApiKeyTable, "[auth.jwt]": JwtTable,
    "[cluster]": ClusterTable,
}
"""Title in messages to declaration."""
SECTIONS = ("server", "defaults", "models", "pipelines", "streams", "auth", "cluster")
ALIASES = {"max_delay_ms": "max_batch_delay_ms"}


def keys_of(table: type[Table]) -> dict[str, str]:
    """Every accepted spelling to the key it means."""
    names = {name: name for name in table.model_fields}
    return names | {alias: name for alias, name in ALIASES.items() if name in names}


def choices(table: type[Table], key: str) -> tuple[str, ...]:
    """The values of a key that takes one of a few words."""
    field = table.model_fields.get(key)
    return tuple(value for value in get_args(field.annotation) if isinstance(value, str)) if field else ()


_FIXED, _BY_LOAD = {"replicas"}, {"min_replicas", "max_replicas"}


def merged(defaults: DefaultsTable, model: Mapping[str, Any]) -> ModelTable:
    """A model's own keys over the defaults. A model that fixes its count drops the defaults' bounds of it, and the other way round."""
    inherited = {key: value for key, value in defaults.given().items() if key in TuningTable.model_fields}
    return overlaid({"id": "", "path": "", **inherited}, model)


def overlaid(inherited: Mapping[str, Any], own: Mapping[str, Any]) -> ModelTable:
    """Some keys over others, all of them validated before."""
    dropped = (_BY_LOAD if _FIXED & own.keys() else set()) | (_FIXED if _BY_LOAD & own.keys() else set())
    kept = {key: value for key, value in inherited.items() if key not in dropped}
    return ModelTable.model_construct(None, **kept | dict(own))
