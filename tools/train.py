"""PaddleOCR's tools/train.py, with mixed precision from the config's `amp` key.

Takes PaddleOCR's own arguments, plus `--paddleocr DIR` (where PaddleOCR is);
or those of an NLP recipe: `-c RECIPE -o key=value`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from paddle_amp_plugin.cli.tools import main

if __name__ == "__main__":
    sys.exit(main("train", sys.argv[1:], __file__))
