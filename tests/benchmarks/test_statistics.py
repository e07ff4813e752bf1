"""The statistics on numbers whose answer is known, the order of the runs, and what becomes of a result."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import tables
from benchmarks.pairs import Spread, Times, alternate, ratios, row, spread
from tests.hosts.tiny import ROOT


def test_spread_of_known_numbers():
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == Spread(3.0, 2.0, 4.0)
    assert spread([4.0, 1.0, 3.0, 2.0]) == Spread(2.5, 1.75, 3.25)
    assert spread([7.0]) == Spread(7.0, 7.0, 7.0)


def test_spread_is_numpys():
    values = np.random.default_rng(0).normal(size=31).tolist()
    low, middle, high = np.percentile(values, [25, 50, 75])
    found = spread(values)
    assert (found.median, found.low, found.high) == pytest.approx((middle, low, high), rel=1e-12)


def test_ratios_are_of_pairs():
    """A load that doubles both times of a pair changes no ratio; the ratio of the medians it would change."""
    pairs = [(1.0, 1.1), (2.0, 2.2), (4.0, 4.4), (1.0, 1.1)]
    assert spread(ratios(pairs)).median == pytest.approx(1.1, rel=1e-12)


def test_the_sides_take_turns():
    order, ticks = [], []
    times = alternate(
        lambda: order.append("A"), lambda: order.append("B"), repeats=4, warm_up=2, tick=lambda: ticks.append(1)
    )
    assert "".join(order) in ("BAABBAABBAAB", "ABBAABBAABBA")
    assert len(times.wall) == len(times.cpu) == len(ticks) == 4  # the warm-up is not counted


def test_what_a_side_needs_comes_before_it():
    order = []
    before = (lambda: order.append("a"), lambda: order.append("b"))
    times = alternate(lambda: order.append("A"), lambda: order.append("B"), repeats=2, warm_up=0, before=before)
    assert "".join(order) == "bBaAaAbB" and len(times.cpu) == 2


def test_the_sides_are_not_exchanged():
    def burn(rounds):
        return lambda: sum(range(rounds))

    times = alternate(burn(1000), burn(300_000), repeats=3, warm_up=0)
    assert all(second > first for first, second in times.wall)


def test_a_row():
    times = Times(wall=((1.0, 3.0), (1.0, 5.0)), cpu=((0.5, 1.0), (0.5, 1.0)))
    found = row("overhead", "X", ("a", "b"), times, by="cpu", goal=1.01)
    assert found["ratio"] == {"median": 2.0, "q1": 2.0, "q3": 2.0}
    assert found["wall_ratio"] == {"median": 4.0, "q1": 3.5, "q3": 4.5}
    assert found["seconds"] == [0.5, 1.0] and found["repeats"] == 2 and found["goal"] == 1.01
    assert row("x", "X", ("a", "b"), times, by="wall")["ratio"]["median"] == 4.0


MACHINE = {
    "date": "2025-01-02",
    "cpu": "A CPU",
    "cores": 2,
    "paddle": "3.3.1",
    "python": "3.11.7",
    "threads": {"OMP_NUM_THREADS": "1"},
    "load": [0.5, 0.4, 0.3],
}
ROWS = [
    {
        "benchmark": "overhead",
        "case": "SVTR",
        "repeats": 20,
        "ratio": {"median": 1.0042, "q1": 0.999, "q3": 1.0071},
        "seconds": [0.2, 0.201],
        "goal": 1.01,
    },
    {
        "benchmark": "half",
        "case": "DB O1 float16",
        "repeats": 20,
        "ratio": {"median": 0.5, "q1": 0.4, "q3": 0.6},
        "seconds": [0.2, 0.1],
        "samples_per_second": [20.0, 40.4],
        "peak_mib": [512.2, 300.0],
    },
    {
        "benchmark": "imports",
        "case": "import x",
        "repeats": 5,
        "milliseconds": {"median": 1.234, "q1": 1.1, "q3": 1.5},
        "goal": 5.0,
    },
]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_markdown(language):
    text = tables.markdown({"machine": MACHINE, "rows": ROWS}, language)
    assert "| SVTR | 1.004 | 0.999 – 1.007 | ≤ 1.01 | 0.200 | 20 |" in text
    assert "| DB O1 float16 | 0.500 | 0.400 – 0.600 | – | 0.200 | 20 | 20 → 40 | 512 → 300 |" in text
    assert "| import x | 1.23 | 1.10 – 1.50 | ≤ 5 | 5 |" in text
    assert text.startswith("2025-01-02") and "A CPU × 2" in text and "OMP_NUM_THREADS=1" in text
    assert all(line.count("|") == 7 for line in text.split("\n\n")[2].splitlines())


def test_into_the_docs(tmp_path):
    page = tmp_path / "p.md"
    page.write_text(f"before\n{tables.BEGIN}\nold\n{tables.END}\nafter\n")
    tables.into(page, "new")
    tables.into(page, "newer")
    assert page.read_text() == f"before\n{tables.BEGIN}\nnewer\n{tables.END}\nafter\n"
    page.write_text("no markers")
    with pytest.raises(ValueError):
        tables.into(page, "x")
    assert page.read_text() == "no markers"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_docs_name_every_benchmark(language):
    page = (ROOT / "docs" / language / "benchmarks.md").read_text(encoding="utf-8")
    assert page.index(tables.BEGIN) < page.index(tables.END)
    assert all(f"`{name}`" in page for name in tables.TITLES)
