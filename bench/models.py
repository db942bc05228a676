"""The models that are measured. Each is made once below the cache directory, or lies in an installed package: nothing is downloaded."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wakeful.tensors import DTYPES, Tensor

Feeds = dict[str, np.ndarray]

DATATYPES = {np.dtype(dtype.numpy): dtype.name for dtype in DTYPES.values() if dtype.name not in ("BF16", "BYTES")}
TOKENS = 16
"""Length of the encoder's texts."""
IDENTITY_WIDTH = 150_000
"""Elements of a row of the identity model: 600 KB as FP32."""
CLASSIFIER_BYTES = 2048
OPSET, IR_VERSION = 17, 9
"""Old enough for the ONNX Runtime of every peer."""


@dataclass(frozen=True)
class BenchModel:
    name: str
    path: Path
    make: Callable[[int, np.random.Generator], Feeds]
    """Inputs of so many rows."""

    def feeds(self, rows: int = 1, seed: int = 0) -> Feeds:
        """Inputs as arrays, for ONNX Runtime itself."""
        return self.make(rows, np.random.default_rng(seed))

    def inputs(self, rows: int = 1, seed: int = 0) -> tuple[Tensor, ...]:
        """The same as tensors, for a request."""
        return tuple(Tensor(name, DATATYPES[array.dtype], array.shape, array.tobytes()) for name, array in self.feeds(rows, seed).items())


def cache_directory() -> Path:
    """Where models, environments of peers and caches lie: $WAKEFUL_BENCH_CACHE, else below the user's cache directory."""
    if given := os.environ.get("WAKEFUL_BENCH_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wakeful-bench"


def tiny() -> BenchModel:
    """Four numbers to three through a hidden layer of 16: a run costs next to nothing, so that the server is measured."""
    return BenchModel("tiny", _made("tiny", _tiny), lambda rows, random: {"x": random.standard_normal((rows, 4), "f4").round(3)})


def identity() -> BenchModel:
    """Gives back what it gets, 600 KB a row: what moving tensors costs."""
    return BenchModel("identity", _made("identity", _identity), lambda rows, random: {"x": random.standard_normal((rows, IDENTITY_WIDTH), "f4")})


def encoder() -> BenchModel:
    """A sentence encoder of the size of MiniLM: 6 layers, 384 wide, 12 heads, 90 MB of random weights; texts of 16 tokens."""

    def feeds(rows: int, random: np.random.Generator) -> Feeds:
        ids = random.integers(1000, 20_000, (rows, TOKENS))
        return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}

    return BenchModel("encoder", _made("encoder", _encoder), feeds)


def resnet50() -> BenchModel:
    """ResNet-50 as the `onnx` package has it, with random weights instead of its constant ones, and the batch axis made free."""
    return BenchModel(
        "resnet50", _made("resnet50", _resnet50), lambda rows, random: {"gpu_0/data_0": random.standard_normal((rows, 3, 224, 224), "f4")},
    )


def magika() -> BenchModel:
    """The classifier of files that comes with the `magika` package."""
    import magika as package

    path = Path(package.__file__).parent / "models" / "standard_v3_3" / "model.onnx"
    return BenchModel("magika", path, lambda rows, random: {"bytes": random.integers(0, 257, (rows, CLASSIFIER_BYTES), np.int32)})


MODELS: Mapping[str, Callable[[], BenchModel]] = {
    "tiny": tiny, "identity": identity, "encoder": encoder, "resnet50": resnet50, "magika": magika,
}


def _made(name: str, make: Callable[[], Any]) -> Path:
    """The path of a model file, made if it is not there yet. Two processes may do so at once: each renames a whole file into place."""
    import onnx

    path = cache_directory() / "models" / f"{name}.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        onnx.save(make(), draft)
        draft.replace(path)
    return path


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: Mapping[str, np.ndarray]) -> Any:
    from onnx import helper, numpy_helper

    graph = helper.make_graph(nodes, "bench", inputs, outputs, [numpy_helper.from_array(array, name) for name, array in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def _value(name: str, kind: str, shape: list[str | int]) -> Any:
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info(name, getattr(TensorProto, kind), shape)


def _tiny() -> Any:
    from onnx import helper

    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["y"]),
    ]
    weights = {"w1": random.standard_normal((4, 16), "f4"), "w2": random.standard_normal((16, 3), "f4")}
    return _model(nodes, [_value("x", "FLOAT", ["N", 4])], [_value("y", "FLOAT", ["N", 3])], weights)


def _identity() -> Any:
    from onnx import helper

    node = helper.make_node("Identity", ["x"], ["y"])
    return _model([node], [_value("x", "FLOAT", ["N", IDENTITY_WIDTH])], [_value("y", "FLOAT", ["N", IDENTITY_WIDTH])], {})


class _Graph:
    """Nodes and weights of a network under construction; each step gives the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: dict[str, np.ndarray] = {}
        self._random = np.random.default_rng(0)

    def node(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        from onnx import helper

        name = output or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        name = f"constant_{len(self.weights)}"
        self.weights[name] = array
        return name

    def random(self, *shape: int) -> str:
        """Weights that keep signals at their size."""
        return self.constant(self._random.standard_normal(shape, "f4") / np.float32(math.sqrt(shape[0])))

    def linear(self, signal: str, width: int, to: int) -> str:
        return self.node("Add", self.node("MatMul", signal, self.random(width, to)), self.constant(np.zeros(to, "f4")))

    def norm(self, signal: str, width: int) -> str:
        scale, bias = self.constant(np.ones(width, "f4")), self.constant(np.zeros(width, "f4"))
        return self.node("LayerNormalization", signal, scale, bias, axis=-1, epsilon=1e-12)

    def attention(self, signal: str, mask: str, width: int, heads: int) -> str:
        apart = self.constant(np.array([0, 0, heads, width // heads]))
        queries, keys, values = (self.node("Reshape", self.linear(signal, width, width), apart) for _ in range(3))
        products = self.node(
            "MatMul", self.node("Transpose", queries, perm=[0, 2, 1, 3]), self.node("Transpose", keys, perm=[0, 2, 3, 1]),
        )
        scaled = self.node("Div", products, self.constant(np.array(math.sqrt(width / heads), "f4")))
        shares = self.node("Softmax", self.node("Add", scaled, mask), axis=-1)
        mixed = self.node("Transpose", self.node("MatMul", shares, self.node("Transpose", values, perm=[0, 2, 1, 3])), perm=[0, 2, 1, 3])
        return self.linear(self.node("Reshape", mixed, self.constant(np.array([0, 0, width]))), width, width)

    def gelu(self, signal: str) -> str:
        error = self.node("Erf", self.node("Div", signal, self.constant(np.array(math.sqrt(2), "f4"))))
        both = self.node("Mul", signal, self.node("Add", error, self.constant(np.array(1, "f4"))))
        return self.node("Mul", both, self.constant(np.array(0.5, "f4")))


def _encoder(layers: int = 6, width: int = 384, heads: int = 12, inner: int = 1536, words: int = 30_522, longest: int = 512) -> Any:
    """Token ids to the mean of the last layer over the tokens that the mask names."""
    from onnx import TensorProto

    graph = _Graph()
    given = [_value(name, "INT64", ["batch", "sequence"]) for name in ("input_ids", "attention_mask", "token_type_ids")]
    zero, one = graph.constant(np.array([0])), graph.constant(np.array([1]))
    length = graph.node("Slice", graph.node("Shape", "input_ids"), one, graph.constant(np.array([2])))
    places = graph.node("Slice", graph.random(longest, width), zero, length, zero)
    sort = graph.node("Gather", graph.random(2, width), "token_type_ids")
    signal = graph.norm(graph.node("Add", graph.node("Add", graph.node("Gather", graph.random(words, width), "input_ids"), sort), places), width)
    kept = graph.node("Cast", "attention_mask", to=TensorProto.FLOAT)
    wide = graph.node("Unsqueeze", kept, graph.constant(np.array([1, 2])))
    mask = graph.node("Mul", graph.node("Sub", graph.constant(np.array(1, "f4")), wide), graph.constant(np.array(-1e4, "f4")))
    for _ in range(layers):
        signal = graph.norm(graph.node("Add", signal, graph.attention(signal, mask, width, heads)), width)
        hidden = graph.gelu(graph.linear(signal, width, inner))
        signal = graph.norm(graph.node("Add", signal, graph.linear(hidden, inner, width)), width)
    column = graph.node("Unsqueeze", kept, graph.constant(np.array([2])))
    total = graph.node("ReduceSum", graph.node("Mul", signal, column), one, keepdims=0)
    graph.node("Div", total, graph.node("ReduceSum", column, one, keepdims=0), output="embedding")
    return _model(graph.nodes, given, [_value("embedding", "FLOAT", ["batch", width])], graph.weights)


def _resnet50() -> Any:
    import onnx
    import onnx.backend.test
    from onnx import numpy_helper

    model = onnx.load(Path(onnx.backend.test.__file__).parent / "data" / "light" / "light_resnet50.onnx")
    graph = model.graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    random, kept = np.random.default_rng(0), []
    for node in graph.node:
        if node.op_type == "Reshape" and node.input[1] in constants:  # to [1, 2048], whatever the batch
            target = next(tensor for tensor in graph.initializer if tensor.name == node.input[1])
            target.CopyFrom(numpy_helper.from_array(np.array([-1, *constants[node.input[1]][1:]]), node.input[1]))
        if node.op_type != "ConstantOfShape" or node.input[0] not in constants:
            kept.append(node)
            continue
        shape = tuple(int(size) for size in constants[node.input[0]])
        # One axis: scales, and variances, which must be positive.
        weights = random.uniform(0.2, 0.4, shape) if len(shape) == 1 else random.standard_normal(shape) * math.sqrt(2 / math.prod(shape[1:]))
        graph.initializer.append(numpy_helper.from_array(weights.astype("f4"), node.output[0]))
    del graph.node[:]
    graph.node.extend(kept)
    used = {name for node in kept for name in node.input}
    tensors = [tensor for tensor in graph.initializer if tensor.name in used]
    inputs = [value for value in graph.input if value.name in used and value.name not in constants]
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend(tensors)
    graph.input.extend(inputs)
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    del graph.value_info[:]
    model.ir_version = max(model.ir_version, IR_VERSION)  # before the fourth, weights had to be inputs too
    return model
