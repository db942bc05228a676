"""XGBoost as a backend: files of `Booster.save_model` and of its scikit-learn wrappers, in JSON and UBJSON.

Imported in the nursery before anything is forked. With `nthread` 1 the library makes no thread, so that a process with a model can be forked.
"""

import json

import xgboost

from wakeful.backends import trees
from wakeful.backends.base import LoadOptions
from wakeful.backends.trees import Predict, TreeBackend, prepare
from wakeful.errors import Unavailable

__all__ = ["LIBRARY", "open_model", "prepare", "providers"]

LIBRARY = f"xgboost {xgboost.__version__}"

_WRAPPED = "scikit_learn"
"""Attribute of files that a scikit-learn wrapper has saved."""


def open_model(path: str, options: LoadOptions) -> TreeBackend:
    """Open the file at `path`. Raises Unavailable with the reason in a sentence, or OutOfMemory."""
    device, threads = _device(options.device), max(1, options.threads)
    try:
        booster = xgboost.Booster({"nthread": threads, "device": device}, model_file=path)
        return TreeBackend(
            _predictor(booster, threads), booster.num_features(), "xgboost_booster", columns=booster.feature_names or (), device=device,
            forkable=device == "cpu" and threads == 1,
        )
    except Exception as error:
        raise trees.load_error(error, path, LIBRARY) from error


def providers() -> tuple[str, ...]:
    """Devices that this build of the library knows."""
    return ("CPU", "CUDA") if xgboost.build_info().get("USE_CUDA") else ("CPU",)


def _device(wanted: str) -> str:
    """cpu or cuda[:N]. Trees are quick on a CPU, so that a GPU is used only by who asks for it."""
    if wanted in ("auto", "cpu"):
        return "cpu"
    if "CUDA" not in providers():
        raise Unavailable(f"{wanted} was asked for, but this build of {LIBRARY} knows only the CPU: install xgboost, or set device = auto")
    return wanted


def _predictor(booster: xgboost.Booster, threads: int) -> Predict:
    """As `Booster.predict` answers. Without a copy into a DMatrix where that gives the same bits, which it does for plain trees alone."""
    rounds = _iterations(booster)
    if _kind(booster) == "gbtree":
        return lambda matrix: booster.inplace_predict(matrix, iteration_range=rounds, validate_features=False)
    return lambda matrix: booster.predict(
        xgboost.DMatrix(matrix, nthread=threads), iteration_range=rounds, validate_features=False,
    )


def _kind(booster: xgboost.Booster) -> str:
    """gbtree, dart or gblinear."""
    kind: str = json.loads(booster.save_config())["learner"]["learner_train_param"]["booster"]
    return kind


def _iterations(booster: xgboost.Booster) -> tuple[int, int]:
    """Rounds of boosting that count; (0, 0) for all. A scikit-learn wrapper that stopped early answers with the best ones, a Booster with all."""
    best = booster.attr("best_iteration")
    return (0, int(best) + 1) if best is not None and booster.attr(_WRAPPED) is not None else (0, 0)
