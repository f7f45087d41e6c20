"""Does `berth replay` find a real ledger as it was decided, and name what was changed since?"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from services import bootstrap
from services.bootstrap import Place
from services.ports.history import Unreadable
from services.replay.replay import CannotReplay, Outcome, Progress
from services.replay.tape import LogTooShort
from tests.integration.api_world import client_of, fresh_database, query, work_off
from tests.integration.waves import wave


@pytest_asyncio.fixture
async def place(embedded_dsn: str) -> AsyncIterator[Place]:
    """Return a ledger and a log with three waves, each worked off by a worker of its own."""
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 2)
        async with client_of(place) as client:
            for number in range(3):
                answer = await client.post("/v1/events", json=wave(number))
                assert answer.status_code == 202, answer.text
                await work_off(place)
        yield place


async def replay(place: Place, first: int | None = None, last: int | None = None) -> Outcome:
    async def report(progress: Progress) -> None:
        pass

    return await bootstrap.replay(place, first, last, report)


async def test_a_real_ledger_is_replayed_and_what_was_changed_is_named(place: Place) -> None:
    sound = await replay(place)
    assert sound.difference is None
    assert (sound.progress.checkpoint, sound.progress.restarts_count) == (0, 3)
    decided = (await query(place, "SELECT count(*) FROM decisions"))[0][0]
    assert sound.progress.decisions_count == decided
    last = sound.progress.last
    assert (await replay(place, 2, 2)).progress.batches_count == 2

    await query(place, "UPDATE journal SET decisions_hash = '' WHERE batch = $1", last)
    found = (await replay(place)).difference
    assert found is not None
    assert (found.batch, "the journal's row was changed" in found.what) == (last, True)

    seeded = "(start::jsonb || '{\"seed\": 8}')::json"
    await query(place, f"UPDATE journal SET start = {seeded} WHERE start IS NOT NULL")
    found = (await replay(place)).difference
    assert found is not None
    assert "for pod default/p" in found.what
    assert found.recorded != found.replayed


async def test_what_somebody_changed_by_hand_is_named(place: Place) -> None:
    await query(place, "UPDATE decisions SET payload = payload || ' ' WHERE shard = 0 AND seq = 2")
    found = (await replay(place)).difference
    assert found is not None
    assert found.what.startswith("the decision 0-2 for pod default/")
    assert found.what.endswith("it was changed in the ledger")
    await query(place, "UPDATE decisions SET payload = rtrim(convert_from(payload, 'UTF8'))::bytea")
    assert (await replay(place)).difference is None
    await query(place, "DELETE FROM journal WHERE batch = (SELECT max(batch) FROM journal)")
    with pytest.raises(CannotReplay, match="the journal has no row of batch"):
        await replay(place)
    await query(place, "UPDATE journal SET lanes = '[[0]]' WHERE batch = 2")
    with pytest.raises(Unreadable, match="the journal's row of batch 2 cannot be read, so it was changed"):
        await replay(place)
    await query(place, "UPDATE checkpoints SET parts_count = 9")
    with pytest.raises(Unreadable, match=r"the checkpoint after batch 0 .* it has 0 parts instead of 9"):
        await replay(place)
    await query(place, "UPDATE checkpoints SET head = '{}'")
    with pytest.raises(Unreadable, match="the checkpoint after batch 0 cannot be read"):
        await replay(place)


async def test_what_is_missing_is_named(place: Place) -> None:
    for span in ((10_000, None), (3, 2), (None, 10_000)):
        with pytest.raises(CannotReplay, match=r"there are no batches from \d+ to \d+; the journal ends at"):
            await replay(place, *span)
    await query(place, "UPDATE journal SET batch = 1000000 WHERE batch = 2")
    with pytest.raises(CannotReplay, match="the journal has no row of batch 2"):
        await replay(place)
    await query(place, "UPDATE journal SET batch = 2 WHERE batch = 1000000")
    (at,) = await query(
        place,
        "DELETE FROM log_records WHERE ctid = (SELECT ctid FROM log_records WHERE topic = 'berth.pods' "
        "AND log_offset = 3 LIMIT 1) RETURNING partition",
    )
    with pytest.raises(
        LogTooShort, match=rf"batch \d+ took .* berth.pods/{at['partition']} .* the log has \d of them now"
    ):
        await replay(place)
    await query(place, "UPDATE log_topics SET first_offset = 1 WHERE topic = 'berth.nodes'")
    with pytest.raises(CannotReplay, match=r"berth.nodes/\d begins at offset 1 by now; no other batch can"):
        await replay(place)
    await query(place, "DELETE FROM checkpoints")
    with pytest.raises(CannotReplay, match="there is no checkpoint"):
        await replay(place)
