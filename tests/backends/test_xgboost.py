"""Files of XGBoost answer as its own `predict` does, to the last bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import trees
from wakeful.backends import xgboost as backend
from wakeful.backends.base import LoadOptions
from wakeful.backends.trees import TreeBackend
from wakeful.errors import Unavailable
from wakeful.runtime.messages import COLUMNS_LIMIT
from wakeful.worker import selftest


def predicted(booster: Any, matrix: np.ndarray, **options: Any) -> np.ndarray:
    import xgboost

    answer: np.ndarray = booster.predict(xgboost.DMatrix(matrix, nthread=1, feature_names=booster.feature_names, **options))
    return answer


def opened(path: Path, **options: Any) -> TreeBackend:
    return backend.open_model(str(path), LoadOptions(**options))


KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "regression": (0, {}),
    "binary": (2, {}),
    "classes": (3, {}),
    "class": (3, {"objective": "multi:softmax"}),
    "margin": (2, {"objective": "binary:logitraw"}),
    "dart": (0, {"booster": "dart", "rate_drop": 0.3}),
    "linear": (0, {"booster": "gblinear", "max_depth": None}),
    "ranking": (3, {"objective": "rank:ndcg", "num_class": None, "data": {"group": [20] * 10}}),
    "several outputs": (0, {"multi_strategy": "multi_output_tree", "data": {"label": np.nan_to_num(trees.rows())[:, :2]}}),
    "a tree for each output": (0, {"data": {"label": np.nan_to_num(trees.rows())[:, :2]}}),
    "quantiles": (0, {"objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.5, 0.9]}),
    "categories": (2, {
        "matrix": trees.matrix_with_categories(), "data": {"feature_types": ["q", "q", "q", "q", "c"], "enable_categorical": True},
    }),
}


@pytest.mark.parametrize("suffix", [".xgb.json", ".ubj"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_answers_as_the_library_does(tmp_path: Path, kind: str, suffix: str) -> None:
    classes, parameters = KINDS[kind]
    booster = trees.xgboost_model(tmp_path / f"m{suffix}", classes, **parameters)
    matrix = trees.matrix_with_categories() if kind == "categories" else trees.rows(seed=1)
    categories = {"feature_types": booster.feature_types, "enable_categorical": True} if kind == "categories" else {}
    expected = predicted(booster, matrix, **categories)
    opened_model = opened(tmp_path / f"m{suffix}")
    (answer,) = opened_model.run({"input": matrix})
    np.testing.assert_array_equal(answer, expected)
    (spec,) = opened_model.signature.outputs
    assert (spec.name, spec.datatype, spec.shape) == ("output", "FP32", (None, *expected.shape[1:]))
    (given_spec,) = opened_model.signature.inputs
    assert (given_spec.name, given_spec.datatype, given_spec.shape) == ("input", "FP32", (None, trees.FEATURES))
    alone = np.concatenate([opened_model.run({"input": matrix[at:at + 1]})[0] for at in range(20)])
    np.testing.assert_array_equal(alone, expected[:20])
    assert opened_model.run({"input": matrix[:0]})[0].shape == (0, *expected.shape[1:])
    assert selftest.probe(opened_model).mergeable


def test_a_wrapper_that_stopped_early_answers_with_its_best_rounds_and_a_booster_with_all(tmp_path: Path) -> None:
    import xgboost

    matrix, wanted = trees.rows(), trees.targets(trees.rows(), 2)
    noise = np.random.default_rng(0).integers(0, 2, len(wanted))
    wrapper = xgboost.XGBClassifier(n_estimators=30, max_depth=3, n_jobs=1, random_state=0, early_stopping_rounds=3)
    wrapper.fit(matrix, wanted, eval_set=[(matrix, np.where(noise, wanted, 1 - wanted))], verbose=False)
    assert wrapper.best_iteration < wrapper.get_booster().num_boosted_rounds() - 1
    wrapper.save_model(tmp_path / "wrapper.xgb.json")
    (answer,) = opened(tmp_path / "wrapper.xgb.json").run({"input": matrix})
    np.testing.assert_array_equal(answer, wrapper.predict_proba(matrix)[:, 1])
    data = xgboost.DMatrix(matrix, wanted, nthread=1)
    booster = xgboost.train(
        {"max_depth": 3, "nthread": 1, "seed": 0}, data, 30, evals=[(xgboost.DMatrix(matrix, noise, nthread=1), "noise")],
        early_stopping_rounds=3, verbose_eval=False,
    )
    booster.save_model(tmp_path / "booster.xgb.json")
    (answer,) = opened(tmp_path / "booster.xgb.json").run({"input": matrix})
    np.testing.assert_array_equal(answer, predicted(booster, matrix))


def test_names_of_features_are_told_unless_they_are_too_long(tmp_path: Path) -> None:
    names = ["age", "income", "city", "since", "visits"]
    trees.xgboost_model(tmp_path / "m.xgb.json", names=names)
    assert opened(tmp_path / "m.xgb.json").signature.inputs[0].columns == tuple(names)
    trees.xgboost_model(tmp_path / "m.xgb.json", names=[name * COLUMNS_LIMIT for name in "abcde"])
    assert opened(tmp_path / "m.xgb.json").signature.inputs[0].columns == ()


def test_one_thread_can_be_forked_and_two_cannot(tmp_path: Path) -> None:
    trees.xgboost_model(tmp_path / "m.xgb.json")
    assert opened(tmp_path / "m.xgb.json").forkable
    assert not opened(tmp_path / "m.xgb.json", threads=2).forkable


@pytest.mark.parametrize("content", [b"", b"{}", b"hello", b'{"learner": {}}', b"{L\x00"])
def test_a_broken_file_is_refused_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken.xgb.json").write_bytes(content)
    with pytest.raises(Unavailable, match=r"^broken\.xgb\.json cannot be loaded by xgboost [0-9.]+: ") as caught:
        opened(tmp_path / "broken.xgb.json")
    assert str(tmp_path) not in caught.value.message
    assert "Stack trace" not in caught.value.message


def test_one_that_is_cut_short_or_missing(tmp_path: Path) -> None:
    path = tmp_path / "m.xgb.json"
    trees.xgboost_model(path)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(Unavailable, match=r"m\.xgb\.json cannot be loaded"):
        opened(path)
    path.unlink()
    with pytest.raises(Unavailable, match="does not exist"):
        opened(path)


def test_a_gpu_that_is_not_there_is_refused_only_to_who_asked_for_it(tmp_path: Path) -> None:
    trees.xgboost_model(tmp_path / "m.xgb.json")
    assert opened(tmp_path / "m.xgb.json", device="auto").device == "cpu"
    if "CUDA" in backend.providers():
        pytest.skip("this build of XGBoost has CUDA")
    with pytest.raises(Unavailable, match="cuda:0 was asked for"):
        opened(tmp_path / "m.xgb.json", device="cuda:0")


def test_runs_make_no_thread(tmp_path: Path) -> None:
    trees.xgboost_model(tmp_path / "m.ubj")
    trees.check_runs_make_no_thread(opened(tmp_path / "m.ubj"))
