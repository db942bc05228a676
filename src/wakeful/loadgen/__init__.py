"""The load generator: arrivals that do not wait for the server, measured from the moment at which they were due."""
