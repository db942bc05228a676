"""Writes `model.joblib` beside this file, or into the directory that is named: python train.py [DIRECTORY]"""

import sys
from pathlib import Path

import joblib
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
iris = load_iris()
pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(iris.data.astype("f4"), iris.target_names[iris.target])
joblib.dump(pipeline, directory / "model.joblib")
print(f"wrote {directory / 'model.joblib'}")
