"""A classifier of texts from Hugging Face's Transformers, with its tokenizer: this directory, with a directory `model` that `save_pretrained` wrote
for both, is a model for Wakeful. Processes with models have no network, so nothing is downloaded when it wakes."""

import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

LONGEST = 512


class InvalidInput(ValueError):
    """By this name the caller is told that it is at fault."""


class Model:
    signature = {  # noqa: RUF012 - nobody changes it
        "inputs": {"text": ("BYTES", ["N"])},
        "outputs": {"label": ("BYTES", ["N"]), "score": ("FP32", ["N"])},
    }

    def load(self, model_dir, device):
        self.device = torch.device(device)
        self.tokenizer = AutoTokenizer.from_pretrained(Path(model_dir) / "model")
        self.network = AutoModelForSequenceClassification.from_pretrained(Path(model_dir) / "model").to(self.device).eval()

    def predict(self, inputs):
        try:
            texts = [text.decode() for text in inputs["text"]]
        except UnicodeDecodeError as error:
            raise InvalidInput(f"text must be UTF-8: {error.reason}") from error
        tokens = self.tokenizer(texts, padding=True, truncation=True, max_length=LONGEST, return_tensors="pt").to(self.device)
        with torch.inference_mode():
            probabilities = self.network(**tokens).logits.softmax(dim=1).cpu()
        best = probabilities.max(dim=1)
        return {"label": [self.network.config.id2label[int(index)] for index in best.indices], "score": best.values.numpy()}
