"""The controller: operator and scheduler in one. It watches the API server, hears agents, plans, and tells agents and gateways."""
