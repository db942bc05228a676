"""What waking and copying a model costs, by the parts that the daemon uses and by the raw library beside them, in one run.

usage: python bench/waking.py [MODEL.onnx] [--rounds 7]        without a model: 90 MB of random weights in a chain of matrix products

Rows: creating the session in a warm process (stock and prepared: the raw limit), a replica from the nursery (as shipped, prepared) and a copy of a
live replica, each until its first answer; and what each holds that is its own. Medians; ratios are what counts, the machine is shared.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from wakeful.replicas.replica import Replica
from wakeful.runtime.messages import Done, Footprint, Load, Placement, Prepare, Prepared, Probed, Ready, Refused, Signature
from wakeful.runtime.processes import Processes
from wakeful.tensors import DTYPES


class Listener:
    """Hands a replica's words to whoever awaits them, in order."""

    def __init__(self) -> None:
        self.words: asyncio.Queue[Any] = asyncio.Queue()

    def replica_ready(self, replica: Replica, message: Ready) -> None:
        self.words.put_nowait(message)

    def replica_refused(self, replica: Replica, message: Refused) -> None:
        self.words.put_nowait(message)

    def replica_probed(self, replica: Replica, message: Probed) -> None:
        self.words.put_nowait(message)

    def replica_prepared(self, replica: Replica, message: Prepared) -> None:
        self.words.put_nowait(message)

    def replica_grown(self, replica: Replica) -> None:
        self.words.put_nowait(Footprint(replica.private_bytes, replica.shared_bytes))

    def replica_ended(self, replica: Replica) -> None:
        self.words.put_nowait(None)


def make_model(path: Path, megabytes: int = 90, width: int = 1024) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    layers = max(megabytes * 2**20 // (4 * width * width), 1)
    nodes, weights, last = [], [], "x"
    for layer in range(layers):
        matrix = (random.standard_normal((width, width), "f4") / np.sqrt(width)).astype("f4")
        weights.append(numpy_helper.from_array(matrix, f"w{layer}"))
        out = "y" if layer == layers - 1 else f"h{layer}"
        nodes.append(helper.make_node("MatMul", [last, f"w{layer}"], [out]))
        last = out
    shape: list[str | int | None] = ["N", width]
    graph = helper.make_graph(
        nodes, "chain", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)], weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def zeros_of(signature: Signature) -> list[tuple[str, str, tuple[int, ...], bytes]]:
    feeds = []
    for spec in signature.inputs:
        shape = tuple(size if isinstance(size, int) else 1 for size in spec.shape)
        feeds.append((spec.name, spec.datatype, shape, bytes(int(np.prod(shape)) * DTYPES[spec.datatype].itemsize)))
    return feeds


def raw_session(model: str, prepared: bool) -> float:
    """Seconds to create a session and get its first answer, in a forked process that has imported the library."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        if prepared:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        began = time.perf_counter()
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        kinds = {"tensor(float)": "f4", "tensor(int64)": "i8", "tensor(int32)": "i4", "tensor(uint8)": "u1"}
        session.run(None, {i.name: np.zeros([d if isinstance(d, int) else 1 for d in i.shape], kinds[i.type]) for i in session.get_inputs()})
        os.write(writer, str(time.perf_counter() - began).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader) as file:
        return float(file.read())


class Bench:
    def __init__(self, model: Path) -> None:
        self.model = model
        self.processes = Processes(lambda: 0, lambda backend, reason: print("nursery lost:", reason))

    async def next(self, listener: Listener, kind: type) -> Any:
        while not isinstance(word := await asyncio.wait_for(listener.words.get(), 120), kind):
            if word is None or isinstance(word, Refused):
                raise SystemExit(f"the replica failed: {word}")
        return word

    async def first_run(self, replica: Replica, signature: Signature) -> None:
        done: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        replica.on_done = done.set_result
        placements, offset = [], 0
        for name, datatype, shape, data in zeros_of(signature):
            replica.slots[0].reach(offset + len(data))[offset : offset + len(data)] = data
            placements.append(Placement(name, datatype, shape, offset, len(data)))
            offset += -(-len(data) // 64) * 64
        replica.run(1, 0, offset, tuple(placements))
        await done

    async def fresh(self, prepared: str) -> tuple[Replica, Listener, Signature, float]:
        """A replica from the nursery; seconds from the order to the first answer."""
        listener = Listener()
        began = time.perf_counter()
        replica = Replica(self.processes.next_number(), 0, self.processes.new_slots(), listener)
        self.processes.fork("onnx", replica.number, replica.slots, replica.attach)
        replica.load(Load("onnx", str(self.model), "cpu", 1, prepared))
        ready = await self.next(listener, Ready)
        await self.first_run(replica, ready.signature)
        return replica, listener, ready.signature, time.perf_counter() - began

    async def copied(self, original: Replica, signature: Signature) -> tuple[Replica, Listener, float]:
        listener = Listener()
        began = time.perf_counter()
        replica = Replica(self.processes.next_number(), 1, self.processes.new_slots(), listener)
        original.split_into(replica)
        await self.next(listener, Ready)
        await self.first_run(replica, signature)
        return replica, listener, time.perf_counter() - began

    async def prepare(self, directory: str) -> None:
        listener = Listener()
        replica = Replica(self.processes.next_number(), 0, [], listener)
        self.processes.fork("onnx", replica.number, [], replica.attach)
        replica.prepare(Prepare("onnx", str(self.model), directory))
        await self.next(listener, Prepared)
        replica.kill()
        replica.close()


async def run(model: Path, rounds: int) -> None:
    bench = Bench(model)
    with tempfile.TemporaryDirectory() as directory:
        await bench.prepare(directory)
        import onnxruntime  # noqa: F401 - the raw rows fork from a process that has it, as the nursery does

        seconds: dict[str, list[float]] = {}
        private: dict[str, list[int]] = {}
        for _ in range(rounds):
            seconds.setdefault("raw session, stock", []).append(raw_session(str(model), False))
            seconds.setdefault("raw session, prepared", []).append(raw_session(f"{directory}/model.onnx", True))
            for name, prepared in (("replica, as shipped", ""), ("replica, prepared", directory)):
                replica, listener, signature, took = await bench.fresh(prepared)
                seconds.setdefault(name, []).append(took)
                private.setdefault(name, []).append((await bench.next(listener, Footprint)).private_bytes)
                copy, copy_listener, took = await bench.copied(replica, signature)
                seconds.setdefault(f"copy of a {name}", []).append(took)
                private.setdefault(f"copy of a {name}", []).append((await bench.next(copy_listener, Footprint)).private_bytes)
                for one in (copy, replica):
                    one.kill()
                    one.close()
    base = statistics.median(seconds["raw session, stock"])
    first = statistics.median(private["replica, as shipped"])
    print(f"{model.name}, {model.stat().st_size / 2**20:.0f} MiB; to the first answer, median of {rounds}; absolute figures are this machine's")
    print(f"{'':32}{'ms':>8}{'ratio':>8}{'private MiB':>13}{'ratio':>8}")
    for name, values in seconds.items():
        row = f"{name:32}{1e3 * statistics.median(values):8.1f}{statistics.median(values) / base:8.2f}"
        if name in private:
            own = statistics.median(private[name])
            row += f"{own / 2**20:13.1f}{own / first:8.3f}"
        print(row)
    bench.processes.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        model = options.model
        if model is None:
            model = Path(directory) / "chain.onnx"
            make_model(model)
        uvloop.run(run(model.absolute(), options.rounds))


if __name__ == "__main__":
    main()
