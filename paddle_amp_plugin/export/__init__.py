"""FP32 masters as an inference model: written, read back, compared, and only then kept.

``weights``: the checkpoint and what it may hold; ``exported``: an inference model run and read back; ``compare``:
outputs and parameters side by side; ``onnx_model``: the same as ONNX; ``int8`` and ``qat``: from the FP32 export to 8
bits; ``folder`` and ``record``: the output folder, whole or not at all, and its ``export.json``; ``pipeline``: all of
it in order. What a host has to do with it is in ``hosts/``.
"""
