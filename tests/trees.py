"""Tiny models of the libraries of trees, trained in a moment and always the same. Importing a library takes a second or two, so it is done where
it is used."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from wakeful.backends.trees import TreeBackend

FEATURES = 5


def rows(count: int = 200, seed: int = 0) -> np.ndarray:
    """FP32 [count,5], a few values of it missing."""
    random = np.random.default_rng(seed)
    matrix: np.ndarray = random.standard_normal((count, FEATURES)).astype(np.float32)
    matrix[random.random(matrix.shape) < 0.05] = np.nan
    return matrix


def targets(matrix: np.ndarray, classes: int = 0) -> np.ndarray:
    """Numbers, or classes from 0 on, that depend on the first two features."""
    score: np.ndarray = np.nan_to_num(matrix[:, 0]) + 0.5 * np.nan_to_num(matrix[:, 1]) ** 2
    return np.digitize(score, np.linspace(-0.5, 1.0, classes - 1)) if classes else score


def xgboost_model(path: Path, classes: int = 0, names: list[str] | None = None, **parameters: Any) -> Any:
    """Trains a Booster, saves it at `path` and returns it. `matrix` and `data`, among the parameters, are for its DMatrix; None takes
    a parameter out."""
    import xgboost

    objective = {0: "reg:squarederror", 2: "binary:logistic"}.get(classes, "multi:softprob")
    settings: dict[str, Any] = {"objective": objective, "max_depth": 3, "nthread": 1, "seed": 0}
    settings |= ({"num_class": classes} if classes > 2 else {}) | parameters
    settings = {name: value for name, value in settings.items() if value is not None}
    matrix = settings.pop("matrix", rows())
    data = {"label": targets(rows(), classes), "feature_names": names, "nthread": 1} | settings.pop("data", {})
    booster = xgboost.train(settings, xgboost.DMatrix(matrix, **data), 12)
    booster.save_model(path)
    return booster


def lightgbm_model(path: Path, classes: int = 0, **parameters: Any) -> Any:
    """Trains a Booster, saves it at `path` and returns it. `matrix` and `data`, among the parameters, are for its Dataset."""
    import lightgbm

    objective = {0: "regression", 2: "binary"}.get(classes, "multiclass")
    settings: dict[str, Any] = {"objective": objective, "num_leaves": 7, "num_threads": 1, "seed": 0, "verbose": -1, "deterministic": True}
    settings |= ({"num_class": classes} if classes > 2 else {}) | parameters
    matrix = settings.pop("matrix", rows())
    data = lightgbm.Dataset(matrix, label=targets(rows(), classes), **settings.pop("data", {}))
    booster = lightgbm.train(settings, data, 12)
    booster.save_model(path)
    return booster


def catboost_model(path: Path, classes: int = 0, labels: list[str] | None = None, **parameters: Any) -> Any:
    """Trains a classifier or a regressor, saves it at `path` and returns it. `labels`: names of the classes."""
    import catboost

    settings: dict[str, Any] = {"iterations": 12, "depth": 3, "thread_count": 1, "random_seed": 0, "verbose": False, "allow_writing_files": False}
    settings |= parameters
    matrix = settings.pop("matrix", rows())
    wanted = targets(rows(), classes)
    kind = catboost.CatBoostClassifier if classes else catboost.CatBoostRegressor
    model = kind(**settings).fit(matrix, np.array(labels)[wanted] if labels else wanted)
    model.save_model(str(path))
    return model


def matrix_with_categories() -> np.ndarray:
    """The rows above with a last feature of whole numbers from 0 to 3."""
    matrix = rows()
    matrix[:, -1] = np.random.default_rng(1).integers(0, 4, len(matrix))
    return matrix


def check_runs_make_no_thread(model: TreeBackend) -> None:
    """Not for a moment either: the daemon may fork a copy between two of them."""
    before = len(os.listdir("/proc/self/task"))
    for count in (1, 64) * 50:
        model.run({"input": rows(count)})
        assert len(os.listdir("/proc/self/task")) == before
