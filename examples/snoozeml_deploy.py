"""snoozeml_deploy.py URL: train a small scikit-learn model, deploy it with the SnoozeML SDK, and ask it."""

import sys

from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from snoozeml import SnoozeClient

rows, species = load_iris(return_X_y=True)
model = LogisticRegression(max_iter=500).fit(rows, species)
with SnoozeClient(sys.argv[1]) as client:
    deployed = client.models.deploy_sklearn(model, model_id="iris", sample_input=rows[:1], max_batch_size=32)
    answer = client.infer("iris", {"float_input": rows[:2].astype("float32")})
    print(deployed.id, deployed.max_batch_size, answer["output"].argmax(axis=1).tolist())
