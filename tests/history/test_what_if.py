"""Does a lived span go as it went where nothing is different, and does a difference show where one is?"""

from __future__ import annotations

import asyncio

import pytest

from domain.manifests.objects import node_from_manifest
from domain.model.profiles import BUILT_IN_PROFILES
from services.adapters.memory.history import ScratchLedger
from services.cli.what_if import rows
from services.replay.what_if import Change, Compared, WhatIf
from services.replay.workers import CannotReplay
from tests.builders import node_manifest
from tests.history.day import past, read, silent
from tests.history.lived import openb_day


def what_if(change: Change, first: int | None = None, last: int | None = None) -> Compared:
    async def run() -> Compared:
        return await WhatIf(*await past(read()), ScratchLedger, silent).run(change, first, last)

    return asyncio.run(run())


def test_under_what_was_in_force_nothing_differs() -> None:
    """Through four workers' lives, changes of profiles, nodes that come and go."""
    found = what_if(Change())
    assert (found.unlike_count, found.moved_count) == (0, 0)
    assert found.was == found.would
    assert found.decisions_count > 200
    assert found.was.placed_count > 100


def test_another_profile_packs_the_pods_of_the_day() -> None:
    found = what_if(Change(BUILT_IN_PROFILES["most-allocated"]))
    assert found.unlike_count == 0, "the span as it was is not touched"
    assert found.moved_count > 50
    assert found.would.deviation_percent["cpu"] > found.was.deviation_percent["cpu"] + 10
    assert found.was == what_if(Change()).was
    assert [row["what"] for row in rows(found)][:2] == ["pods placed", "pods waiting at the end"]


def test_further_nodes_take_what_waited() -> None:
    big = [node_from_manifest(node_manifest(f"more-{n}", cpu=64, labels={"zone": n})) for n in "xyz"]
    found = what_if(Change(nodes=big))
    assert found.was.waiting_count > found.would.waiting_count
    assert found.would.placed_count > found.was.placed_count
    assert found.would.wait_p50_ms < found.was.wait_p50_ms


def test_a_span_ends_where_it_is_told_to() -> None:
    whole, part = what_if(Change()), what_if(Change(), None, 40)
    assert 0 < part.batches_count < whole.batches_count
    assert part.unlike_count == 0
    with pytest.raises(CannotReplay):
        what_if(Change(), 2, 1)


def test_a_change_takes_effect_when_the_span_begins() -> None:
    late = what_if(Change(BUILT_IN_PROFILES["most-allocated"]), 90)
    whole = what_if(Change(BUILT_IN_PROFILES["most-allocated"]))
    assert late.batches_count == whole.batches_count, "from the checkpoint before it on"
    assert 0 < late.moved_count < whole.moved_count
    assert 0 < late.was.placed_count < whole.was.placed_count
    assert late.unlike_count == 0
    assert what_if(Change(), 90).moved_count == 0


def test_devices_that_no_waiting_pod_can_use_are_stranded() -> None:
    async def run() -> Compared:
        day = await openb_day(400, 4)
        return await WhatIf(day.history, day.log, ScratchLedger, silent).run(
            Change(BUILT_IN_PROFILES["first-fit"]), 1, None
        )

    found = asyncio.run(run())
    assert found.unlike_count == 0
    assert (found.was.waiting_count, found.was.devices_stranded) == (0, 0.0)
    assert found.was.devices_free == pytest.approx(found.would.devices_free) != 0
