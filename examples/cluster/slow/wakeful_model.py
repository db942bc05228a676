"""Doubles numbers, a fifth of a second for each run: little load is much for it."""

import time


class Model:
    signature = {"inputs": {"x": ("FP32", ["N", 4])}, "outputs": {"y": ("FP32", ["N", 4])}}  # noqa: RUF012 - nobody changes it

    def load(self, model_dir, device):
        pass

    def predict(self, inputs):
        time.sleep(0.2)
        return {"y": 2 * inputs["x"]}
