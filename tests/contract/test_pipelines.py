"""A pipeline is a model to every client, none of them modified: what each gets is what the models answer when they are asked by hand."""

from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc

from tests import onnx_models
from tests.contract.ways import OIP, SNOOZE
from tests.daemon import Daemon, running

CONFIG = """
[[pipelines]]
id = "chain"
steps = [{ model = "masked", outputs = { doubled = "x2" } }, { name = "turn", model = "negative", inputs = { x = "x2" } }]
outputs = ["y", "total"]

[[pipelines]]
id = "words"
steps = [{ model = "parse" }, { model = "gather10" }, { model = "spell", outputs = { text = "answer" } }]
"""
X, MASK = np.array([[1.5, -2], [0.25, 3e7]], np.float32), np.array([[1, 0], [1, 1]], np.int64)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    home = tmp_path_factory.mktemp("pipelines")
    for make in (onnx_models.masked, onnx_models.negative, onnx_models.parse, onnx_models.gather10, onnx_models.spell):
        make(home / f"{make.__name__}.onnx")
    (home / "models.toml").write_text(CONFIG)
    with running(home / "d", "--models-dir", str(home)) as daemon:
        yield daemon


@pytest.mark.parametrize("way", OIP | SNOOZE)
def test_numbers(way: str, daemon: Daemon) -> None:
    """Of two datatypes; SnoozeML's clients know float32 alone, and what they send is cast to what the steps take."""
    ask = (OIP | SNOOZE)[way]
    first = ask(daemon, "masked", {"x": X, "mask": MASK})
    by_hand = ask(daemon, "negative", {"x": first["doubled"]})
    answer = ask(daemon, "chain", {"x": X, "mask": MASK})
    assert answer.keys() == {"y", "total"}
    assert answer["y"].tobytes() == by_hand["y"].tobytes() == (-2 * X).tobytes()
    assert answer["total"].tobytes() == first["total"].tobytes()


@pytest.mark.parametrize("way", OIP)
def test_texts(way: str, daemon: Daemon) -> None:
    ask = OIP[way]
    given = {"text": np.array([b"3", b"-1"], np.object_)}
    by_hand = ask(daemon, "spell", ask(daemon, "gather10", ask(daemon, "parse", given)))
    assert written(ask(daemon, "words", given)["answer"]) == written(by_hand["text"]) == ["30", "90"]


def written(texts: np.ndarray) -> list[str]:
    """Over JSON the client gives strings, else bytes."""
    return [text if isinstance(text, str) else text.decode() for text in texts.tolist()]


def test_what_else_a_client_over_grpc_asks(daemon: Daemon) -> None:
    with triton_grpc.InferenceServerClient(daemon.grpc) as client:
        client.load_model("chain")
        assert client.is_model_ready("chain")
        metadata = client.get_model_metadata("chain", as_json=True)
        assert (metadata["platform"], [one["name"] for one in metadata["inputs"]]) == ("ensemble", ["x", "mask"])
        assert [one.name for one in client.get_model_config("chain").config.output] == ["y", "total"]
        assert "chain" in {one.name for one in client.get_model_repository_index().models if one.state == "READY"}
        (stats,) = client.get_inference_statistics("chain").model_stats
        assert stats.inference_stats.success.count >= 1
        client.unload_model("chain")
        assert not client.is_model_ready("negative")
