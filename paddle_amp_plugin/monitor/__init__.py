"""What a run did, step by step: events in; console, JSONL and VisualDL out.

``Monitor`` never stops a training: a writer that fails says one line and is off from there on.
Nothing here imports Paddle before a tensor is looked at, and VisualDL only when it is asked for.
"""

from paddle_amp_plugin.monitor.console import Verdict, judge
from paddle_amp_plugin.monitor.events import EventLog, StepEvent, read_events, read_log
from paddle_amp_plugin.monitor.gradients import global_grad_norm, zero_share
from paddle_amp_plugin.monitor.monitor import Monitor

__all__ = [
    "EventLog",
    "Monitor",
    "StepEvent",
    "Verdict",
    "global_grad_norm",
    "judge",
    "read_events",
    "read_log",
    "zero_share",
]
