"""The recipes' data sets: made from installed packages, or read from files. Nothing here imports Paddle."""
