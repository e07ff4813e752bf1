"""``paddle-amp lint``."""
