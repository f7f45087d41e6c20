"""Are the figures of a window those of its samples, in whatever order and however often they come?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.model.limits import usage_samples_max
from domain.model.usage import Measured, NodeUsage, UsageRecord
from domain.state.usage import UsageWindows
from tests.depth import examples

usage_settings = settings(deadline=None, max_examples=examples(100))
DAY_MS = 86_400_000
RESOURCES = ("cpu", "memory", "network")

samples = st.dictionaries(
    st.one_of(st.integers(0, 40_000), st.integers(0, 3 * DAY_MS)),
    st.dictionaries(st.sampled_from(RESOURCES), st.floats(0, 200), min_size=1),
    min_size=1,
    max_size=60,
)


def plain(found: dict[int, dict[str, float]], window_ms: int) -> dict[str, Measured]:
    """Compute the figures in the plainest way: the oracle."""
    latest = max(found)
    span_ms = math.ceil(window_ms / (usage_samples_max - 1))
    figures = {}
    for resource in RESOURCES:
        series = {at: values[resource] for at, values in found.items() if resource in values}
        spans = {at // span_ms: at for at in sorted(series)}
        kept = [series[at] for at in sorted(spans.values()) if at > latest - window_ms]
        today = latest // DAY_MS
        peaks = [value for at, value in series.items() if at // DAY_MS == today - 1]
        recent = [at for at in series if at // DAY_MS >= today - 1]
        if not kept and not recent:
            continue
        mean = sum(kept) / len(kept) if kept else None
        figures[resource] = Measured(
            avg=mean,
            std=math.sqrt(sum((value - mean) ** 2 for value in kept) / len(kept))
            if mean is not None
            else None,
            latest=kept[-1] if kept else None,
            peak=max(peaks) if peaks else None,
        )
    return figures


def fold(windows: UsageWindows, at_ms: int, percent: dict[str, float]) -> None:
    windows.fold(NodeUsage(node="n", at_ms=at_ms, percent=percent), None)


def same(one: Mapping[str, Measured], other: Mapping[str, Measured]) -> bool:
    """Compare up to the last bits of a sum, in which the oracle is less exact."""
    return one.keys() == other.keys() and all(
        msgspec.to_builtins(one[name]) == pytest.approx(msgspec.to_builtins(other[name]), abs=1e-6)
        for name in one
    )


@usage_settings
@given(samples, st.integers(10, 100), st.randoms(use_true_random=False))
def test_the_figures_are_those_of_the_samples_in_any_order(
    found: dict[int, dict[str, float]], seconds: int, random: Random
) -> None:
    windows, order = UsageWindows(seconds), list(found)
    random.shuffle(order)
    for at_ms in order + random.choices(order, k=3):
        fold(windows, at_ms, found[at_ms])
    assert same(windows.measured["n"], plain(found, seconds * 1000))


@usage_settings
@given(samples, st.integers(10, 100), st.integers(0, 60))
def test_a_restart_in_the_middle_changes_no_bit(
    found: dict[int, dict[str, float]], seconds: int, cut: int
) -> None:
    whole, first, second = UsageWindows(seconds), UsageWindows(seconds), UsageWindows(seconds)
    for i, (at_ms, percent) in enumerate(found.items()):
        if i == cut:
            stored = msgspec.json.encode([w.record(n) for n, w in first.windows.items()])
            for record in msgspec.json.decode(stored, type=list[UsageRecord]):
                second.restore(record, known=False)
        fold(whole, at_ms, percent)
        fold(first if i < cut else second, at_ms, percent)
    last = second if cut < len(found) else first
    assert last.measured == whole.measured
    assert last.known() == whole.known()


@usage_settings
@given(st.integers(0, 1 << 32), st.integers(10, 3_600))
def test_a_window_is_bounded(seed: int, seconds: int) -> None:
    random, windows, at_ms = Random(seed), UsageWindows(seconds), 0
    for _ in range(400):
        at_ms += random.randrange(1, 20_000)
        fold(windows, at_ms, {"cpu": random.uniform(0, 100)})
    series = windows.windows["n"].series["cpu"]
    assert len(series.at_ms) <= usage_samples_max
    assert list(series.at_ms) == sorted(series.at_ms)
    assert series.at_ms[0] > at_ms - seconds * 1000
