"""Write the three small models of models.toml: python make_models.py [DIRECTORY]. Needs onnx."""

import sys
from pathlib import Path

import onnx

WORDS = ["good", "great", "bad", "awful"]
MOODS = [0.0, 1.0, 2.0, -1.0, -3.0]
"""Of an unknown word, and of each of WORDS."""

HEAD = '<ir_version: 9, opset_import: ["": 17, "ai.onnx.ml": 3]>'
MODELS = {
    "tokenize": f"""tokenize (string[N] text) => (int64[N] id) {{
        id = ai.onnx.ml.LabelEncoder <keys_strings = {WORDS}, values_int64s = {list(range(1, len(WORDS) + 1))}, default_int64 = 0> (text)
    }}""",
    "encoder": f"""encoder (int64[N] input_ids) => (float[N,1] vector) <float[{len(MOODS)},1] moods = {{{", ".join(map(str, MOODS))}}}> {{
        vector = Gather(moods, input_ids)
    }}""",
    "classifier": """classifier (float[N,1] vector) => (float[N] score, string[N] label) <int64[1] last = {1}, float half = {0.5}> {
        chance = Sigmoid(vector)
        score = Squeeze(chance, last)
        liked = Greater(score, half)
        sign = Cast<to = 7>(liked)
        label = ai.onnx.ml.LabelEncoder <keys_int64s = [0, 1], values_strings = ["not liked", "liked"]> (sign)
    }""",
}

directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
for name, graph in MODELS.items():
    text = graph.replace("'", '"')
    model = onnx.parser.parse_model(f"{HEAD}\n{text}")
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, directory / f"{name}.onnx")
    print(directory / f"{name}.onnx")
