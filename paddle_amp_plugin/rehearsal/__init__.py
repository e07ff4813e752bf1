"""``paddle-amp rehearse``: a few steps of the user's own training in mixed precision, beside FP32, before the real one.

``record.py`` what was seen, as data; ``verdict.py`` what follows from it (both without Paddle); ``side.py`` one of the
two trainings; ``runner.py`` both of them; ``page.py`` the report.
"""
