"""How much memory a training takes, in FP32, at O1 and at O2, and the largest batch that fits."""
