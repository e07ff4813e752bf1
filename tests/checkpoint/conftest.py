"""A session that a test prepared and did not train with is closed after it."""

import pytest

from tests.checkpoint import small


@pytest.fixture(autouse=True)
def _sessions_are_closed():
    yield
    while small.STARTED:
        small.STARTED.pop().close()
