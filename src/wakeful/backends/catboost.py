"""CatBoost as a backend: its own files, .cbm, of models whose features are all numbers.

Imported in the nursery before anything is forked. With one thread, and a matrix whose columns lie in one piece, the library makes no thread of
its own, so that a process with a model can be forked. Any other matrix it takes apart by a thread that ends a moment after the run.
"""

import catboost
import numpy as np

from wakeful.backends import trees
from wakeful.backends.base import LoadOptions
from wakeful.backends.trees import TreeBackend, prepare
from wakeful.errors import Unavailable

__all__ = ["LIBRARY", "open_model", "prepare", "providers"]

LIBRARY = f"catboost {catboost.__version__}"

_CLASSES = ("Logloss", "CrossEntropy", "MultiClass", "MultiClassOneVsAll", "MultiLogloss", "MultiCrossEntropy", "Focal")
"""Losses of models that tell probabilities."""
_OWN_FORM = {"Poisson": "Exponent", "Tweedie": "Exponent", "RMSEWithUncertainty": "RMSEWithUncertainty"}
"""Losses to what `CatBoostRegressor.predict` gives of them; of all others it gives the raw value."""


def open_model(path: str, options: LoadOptions) -> TreeBackend:
    """Open the file at `path`. Raises Unavailable with the reason in a sentence, or OutOfMemory."""
    trees.cpu_only(options, LIBRARY)
    threads = max(1, options.threads)
    try:
        model = catboost.CatBoost().load_model(path)
        _only_numbers(model)
        form = _form(model)
        return TreeBackend(
            lambda matrix: model.predict(np.asfortranarray(matrix), prediction_type=form, thread_count=threads),
            len(model.feature_names_), "catboost_cbm", columns=model.feature_names_,
            labels=[str(label) for label in model.classes_] if form == "Probability" else (), forkable=threads == 1,
        )
    except Exception as error:
        raise trees.load_error(error, path, LIBRARY) from error


def providers() -> tuple[str, ...]:
    return ("CPU",)


def _form(model: catboost.CatBoost) -> str:
    """Probabilities of a classifier, and what `predict` gives of all others."""
    loss = str(model.get_all_params().get("loss_function", "")).partition(":")[0]
    return "Probability" if len(model.classes_) or loss in _CLASSES else _OWN_FORM.get(loss, "RawFormulaVal")


def _only_numbers(model: catboost.CatBoost) -> None:
    for kind, features in (
        ("categorical", model.get_cat_feature_indices()), ("text", model.get_text_feature_indices()),
        ("embedding", model.get_embedding_feature_indices()),
    ):
        if features:
            names = ", ".join(model.feature_names_[index] for index in features[:5])
            raise Unavailable(f"its {kind} features ({names}) cannot be served, only numbers can: train it with these made into numbers")
