"""A day of a cluster in minutes: the real planner against modelled traffic, daemons, gateways and API server, on a clock of its own.

`python -m tests.cluster.simulation --hours 24 --seeds 10` is the long run; `test_simulation` has a short one.
"""
