"""One warm process: it has imported ONNX Runtime and forks for every line that it reads. Run as `python -m bench.warm MODEL` by `bench.asleep`.

The first line has the inputs; each further one asks for a stock session, and is answered with the seconds to create it, the seconds that its first
answer took, and the bytes that are its own.
"""

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

Feeds = dict[str, np.ndarray[Any, Any]]


def stock(model: str, feeds: Feeds) -> tuple[float, float, int]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    began = time.perf_counter()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    created = time.perf_counter()
    session.run(None, feeds)
    return created - began, time.perf_counter() - created, _private_bytes()


def _private_bytes() -> int:
    for line in Path("/proc/self/smaps_rollup").read_text("ascii").splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) * 1024
    return 0


def main() -> None:
    model = sys.argv[1]
    inputs = json.loads(sys.stdin.readline())
    feeds = {name: np.frombuffer(bytes.fromhex(data), dtype).reshape(shape) for name, dtype, shape, data in inputs}
    print("ready", flush=True)
    gc.freeze()
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            print(json.dumps(stock(model, feeds)), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
