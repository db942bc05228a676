"""Make the demo models that the package ships: python tools/make_demo_models.py [DIRECTORY]

digits: a classifier trained on scikit-learn's images of digits. demo-model: a small network of fixed random numbers, to try requests with.
The same versions of the libraries make the same files.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

DEMO = Path(__file__).parent.parent / "src" / "wakeful" / "demo"
HEADER = '<ir_version: 9, opset_import: ["": 17], producer_name: "wakeful">\n'
SEED = 0
HELD_OUT = 0.25


def split_digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images, held-out images (FP32 [N,64], 0 to 16), and the digits of each (INT64 [N])."""
    images, digits = load_digits(return_X_y=True)
    train, test, train_digits, test_digits = train_test_split(images.astype(np.float32), digits, test_size=HELD_OUT, random_state=SEED)
    return train, test, train_digits, test_digits


def digits_model() -> onnx.ModelProto:
    """image FP32 [N,64] -> label INT64 [N], probabilities FP32 [N,10]. The scaling of the pixels is folded into the first layer."""
    images, _, digits, _ = split_digits()
    scaler = StandardScaler().fit(images)
    network = MLPClassifier((32,), alpha=0.1, max_iter=500, random_state=SEED).fit(scaler.transform(images), digits)
    first, second = network.coefs_
    first = first / scaler.scale_[:, None]
    bias = network.intercepts_[0] - scaler.mean_ @ first
    graph = """digits (float[N,64] image) => (int64[N] label, float[N,10] probabilities) {
        hidden = Gemm(image, first, first_bias)
        active = Relu(hidden)
        scores = Gemm(active, second, second_bias)
        probabilities = Softmax<axis = 1>(scores)
        label = ArgMax<axis = 1, keepdims = 0>(probabilities)
    }"""
    return build(graph, first=first, first_bias=bias, second=second, second_bias=network.intercepts_[1])


def demo_model() -> onnx.ModelProto:
    """input FP32 [N,4] -> output FP32 [N,3]."""
    random = np.random.default_rng(SEED)
    graph = """demo (float[N,4] input) => (float[N,3] output) {
        hidden = MatMul(input, first)
        active = Relu(hidden)
        output = MatMul(active, second)
    }"""
    return build(graph, first=random.standard_normal((4, 16)), second=random.standard_normal((16, 3)))


def build(graph: str, **weights: np.ndarray) -> onnx.ModelProto:
    model = parser.parse_model(HEADER + graph)
    model.graph.initializer.extend(numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items())
    model.metadata_props.add(key="licence", value="Apache-2.0")
    onnx.checker.check_model(model, full_check=True)
    return model


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    onnx.save(digits_model(), directory / "digits.onnx")
    onnx.save(demo_model(), directory / "demo-model.onnx")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DEMO)
