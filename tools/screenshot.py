"""Makes docs/images/overview.png: `python -m tools.screenshot`.

A daemon with too little memory for its models serves some minutes of made-up traffic, and a browser looks at its page. It takes the test environment
and Debian's chromium.
"""

import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import tritonclient.http as http
from onnx import numpy_helper, parser
from playwright.sync_api import sync_playwright

OUT = Path(__file__).parents[1] / "docs" / "images" / "overview.png"
MODELS = {
    "fraud": (400, 900, 8.0), "search-embedder": (2000, 5000, 25.0), "spam": (700, 900, 4.0), "titles": (1500, 4000, 0.05),
    "translator": (2500, 5000, 0.03),
}
"""Width of the input, of the output, and requests a second."""
SETTINGS = """
[defaults]
memory_limit = "130MiB"
idle_timeout_secs = 12
min_residency_secs = 3

[[models]]
id = "fraud"
path = "fraud.onnx"
pinned = true
"""
SECONDS = 330.0


def make(directory: Path) -> None:
    for name, (wide, out, _) in MODELS.items():
        text = f'<ir_version: 9, opset_import: ["": 17]> g (float[N,{wide}] x) => (float[N,{out}] y) {{ y = MatMul(x, w) }}'
        model = parser.parse_model(text)
        model.graph.initializer.append(numpy_helper.from_array(np.random.default_rng(1).random((wide, out), np.float32), "w"))
        onnx.save(model, directory / f"{name}.onnx")
    (directory / "models.toml").write_text(SETTINGS)


def call(address: str, name: str, until: float) -> None:
    wide, _, rate = MODELS[name]
    client, dice = http.InferenceServerClient(address), random.Random(name)
    while (pause := dice.expovariate(rate)) < until - time.monotonic():
        time.sleep(pause)
        given = http.InferInput("x", [1, wide], "FP32")
        given.set_data_from_numpy(np.ones((1, wide), np.float32))
        client.infer(name, [given])


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        make(Path(place))
        command = [sys.executable, "-m", "wakeful", "serve", "--models-dir", place, "--port", "0", "--no-grpc", "--cache-dir", f"{place}/cache"]
        daemon = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            assert daemon.stderr
            address = next(found[1] for line in daemon.stderr if (found := re.search(r"ready +http://([\d.:]+)", line)))
            threading.Thread(target=daemon.stderr.read, daemon=True).start()
            until = time.monotonic() + SECONDS
            callers = [threading.Thread(target=call, args=(address, name, until), daemon=True) for name in MODELS]
            for caller in callers:
                caller.start()
            time.sleep(SECONDS - 15)
            OUT.parent.mkdir(exist_ok=True)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
                page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
                page.goto(f"http://{address}/ui/")
                time.sleep(8)
                page.screenshot(path=OUT)
                browser.close()
            for caller in callers:
                caller.join()
        finally:
            daemon.terminate()
            daemon.wait(30)


if __name__ == "__main__":
    main()
