"""The agent: a task of the daemon in a pod. It tells the controller what its models do, and loads what the controller wants. It has no API rights."""
