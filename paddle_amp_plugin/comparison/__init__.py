"""``paddle-amp compare``: the same training in FP32 and in mixed precision, measured, and why it is (not) faster.

``record.py`` what was measured; ``verdict.py`` what follows from it (both without Paddle); ``child.py`` one training in
a process of its own; ``runner.py`` all of them, one after another; ``page.py`` the report.
"""
