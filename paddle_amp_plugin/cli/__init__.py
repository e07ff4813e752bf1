"""``paddle-amp``: one file a verb. Nothing here imports Paddle before a verb needs it."""
