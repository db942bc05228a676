"""The scenarios of the cluster's design, each with its pass criterion: `make test-cluster`, or this folder named to pytest."""
