"""The examples of Python models: what can be run here is run, the others have the form of one."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import Daemon, running
from wakeful.tensors import DTYPES

EXAMPLES = Path(__file__).parents[2] / "examples"
MODELS = sorted(path.parent.name for path in EXAMPLES.glob("*/wakeful_model.py"))


def served(tmp_path: Path, name: str, files: dict[str, Any]) -> Any:
    """A daemon with a copy of an example in its models directory; `files` write what belongs to it, by name."""
    model = shutil.copytree(EXAMPLES / name, tmp_path / "models" / name)
    for file, write in files.items():
        write(model / file)
    return running(tmp_path / "daemon", "--models-dir", str(tmp_path / "models"), "--no-grpc")


def outputs(daemon: Daemon, model: str, *question: Any) -> dict[str, Any]:
    status, answer = daemon.infer(model, *question)
    assert status == 200, answer
    return {output["name"]: output["data"] for output in answer["outputs"]}


@pytest.mark.parametrize("name", MODELS)
def test_each_has_the_form_of_a_model(name: str) -> None:
    tree = ast.parse((EXAMPLES / name / "wakeful_model.py").read_text("utf-8"))
    [model] = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model")
    methods = {node.name: [argument.arg for argument in node.args.args] for node in model.body if isinstance(node, ast.FunctionDef)}
    assert methods == {"load": ["self", "model_dir", "device"], "predict": ["self", "inputs"]}
    [signature] = (ast.literal_eval(node.value) for node in model.body if isinstance(node, ast.Assign))
    assert signature.keys() == {"inputs", "outputs"}
    assert all(datatype in DTYPES and shape[0] == "N" for tensors in signature.values() for datatype, shape in tensors.values())


def test_scikit_learn(tmp_path: Path) -> None:
    def train(path: Path) -> None:
        subprocess.run([sys.executable, str(path.parent / "train.py")], check=True, timeout=120)

    with served(tmp_path, "scikit_learn", {"model.joblib": train}) as daemon:
        answer = outputs(daemon, "scikit_learn", "measures", [5.1, 3.5, 1.4, 0.2, 6.7, 3.1, 5.6, 2.4], [2, 4])
        assert answer["species"] == ["setosa", "virginica"]
        assert all(0.5 < probability <= 1 for probability in answer["probability"])
        assert daemon.wait_event("probe", "scikit_learn")["figures"]["mergeable"]


def test_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    def save(path: Path) -> None:
        torch.jit.save(torch.jit.script(torch.nn.Linear(4, 2)), path)

    with served(tmp_path, "pytorch", {"model.pt": save}) as daemon:
        assert len(outputs(daemon, "pytorch", "x", [1, 2, 3, 4], [1, 4])["y"]) == 2


def test_transformers(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

    def save(path: Path) -> None:
        path.mkdir()
        (path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\n")
        transformers.BertTokenizer(str(path / "vocab.txt")).save_pretrained(path)
        config = transformers.BertConfig(vocab_size=7, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
        transformers.BertForSequenceClassification(config).save_pretrained(path)

    with served(tmp_path, "transformers", {"model": save}) as daemon:
        answer = outputs(daemon, "transformers", "text", ["good", "bad good"], [2], "BYTES")
        assert set(answer["label"]) <= {"LABEL_0", "LABEL_1"}
