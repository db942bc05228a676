"""Manifests in, specs out: our own resources, and Seldon's."""
