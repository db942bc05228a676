"""The cluster part: Models and Servers on Kubernetes. docs/cluster.md is its guide, docs/tour.md tells where what is.

`planning` decides, and is pure; `controller`, `agent` and `gateway` are the three programs that feed it and carry out what it says.
"""
