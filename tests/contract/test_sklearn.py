"""What skl2onnx makes of scikit-learn's models, as it makes it by default: labels of text and numbers, maps of probabilities, a column an input."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from snoozeml import SnoozeClient

from tests.daemon import Daemon, running

CITIES = np.array(["Bonn", "Rom", "Ulm"])
MATRIX = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
TOWNS = CITIES[np.arange(60) % 3]


class Served:
    """The daemon, and the models themselves."""

    def __init__(self, daemon: Daemon, texts: Any, numbers: Any, mixed: Any, frame: Any) -> None:
        self.daemon, self.texts, self.numbers, self.mixed, self.frame = daemon, texts, numbers, mixed, frame


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    import pandas as pd  # type: ignore[import-untyped]
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    directory = tmp_path_factory.mktemp("sklearn")
    which = np.digitize(MATRIX[:, 0] + MATRIX[:, 1], [-0.5, 0.5])
    texts = LogisticRegression().fit(MATRIX, np.array(["low", "mid", "top"])[which])
    numbers = RandomForestClassifier(10, max_depth=4, random_state=0, n_jobs=1).fit(MATRIX, which)
    frame = pd.DataFrame({"size": MATRIX[:, 0], "age": MATRIX[:, 1], "city": TOWNS})
    columns = ColumnTransformer([("numbers", StandardScaler(), ["size", "age"]), ("city", OneHotEncoder(), ["city"])])
    mixed = make_pipeline(columns, LogisticRegression()).fit(frame, which)
    features = DictVectorizer(sparse=False).fit([{"a": 1.0, "b": 2.0}])
    types = [("size", FloatTensorType([None, 1])), ("age", FloatTensorType([None, 1])), ("city", StringTensorType([None, 1]))]
    for name, onnx in {
        "texts": to_onnx(texts, MATRIX[:1]), "numbers": to_onnx(numbers, MATRIX[:1]), "mixed": to_onnx(mixed, initial_types=types),
        "features": to_onnx(features, initial_types=[("input", dictionary())]),
    }.items():
        (directory / f"{name}.onnx").write_bytes(onnx.SerializeToString())
    with running(directory, "--models-dir", str(directory), "--no-grpc") as daemon:
        yield Served(daemon, texts, numbers, mixed, frame)


def dictionary() -> Any:
    from skl2onnx.common.data_types import DictionaryType, FloatTensorType, StringTensorType

    return DictionaryType(StringTensorType([1]), FloatTensorType([1]))


@pytest.fixture
def client(served: Served) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"{served.daemon.host}:{served.daemon.port}") as client:
        yield client


def asked(name: str, values: np.ndarray) -> Any:
    return triton.InferInput(name, list(values.shape), "BYTES" if values.dtype == object else "FP32").set_data_from_numpy(values)


def test_labels_of_text_and_their_probabilities(served: Served, client: triton.InferenceServerClient) -> None:
    result = client.infer("texts", [asked("X", MATRIX)])
    assert [label.decode() for label in result.as_numpy("output_label")] == served.texts.predict(MATRIX).tolist()
    np.testing.assert_allclose(result.as_numpy("output_probability"), served.texts.predict_proba(MATRIX), atol=1e-5)
    metadata = client.get_model_metadata("texts")
    assert metadata["outputs"] == [
        {"name": "output_label", "datatype": "BYTES", "shape": [-1]},
        {"name": "output_probability", "datatype": "FP32", "shape": [-1, 3], "parameters": {"columns": ["low", "mid", "top"]}},
    ]


def test_labels_of_numbers(served: Served, client: triton.InferenceServerClient) -> None:
    result = client.infer("numbers", [asked("X", MATRIX)])
    assert result.as_numpy("output_label").dtype == np.int64
    assert result.as_numpy("output_label").tolist() == served.numbers.predict(MATRIX).tolist()
    np.testing.assert_allclose(result.as_numpy("output_probability"), served.numbers.predict_proba(MATRIX), atol=1e-5)


def test_columns_of_texts_and_numbers(served: Served, client: triton.InferenceServerClient) -> None:
    inputs = [asked(name, served.frame[[name]].to_numpy(np.float32)) for name in ("size", "age")]
    result = client.infer("mixed", [*inputs, asked("city", served.frame[["city"]].to_numpy(object))])
    assert result.as_numpy("output_label").tolist() == served.mixed.predict(served.frame).tolist()
    np.testing.assert_allclose(result.as_numpy("output_probability"), served.mixed.predict_proba(served.frame), atol=1e-5)


def test_rows_are_merged(served: Served, client: triton.InferenceServerClient) -> None:
    for name in ("texts", "numbers"):
        client.load_model(name)
        assert client.get_model_metadata(name)["batching"]["merged"], name


def test_snoozeml_gets_probabilities_and_labels_that_are_numbers(served: Served) -> None:
    with SnoozeClient(served.daemon.url) as client:
        answer = client.infer("texts", {"X": MATRIX})
        assert [output.name for output in answer.outputs] == ["output_probability"]
        np.testing.assert_allclose(answer["output_probability"], served.texts.predict_proba(MATRIX), atol=1e-5)
        answer = client.infer("numbers", {"X": MATRIX})
        assert answer["output_label"].tolist() == served.numbers.predict(MATRIX).tolist()


def test_maps_as_inputs_are_refused(served: Served) -> None:
    status, body = served.daemon.infer("features", "input", [1], [1])
    assert status == 503
    assert "input input is map(string,tensor(float))" in body["error"]
    assert "give each feature an input of its own" in body["error"]
