"""XGBoost, LightGBM and CatBoost: what tritonclient and the SnoozeML SDK get is what the library's own `predict` gives, to the last bit."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from snoozeml import SnoozeClient
from snoozeml.converters import export_xgboost

from tests import trees
from tests.daemon import Daemon, running, wait_until

CONFIG = """
[[models]]
id = "plain"
path = "plain.json"
backend = "xgboost"

[[models]]
id = "many"
path = "classes.lgb.txt"
replicas = 2
"""
CLASSES = ["cat", "dog", "fox"]

Predict = Callable[[np.ndarray], np.ndarray]


class Served:
    """The daemon, and what each model's own library says."""

    def __init__(self, daemon: Daemon, own: dict[str, Predict]) -> None:
        self.daemon = daemon
        self.own = own


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    import xgboost

    directory = tmp_path_factory.mktemp("trees")
    fraud = xgboost.XGBClassifier(n_estimators=10, max_depth=3, n_jobs=1, random_state=0).fit(trees.rows(), trees.targets(trees.rows(), 2))
    export_xgboost(fraud, directory / "fraud.xgb.json")  # as deploy_xgboost does
    risk = trees.xgboost_model(directory / "risk.ubj", 3, names=["age", "income", "city", "since", "visits"])
    plain = trees.xgboost_model(directory / "plain.json", booster="dart", rate_drop=0.3)
    classes = trees.lightgbm_model(directory / "classes.lgb.txt", 3)
    animals = trees.catboost_model(directory / "animals.cbm", 3, labels=CLASSES)
    (directory / "broken.xgb.json").write_text('{"learner": ')
    (directory / "shut.joblib").write_bytes(b"\x80\x04.")
    (directory / "models.toml").write_text(CONFIG)
    own: dict[str, Predict] = {
        "fraud": lambda matrix: fraud.get_booster().predict(xgboost.DMatrix(matrix, nthread=1)),
        "risk": lambda matrix: risk.predict(xgboost.DMatrix(matrix, nthread=1, feature_names=risk.feature_names)),
        "plain": lambda matrix: plain.predict(xgboost.DMatrix(matrix, nthread=1)),
        "many": lambda matrix: classes.predict(matrix, num_threads=1),
        "animals": lambda matrix: animals.predict_proba(matrix, thread_count=1),
    }
    with running(directory, "--models-dir", str(directory), "--no-grpc") as daemon:
        yield Served(daemon, own)


def asked(matrix: np.ndarray) -> list[Any]:
    return [triton.InferInput("input", list(matrix.shape), "FP32").set_data_from_numpy(matrix)]


MODELS = ["fraud", "risk", "plain", "many", "animals"]


@pytest.mark.parametrize("model", MODELS)
def test_tritonclient_gets_the_library_s_answer_missing_values_included(served: Served, model: str) -> None:
    matrix = trees.rows(20, seed=1)
    assert np.isnan(matrix).any()
    with triton.InferenceServerClient(f"{served.daemon.host}:{served.daemon.port}") as client:
        np.testing.assert_array_equal(client.infer(model, asked(matrix)).as_numpy("output"), served.own[model](matrix))


@pytest.mark.parametrize("model", MODELS)
def test_requests_that_share_a_run_get_what_they_get_alone(served: Served, model: str) -> None:
    matrix = trees.rows(60, seed=2)
    expected = served.own[model](matrix)
    cuts = np.split(np.arange(60), np.cumsum([1, 2, 3, 1, 5, 8, 1, 1, 10, 4]))

    async def ask() -> list[Any]:
        async with triton_aio.InferenceServerClient(f"{served.daemon.host}:{served.daemon.port}") as client:
            await client.load_model(model)
            return await asyncio.gather(*(client.infer(model, asked(matrix[cut])) for cut in cuts))

    for cut, result in zip(cuts, asyncio.run(ask()), strict=True):
        np.testing.assert_array_equal(result.as_numpy("output"), expected[cut])
    metadata = served.daemon.call("GET", f"/v2/models/{model}")[1]
    assert metadata["batching"]["merged"], metadata["batching"]


def test_snoozeml_s_bare_arrays(served: Served) -> None:
    matrix = np.nan_to_num(trees.rows(5, seed=3))
    with SnoozeClient(served.daemon.url) as client:
        for model in MODELS:
            answer = client.infer(model, matrix)["output"]
            np.testing.assert_array_equal(answer, served.own[model](matrix).astype(np.float32))


def test_the_sdk_deploys_xgboost(served: Served) -> None:
    import xgboost

    model = xgboost.XGBRegressor(n_estimators=5, max_depth=2, n_jobs=1, random_state=0).fit(trees.rows(), trees.targets(trees.rows()))
    matrix = np.nan_to_num(trees.rows(5, seed=3))
    with SnoozeClient(served.daemon.url) as client:
        client.models.deploy_xgboost(model, model_id="price")
        np.testing.assert_array_equal(client.infer("price", matrix)["output"], model.predict(matrix))


def test_metadata_names_features_and_classes(served: Served) -> None:
    risk = served.daemon.call("GET", "/v2/models/risk")[1]
    columns = {"columns": ["age", "income", "city", "since", "visits"]}
    assert risk["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 5], "parameters": columns}]
    assert risk["platform"] == "xgboost_booster"
    animals = served.daemon.call("GET", "/v2/models/animals")[1]
    assert animals["outputs"] == [{"name": "output", "datatype": "FP64", "shape": [-1, 3], "parameters": {"columns": CLASSES}}]


def test_a_wrong_number_of_features_is_refused(served: Served) -> None:
    status, body = served.daemon.infer("fraud", "input", [1, 2, 3], [1, 3])
    assert status == 400
    assert "input: expected [?,5], got [1,3]" in body["error"]


def test_a_copy_is_forked_from_a_live_one(served: Served) -> None:
    served.daemon.call("POST", "/v2/repository/models/many/load")
    assert served.daemon.wait_event("load", "many", text="copied from a live replica")


def test_a_broken_file_is_a_clear_refusal(served: Served) -> None:
    status, body = served.daemon.infer("broken", "input", [1] * 5, [1, 5])
    assert status == 503
    assert "broken.xgb.json cannot be loaded by xgboost" in body["error"]


def test_a_pickle_is_passed_over_and_the_log_says_how_to_convert_it(served: Served) -> None:
    assert served.daemon.infer("shut", "input", [1] * 5, [1, 5])[0] == 404
    assert "wakeful convert shut.joblib -o shut.onnx" in served.daemon.log


def test_a_missing_library_is_told_and_noticed_when_it_is_there(tmp_path: Path) -> None:
    """It is hidden by a module of its name that is not importable."""
    models, hiding = tmp_path / "models", tmp_path / "hiding"
    models.mkdir()
    hiding.mkdir()
    booster = trees.lightgbm_model(models / "house.lgb.txt")
    (hiding / "lightgbm.py").write_text("raise ModuleNotFoundError(\"No module named 'lightgbm'\")")
    hint = "pip install 'wakeful[lightgbm]'"
    with running(tmp_path, "--models-dir", str(models), "--no-grpc", env={"PYTHONPATH": with_first(hiding)}) as daemon:
        for _ in range(3):
            status, body = daemon.infer("house", "input", [1.0] * 5, [1, 5])
            assert (status, hint in body["error"]) == (503, True), body
        status, body = daemon.call("POST", "/v2/repository/models/house/load")
        assert (status, hint in body["error"]) == (503, True), body
        status, body = daemon.call("GET", "/v2/models/house")
        assert (status, hint in body["error"]) == (503, True), body
        assert daemon.log.count("models for lightgbm cannot be loaded") == 1
        assert "Traceback" not in daemon.log
        (hiding / "lightgbm.py").unlink()
        answer = wait_for_answer(daemon)
    np.testing.assert_array_equal(answer["outputs"][0]["data"], booster.predict(np.ones((1, 5)), num_threads=1))


def with_first(directory: Path) -> str:
    import os

    return os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")])


def wait_for_answer(daemon: Daemon) -> Any:
    """A failed load is tried again after a pause, and so is the import."""
    answers: list[Any] = []

    def answered() -> bool:
        status, body = daemon.infer("house", "input", [1.0] * 5, [1, 5])
        answers.append(body)
        return bool(status == 200)

    wait_until(answered, "the library is imported again", seconds=60)
    return answers[-1]
