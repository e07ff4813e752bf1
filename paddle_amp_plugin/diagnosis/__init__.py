"""Who overflowed, who will, and what to write in the YAML.

``LayerWatch`` is armed for one step; ``diagnose`` makes a ``Diagnosis`` of it; ``cause``, ``yaml_of`` and
``write_diagnosis`` put it into words and into a file; ``range_probe`` looks before any training.
"""

from paddle_amp_plugin.diagnosis.overflow import Diagnosis, diagnose
from paddle_amp_plugin.diagnosis.ranges import LayerRange, RangeReport, range_probe
from paddle_amp_plugin.diagnosis.replay import Batch, Replayed, Subject, replay
from paddle_amp_plugin.diagnosis.suspects import Pin
from paddle_amp_plugin.diagnosis.verdict import cause, read_diagnosis, says, write_diagnosis, yaml_of
from paddle_amp_plugin.diagnosis.watch import LayerWatch

__all__ = [
    "Batch",
    "Diagnosis",
    "LayerRange",
    "LayerWatch",
    "Pin",
    "RangeReport",
    "Replayed",
    "Subject",
    "cause",
    "diagnose",
    "range_probe",
    "read_diagnosis",
    "replay",
    "says",
    "write_diagnosis",
    "yaml_of",
]
