"""What the hosts share about the settings of one run."""

from __future__ import annotations

from typing import Any


def settings_mapping(settings: Any) -> Any:
    """The ``amp`` value that stands for these settings in the config the host writes beside the weights."""
    if not settings.enabled:
        return False
    given = settings.model_fields_set - {"enabled", "sources", "notes"}
    # warnings: pydantic expects the tuples that it has itself turned into lists
    return settings.model_dump(mode="json", include=given, exclude_unset=True, warnings=False) or True
