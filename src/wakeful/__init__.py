"""Wakeful: a server for machine-learning models that sleep until a request wakes them."""

__version__ = "0.1.0"
