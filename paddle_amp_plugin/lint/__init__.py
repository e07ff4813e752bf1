"""``paddle-amp lint``: what breaks ``paddle.amp`` in model and training code, found in its syntax tree.

Nothing is imported or run, Paddle neither. Codes: AMP100 to AMP199 for findings, AMP280 for the arguments, AMP281 to
AMP284 for files that cannot be linted. A rule is a ``Rule`` (words and examples) and a check in ``rules/``.
"""

from paddle_amp_plugin.lint.engine import codes, files_of, lint_file, lint_files
from paddle_amp_plugin.lint.findings import Finding, Rule
from paddle_amp_plugin.lint.rules import RULES

__all__ = ["RULES", "Finding", "Rule", "codes", "files_of", "lint_file", "lint_files"]
