"""Opening and running ONNX files: every datatype, every reason to refuse, and prepared copies that answer like their originals."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests import onnx_models
from wakeful.backends import onnx as backend
from wakeful.backends.base import LoadOptions
from wakeful.errors import InvalidInput, OutOfMemory, Unavailable
from wakeful.runtime.messages import TensorSpec
from wakeful.tensors import DTYPES

VALUES = {
    "BOOL": [[True, False], [False, True]],
    "FP16": [[0.5, -1], [np.inf, np.nan]],
    "BF16": [[0x3F80, 0xFF80], [0x7FC0, 1]],
    "FP32": [[0.1, -1e30], [np.inf, np.nan]],
    "FP64": [[0.1, -1e300], [-np.inf, np.nan]],
    "BYTES": [["", "€"], ["a\0b", "x" * 100_000]],
}


def opened(path: Path, **options: object) -> backend.OnnxBackend:
    return backend.open_model(str(path), LoadOptions(**options))  # type: ignore[arg-type]  # whatever the test says


def values(datatype: str) -> np.ndarray:
    """Two rows of two elements, extreme ones where the type has any."""
    if datatype in VALUES:
        return np.array(VALUES[datatype], DTYPES[datatype].numpy)
    limits = np.iinfo(DTYPES[datatype].numpy)
    return np.array([[limits.min, 0], [1, limits.max]], limits.dtype)


# ── signature and answers ────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("datatype", DTYPES)
def test_every_datatype_comes_back_as_it_went_in(tmp_path: Path, datatype: str) -> None:
    model = opened(onnx_models.typed(tmp_path / "m.onnx", datatype))
    assert model.signature.inputs == (TensorSpec("x", datatype, ("N", 2)),)
    assert model.signature.outputs == (TensorSpec("y", datatype, ("N", 2)),)
    for x in (values(datatype), values(datatype)[:1], values(datatype)[:0], np.asfortranarray(values(datatype))):
        (y,) = model.run({"x": x})
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y, x)


def test_all_datatypes_in_one_model_keep_their_order(tmp_path: Path) -> None:
    model = opened(onnx_models.all_types(tmp_path / "m.onnx"))
    inputs = {spec.name: values(spec.datatype) for spec in reversed(model.signature.inputs)}
    for spec, output in zip(model.signature.outputs, model.run(inputs), strict=True):
        np.testing.assert_array_equal(output, values(spec.datatype))


def test_bf16_inputs_go_with_strings_unless_bf16_comes_out(tmp_path: Path) -> None:
    graph = "m (bfloat16[N] x, string[N] s) => (float[N] y, string[N] t) { y = Cast<to = 1>(x) t = Identity(s) }"
    model = opened(onnx_models.write(tmp_path / "in.onnx", graph))
    y, t = model.run({"x": np.array([0x3F80, 0x4000], np.uint16), "s": np.array(["a", "b"], object)})
    assert y.tolist() == [1, 2]
    assert t.tolist() == ["a", "b"]
    graph = "m (bfloat16[N] x, string[N] s) => (bfloat16[N] y) { y = Identity(x) }"
    with pytest.raises(Unavailable, match="cast the output to FP32"):
        opened(onnx_models.write(tmp_path / "out.onnx", graph))


def test_free_fixed_and_unnamed_dimensions(tmp_path: Path) -> None:
    free = [None, -1, "L", 4]
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, free) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "m", [x], [y])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    assert opened(path).signature.inputs[0].shape == (None, None, "L", 4)
    assert opened(onnx_models.scalar(tmp_path / "s.onnx")).signature.outputs[0].shape == ()


def test_optional_inputs_follow_the_others_and_may_be_left_out(tmp_path: Path) -> None:
    path = onnx_models.optional_input(tmp_path / "m.onnx")
    backend.prepare(str(path), str(made(tmp_path / "copy")))
    for model in (opened(path), opened(path, prepared=str(tmp_path / "copy"))):
        assert model.signature.inputs == (TensorSpec("x", "FP32", ("N", 2)), TensorSpec("scale", "FP32", (1,), optional=True))
        x = np.ones((1, 2), np.float32)
        assert model.run({"x": x})[0].tolist() == [[2, 2]]
        assert model.run({"x": x, "scale": np.array([3], np.float32)})[0].tolist() == [[3, 3]]


def test_weights_that_an_old_file_lists_as_inputs_are_none(tmp_path: Path) -> None:
    path = old_model(tmp_path / "m.onnx")
    backend.prepare(str(path), str(made(tmp_path / "copy")))
    for model in (opened(path), opened(path, prepared=str(tmp_path / "copy"))):
        assert [spec.name for spec in model.signature.inputs] == ["x"]


def test_nan_and_infinity_come_back(tmp_path: Path) -> None:
    (y,) = opened(onnx_models.log(tmp_path / "m.onnx")).run({"x": np.array([1, 0, -1], np.float32)})
    np.testing.assert_array_equal(y, np.array([0, -np.inf, np.nan], np.float32))


def test_external_weights_are_found_beside_the_model(tmp_path: Path) -> None:
    x = np.ones((1, 512), np.float32)
    inside = opened(onnx_models.heavy(tmp_path / "inside.onnx", 1)).run({"x": x})
    outside = opened(onnx_models.heavy(tmp_path / "outside.onnx", 1, external=True)).run({"x": x})
    np.testing.assert_array_equal(inside[0], outside[0])


# ── failed runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_the_model_refuses_is_the_callers_fault(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gather = opened(onnx_models.gather10(tmp_path / "gather.onnx"))
    with pytest.raises(InvalidInput, match="idx=99 must be within") as caught:
        gather.run({"i": np.array([1, 99])})
    assert_readable(caught.value.message)
    assert gather.run({"i": np.array([-1, 4])})[0].tolist() == [90, 40]

    fixed = opened(onnx_models.fixed1(tmp_path / "fixed.onnx"))
    for x in (np.zeros((2, 4), np.float32), np.zeros(4, np.float32), np.zeros((1, 4))):
        with pytest.raises(InvalidInput) as caught:
            fixed.run({"x": x})
        assert_readable(caught.value.message)
    with pytest.raises(InvalidInput, match="x"):
        fixed.run({})
    with pytest.raises(InvalidInput, match="Invalid input name: z"):
        fixed.run({"x": np.zeros((1, 4), np.float32), "z": np.zeros(1)})

    pair = opened(onnx_models.two_inputs(tmp_path / "pair.onnx"))
    with pytest.raises(InvalidInput, match="broadcast"):
        pair.run({"a": np.zeros((3, 2), np.float32), "b": np.zeros((2, 2), np.float32)})

    texts = opened(onnx_models.strid(tmp_path / "texts.onnx"))
    with pytest.raises(InvalidInput, match="surrogates"):
        texts.run({"x": np.array(["\udcff"], object)})
    assert capfd.readouterr().err == "", "a bad request must not write to the log"


@pytest.mark.parametrize(
    ("graph", "inputs"),
    [
        ("(int64[N] a, int64[N] b) => (int64[N] y) { y = Div(a, b) }", {"a": np.array([7]), "b": np.array([0])}),
        ("(int64[N] a, int64[N] b) => (int64[N] y) { y = Mod(a, b) }", {"a": np.array([7]), "b": np.array([0])}),
        ("(string[N] x) => (float[N] y) { y = Cast<to = 1>(x) }", {"x": np.array(["abc"], object)}),
        ("(string[N] x) => (int64[N] y) { y = Cast<to = 7>(x) }", {"x": np.array(["9" * 30], object)}),
        ("(float[N] x, int64[1] k) => (float[K] y, int64[K] z) { y, z = TopK(x, k) }", {"x": np.zeros(4, np.float32), "k": np.array([9])}),
        ("(float[N] x, int64[2] s) => (float[A] y, float[B] z) { y, z = Split(x, s) }", {"x": np.zeros(4, np.float32), "s": np.array([1, 1])}),
        ("(float[N] x, float[1] s) => (float[M] y) { y = Resize(x, , s) }", {"x": np.zeros(2, np.float32), "s": np.array([-1], np.float32)}),
    ],
    ids=["Div", "Mod", "Cast to float", "Cast to int", "TopK", "Split", "Resize"],
)
def test_values_that_a_kernel_cannot_work_with_are_the_callers_fault(tmp_path: Path, graph: str, inputs: dict[str, np.ndarray]) -> None:
    """C43: 400 and not 500, which would be taken for a fault of ours and tried again."""
    with pytest.raises(InvalidInput) as caught:
        opened(onnx_models.write(tmp_path / "m.onnx", f"m {graph}")).run(inputs)
    assert_readable(caught.value.message)


def test_missing_bf16_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"missing: x"):
        opened(onnx_models.typed(tmp_path / "m.onnx", "BF16")).run({})


def test_failed_allocation_is_out_of_memory_and_the_next_run_works(tmp_path: Path) -> None:
    model = opened(onnx_models.hungry(tmp_path / "m.onnx"))
    with pytest.raises(OutOfMemory) as caught:
        model.run({"size": np.array([2**44])})
    assert_readable(caught.value.message)
    assert "ConstantOfShape: Failed to allocate" in caught.value.message
    with pytest.raises(InvalidInput, match="overflowed"):
        model.run({"size": np.array([2**62])})
    assert model.run({"size": np.array([3])})[0].tolist() == [0]


# ── files that cannot be opened ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_broken_file_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    good = onnx_models.heavy(tmp_path / "good.onnx", 1).read_bytes()
    identity = "m (float[N] x) => (float[N] y) { y = Identity(x) }"
    future = onnx.load(onnx_models.ident(tmp_path / "future.onnx"))
    future.ir_version = 99
    onnx.save(future, tmp_path / "future.onnx")
    cases = {
        "cut short": written(tmp_path / "cut.onnx", good[:-1000]),
        "another format": written(tmp_path / "pickle.onnx", b"\x80\x04\x95junk"),
        "holds no ONNX graph": written(tmp_path / "empty.onnx", b""),
        "does not exist": tmp_path / "absent.onnx",
        r"needs opset 99 of ai\.onnx, newer than ONNX Runtime": onnx_models.write(tmp_path / "opset.onnx", identity, opset=99, check=False),
        "ONNX IR version 99, newer": tmp_path / "future.onnx",
        "uses the operator Nonsense": onnx_models.write(tmp_path / "op.onnx", identity.replace("Identity", "Nonsense"), check=False),
        "input 'q' is not": onnx_models.write(tmp_path / "graph.onnx", identity.replace("(x) }", "(q) }"), check=False),
        r"keeps its weights in lost\.onnx\.data, which is missing": lost_weights(tmp_path / "lost.onnx"),
    }
    for expected, path in cases.items():
        with pytest.raises(Unavailable, match=expected) as caught:
            opened(path)
        assert caught.value.message.startswith(path.name)
        assert_readable(caught.value.message)


@pytest.mark.parametrize("labels", [[0, 1], [-3, 7], ["no", "yes"]])
@pytest.mark.parametrize("opset", [None, 13])
def test_a_map_from_class_to_probability_is_a_matrix_with_named_columns(tmp_path: Path, labels: list[Any], opset: int | None) -> None:
    path = onnx_models.zipmap(tmp_path / "z.onnx", labels, opset)
    model = opened(path)
    assert model.signature.outputs == (TensorSpec("y", "FP32", ("N", 2), columns=tuple(map(str, labels))),)
    rows = np.array([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]], np.float32)
    np.testing.assert_array_equal(model.run({"x": rows})[0], rows)
    (tmp_path / "prepared").mkdir()
    backend.prepare(str(path), str(tmp_path / "prepared"))
    prepared = opened(path, prepared=str(tmp_path / "prepared"))
    assert prepared.prepared
    assert prepared.signature == model.signature
    np.testing.assert_array_equal(prepared.run({"x": rows})[0], rows)


def test_outputs_that_are_no_tensors_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"output y is seq\(tensor\(float\)\)"):
        opened(onnx_models.sequence(tmp_path / "m.onnx"))
    eight = "m (float8e4m3fn[N] x) => (float8e4m3fn[N] y) { y = Identity(x) }"
    with pytest.raises(Unavailable, match=r"input x is tensor\(float8"):
        opened(onnx_models.write(tmp_path / "f8.onnx", eight, opset=21))


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname"])
def test_weights_outside_the_models_directory_are_refused(tmp_path: Path, location: str) -> None:
    path = onnx_models.heavy(made(tmp_path / "models") / "m.onnx", 1, external=True)
    shutil.move(f"{path}.data", tmp_path / "secret.bin")
    model = onnx.load(path, load_external_data=False)
    next(entry for entry in model.graph.initializer[0].external_data if entry.key == "location").value = location
    onnx.save(model, path)
    with pytest.raises(Unavailable):
        opened(path)


# ── devices, threads, forking ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.skipif("CUDAExecutionProvider" in backend.providers(), reason="this build offers CUDA")
def test_devices_without_cuda(tmp_path: Path) -> None:
    path = onnx_models.ident(tmp_path / "m.onnx")
    assert opened(path, device="auto").device == "cpu"
    for device in ("cuda", "cuda:1"):
        with pytest.raises(Unavailable, match=f"{device} was asked for, but onnxruntime .* offers only"):
            opened(path, device=device)
    with pytest.raises(Unavailable, match="unknown"):
        opened(path, device="tpu")


FORKING = """
import os, sys
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy as np
from wakeful.backends.base import LoadOptions
from wakeful.backends.onnx import open_model
assert len(os.listdir("/proc/self/task")) == 1, "importing started a thread: telemetry, or a pool"
for threads in (1, 2):
    model = open_model(sys.argv[1], LoadOptions(threads=threads))
    assert model.forkable == (threads == 1)
    assert len(os.listdir("/proc/self/task")) == threads
    if model.forkable:
        x = np.ones((1, 512), np.float32)
        expected = model.run({"x": x})[0]
        if (child := os.fork()) == 0:
            os._exit(0 if np.array_equal(model.run({"x": x})[0], expected) else 1)
        assert os.waitpid(child, 0)[1] == 0
"""


def test_threads_are_as_many_as_asked_and_a_single_one_can_be_forked(tmp_path: Path) -> None:
    path = onnx_models.heavy(tmp_path / "m.onnx", 1)
    subprocess.run([sys.executable, "-c", FORKING, str(path)], check=True, timeout=60)


# ── prepared copies ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_prepared_copy_stands_alone_and_answers_like_the_original(tmp_path: Path) -> None:
    path = onnx_models.heavy(made(tmp_path / "original") / "m.onnx", 2, external=True)
    x = np.random.default_rng(0).standard_normal((3, 512)).astype(np.float32)
    expected = opened(path).run({"x": x})
    backend.prepare(str(path), str(made(tmp_path / "copy")))
    assert set(os.listdir(tmp_path / "copy")) - {backend.DRAFT} == {"model.onnx", "weights.bin"}  # a draft is a matter of measured times
    shutil.rmtree(tmp_path / "original")
    model = opened(path, prepared=str(tmp_path / "copy"))
    assert model.prepared
    np.testing.assert_allclose(model.run({"x": x})[0], expected[0], rtol=1e-4, atol=1e-5)  # a draft's kernels add in another order


def test_models_without_weights_can_be_prepared(tmp_path: Path) -> None:
    for name, make in {"ident": onnx_models.ident, "strid": onnx_models.strid, "scalar": onnx_models.scalar, "slow": onnx_models.slow}.items():
        path = make(tmp_path / f"{name}.onnx")
        backend.prepare(str(path), str(made(tmp_path / name)))
        assert opened(path, prepared=str(tmp_path / name)).prepared


def test_broken_or_foreign_copy_gives_way_to_the_original(tmp_path: Path) -> None:
    path = onnx_models.heavy(tmp_path / "m.onnx", 1)
    x = np.ones((1, 512), np.float32)
    expected = opened(path).run({"x": x})[0]
    copy = made(tmp_path / "copy")
    backend.prepare(str(path), str(copy))
    os.truncate(copy / "weights.bin", 1000)
    for directory in (copy, tmp_path / "absent", made(tmp_path / "empty")):
        model = opened(path, prepared=str(directory))
        assert not model.prepared
        np.testing.assert_array_equal(model.run({"x": x})[0], expected)


def test_draft_answers_until_the_better_session_is_there(tmp_path: Path) -> None:
    path, x, expected = prepared_with_draft(tmp_path)
    model = opened(path, prepared=str(tmp_path / "copy"))
    assert model.draft
    np.testing.assert_allclose(model.run({"x": x})[0], expected, rtol=1e-4, atol=1e-4)
    model.improve()
    model.improve()  # no second time
    while model.draft:  # runs go on meanwhile
        model.run({"x": x})
    model.settle()
    assert not model.draft
    np.testing.assert_array_equal(model.run({"x": x})[0], expected)


def test_settling_makes_the_better_session_and_leaves_no_thread(tmp_path: Path) -> None:
    path, x, expected = prepared_with_draft(tmp_path)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "expected.npy", expected)
    subprocess.run([sys.executable, "-c", SETTLING, str(path), str(tmp_path)], check=True, timeout=60)


SETTLING = """
import os, sys
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy as np
from wakeful.backends.base import LoadOptions
from wakeful.backends.onnx import open_model
model = open_model(sys.argv[1], LoadOptions(prepared=sys.argv[2] + "/copy"))
model.improve()
model.settle()
assert not model.draft and len(os.listdir("/proc/self/task")) == 1
x, expected = (np.load(f"{sys.argv[2]}/{name}.npy") for name in ("x", "expected"))
if (child := os.fork()) == 0:
    os._exit(0 if np.array_equal(model.run({"x": x})[0], expected) else 1)
assert os.waitpid(child, 0)[1] == 0
"""


def test_failed_run_of_a_draft_is_no_answer(tmp_path: Path) -> None:
    path, x, expected = prepared_with_draft(tmp_path)
    model = opened(path, prepared=str(tmp_path / "copy"))
    with pytest.raises(InvalidInput):
        model.run({"x": np.ones((1, 3), np.float32)})
    assert not model.draft
    np.testing.assert_array_equal(model.run({"x": x})[0], expected)


def test_draft_is_kept_where_the_copy_can_only_be_opened_so(tmp_path: Path) -> None:
    path, x, expected = prepared_with_draft(tmp_path)
    model = opened(path, prepared=str(tmp_path / "copy"))
    (tmp_path / "copy" / "model.onnx").unlink()
    model.settle()
    assert not model.draft
    np.testing.assert_allclose(model.run({"x": x})[0], expected, rtol=1e-4, atol=1e-4)


def prepared_with_draft(directory: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    """A model, an input, and its answer; its copy says that a draft is of use, which it is for larger models only."""
    path = onnx_models.heavy(directory / "m.onnx", 2)
    backend.prepare(str(path), str(made(directory / "copy")))
    (directory / "copy" / backend.DRAFT).write_text("{}")
    x = np.random.default_rng(0).standard_normal((3, 512)).astype(np.float32)
    return path, x, opened(path).run({"x": x})[0]


def test_preparing_a_broken_file_says_why(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cut short"):
        backend.prepare(str(written(tmp_path / "m.onnx", b"\x80\x04")), str(made(tmp_path / "copy")))


# ── helpers ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def assert_readable(message: str) -> None:
    """No machinery, no C++ source, no path of this machine; one line of bounded length."""
    for clutter in ("ONNXRuntimeError", "onnxruntime_src", ".cc", ".h:", "::", "Non-zero status", " /", "\n"):
        assert clutter not in message, message
    assert len(message) < 600


def made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def lost_weights(path: Path) -> Path:
    onnx_models.heavy(path, 1, external=True)
    Path(f"{path}.data").unlink()
    return path


def old_model(path: Path) -> Path:
    """IR version 3: each weight is an input as well, and optimising fuses some of them away."""
    graph = """old (float[N,3,8,8] x, float[4,3,3,3] w, float[4] one, float[4] two) => (float[N,4,6,6] y) {
        c = Conv(x, w)
        y = BatchNormalization(c, one, two, two, one)
    }"""
    ones = [onnx.numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in (("w", (4, 3, 3, 3)), ("one", (4,)), ("two", (4,)))]
    model = onnx.load(onnx_models.write(path, graph, ones))
    model.ir_version = 3
    onnx.save(model, path)
    return path
