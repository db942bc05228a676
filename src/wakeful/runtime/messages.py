"""Every message between the daemon, a nursery and a replica, each a MessagePack array on a SEQPACKET socket.

Descriptors travel beside the message (SCM_RIGHTS) in the order that the message's docstring gives. A message is far below the 200 KB that the
kernel takes in one packet: tensors travel in the arena, and texts are cut to TEXT_LIMIT.
"""

import msgspec

TEXT_LIMIT = 2000
"""Longest error text that crosses a channel; an ONNX Runtime message can hold a whole graph's names."""

COLUMNS_LIMIT = 16_000
"""Characters of the names of one tensor's columns; longer lists are not told."""

PACKET = 128 * 1024
"""Receive buffer: larger than any message here."""


class TensorSpec(msgspec.Struct, frozen=True, array_like=True):
    """One input or output that a model declares. A dimension is a size, a symbol's name, or None (free and unnamed)."""

    name: str
    datatype: str
    shape: tuple[int | str | None, ...]
    optional: bool = False
    columns: tuple[str, ...] = ()
    """What the places along axis 1 stand for (features, classes), where the model says so in few words: see `COLUMNS_LIMIT`."""


class Signature(msgspec.Struct, frozen=True, array_like=True):
    """What a model takes and gives, in the model's order."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    platform: str = "onnxruntime_onnx"
    undeclared: bool = False
    """It declares nothing: whatever comes is given to the model, and what that gives is known after a run."""


class Verdict(msgspec.Struct, frozen=True, array_like=True):
    """May requests be merged along axis 0, and why (not)? `tested` is False while only the declaration was looked at."""

    mergeable: bool
    reason: str
    tested: bool


class Placement(msgspec.Struct, frozen=True, array_like=True):
    """Where one tensor lies in a slot of the arena."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


# ── daemon to nursery ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Fork(msgspec.Struct, frozen=True, array_like=True, tag="fork"):
    """Fork a replica. Descriptors: its channel, then one memfd a slot."""

    replica: int
    """Number of the replica, unique in this daemon's life."""
    nice: int = 0


# ── nursery to daemon ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Confinement(msgspec.Struct, frozen=True):
    """What processes with models may do. A nursery is started with it."""

    network: bool = False
    new_privileges: bool = False
    core_dumps: bool = False
    largest_file: int | None = None
    """Bytes of a file that they write; None: any."""
    memory: int | None = None
    """Bytes of memory of its own that one of them may have; None: any."""


CONFINED = Confinement()


class Awake(msgspec.Struct, frozen=True, array_like=True, tag="awake"):
    """The nursery has imported its library and waits for work."""

    pid: int
    library: str
    """Name and version, as "onnxruntime 1.32.0"."""
    providers: tuple[str, ...]
    kept: tuple[str, ...] = ()
    """What it should have given up and could not, with reasons."""


class Exited(msgspec.Struct, frozen=True, array_like=True, tag="exited"):
    """A replica's process has ended. `status` is waitpid's."""

    pid: int
    status: int


class Forked(msgspec.Struct, frozen=True, array_like=True, tag="forked"):
    """An order was carried out. A nursery that says neither this nor ForkFailed hangs."""

    replica: int


class ForkFailed(msgspec.Struct, frozen=True, array_like=True, tag="fork_failed"):
    replica: int
    reason: str


class Broken(msgspec.Struct, frozen=True, array_like=True, tag="broken"):
    """The nursery cannot work at all: its library does not import."""

    reason: str


# ── daemon to replica ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Warmup(msgspec.Struct, frozen=True, array_like=True):
    """A request that is run before a replica is ready."""

    data: str = "zeros"
    """Or "random"."""
    rows: int = 1
    """Along every free axis 0."""
    sizes: dict[str, int] = {}
    """Of free dimensions, by the name that the model gives them."""
    shapes: dict[str, tuple[int, ...]] = {}
    """Of inputs whose dimensions have no names, whole."""
    file: str = ""
    """Where the inputs are instead."""
    count: int = 1
    """How often it is run."""


class Load(msgspec.Struct, frozen=True, array_like=True, tag="load"):
    """Open the model. Answered by Ready or Refused."""

    backend: str
    path: str
    device: str
    threads: int
    prepared: str = ""
    """Directory of the prepared copy, or empty."""
    warmup: tuple[Warmup, ...] = ()
    """What is run before the answer."""


class Probe(msgspec.Struct, frozen=True, array_like=True, tag="probe"):
    """Find out by running whether rows influence each other, and how long a lone run takes. Answered by Probed."""


class Prepare(msgspec.Struct, frozen=True, array_like=True, tag="prepare"):
    """Write the prepared copy into an empty directory. Answered by Prepared or Refused."""

    backend: str
    path: str
    directory: str


class Compare(msgspec.Struct, frozen=True, array_like=True, tag="compare"):
    """Open a model as shipped and by its prepared copy, and run both on the same made-up inputs. Answered by Compared or Refused."""

    backend: str
    path: str
    prepared: str


class Run(msgspec.Struct, frozen=True, array_like=True, tag="run"):
    """Run the model on what lies in a slot. Answered by Done or Failed."""

    run: int
    slot: int
    end: int
    """First byte of the slot that is free for outputs; the replica may grow the slot's memfd."""
    inputs: tuple[Placement, ...]


class Split(msgspec.Struct, frozen=True, array_like=True, tag="split"):
    """Fork yourself. Descriptors follow in the next packet: the copy's channel, then one memfd a slot. The copy says Hello and Ready on its own
    channel; where forking is not safe, the copy's channel closes."""

    replica: int


class Stop(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """End once everything before this message is answered."""


# ── replica to daemon ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """First message of a replica, sent before it loads anything."""

    pid: int


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """The model can run. `forkable` tells that this process may be split now."""

    signature: Signature
    verdict: Verdict
    private_bytes: int
    """About: what the load has added. Footprint brings the exact figures as soon as there is a pause."""
    forkable: bool
    prepared: bool
    device: str


class Probed(msgspec.Struct, frozen=True, array_like=True, tag="probed"):
    verdict: Verdict
    lone_seconds: float
    """Of a run of one row; 0 when no input was found that the model takes."""


class Prepared(msgspec.Struct, frozen=True, array_like=True, tag="prepared"):
    seconds: float
    nbytes: int


class Compared(msgspec.Struct, frozen=True, array_like=True, tag="compared"):
    """`difference` is the largest one between two elements, at most; None where there was nothing to compare, which `remark` explains."""

    equal: bool
    """But for rounding; true where nothing could be compared."""
    difference: float | None
    inputs: int
    """How many made-up inputs both have answered."""
    remark: str


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """A load, a preparation or a comparison did not work. `kind` is a code of wakeful.errors."""

    kind: str
    reason: str


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    run: int
    seconds: float
    outputs: tuple[Placement, ...]


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="failed"):
    """The run failed. `kind` is a code of wakeful.errors; invalid_input where the model refused its input."""

    run: int
    kind: str
    reason: str


class Footprint(msgspec.Struct, frozen=True, array_like=True, tag="footprint"):
    """Measured memory of the replica, sent after its load and when a run may have made it grow. Shared: mapped from the prepared copy."""

    private_bytes: int
    shared_bytes: int


FromNursery = Awake | Exited | Forked | ForkFailed | Broken
ToReplica = Load | Probe | Prepare | Compare | Run | Split | Stop
FromReplica = Hello | Ready | Probed | Prepared | Compared | Refused | Done | Failed | Footprint

encode = msgspec.msgpack.Encoder().encode
