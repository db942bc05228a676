"""Tiny ONNX models with one peculiarity each. Every function writes a file and returns its path.

`N` is the free axis 0 unless a docstring says otherwise. The graphs are in ONNX's text syntax, so that each model can be read in one line.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, TypeProto, helper, numpy_helper, parser

OPSET = 17
IR_VERSION = 9

ELEMENT_TYPES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "BF16": "bfloat16",
    "FP32": "float",
    "FP64": "double",
    "BYTES": "string",
}
"""Open Inference datatype to the element type of ONNX's text syntax."""


def write(path: Path, graph: str, weights: Sequence[TensorProto] = (), *, opset: int = OPSET, check: bool = True) -> Path:
    """Write the model that `graph` (ONNX text syntax, without the model's header) and further `weights` describe."""
    model = parser.parse_model(f'<ir_version: {IR_VERSION}, opset_import: ["": {opset}]>\n{graph}')
    model.graph.initializer.extend(weights)
    if check:
        onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    return path


def _numbers(*values: float) -> str:
    return "{" + ", ".join(str(value) for value in values) + "}"


# ── plain ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def ident(path: Path) -> Path:
    """x FP32 [N,4] -> y the same."""
    return write(path, "ident (float[N,4] x) => (float[N,4] y) { y = Identity(x) }")


def times(path: Path, factor: float) -> Path:
    """x FP32 [N,4] -> y = factor * x."""
    return write(path, f"times (float[N,4] x) => (float[N,4] y) <float factor = {{{factor}}}> {{ y = Mul(x, factor) }}")


def identdyn(path: Path) -> Path:
    """x FP32 [N,L] -> y the same."""
    return write(path, "identdyn (float[N,L] x) => (float[N,L] y) { y = Identity(x) }")


def typed(path: Path, datatype: str) -> Path:
    """x [N,2] of any Open Inference datatype -> y the same."""
    element = ELEMENT_TYPES[datatype]
    return write(path, f"typed ({element}[N,2] x) => ({element}[N,2] y) {{ y = Identity(x) }}")


def all_types(path: Path) -> Path:
    """One input [N,2] for each Open Inference datatype, named after it (`in_FP32`), and its copy (`out_FP32`).

    BF16 is not among them: ONNX Runtime's Python side cannot return it from a run that takes strings. `typed` does it alone.
    """
    elements = {name: element for name, element in ELEMENT_TYPES.items() if name != "BF16"}
    inputs = ", ".join(f"{element}[N,2] in_{name}" for name, element in elements.items())
    outputs = ", ".join(f"{element}[N,2] out_{name}" for name, element in elements.items())
    nodes = " ".join(f"out_{name} = Identity(in_{name})" for name in elements)
    return write(path, f"all_types ({inputs}) => ({outputs}) {{ {nodes} }}")


def strid(path: Path) -> Path:
    """x BYTES [N] -> y the same."""
    return write(path, "strid (string[N] x) => (string[N] y) { y = Identity(x) }")


def log(path: Path) -> Path:
    """x FP32 [N] -> y = log(x): 1, 0, -1 give 0, -Infinity, NaN."""
    return write(path, "log (float[N] x) => (float[N] y) { y = Log(x) }")


def gather10(path: Path) -> Path:
    """i INT64 [N] -> y FP32 [N], y = 10 * i for i in -10..9 (counted from the end below 0); any other index fails the run."""
    table = _numbers(*(10.0 * k for k in range(10)))
    return write(path, f"gather10 (int64[N] i) => (float[N] y) <float[10] table = {table}> {{ y = Gather(table, i) }}")


def quotient(path: Path) -> Path:
    """a INT64 [N], b INT64 [N] -> y = a / b. The smallest a by -1 has no answer in 64 bits: the processor ends the process (SIGFPE)."""
    return write(path, "quotient (int64[N] a, int64[N] b) => (int64[N] y) { y = Div(a, b) }")


def two_inputs(path: Path) -> Path:
    """a FP32 [N,2], b FP32 [N,2] -> y = a - b."""
    return write(path, "two_inputs (float[N,2] a, float[N,2] b) => (float[N,2] y) { y = Sub(a, b) }")


def two_outputs(path: Path) -> Path:
    """x FP32 [N,1] -> y the same, z = -x."""
    return write(path, "two_outputs (float[N,1] x) => (float[N,1] y, float[N,1] z) { y = Identity(x) z = Neg(x) }")


def optional_input(path: Path) -> Path:
    """x FP32 [N,2], and optionally scale FP32 [1] (default 2) -> y = x * scale."""
    return write(path, "optional_input (float[N,2] x, float[1] scale = {2.0}) => (float[N,2] y) { y = Mul(x, scale) }")


# ── what must not be merged ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def fixed1(path: Path) -> Path:
    """x FP32 [1,4] -> y the same; axis 0 is fixed."""
    return write(path, "fixed1 (float[1,4] x) => (float[1,4] y) { y = Identity(x) }")


def scalar(path: Path) -> Path:
    """x FP32 [] -> y the same; no axis 0 at all."""
    return write(path, "scalar (float x) => (float y) { y = Identity(x) }")


def mean0(path: Path) -> Path:
    """x FP32 [N,4] -> y FP32 [], the mean of everything."""
    return write(path, "mean0 (float[N,4] x) => (float y) { y = ReduceMean<keepdims = 0>(x) }")


def constout(path: Path) -> Path:
    """x FP32 [N,1] -> y the same, and c = [1, 2] whatever comes."""
    return write(
        path,
        "constout (float[N,1] x) => (float[N,1] y, float[2] c) <float[2] pair = {1.0, 2.0}> { y = Identity(x) c = Identity(pair) }",
    )


def nonzero(path: Path) -> Path:
    """x FP32 [N] -> y INT64 [K,1], the indices of the elements that are not zero."""
    return write(path, "nonzero (float[N] x) => (int64[K,1] y) { at = NonZero(x) y = Transpose<perm = [1, 0]>(at) }")


def disguised_nonzero(path: Path) -> Path:
    """As `nonzero`, but the output claims to be [N,1]: only running it shows that it may not be merged."""
    return write(path, "disguised (float[N] x) => (int64[N,1] y) { at = NonZero(x) y = Transpose<perm = [1, 0]>(at) }")


def centred(path: Path) -> Path:
    """x FP32 [N,4] -> y = x minus the mean of the batch: declared like `ident`, and yet rows influence each other."""
    return write(path, "centred (float[N,4] x) => (float[N,4] y) { mean = ReduceMean<axes = [0]>(x) y = Sub(x, mean) }")


def sorting(path: Path) -> Path:
    """x FP32 [N,4] -> y, each column sorted: rows change places."""
    return write(
        path,
        "sorting (float[N,4] x) => (float[N,4] y)"
        " { shape = Shape<start = 0, end = 1>(x) y, places = TopK<axis = 0, largest = 0>(x, shape) }",
    )


def dynamic_quantised(path: Path) -> Path:
    """x FP32 [N,16] -> y FP32 [N,8]: x is quantised by the range of the whole batch, so each row's rounding depends on its company."""
    weights = np.random.default_rng(1).integers(-127, 127, (16, 8)).astype(np.int8)
    graph = """dynamic_quantised (float[N,16] x) => (float[N,8] y)
        <int8 w_zero = {0}, float w_scale = {0.01}>
        {
            q, scale, zero = DynamicQuantizeLinear(x)
            product = MatMulInteger(q, w, zero, w_zero)
            real = Cast<to = 1>(product)
            both = Mul(scale, w_scale)
            y = Mul(real, both)
        }"""
    return write(path, graph, [numpy_helper.from_array(weights, "w")])


# ── realistic shapes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def encoder(path: Path) -> Path:
    """ids INT64 [N,L], mask INT64 [N,L] -> embedding FP32 [N,8]: the masked mean of a table's rows, as sentence encoders end."""
    table = np.random.default_rng(2).standard_normal((100, 8)).astype(np.float32)
    graph = """encoder (int64[N,L] ids, int64[N,L] mask) => (float[N,8] embedding)
        <int64[1] last = {2}, int64[1] middle = {1}, float tiny = {0.000001}>
        {
            rows = Gather(table, ids)
            real = Cast<to = 1>(mask)
            wide = Unsqueeze(real, last)
            kept = Mul(rows, wide)
            total = ReduceSum<keepdims = 0>(kept, middle)
            counted = ReduceSum<keepdims = 0>(wide, middle)
            divisor = Max(counted, tiny)
            embedding = Div(total, divisor)
        }"""
    return write(path, graph, [numpy_helper.from_array(table, "table")])


def token_encoder(path: Path) -> Path:
    """input_ids INT64 [N,L], attention_mask INT64 [N,L] -> last_hidden_state FP32 [N,L,8], pooler_output FP32 [N,8]: of each token a row of a table
    of 100, plus the masked mean of all, so that what is filled up would show if the mask did not keep it out."""
    table = np.random.default_rng(6).standard_normal((100, 8)).astype(np.float32)
    graph = """token_encoder (int64[N,L] input_ids, int64[N,L] attention_mask) => (float[N,L,8] last_hidden_state, float[N,8] pooler_output)
        <int64[1] last = {2}, int64[1] middle = {1}>
        {
            rows = Gather(table, input_ids)
            real = Cast<to = 1>(attention_mask)
            wide = Unsqueeze(real, last)
            kept = Mul(rows, wide)
            total = ReduceSum(kept, middle)
            counted = ReduceSum(wide, middle)
            mean = Div(total, counted)
            last_hidden_state = Add(rows, mean)
            pooler_output = Squeeze(mean, middle)
        }"""
    return write(path, graph, [numpy_helper.from_array(table, "table")])


def cross_encoder(path: Path) -> Path:
    """input_ids, attention_mask, token_type_ids INT64 [N,L] -> logits FP32 [N,1]: of the tokens of the second text, the masked mean of a table of
    100 that falls from 4 to -4."""
    table = np.linspace(4, -4, 100, dtype=np.float32)
    graph = """cross_encoder (int64[N,L] input_ids, int64[N,L] attention_mask, int64[N,L] token_type_ids) => (float[N,1] logits)
        <int64[1] middle = {1}, float tiny = {0.000001}>
        {
            worth = Gather(table, input_ids)
            second = Mul(attention_mask, token_type_ids)
            real = Cast<to = 1>(second)
            kept = Mul(worth, real)
            total = ReduceSum(kept, middle)
            counted = ReduceSum(real, middle)
            divisor = Max(counted, tiny)
            logits = Div(total, divisor)
        }"""
    return write(path, graph, [numpy_helper.from_array(table, "table")])


def projection(path: Path) -> Path:
    """x FP32 [N,384] -> y FP32 [N,768], a product with small whole numbers: exact, in whatever order it is summed."""
    weights = np.random.default_rng(5).integers(-3, 4, (384, 768)).astype(np.float32)
    return write(path, "projection (float[N,384] x) => (float[N,768] y) { y = MatMul(x, w) }", [numpy_helper.from_array(weights, "w")])


def masked(path: Path) -> Path:
    """x FP32 [N,L], mask INT64 [N,L] -> doubled FP32 [N,L] = 2x, total FP32 [N] = the sum of x where the mask is 1."""
    graph = """masked (float[N,L] x, int64[N,L] mask) => (float[N,L] doubled, float[N] total)
        <int64[1] last = {1}>
        {
            doubled = Add(x, x)
            real = Cast<to = 1>(mask)
            kept = Mul(x, real)
            total = ReduceSum<keepdims = 0>(kept, last)
        }"""
    return write(path, graph)


def measured(path: Path, datatype: str, mask: str = "INT64") -> Path:
    """x [N,L] of any Open Inference datatype, mask [N,L] -> y as x; width INT64 [N], the length of the run; real INT64 [N], the sum of the mask."""
    graph = f"""measured ({ELEMENT_TYPES[datatype]}[N,L] x, {ELEMENT_TYPES[mask]}[N,L] mask)
            => ({ELEMENT_TYPES[datatype]}[N,L] y, int64[N] width, int64[N] real)
        <int64[1] last = {{1}}, int64[1] one = {{1}}>
        {{
            y = Identity(x)
            shape = Shape(x)
            ones = Expand(one, shape)
            width = ReduceSum<keepdims = 0>(ones, last)
            count = Cast<to = 7>(mask)
            real = ReduceSum<keepdims = 0>(count, last)
        }}"""
    return write(path, graph)


def heavy(path: Path, mb: int, *, external: bool = False) -> Path:
    """x FP32 [N,512] -> y FP32 [N,512] through `mb` layers of 1 MiB of weights each; `external` puts these into `<path>.data`."""
    width = 512
    random = np.random.default_rng(3)
    weights, nodes, last = [], [], "x"
    for layer in range(mb):
        matrix = random.standard_normal((width, width), dtype=np.float32) / np.float32(np.sqrt(width))
        weights.append(numpy_helper.from_array(matrix, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{layer}"], [f"m{layer}"]))
        last = "y" if layer == mb - 1 else f"h{layer}"
        nodes.append(helper.make_node("Tanh", [f"m{layer}"], [last]))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width]) for name in "xy")
    graph = helper.make_graph(nodes, "heavy", [x], [y], weights)
    model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.save(model, path, save_as_external_data=external, location=f"{path.name}.data")
    return path


def weighty(path: Path, mb: int) -> Path:
    """x FP32 [N,4] -> y the same, beside `mb` MiB of weights that each run only touches."""
    table = np.random.default_rng(5).standard_normal((mb * 65536, 4), dtype=np.float32)
    graph = """weighty (float[N,4] x) => (float[N,4] y)
        <int64[1] columns = {1}, float nothing = {0.0}>
        {
            total = ReduceSum<keepdims = 0>(x, columns)
            zero = Mul(total, nothing)
            first = Cast<to = 7>(zero)
            row = Gather(table, first)
            nought = Mul(row, nothing)
            y = Add(x, nought)
        }"""
    return write(path, graph, [numpy_helper.from_array(table, "table")], check=False)  # which takes seconds for large ones


def slow(path: Path, iterations: int = 1000) -> Path:
    """x FP32 [N,4] -> y the same, after `iterations` multiplications of [N,256] by [256,256].

    Each takes about 10 microseconds, and 1 more for every further row.
    """
    spread = np.ones((4, 256), np.float32)
    weights = np.random.default_rng(4).standard_normal((256, 256)).astype(np.float32) / np.float32(16)
    graph = f"""slow (float[N,4] x) => (float[N,4] y)
        <int64 times = {{{iterations}}}, bool go = {{1}}, float nothing = {{0.0}}, int64[1] columns = {{1}}>
        {{
            start = MatMul(x, spread)
            end = Loop (times, go, start) <body = step (int64 i, bool on, float[N,256] h) => (bool still, float[N,256] next) {{
                still = Identity(on)
                product = MatMul(h, w)
                next = Tanh(product)
            }}>
            total = ReduceSum(end, columns)
            zero = Mul(total, nothing)
            y = Add(x, zero)
        }}"""
    return write(path, graph, [numpy_helper.from_array(spread, "spread"), numpy_helper.from_array(weights, "w")])


def hungry(path: Path) -> Path:
    """size INT64 [1] -> y FP32 [1], 0: a run needs 4 * size bytes, so that a large size makes its allocation fail."""
    return write(
        path,
        "hungry (int64[1] size) => (float[1] y)"
        " { room = ConstantOfShape(size) y = ReduceMax<keepdims = 1, axes = [0]>(room) }",
    )


def greedy(path: Path, rows: int) -> Path:
    """x FP32 [N,4] -> y the same; more than `rows` rows in a run need 64 TiB."""
    graph = f"""greedy (float[N,4] x) => (float[N,4] y)
        <int64[1] limit = {{{rows + 1}}}, int64[1] huge = {{{2**44}}}, int64[1] one = {{1}}>
        {{
            count = Shape<start = 0, end = 1>(x)
            over = Div(count, limit)
            more = Mul(over, huge)
            size = Add(more, one)
            room = ConstantOfShape(size)
            nothing = ReduceMax<keepdims = 1, axes = [0]>(room)
            y = Add(x, nothing)
        }}"""
    return write(path, graph)


FATAL = -1000003.0


def fatal(path: Path) -> Path:
    """x FP32 [N,4] -> y the same. An element of FATAL ends the process with SIGFPE: the quotient of the smallest INT64 and -1 is none."""
    graph = """fatal (float[N,4] x) => (float[N,4] y) <int64[1] most = {1000002}, int64[1] least = {-9223372036854775808}, float nothing = {0.0}>
        {
            whole = Cast<to = 7>(x)
            divisor = Add(whole, most)
            quotient = Div(least, divisor)
            real = Cast<to = 1>(quotient)
            zero = Mul(real, nothing)
            y = Add(x, zero)
        }"""
    return write(path, graph)


def zipmap(path: Path, labels: Sequence[int] | Sequence[str] = (0, 1), opset: int | None = OPSET) -> Path:
    """x FP32 [N,2] -> y, a sequence of maps: what skl2onnx makes of a classifier unless it is told not to. `opset`: of the operators beside those
    of machine learning, None for a file that knows none of them."""
    names = isinstance(labels[0], str)
    attribute: Any = {"classlabels_strings" if names else "classlabels_int64s": labels}
    graph = helper.make_graph(
        [helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", **attribute)],
        "zipmap",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])],
        [helper.make_value_info("y", _sequence_of_maps(TensorProto.STRING if names else TensorProto.INT64))],
    )
    opsets = [helper.make_opsetid("ai.onnx.ml", 3), *([helper.make_opsetid("", opset)] if opset else [])]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION), path)
    return path


def _sequence_of_maps(key: int) -> TypeProto:
    return helper.make_sequence_type_proto(helper.make_map_type_proto(key, helper.make_tensor_type_proto(TensorProto.FLOAT, [])))


def sequence(path: Path) -> Path:
    """x FP32 [N,4] -> y, a sequence of tensors, which no Open Inference tensor can hold."""
    return write(path, "sequence (float[N,4] x) => (seq(float[N,4]) y) { y = SequenceConstruct(x) }")


# ── steps of a pipeline ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def parse(path: Path) -> Path:
    """text BYTES [N] -> i INT64 [N], the whole number that each text is; any other text fails the run. `gather10` takes it."""
    return write(path, "parse (string[N] text) => (int64[N] i) { i = Cast<to = 7>(text) }")


def spell(path: Path) -> Path:
    """y FP32 [N], as `gather10` gives it -> text BYTES [N]."""
    return write(path, "spell (float[N] y) => (string[N] text) { text = Cast<to = 8>(y) }")


def fork(path: Path) -> Path:
    """x FP32 [N,2] -> p = x + x, q = x * x."""
    return write(path, "fork (float[N,2] x) => (float[N,2] p, float[N,2] q) { p = Add(x, x) q = Mul(x, x) }")


def negative(path: Path) -> Path:
    """x FP32 [N,2] -> y = -x."""
    return write(path, "negative (float[N,2] x) => (float[N,2] y) { y = Neg(x) }")
