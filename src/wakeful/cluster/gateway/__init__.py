"""The one entry point: Envoy, configured from here, and a helper for what Envoy cannot answer: unknown names, and models that wake from zero."""
