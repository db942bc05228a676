"""A scikit-learn model as it was trained, texts and all: this directory, with the `model.joblib` that `train.py` writes, is a model for Wakeful."""

from pathlib import Path

import joblib
import numpy as np


class Model:
    signature = {  # noqa: RUF012 - nobody changes it
        "inputs": {"measures": ("FP32", ["N", 4])},
        "outputs": {"species": ("BYTES", ["N"]), "probability": ("FP32", ["N"])},
    }

    def load(self, model_dir, device):
        self.pipeline = joblib.load(Path(model_dir) / "model.joblib")

    def predict(self, inputs):
        probabilities = self.pipeline.predict_proba(inputs["measures"])
        return {"species": self.pipeline.classes_[probabilities.argmax(1)], "probability": probabilities.max(1).astype(np.float32)}
