"""The report of a run: one page that says what AMP did, in charts and in words."""

from paddle_amp_plugin.report.build import Finding, LayerRange, RunData, load_run
from paddle_amp_plugin.report.page import render

__all__ = ["Finding", "LayerRange", "RunData", "load_run", "render"]
