"""Doubles numbers, and holds 64 MiB for it."""

import numpy as np


class Model:
    signature = {"inputs": {"x": ("FP32", ["N", 4])}, "outputs": {"y": ("FP32", ["N", 4])}}  # noqa: RUF012 - nobody changes it

    def load(self, model_dir, device):
        self.weights = np.ones(64 * 1024 * 1024, np.uint8)

    def predict(self, inputs):
        return {"y": 2 * inputs["x"]}
