"""A short day on real servers breaks nothing, and one with a broken build is named."""

from __future__ import annotations

import pytest

from tests.chaos.broken import BUILDS
from tests.chaos.day import Shape, live
from tests.chaos.weather import Strike

pytestmark = pytest.mark.real

_SHORT = Shape(seconds=15.0, quiet_seconds=2.0)


def test_a_day_on_real_servers_breaks_nothing() -> None:
    lived = live(0, _SHORT)
    assert lived.found == []
    assert min(lived.counts[each] for each in (Strike.KILL, Strike.PAUSE, "decisions")) > 0


@pytest.mark.parametrize("build", BUILDS)
def test_a_broken_build_is_named(build: str) -> None:
    lived = live(0, _SHORT._replace(build=build))
    assert {name for name, _ in lived.found} & set(BUILDS[build].named), lived.found
