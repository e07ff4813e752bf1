"""Every marked transcript of every page, run again (see ``docs_site/transcripts.py``)."""

from __future__ import annotations

from collections import defaultdict

import pytest

from docs_site import transcripts

ALL = transcripts.everywhere()


@pytest.mark.parametrize("transcript", ALL, ids=lambda t: f"{t.page.parent.name}-{t.page.stem}-{t.name}")
def test_transcript(transcript):
    for command, shown, now in transcripts.run(transcript):
        assert transcripts.same(shown, now), f"{transcript.page}, $ {command}\n--- shown\n{shown}\n--- now\n{now}"


def test_both_languages_have_the_same():
    found = defaultdict(list)
    for transcript in ALL:
        commands = [command for command, _ in transcript.steps()]
        found[transcript.language].append((transcript.page.stem.removesuffix("_zh"), transcript.name, commands))
    assert found["en"] == found["zh"] and len(found["en"]) >= 4
