"""What the controller decides, as functions of (world, now, limits): no clock, no socket, no API server. `world` has the words they speak."""
