"""Automatic mixed precision for PaddleOCR and PaddleNLP that is right, visible and recoverable.

Nothing heavy is imported here: no Paddle, no host.
"""

# Paddle 2.6.2's library exports the symbols of an old zlib. If it is loaded before Python's own zlib module,
# the first decompression in the process ends in a segmentation fault; so zlib comes before everything.
import zlib  # noqa: F401  isort: skip

__version__ = "0.1.0"

__all__ = ["__version__"]
