"""Predictions of a model trained from an NLP recipe: `-c RECIPE [--text … | --input FILE]`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from paddle_amp_plugin.cli.tools import main

if __name__ == "__main__":
    sys.exit(main("predict", sys.argv[1:], __file__))
