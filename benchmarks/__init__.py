"""Side-by-side measurements: ratios within one run, since machines differ and are shared. ``python -m benchmarks``."""
