"""A short day on real servers breaks nothing, and one with a broken build is named."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor

import pytest

from tests.chaos.broken import BUILDS
from tests.chaos.day import Lived, Shape, live
from tests.chaos.weather import Strike

pytestmark = [pytest.mark.real, pytest.mark.deep]

_SHORT = Shape(seconds=15.0, quiet_seconds=2.0)


@pytest.fixture(scope="module")
def days() -> Iterator[Mapping[str, Future[Lived]]]:
    """Live a day of each build, side by side: most of a day its processes wait."""
    builds = ("sound", *BUILDS)
    with ProcessPoolExecutor(len(builds), multiprocessing.get_context("spawn")) as apart:
        yield {build: apart.submit(live, 0, _SHORT._replace(build=build)) for build in builds}


def test_a_day_on_real_servers_breaks_nothing(days: Mapping[str, Future[Lived]]) -> None:
    lived = days["sound"].result()
    assert lived.found == []
    done = (Strike.KILL, Strike.PAUSE, "decisions", "moments of the past compared")
    assert min(lived.counts[each] for each in done) > 0
    assert lived.counts["decisions read from streams"] > lived.counts["decisions"] // 2
    assert lived.counts["streams opened"] > 3


@pytest.mark.parametrize("build", BUILDS)
def test_a_broken_build_is_named(days: Mapping[str, Future[Lived]], build: str) -> None:
    lived = days[build].result()
    assert {name for name, _ in lived.found} & set(BUILDS[build].named), lived.found
