"""scikit-learn, XGBoost and LightGBM to ONNX, by their converters, and a look at whether the result answers like the original.

Lives in a process that was made for one file (`convert_main`).
"""

import importlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.random import default_rng

from wakeful.errors import InvalidInput, Unavailable
from wakeful.runtime.conversion import Converted, Input, Order

ROWS = 256
"""Made-up rows on which the two are compared."""
TOLERANCE = 1e-2
"""Largest difference, relative to the largest answer, of which rounding may be the cause: trees may take another branch in 32 bits."""
DEFAULT = "input"

_LIBRARIES = {
    "scikit-learn": ("joblib", "sklearn", "skl2onnx"), "XGBoost": ("xgboost", "onnxmltools"), "LightGBM": ("lightgbm", "onnxmltools"),
}
_EXTRAS = {"xgboost": "xgboost", "lightgbm": "lightgbm"}
_TYPES = {"FP32": "FloatTensorType", "FP64": "DoubleTensorType", "INT64": "Int64TensorType", "BYTES": "StringTensorType"}


class Original(NamedTuple):
    """A model as its own library has it."""

    model: Any
    what: str
    features: int | None
    convert: Callable[[list[tuple[str, Any]], int | None], Any]
    answers: Callable[[Any], list[np.ndarray]]
    """Labels, where there are any, before numbers."""


def import_libraries(order: Order) -> None:
    """Raises Unavailable with the command that helps."""
    for library in (*_LIBRARIES[order.family or "scikit-learn"], "onnx", "onnxruntime"):
        _imported(library)


def converted(order: Order, step: Callable[[str], None], kept: tuple[str, ...]) -> Converted:
    """Does it. Raises InvalidInput or Unavailable with the reason in a sentence, or whatever the libraries raise."""
    warnings.simplefilter("ignore")
    step(f"opening {Path(order.source).name}")
    original = _opened(order)
    inputs = order.inputs or _default_inputs(original)
    step(f"converting {original.what}")
    sklearn = original.what.startswith("sklearn")
    types = importlib.import_module("skl2onnx.common.data_types" if sklearn else "onnxmltools.convert.common.data_types")
    try:
        onnx = original.convert([(one.name, getattr(types, _TYPES[one.datatype])([None, one.columns])) for one in inputs], order.opset)
    except Exception as error:
        hint = _INPUTS_HINT if sklearn and not order.inputs else ""
        raise InvalidInput(f"{original.what} cannot be converted: {_line(error)}{hint}") from error
    _free_rows(onnx)
    content = onnx.SerializeToString()
    step("comparing it with the original")
    session = importlib.import_module("onnxruntime").InferenceSession(content, providers=["CPUExecutionProvider"])
    difference, remark = _compared(session, original, inputs)
    Path(order.output).write_bytes(content)
    return Converted(
        original.what, [_shown(one) for one in session.get_inputs()], [_shown(one) for one in session.get_outputs()], difference, remark, kept,
    )


_INPUTS_HINT = "; if it takes columns of several types, name them: --inputs age:FP32,city:BYTES"


def _opened(order: Order) -> Original:
    if order.family == "XGBoost":
        return _of_xgboost(_imported("xgboost").Booster(model_file=order.source))
    if order.family == "LightGBM":
        return _of_lightgbm(_imported("lightgbm").Booster(model_file=order.source))
    try:
        model = _imported("joblib").load(order.source)
    except ModuleNotFoundError as error:
        raise Unavailable(f"it was made with {error.name}, which is not installed: pip install {error.name}") from error
    except Exception as error:
        raise InvalidInput(f"it cannot be opened: {_line(error)}") from error
    module = type(model).__module__.partition(".")[0]
    if module == "xgboost":
        return _of_xgboost(model)
    if module == "lightgbm":
        return _of_lightgbm(model)
    if not hasattr(model, "get_params"):
        raise InvalidInput(f"it holds {type(model).__module__}.{type(model).__qualname__}, which is no model of scikit-learn, XGBoost or LightGBM")
    return _of_sklearn(model)


def _of_sklearn(model: Any) -> Original:
    base, skl2onnx = _imported("sklearn").base, _imported("skl2onnx")
    classifier = base.is_classifier(model)

    def convert(types: list[tuple[str, Any]], opset: int | None) -> Any:
        options = {id(model): {"zipmap": False}} if classifier else None
        return skl2onnx.to_onnx(model, initial_types=types, target_opset=opset, options=options)

    def answers(rows: Any) -> list[np.ndarray]:
        verbs = ("predict", "predict_proba") if classifier else ("predict",) if hasattr(model, "predict") else ("transform",)
        return [np.asarray(getattr(model, verb)(rows)) for verb in verbs if hasattr(model, verb)]

    return Original(model, f"sklearn's {type(model).__name__}", getattr(model, "n_features_in_", None), convert, answers)


def _of_xgboost(model: Any) -> Original:
    xgboost, tools = _imported("xgboost"), _imported("onnxmltools")
    booster = model if isinstance(model, xgboost.Booster) else model.get_booster()
    booster.feature_names = None  # the converter knows numbers alone
    kind = json.loads(booster.save_config())["learner"]["learner_train_param"]["booster"]
    if kind != "gbtree":
        raise InvalidInput(f"its booster is {kind}, and the converter knows gbtree alone; the file itself can be served as it is")
    best = booster.attr("best_iteration")
    if best is not None and booster.attr("scikit_learn") is not None:  # the wrapper stopped early, and answers with its best rounds
        model = booster = booster[: int(best) + 1]
    return Original(
        model, f"xgboost's {type(model).__name__}", booster.num_features(),
        lambda types, opset: tools.convert_xgboost(model, initial_types=types, target_opset=opset),
        lambda rows: [booster.predict(xgboost.DMatrix(rows))],
    )


def _of_lightgbm(model: Any) -> Original:
    tools = _imported("onnxmltools")
    booster = getattr(model, "booster_", model)
    return Original(
        model, f"lightgbm's {type(model).__name__}", booster.num_feature(),
        lambda types, opset: tools.convert_lightgbm(model, initial_types=types, target_opset=opset, zipmap=False),
        lambda rows: [np.asarray(booster.predict(rows))],
    )


def _imported(library: str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError as error:
        extra = _EXTRAS.get(library, "convert")
        raise Unavailable(f"{library} cannot be imported ({_line(error)}); pip install 'wakeful[{extra}]' brings it") from error


def _default_inputs(original: Original) -> tuple[Input, ...]:
    if original.features is None:
        raise InvalidInput(f"{original.what} does not say how many features it takes{_INPUTS_HINT}")
    return (Input(DEFAULT, "FP32", original.features),)


def _free_rows(onnx: Any) -> None:
    """Axis 0 of all outputs is free: some converters say 1, and then requests could not be merged."""
    for output in onnx.graph.output:
        dimensions = output.type.tensor_type.shape.dim
        if dimensions:
            dimensions[0].Clear()


def _compared(session: Any, original: Original, inputs: tuple[Input, ...]) -> tuple[float | None, str]:
    """The largest difference and a remark. Raises InvalidInput where it is no rounding."""
    feed = _rows(original.model, inputs)
    try:
        expected = original.answers(_for_original(feed, inputs))
        got = [np.asarray(one) for one in session.run(None, feed)]
    except Exception as error:  # noqa: BLE001 - of made-up rows either may think as it likes
        return None, f"made-up rows are refused: {_line(error)}"
    if len(got) > len(expected):  # labels, beside what is compared
        got = got[len(got) - len(expected):]
    largest, remark = 0.0, ""
    for own, other in zip(expected, got, strict=True):
        if own.dtype.kind not in "fc":
            differ = int(np.sum(own.ravel().astype(str) != other.ravel().astype(str)))
            remark = f"{differ} of {len(own)} labels differ" if differ else remark
            continue
        pair = _alike(own, other)
        if pair is None:
            raise InvalidInput(f"the converter made something else of {original.what}: it answers {list(other.shape)} instead of {list(own.shape)}")
        difference = float(np.max(np.abs(pair[0] - pair[1]), initial=0.0))
        if not difference <= TOLERANCE * max(1.0, float(np.max(np.abs(own), initial=0.0))):
            raise InvalidInput(f"the converter made something else of {original.what}: its answers differ by {difference:.3g}")
        largest = max(largest, difference)
    return largest, remark


def _alike(own: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The two in one shape: one number a row may be a column, or the second of two that are 1 together. None if they have none."""
    if own.size == other.size:
        return own.ravel().astype(float), other.ravel().astype(float)
    if own.ndim == 1 and other.shape == (len(own), 2):
        return own.astype(float), other[:, 1].astype(float)
    return None


def _rows(model: Any, inputs: tuple[Input, ...]) -> dict[str, np.ndarray]:
    """Made-up inputs. Texts are such as the model has seen, where a step of it remembers them."""
    random, texts = default_rng(0), _texts(model) or ["a", "b"]
    made: dict[str, Callable[[tuple[int, int]], np.ndarray]] = {
        "FP32": lambda shape: random.standard_normal(shape).astype(np.float32), "FP64": random.standard_normal,
        "INT64": lambda shape: random.integers(0, 3, shape), "BYTES": lambda shape: random.choice(np.array(texts, object), shape),
    }
    return {one.name: made[one.datatype]((ROWS, one.columns)) for one in inputs}


def _texts(model: Any) -> list[str]:
    """Categories of text of the first encoder in it."""
    for kinds in getattr(model, "categories_", ()):
        if np.asarray(kinds).dtype.kind in "OU":
            return list(map(str, kinds))
    inner = [step[1] for step in [*getattr(model, "steps", ()), *getattr(model, "transformers_", ())]]
    return next((found for one in inner if (found := _texts(one))), [])


def _for_original(feed: dict[str, np.ndarray], inputs: tuple[Input, ...]) -> Any:
    if len(inputs) == 1:
        return feed[inputs[0].name]
    return importlib.import_module("pandas").DataFrame({
        one.name if one.columns == 1 else f"{one.name}{column}": feed[one.name][:, column] for one in inputs for column in range(one.columns)
    })


def _shown(node: Any) -> str:
    shape = ", ".join("N" if size is None else str(size) for size in node.shape)
    return f"{node.name} {node.type.removeprefix('tensor(').removesuffix(')')} [{shape}]"


def _line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 400 else f"{text[:397]}..."
