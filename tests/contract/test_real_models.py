"""Models that other people made: served answers equal those of ONNX Runtime in this process, in shape, datatype and value.

Magika's classifier of files comes with its package. The `onnx` package ships ResNet-50 and other networks without their weights (all are
constants, so that every image gives the same answer): they get random ones here. And it ships small models with inputs and the
outputs expected of them, of which ONNX Runtime runs those whose operators are not too old.
"""

import asyncio
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import magika
import numpy as np
import onnx
import onnx.backend.test
import onnxruntime as ort
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from onnx import ModelProto, numpy_helper
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.daemon import Daemon, running

ENCODER = os.environ.get("WAKEFUL_TEST_ENCODER", "")
"""An ONNX file of a sentence encoder that takes `input_ids` and `attention_mask`, INT64 [N,L]."""
MAGIKA = Path(magika.__file__).parent / "models" / "standard_v3_3" / "model.onnx"
SHIPPED = Path(onnx.backend.test.__file__).parent / "data"
SMALL = sorted(str(file.parent.relative_to(SHIPPED)) for file in SHIPPED.glob("*/test_*/model.onnx"))
NETWORKS = ("resnet50", "densenet121", "inception_v1", "shufflenet", "squeezenet")

CONFIG = """
[defaults]
max_loaded_models = 6
min_residency_secs = 0
"""
"""So few that the many small models make room for each other all the time."""

Feeds = dict[str, np.ndarray]


def with_random_weights(file: Path) -> ModelProto:
    """The network with each constant weight replaced by random numbers that keep signals at their size, and variances positive."""
    model = onnx.load(file)
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    random = np.random.default_rng(0)
    kept = []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in shapes:
            kept.append(node)
            continue
        shape = tuple(int(size) for size in shapes[node.input[0]])
        weights = random.uniform(0.2, 0.4, shape) if len(shape) == 1 else random.standard_normal(shape) * math.sqrt(2 / math.prod(shape[1:]))
        model.graph.initializer.append(numpy_helper.from_array(weights.astype(np.float32), node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def run_directly(path: Path | str, feeds: Feeds) -> Feeds:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, feeds), strict=True))


def tensors(feeds: Feeds) -> list[triton.InferInput]:
    return [
        triton.InferInput(name, list(values.shape), np_to_triton_dtype(values.dtype)).set_data_from_numpy(values)
        for name, values in feeds.items()
    ]


def as_text(values: np.ndarray) -> np.ndarray:
    """Strings come as bytes from one side and as text from the other."""
    return np.array([value.decode() if isinstance(value, bytes) else value for value in values.flat], object).reshape(values.shape)


def assert_same(result: Any, expected: Feeds, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    assert [output["name"] for output in result.get_response()["outputs"]] == list(expected)
    for name, wanted in expected.items():
        got = result.as_numpy(name)
        assert got.shape == wanted.shape
        if wanted.dtype == object:
            assert as_text(got).tolist() == as_text(wanted).tolist()
            continue
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory: Path = tmp_path_factory.mktemp("real")
    for name in NETWORKS:
        onnx.save(with_random_weights(SHIPPED / "light" / f"light_{name}.onnx"), directory / f"{name}.onnx")
    paths = {"magika": str(MAGIKA)} | {name: str(SHIPPED / name / "model.onnx") for name in SMALL} | ({"encoder": ENCODER} if ENCODER else {})
    tables = "".join(f'\n[[models]]\nid = "{name}"\npath = "{path}"\n' for name, path in paths.items())
    (directory / "models.toml").write_text(CONFIG + tables)
    with running(directory, "--models-dir", str(directory)) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def client(daemon: Daemon) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"{daemon.host}:{daemon.port}") as client:
        yield client


# ── magika ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Served:
    """Stands in for the session that Magika has made of its model."""

    def __init__(self, client: triton.InferenceServerClient) -> None:
        self._client = client

    def run(self, outputs: list[str], feeds: dict[str, Any]) -> list[np.ndarray]:
        result = self._client.infer("magika", tensors({name: np.array(values, np.int32) for name, values in feeds.items()}))
        return [result.as_numpy(name) for name in outputs]


def test_magika_names_files_as_it_does_by_itself(client: triton.InferenceServerClient) -> None:
    contents = [
        Path(__file__).read_bytes(),
        MAGIKA.read_bytes(),
        (SHIPPED / "real" / "test_resnet50" / "data.json").read_bytes(),
        b"SELECT name, count(*) FROM models WHERE state = 'asleep' GROUP BY name ORDER BY 2 DESC;\n" * 5,
        b"<html><head><title>x</title></head><body><p>Good morning</p></body></html>\n" * 5,
        bytes(range(256)) * 20,
    ]
    itself, served = magika.Magika(), magika.Magika()
    served._onnx_session = Served(client)
    labels = []
    for content in contents:
        wanted, got = itself.identify_bytes(content), served.identify_bytes(content)
        assert got.output.label == wanted.output.label
        assert got.score == pytest.approx(wanted.score, abs=1e-5)
        labels.append(got.output.label)
    assert labels[0] == "python"
    assert len(set(labels)) > 3


def test_magika_in_company(daemon: Daemon) -> None:
    """Many callers at once, of one to three rows: each answer equals its own run."""
    random = np.random.default_rng(0)
    asked = [{"bytes": random.integers(0, 257, (1 + number % 3, 2048)).astype(np.int32)} for number in range(12)]

    async def ask() -> list[Any]:
        async with triton_aio.InferenceServerClient(f"{daemon.host}:{daemon.port}") as client:
            await client.load_model("magika")
            return await asyncio.gather(*(client.infer("magika", tensors(feeds)) for feeds in asked))

    for feeds, result in zip(asked, asyncio.run(ask()), strict=True):
        assert_same(result, run_directly(MAGIKA, feeds))
    metadata = daemon.call("GET", "/v2/models/magika")[1]
    assert metadata["batching"]["merged"], metadata


# ── networks ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(daemon: Daemon, client: triton.InferenceServerClient, name: str) -> None:
    path = daemon.directory / f"{name}.onnx"
    (given,) = client.get_model_metadata(name)["inputs"]
    assert given["shape"] == [1, 3, 224, 224]
    random = np.random.default_rng(1)
    answers: list[np.ndarray] = []
    for contrast in (1, 100):
        feeds = {given["name"]: contrast * random.standard_normal((1, 3, 224, 224)).astype(np.float32)}
        expected = run_directly(path, feeds)
        assert_same(client.infer(name, tensors(feeds)), expected)
        answers += expected.values()
    assert np.isfinite(answers).all()
    assert not np.allclose(answers[0], answers[1]), "another image, another answer"
    with pytest.raises(InferenceServerException, match="shape"):
        client.infer(name, tensors({given["name"]: np.zeros((2, 3, 224, 224), np.float32)}))


def test_a_prepared_copy_answers_the_same(daemon: Daemon, client: triton.InferenceServerClient) -> None:
    client.load_model("squeezenet")
    daemon.wait_event("prepare", "squeezenet")
    client.unload_model("squeezenet")
    client.load_model("squeezenet")
    assert daemon.events(model="squeezenet", kind="load")[-1]["figures"]["how"] == "prepared copy"
    test_networks(daemon, client, "squeezenet")


# ── small models with data of their own ──────────────────────────────────────────────────────────────────────────────────────────────────


def data_of(name: str, kind: str) -> list[np.ndarray]:
    files = sorted((SHIPPED / name / "test_data_set_0").glob(f"{kind}_*.pb"), key=lambda file: int(file.stem.rpartition("_")[2]))
    return [numpy_helper.to_array(onnx.load_tensor(file)) for file in files]


@pytest.mark.parametrize("name", SMALL)
def test_small_models(client: triton.InferenceServerClient, name: str) -> None:
    path = SHIPPED / name / "model.onnx"
    graph = onnx.load(path).graph
    initial = {tensor.name for tensor in graph.initializer}
    feeds = dict(zip([one.name for one in graph.input if one.name not in initial], data_of(name, "input"), strict=True))
    try:
        expected = run_directly(path, feeds)
    except Exception:  # noqa: BLE001 - what ONNX Runtime cannot run has no error class of its own
        expected = {}
    if not expected:
        with pytest.raises(InferenceServerException) as caught:
            client.infer(name, tensors(feeds))
        assert caught.value.status() == "503"
        assert "model.onnx" in caught.value.message()
        return
    result = client.infer(name, tensors(feeds))
    assert_same(result, expected)
    assert_same(result, dict(zip(expected, data_of(name, "output"), strict=True)), rtol=1e-3, atol=1e-4)


# ── a sentence encoder ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.skipif(not ENCODER, reason="WAKEFUL_TEST_ENCODER names no file")
def test_a_sentence_encoder(daemon: Daemon) -> None:
    """Sentences of several lengths at once. Weights of 8 bits: what is quantised by the batch may differ a little, and is not merged."""
    random = np.random.default_rng(0)

    def feeds(rows: int, length: int) -> Feeds:
        ids, ones = random.integers(1000, 20_000, (rows, length)), np.ones((rows, length), np.int64)
        wanted = {entry.name for entry in ort.InferenceSession(ENCODER).get_inputs()}
        offered = {"input_ids": ids, "attention_mask": ones, "token_type_ids": ones * 0}
        return {name: values for name, values in offered.items() if name in wanted}

    asked = [feeds(1 + number % 2, (8, 16, 24)[number % 3]) for number in range(12)]

    async def ask() -> list[Any]:
        async with triton_aio.InferenceServerClient(f"{daemon.host}:{daemon.port}") as client:
            return await asyncio.gather(*(client.infer("encoder", tensors(one)) for one in asked))

    for one, result in zip(asked, asyncio.run(ask()), strict=True):
        assert_same(result, run_directly(ENCODER, one), rtol=1e-3, atol=1e-4)
