"""Random models, and random requests for them with the answers that ONNX Runtime gives to each alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import ModelProto, helper

from tests.e2e.asking import Answer, Question, binary
from tests.generated.graph import Graph, Shape, Value, info
from tests.generated.operators import CROSSING, ROW_WISE, int64s
from tests.onnx_models import IR_VERSION, OPSET
from wakeful.tensors import DTYPES, decode_strings, encode_strings

Arrays = dict[str, np.ndarray]

ROW_LIMIT = 6
"""Of one run; larger requests take turns."""


# ── models ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Model:
    name: str
    proto: ModelProto
    inputs: list[Value]
    optional: list[str]
    outputs: list[Value]
    """As they are, whatever the file declares."""
    mergeable: bool
    """Its rows are independent, and it says so."""
    cases: "list[Case]"


@dataclass
class Case:
    """A request, and what is right: an answer, or None where the model refuses it."""

    question: Question
    expected: Arrays | None


def generate(seed: int, index: int) -> Model:
    """The model of these numbers, always the same one. Graphs that ONNX Runtime does not take are thrown away."""
    for attempt in range(100):
        rng = Random(f"{seed}/{index}/{attempt}")
        graph = Graph(rng)
        _begin(graph)
        for operator in _chosen(rng):
            matrix = rng.choice(graph.matrices[-3:])
            before = len(graph.values)
            operator(graph, matrix)
            if operator in CROSSING and len(graph.values) > before:
                graph.independent = False
        model = _finished(graph, f"g{index}")
        if model is not None:
            return model
    raise AssertionError(f"no model of seed {seed}, number {index}, can be loaded and run")


def _chosen(rng: Random) -> list[Any]:
    """Half of the models have rows that influence each other, mostly by one operator."""
    operators = rng.choices(ROW_WISE, k=rng.randint(0, 5))
    if rng.random() < 0.5:
        for crossing in rng.choices(CROSSING, k=rng.choice([1, 1, 1, 2])):
            operators.insert(rng.randint(0, len(operators)), crossing)
    return operators


def _begin(graph: Graph) -> None:
    """Inputs, made into matrices [rows, width]."""
    rng = graph.rng
    width = rng.choice([1, 2, 4, 7])
    rng.choices([_plain, _vector, _cube, _free, _integers, _mask, _fixed, _turned], [6, 1, 1, 1, 1, 1, 1, 1])[0](graph, width)
    if rng.random() < 0.4:
        rng.choice([_second, _texts, _unrelated, _small, _optional])(graph, graph.matrices[-1])


def _plain(g: Graph, width: int) -> None:
    g.matrices.append(g.input("x", ("N", width)))


def _vector(g: Graph, width: int) -> None:
    g.matrix(g.node("Unsqueeze", [g.input("x", ("N",)), int64s(g, 1)]), ("N", 1), bound=8)


def _cube(g: Graph, width: int) -> None:
    x = g.input("x", ("N", width, 2))
    g.others.append(x)
    g.matrix(g.node("Reshape", [x, int64s(g, -1, 2 * width)]), ("N", 2 * width), bound=8)


def _free(g: Graph, width: int) -> None:
    x = g.input("x", ("N", "L"))
    g.others.append(x)
    g.matrix(g.node("ReduceSum", [x, int64s(g, 1)], keepdims=1), ("N", 1), bound=64)


def _integers(g: Graph, width: int) -> None:
    x = g.input("x", ("N", width), g.rng.choice(["INT64", "INT32", "INT8"]))
    g.others.append(x)
    g.matrix(g.node("Cast", [x], to=1), x.shape, bound=8)


def _mask(g: Graph, width: int) -> None:
    g.matrix(g.node("Cast", [g.input("x", ("N", width), "BOOL")], to=1), ("N", width), bound=1)


def _fixed(g: Graph, width: int) -> None:
    g.matrices.append(g.input("x", (g.rng.choice([1, 3]), width)))
    g.independent = False


def _turned(g: Graph, width: int) -> None:
    """Rows are columns."""
    x = g.input("x", (width if g.rng.random() < 0.5 else "L", "N"))
    g.independent = False
    total = g.node("ReduceSum", [x, int64s(g, 0)], keepdims=0)
    g.matrix(g.node("Unsqueeze", [total, int64s(g, 1)]), ("N", 1), bound=64)


def _second(g: Graph, x: Value) -> None:
    other = g.input("b", x.shape)
    g.matrix(g.node(g.rng.choice(["Add", "Sub"]), [x, other]), x.shape, bound=x.bound + 8)


def _texts(g: Graph, x: Value) -> None:
    g.others.append(g.input("b", g.rng.choice([x.shape[:1], x.shape]), "BYTES"))


def _unrelated(g: Graph, x: Value) -> None:
    """A table that all rows share."""
    table = g.input("b", ("M", x.shape[1]))
    total = g.node("ReduceSum", [table, int64s(g, 0)], keepdims=1)
    g.matrix(g.node("Add", [x, total]), x.shape, bound=x.bound + 128)
    g.independent = False


def _small(g: Graph, x: Value) -> None:
    """Something that has no rows."""
    other = g.input("b", g.rng.choice([(), (1,), (1, 1)]))
    g.matrix(g.node("Add", [x, other]), x.shape, bound=x.bound + 8)
    g.independent = False


def _optional(g: Graph, x: Value) -> None:
    """It has a default, and so it may be left out."""
    value = g.constant([2.0])
    g.input(value, (1,))
    g.optional.append(value)
    g.matrix(g.node("Mul", [x, value]), x.shape, bound=8 * x.bound)


def _finished(g: Graph, name: str) -> Model | None:
    rng = g.rng
    outputs = [g.values[-1], *rng.sample(g.values, min(len(g.values), rng.randint(0, 2)))]
    given = dict(zip(("y", "z", "w"), outputs, strict=False))
    for output, value in given.items():
        g.nodes.append(helper.make_node("Identity", [value.name], [output]))
    named = rng.random() < 0.85
    manner = rng.choices([_truly, _unnamed, _made_up, _disguised], [5, 2, 1, 2])[0]
    graph = helper.make_graph(
        g.nodes, name,
        [info(one.name, one.datatype, one.shape if named else _unnamed(one.shape)) for one in g.inputs],
        [info(output, one.datatype, manner(one.shape)) for output, one in given.items()],
        g.weights,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    session = _session(proto)
    if session is None:
        return None
    declared = [Value(name, one.shape, one.datatype, one.bound, one.error) for name, one in given.items()]
    by_rows = all(one.shape[:1] == ("N",) for one in given.values())
    model = Model(name, proto, g.inputs, g.optional, declared, g.independent and by_rows, [])
    model.cases = [_case(model, session, rng, rows) for rows in _row_counts(rng)]
    return model if any(case.expected is not None for case in model.cases) else None


def _truly(shape: Shape) -> Shape:
    return tuple(None if size == "?" else size for size in shape)


def _unnamed(shape: Shape) -> Shape:
    return tuple(size if isinstance(size, int) else None for size in shape)


def _made_up(shape: Shape) -> Shape:
    return tuple(size if isinstance(size, int) else f"Identityy_dim_{axis}" for axis, size in enumerate(shape))


def _disguised(shape: Shape) -> Shape:
    return ("N", *_truly(shape)[1:]) if shape and not isinstance(shape[0], int) else _truly(shape)


def _session(proto: ModelProto) -> ort.InferenceSession | None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001 - the library has no common base of its own
        return None


# ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _row_counts(rng: Random) -> list[int]:
    return [1, 1, 2, rng.choice([1, 3, 4, 5]), rng.choice([1, 6, 7, 13]), rng.choice([0, 1, 2])]


def _case(model: Model, session: ort.InferenceSession, rng: Random, rows: int) -> Case:
    sizes = {"N": rows, "L": rng.randint(1, 4), "M": rng.choice([1, 2, rows])}
    feed: Arrays = {}
    for value in model.inputs:
        if value.name in model.optional and rng.random() < 0.8:
            continue
        shape = tuple(sizes[size] if isinstance(size, str) else size or 0 for size in value.shape)
        feed[value.name] = _elements(rng, value.datatype, shape)
    try:
        outputs = dict(zip([one.name for one in model.outputs], session.run(None, feed), strict=True))
    except Exception:  # noqa: BLE001 - as above
        outputs = None
    return Case(_question(model, feed), outputs)


def _elements(rng: Random, datatype: str, shape: Sequence[int]) -> np.ndarray:
    """Small whole numbers, all different or all the same; or texts."""
    count, most = math.prod(shape), rng.choice([0, 1, 3, 8, 8])
    if datatype == "BYTES":
        return np.array([rng.choice(["", "a", "ä", "long " * 9]) for _ in range(count)], object).reshape(shape)
    same = rng.randint(-most, most) if rng.random() < 0.2 else None
    numbers = [rng.randint(-most, most) if same is None else same for _ in range(count)]
    return np.array(numbers, np.int64).astype(DTYPES[datatype].numpy).reshape(shape)


def _question(model: Model, feed: Arrays) -> Question:
    datatypes = {one.name: one.datatype for one in model.inputs}
    tensors, chunks = [], []
    for name, array in feed.items():
        tensors.append({"name": name, "datatype": datatypes[name], "shape": list(array.shape)})
        chunks.append(encode_strings([text.encode() for text in array.flat]) if array.dtype == object else array.tobytes())
    return binary(model.name, tensors, chunks)


def arrays(answer: Answer) -> Arrays:
    """Outputs of an answer with binary data."""
    data, found = memoryview(answer.body)[answer.json_length or 0:], {}
    for output in answer.json["outputs"]:
        size, shape = output["parameters"]["binary_data_size"], output["shape"]
        if output["datatype"] == "BYTES":
            texts = decode_strings(data[:size], math.prod(shape))
            array = np.array([text.decode() for text in texts], object).reshape(shape)
        else:
            array = np.frombuffer(data[:size], DTYPES[output["datatype"]].numpy).reshape(shape)
        found[output["name"]], data = array, data[size:]
    return found


def difference(model: Model, got: Arrays, expected: Arrays) -> str:
    """How an answer is not the right one; empty if it is.

    Exact values are equal, but that a sum may leave either of the two zeros. Others are as near as the graph's roundings allow: the error of each
    operator is at most what it does to the errors of its inputs, and its own rounding (see operators.py), and each of two runs may have it.
    """
    for output in model.outputs:
        one, other = got.get(output.name), expected[output.name]
        if one is None or one.shape != other.shape or one.dtype != other.dtype:
            return f"{output.name} is {one!r}, expected {other!r}"
        rounding = 2 * output.error
        if not (np.array_equal(one, other) if output.exact else bool(np.all(np.abs(one - other) <= rounding))):
            return f"{output.name} is\n{one!r}\nexpected\n{other!r}\nwithin {rounding:.2g}"
    return ""


def write(model: Model, directory: Path) -> Path:
    path = directory / f"{model.name}.onnx"
    onnx.save(model.proto, path)
    return path
